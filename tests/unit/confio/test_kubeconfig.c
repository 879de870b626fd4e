/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "confio/kubeconfig.h"
#include "heap_mem.h"

#define CONTEXT                                                                                    \
    "current-context: here\ncontexts:\n- {name: there, context: {cluster: x}}\n"                   \
    "- name: here\n  context: {cluster: c, user: u, namespace: ai}\n"
#define CLUSTER(more) "clusters:\n- name: c\n  cluster: {server: \"https://k:6443\"" more "}\n"
#define USER(user)    "users:\n- name: u\n  user: {" user "}\n"

static int read_it(const char *text, struct kubeconfig *k, struct conf_errors *errors)
{
    static struct test_heap heap;
    static struct mem mem;

    heap = (struct test_heap){0};
    mem = test_heap_mem(&heap);
    memset(errors, 0, sizeof(*errors));
    return confio_kubeconfig_text(&mem, "/etc/k/config", slice_str(text), k, errors);
}

static void expect(struct slice got, const char *want)
{
    if (!want)
        assert_null(got.p);
    else
        assert_string_equal(got.p, want);
}

static void the_current_context_counts(void **state)
{
    static struct conf_errors errors;
    struct kubeconfig k;

    (void)state;
    assert_int_equal(
        read_it(CONTEXT CLUSTER(", tls-server-name: api, certificate-authority: ca.pem")
                    USER("client-certificate: /abs/me.pem, client-key: sub/me.key, token: ''"),
                &k, &errors),
        0);
    expect(k.server, "https://k:6443");
    expect(k.ns, "ai");
    expect(k.server_name, "api");
    expect(k.ca, "/etc/k/ca.pem");
    expect(k.cert, "/abs/me.pem");
    expect(k.key, "/etc/k/sub/me.key");
    expect(k.token, NULL);
    expect(k.ca_pem, NULL);
    assert_false(k.insecure);
    confio_kubeconfig_fini(&k);
}

static void data_beats_files_and_is_decoded(void **state)
{
    static struct conf_errors errors;
    struct kubeconfig k;

    (void)state;
    assert_int_equal(
        read_it(CONTEXT CLUSTER(", certificate-authority: x, insecure-skip-tls-verify: true, "
                                "certificate-authority-data: Y2E=")
                    USER("client-certificate-data: Y2VydA==, client-key-data: a2V5, "
                         "token: t, tokenFile: tok"),
                &k, &errors),
        0);
    expect(k.ca_pem, "ca");
    expect(k.ca, NULL);
    expect(k.cert_pem, "cert");
    expect(k.key_pem, "key");
    expect(k.token, "t");
    expect(k.token_file, "/etc/k/tok");
    assert_true(k.insecure);
    confio_kubeconfig_fini(&k);
}

static void refusals_name_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "/etc/k/config: is no kubeconfig"},
        {"[]", "/etc/k/config: is no kubeconfig"},
        {"a: 1\n", "/etc/k/config: current-context is missing"},
        {"current-context: ''\n", "/etc/k/config: current-context is missing"},
        {"current-context: x\n", "/etc/k/config: contexts: none is called \"x\""},
        {CONTEXT, "/etc/k/config: clusters: none is called \"c\""},
        {CONTEXT "clusters: [{name: c}]\n", "/etc/k/config:6:12: says nothing of c"},
        {CONTEXT "clusters: [{name: c, cluster: {server: k}}]\n",
         "/etc/k/config:6:22: server is missing, or no http or https URL"},
        {CONTEXT CLUSTER(", proxy-url: \"http://p\""),
         "/etc/k/config:8:39: proxies are not supported"},
        {CONTEXT CLUSTER(", certificate-authority-data: '*'"), "/etc/k/config:8:39: is no base64"},
        {CONTEXT CLUSTER(""), "/etc/k/config: users: none is called \"u\""},
        {CONTEXT CLUSTER("") USER("client-certificate: x"),
         "/etc/k/config:11:3: a client certificate and its key go together"},
        {CONTEXT CLUSTER("") USER("exec: {command: aws}"),
         "/etc/k/config:11:10: exec plugins are not run; give a token or a certificate, for "
         "example "
         "of a service account (kubectl create token)"},
        {CONTEXT CLUSTER("") USER("auth-provider: {name: gcp}"),
         "/etc/k/config:11:10: auth-provider plugins are not run; give a token or a certificate"},
        {CONTEXT CLUSTER("") USER("username: me, password: x"),
         "/etc/k/config:11:10: the API server takes no passwords; give a token or a certificate"},
        {CONTEXT CLUSTER("") USER("as: root"),
         "/etc/k/config:11:10: acting as somebody else is not supported"},
    };
    static struct conf_errors errors;
    struct kubeconfig k;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(read_it(cases[i].text, &k, &errors), WEIR_E_INVALID);
        assert_int_equal(errors.n, 1);
        assert_string_equal(errors.list[0].text, cases[i].error);
        confio_kubeconfig_fini(&k);
    }
}

static void a_server_without_users_is_fine(void **state)
{
    static struct conf_errors errors;
    struct kubeconfig k;

    (void)state;
    assert_int_equal(
        read_it("current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n" CLUSTER(""),
                &k, &errors),
        0);
    expect(k.ns, NULL);
    expect(k.token, NULL);
    confio_kubeconfig_fini(&k);
}

static void no_memory_is_an_error(void **state)
{
    static struct conf_errors errors;
    struct kubeconfig k;
    int rc = WEIR_E_NOMEM;

    (void)state;
    for (long i = 1; rc == WEIR_E_NOMEM; i++) {
        struct test_heap heap = {.fail_at = i};
        struct mem mem = test_heap_mem(&heap);
        memset(&errors, 0, sizeof(errors));
        rc = confio_kubeconfig_text(&mem, "k",
                                    SLICE(CONTEXT CLUSTER(", certificate-authority-data: Y2E=")
                                              USER("client-certificate-data: Y2VydA==, "
                                                   "client-key-data: a2V5, tokenFile: tok")),
                                    &k, &errors);
        confio_kubeconfig_fini(&k);
        assert_int_equal(heap.live, 0);
    }
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_current_context_counts),
        cmocka_unit_test(data_beats_files_and_is_decoded),
        cmocka_unit_test(refusals_name_what_is_wrong),
        cmocka_unit_test(a_server_without_users_is_fine),
        cmocka_unit_test(no_memory_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
