/* SPDX-License-Identifier: Apache-2.0 */
#include "confio/kubeconfig.h"

#include <string.h>

#include "base/base64.h"
#include "base/bug.h"
#include "confio/file.h"
#include "confio/nodes.h"

enum { ARENA_MAX = 4 * KUBECONFIG_FILE_MAX };

struct reader {
    struct kubeconfig *out;
    const struct confio_nodes *nodes;
    struct conf_errors *errors;
    struct slice file;
    const struct mem *mem;
};

static void wipe(struct slice s)
{
    if (s.p)
        explicit_bzero((void *)(uintptr_t)s.p, s.n);
}

/* --- nodes; index 0 is the root, which is nobody's child: 0 means "none" --- */

static uint32_t child(const struct reader *r, uint32_t parent, const char *key)
{
    const struct conf_node *list = r->nodes->list;

    if (list[parent].kind != CONF_NODE_MAP)
        return 0;
    for (uint32_t i = parent + 1; i < list[parent].end; i = list[i].end)
        if (slice_eq(list[i].key, slice_str(key)))
            return i;
    return 0;
}

static struct slice text(const struct reader *r, uint32_t parent, const char *key)
{
    uint32_t i = child(r, parent, key);
    const struct conf_node *n = &r->nodes->list[i];

    /* kubectl writes empty ones too. */
    return i && n->kind == CONF_NODE_SCALAR && n->text.n &&
                   (n->quoted ||
                    (!slice_eq(n->text, SLICE("null")) && !slice_eq(n->text, SLICE("~"))))
               ? n->text
               : (struct slice){NULL, 0};
}

static int fail(const struct reader *r, uint32_t node, const char *what, struct slice more)
{
    struct conf_place at = {.file = r->file};
    struct slice parts[] = {slice_str(what), more};

    if (node) {
        at.line = r->nodes->list[node].key_line;
        at.column = r->nodes->list[node].key_column;
    }
    conf_error_add(r->errors, &at, parts, ARRAY_LEN(parts));
    return WEIR_E_INVALID;
}

/* The map `what` of the entry of `list` that has this name. */
static int
named(const struct reader *r, const char *list, struct slice name, const char *what, uint32_t *out)
{
    const struct conf_node *nodes = r->nodes->list;
    uint32_t top = child(r, 0, list);

    if (top && nodes[top].kind == CONF_NODE_SEQ)
        for (uint32_t i = top + 1; i < nodes[top].end; i = nodes[i].end)
            if (slice_eq(text(r, i, "name"), name)) {
                *out = child(r, i, what);
                return *out ? 0 : fail(r, i, "says nothing of ", name);
            }
    struct slice parts[] = {slice_str(list), SLICE(": none is called \""), name, SLICE("\"")};
    struct conf_place at = {.file = r->file};
    conf_error_add(r->errors, &at, parts, ARRAY_LEN(parts));
    return WEIR_E_INVALID;
}

static int keep(const struct reader *r, struct slice from, struct slice *out)
{
    return from.p ? arena_slice(&r->out->arena, from, out) : 0;
}

static int keep_path(const struct reader *r, struct slice from, struct slice *out)
{
    const char *slash = memrchr(r->file.p, '/', r->file.n);
    size_t folder =
        from.p && from.n && from.p[0] != '/' && slash ? (size_t)(slash - r->file.p) + 1 : 0;

    if (!from.p)
        return 0;
    char *p = arena_alloc(&r->out->arena, folder + from.n + 1);
    if (!p)
        return WEIR_E_NOMEM;
    memcpy(p, r->file.p, folder);
    memcpy(p + folder, from.p, from.n);
    p[folder + from.n] = '\0';
    *out = slice_of(p, folder + from.n);
    return 0;
}

/* KEY-data, base64; else the path KEY. */
static int keep_pem(const struct reader *r,
                    uint32_t parent,
                    const char *data,
                    const char *path,
                    struct slice *pem,
                    struct slice *file)
{
    struct slice coded = text(r, parent, data);
    struct buf b;

    if (!coded.p)
        return keep_path(r, text(r, parent, path), file);
    buf_init(&b, r->mem, coded.n);
    int rc = buf_reserve(&b, coded.n) ? base64_read(coded, &b) : WEIR_E_NOMEM;
    if (rc == WEIR_E_INVALID)
        rc = fail(r, child(r, parent, data), "is no base64", slice_str(""));
    else if (rc == 0)
        rc = keep(r, buf_slice(&b), pem);
    if (b.p)
        explicit_bzero(b.p, b.cap);
    buf_fini(&b);
    return rc;
}

/* --- its parts --- */

static int read_cluster(const struct reader *r, uint32_t at)
{
    struct kubeconfig *k = r->out;

    if (text(r, at, "proxy-url").p)
        return fail(r, child(r, at, "proxy-url"), "proxies are not supported", slice_str(""));
    struct slice server = text(r, at, "server");
    if (!slice_starts(server, SLICE("https://")) && !slice_starts(server, SLICE("http://")))
        return fail(r, at, "server is missing, or no http or https URL", slice_str(""));
    k->insecure = slice_eq(text(r, at, "insecure-skip-tls-verify"), SLICE("true"));
    int rc = keep(r, server, &k->server);
    if (!rc)
        rc = keep(r, text(r, at, "tls-server-name"), &k->server_name);
    return rc ? rc
              : keep_pem(r, at, "certificate-authority-data", "certificate-authority", &k->ca_pem,
                         &k->ca);
}

static int read_user(const struct reader *r, uint32_t at)
{
    static const struct {
        const char *key, *why;
    } refused[] = {
        {"exec",
         "exec plugins are not run; give a token or a certificate, for example of a service "
         "account (kubectl create token)"},
        {"auth-provider", "auth-provider plugins are not run; give a token or a certificate"},
        {"username", "the API server takes no passwords; give a token or a certificate"},
        {"as", "acting as somebody else is not supported"},
    };
    struct kubeconfig *k = r->out;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        uint32_t node = child(r, at, refused[i].key);
        if (node &&
            (text(r, at, refused[i].key).p || r->nodes->list[node].kind != CONF_NODE_SCALAR))
            return fail(r, node, refused[i].why, slice_str(""));
    }
    int rc = keep(r, text(r, at, "token"), &k->token);
    if (!rc)
        rc = keep_path(r, text(r, at, "tokenFile"), &k->token_file);
    if (!rc)
        rc = keep_pem(r, at, "client-certificate-data", "client-certificate", &k->cert_pem,
                      &k->cert);
    if (!rc)
        rc = keep_pem(r, at, "client-key-data", "client-key", &k->key_pem, &k->key);
    if (!rc && !(k->cert.p || k->cert_pem.p) != !(k->key.p || k->key_pem.p))
        rc = fail(r, at, "a client certificate and its key go together", slice_str(""));
    return rc;
}

static int read_all(const struct reader *r)
{
    uint32_t context;
    uint32_t cluster;
    uint32_t user;

    if (r->nodes->n == 0 || r->nodes->list[0].kind != CONF_NODE_MAP)
        return fail(r, 0, "is no kubeconfig", slice_str(""));
    struct slice current = text(r, 0, "current-context");
    if (!current.p)
        return fail(r, 0, "current-context is missing", slice_str(""));
    int rc = named(r, "contexts", current, "context", &context);
    if (!rc)
        rc = keep(r, text(r, context, "namespace"), &r->out->ns);
    if (!rc)
        rc = named(r, "clusters", text(r, context, "cluster"), "cluster", &cluster);
    if (!rc)
        rc = read_cluster(r, cluster);
    /* A server that asks nobody who he is has no users. */
    if (!rc && text(r, context, "user").p)
        rc = named(r, "users", text(r, context, "user"), "user", &user);
    else
        return rc;
    return rc ? rc : read_user(r, user);
}

static void wipe_nodes(const struct confio_nodes *nodes)
{
    for (uint32_t i = 0; i < nodes->n; i++)
        if (slice_eq(nodes->list[i].key, SLICE("token")) ||
            slice_eq(nodes->list[i].key, SLICE("client-key-data")))
            wipe(nodes->list[i].text);
}

int confio_kubeconfig_text(const struct mem *mem,
                           const char *path,
                           struct slice text,
                           struct kubeconfig *out,
                           struct conf_errors *errors)
{
    struct confio_nodes nodes;
    struct reader r = {
        .out = out, .nodes = &nodes, .errors = errors, .file = slice_str(path), .mem = mem};

    *out = (struct kubeconfig){.server = {NULL, 0}};
    arena_init(&out->arena, mem, ARENA_MAX);
    confio_nodes_init(&nodes, mem);
    int rc = confio_yaml_parse(r.file, text, &nodes, errors);
    if (rc == 0)
        rc = read_all(&r);
    wipe_nodes(&nodes);
    confio_nodes_fini(&nodes);
    return rc;
}

int confio_kubeconfig(const struct mem *mem,
                      const char *path,
                      struct kubeconfig *out,
                      struct conf_errors *errors)
{
    struct conf_place at = {.file = slice_str(path)};
    struct buf text;

    *out = (struct kubeconfig){.server = {NULL, 0}};
    arena_init(&out->arena, mem, ARENA_MAX);
    buf_init(&text, mem, KUBECONFIG_FILE_MAX);
    int rc = confio_read_file(path, &text, &at, errors);
    if (rc == 0)
        rc = confio_kubeconfig_text(mem, path, buf_slice(&text), out, errors);
    if (text.p)
        explicit_bzero(text.p, text.cap);
    buf_fini(&text);
    return rc;
}

void confio_kubeconfig_fini(struct kubeconfig *k)
{
    wipe(k->token);
    wipe(k->key_pem);
    arena_fini(&k->arena);
    *k = (struct kubeconfig){.server = {NULL, 0}};
}
