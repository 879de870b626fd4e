/* SPDX-License-Identifier: Apache-2.0 */
/* Every class of error with its exact text: people read these when something is on fire. */
#include "unit/confio/load.h"

#include "base/bug.h"

struct error_case {
    const char *text, *errors;
};

static void expect_all(const struct error_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect_errors(cases[i].text, cases[i].errors);
}

static void keys(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"routes:\n- polcy: chain\n",
         "w.yaml:2:3: unknown key \"polcy\" in routes[0]; did you mean \"policy\"?\n"},
        {"lisners: []\n",
         "w.yaml:1:1: unknown key \"lisners\" at the top level; did you mean \"listeners\"?\n"},
        {"admin: {colour: red}\n",
         "w.yaml:1:9: unknown key \"colour\" in admin; known are address, token, insecure, tls\n"},
        {"threads: 1\nhealth: {}\nthreads: 2\n",
         "w.yaml:3:1: threads: is given twice; first in line 1\n"},
        {"models:\n  a: {}\n  b: {}\n  a: {}\n",
         "w.yaml:4:3: models.a: is given twice; first in line 2\n"},
        {"gpu_weights: {A100: 1, a100: 2}\n",
         "w.yaml:1:24: gpu_weights.a100: is given twice; first in line 1\n"},
        {"autoscale: {}\n",
         "w.yaml:1:1: autoscale: is not supported yet in this version; leave it out\n"},
        {"tenants: {a: {keys: x}}\n", "w.yaml:1:15: tenants.a.keys: is not supported yet in this "
                                      "version; leave it out\n"},
        {"tenants: {a: {weight: 0}}\n", "w.yaml:1:23: tenants.a.weight: \"0\" is too small; the "
                                        "least is 0.01\n"},
        {"tenants: {a: {limits: {tokens_per_minut: 5}}}\n",
         "w.yaml:1:24: unknown key \"tokens_per_minut\" in tenants.a.limits; did you mean "
         "\"tokens_per_minute\"?\n"},
        {"tenants: {other: {}}\n", "w.yaml:1:11: tenants.other: is what metrics call all tenants "
                                   "that are not listed; give it another name\n"},
        {"tenants: {a: {wieght: 2}}\n",
         "w.yaml:1:15: unknown key \"wieght\" in tenants.a; did you mean \"weight\"?\n"},
        {"listeners: [{tls: {cert: 'file:x'}}]\n",
         "w.yaml:1:19: listeners[0].tls.key: is missing\n"},
        {"listeners: [{tls: {cert: x, key: 'file:k'}}]\n",
         "w.yaml:1:26: listeners[0].tls.cert: \"x\" is not a file; write file:PATH\n"},
        {"listeners: [{address: 'unix:x'}]\n", "w.yaml:1:23: listeners[0].address: \"unix:x\": "
                                               "write unix: and an absolute path of at most 107 "
                                               "bytes, without spaces\n"},
        {"listeners: [{address: 'systemd:'}]\n", "w.yaml:1:23: listeners[0].address: \"systemd:\": "
                                                 "write systemd: and the FileDescriptorName= of "
                                                 "the socket unit\n"},
        {"listeners: [{socket_mode: '99'}]\n",
         "w.yaml:1:27: listeners[0].socket_mode: must be octal, from 0000 to 0777, in quotes\n"},
        {"listeners: [{socket_mode: '0600', socket_group: www}]\n",
         "w.yaml:1:27: listeners[0].socket_mode: only files of Unix sockets have it: address: "
         "unix:PATH\n"
         "w.yaml:1:49: listeners[0].socket_group: only files of Unix sockets have it: address: "
         "unix:PATH\n"},
        {"admin: {tls: {cert: 'file:a', key: 'file:b', client_cert: required}}\n",
         "w.yaml:1:59: admin.tls.client_cert: does nothing without client_ca, which says whose "
         "certificates are good\n"},
        {"listeners: [{address: 'unix:/a'}, {address: 'unix:/a'}]\n",
         "w.yaml:1:45: listeners[1].address: is taken already by a listener\n"},
        {"admin: {address: 'unix:/a'}\n",
         "w.yaml:1:18: admin.address: must be host:port; other sockets are for listeners\n"},
        {"upstream_tls: {cert: 'file:x'}\n",
         "w.yaml:1:15: upstream_tls.key: is missing: a certificate and its key go together\n"},
        {"discovery: [{type: static, endpoints: [{weight: 1}]}]\n",
         "w.yaml:1:40: discovery[0].endpoints[0].url: is missing\n"},
        {"discovery: [{}]\n", "w.yaml:1:13: discovery[0].type: is missing\n"},
        {"models: {'': {}}\n", "w.yaml:1:10: models: a name must not be empty\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void kinds(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"- a\n", "w.yaml:1:1: the file must be a map of keys, not a list\n"},
        {"text\n", "w.yaml:1:1: the file must be a map of keys, not a single value\n"},
        {"routes: {}\n", "w.yaml:1:9: routes: must be a list, not a map\n"},
        {"routes: x\n", "w.yaml:1:9: routes: must be a list, not a single value\n"},
        {"routes: [x]\n", "w.yaml:1:10: routes[0]: must be a map, not a single value\n"},
        {"routes:\n-\n", "w.yaml:2:2: routes[0]: must be a map, not nothing\n"},
        {"limits: [1]\n", "w.yaml:1:9: limits: must be a map, not a list\n"},
        {"threads: [1]\n", "w.yaml:1:10: threads: must be a single value, not a list\n"},
        {"threads:\n", "w.yaml:1:9: threads: has no value; give one, or leave the key out\n"},
        {"threads: ~\n", "w.yaml:1:10: threads: has no value; give one, or leave the key out\n"},
        {"routes: [{trust: [[]]}]\n",
         "w.yaml:1:19: routes[0].trust[0]: must be a single value, not a list\n"},
        {"routes: [{trust: [priority, tenant, tenant]}]\n",
         "w.yaml:1:18: routes[0].trust: has 3 entries; the most is 2\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void values(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"threads: many\n", "w.yaml:1:10: threads: \"many\" is not a whole number, or auto\n"},
        {"threads: 257\n", "w.yaml:1:10: threads: \"257\" is too large; the most is 256\n"},
        {"threads: 99999999999999999999\n",
         "w.yaml:1:10: threads: \"99999999999999999999\" is too large; the most is 256\n"},
        {"threads: -1\n", "w.yaml:1:10: threads: \"-1\" is not a whole number, or auto\n"},
        {"gpu_exporters: {urls: ['{host}:9400/metrics']}\n",
         "w.yaml:1:24: gpu_exporters.urls[0]: \"{host}:9400/metrics\" is no URL like "
         "http://{host}:9400/metrics or http://10.0.0.5:9400/metrics\n"},
        {"gpu_exporters: {urls: ['http://{pod}/', 'http://h/{host}', 'http://u@h/m']}\n",
         "w.yaml:1:24: gpu_exporters.urls[0]: \"http://{pod}/\" is no URL like "
         "http://{host}:9400/metrics or http://10.0.0.5:9400/metrics\n"
         "w.yaml:1:41: gpu_exporters.urls[1]: \"http://h/{host}\" is no URL like "
         "http://{host}:9400/metrics or http://10.0.0.5:9400/metrics\n"
         "w.yaml:1:60: gpu_exporters.urls[2]: \"http://u@h/m\" is no URL like "
         "http://{host}:9400/metrics or http://10.0.0.5:9400/metrics\n"},
        {"health: {interval: 5}\n", "w.yaml:1:20: health.interval: \"5\" is not a duration; write "
                                    "a number and a unit, as 250ms, 10s or 5m\n"},
        {"health: {interval: 9ms}\n",
         "w.yaml:1:20: health.interval: \"9ms\" is too small; the least is 10ms\n"},
        {"routes: [{timeouts: {total: 1us}}]\n", "w.yaml:1:29: routes[0].timeouts.total: \"1us\" "
                                                 "is too small; the least is 1ms, or none\n"},
        {"limits: {body: 1ZB}\n", "w.yaml:1:16: limits.body: \"1ZB\" is not a size; write a number "
                                  "and a unit, as 64KiB, 16MiB or 1GiB\n"},
        {"limits: {body: 65GiB}\n",
         "w.yaml:1:16: limits.body: \"65GiB\" is too large; the most is 64GiB\n"},
        {"decisions: {sample: 100}\n", "w.yaml:1:21: decisions.sample: \"100\" is not a rate; "
                                       "write a whole number per second, as 100/s\n"},
        {"gpu_weights: {T4: heavy}\n",
         "w.yaml:1:19: gpu_weights.T4: \"heavy\" is not a weight; write a number, as 1 or 0.5\n"},
        {"gpu_weights: {T4: 10001}\n",
         "w.yaml:1:19: gpu_weights.T4: \"10001\" is too large; the most is 10000\n"},
        {"policies: {p: {use: chain, bound: 0.5}}\n",
         "w.yaml:1:35: policies.p.bound: \"0.5\" is too small; the least is 1, or default\n"},
        {"admin: {insecure: yes}\n", "w.yaml:1:19: admin.insecure: \"yes\" is not true or false\n"},
        {"logging: {level: wran}\n",
         "w.yaml:1:18: logging.level: \"wran\" is unknown; did you mean \"warn\"?\n"},
        {"logging: {level: loud}\n",
         "w.yaml:1:18: logging.level: \"loud\" is unknown; choose debug, info, warn or error\n"},
        {"logging: {access: /var/log/a}\n",
         "w.yaml:1:19: logging.access: \"/var/log/a\" is not a file; write file:PATH or off\n"},
        {"listeners: [{mode: tcp}]\n",
         "w.yaml:1:20: listeners[0].mode: \"tcp\" is unknown; the only choice is http\n"},
        {"discovery: [{type: dns, services: [\"a:1\"], endpoints: []}]\n",
         "w.yaml:1:44: discovery[0].endpoints: means nothing with type \"dns\"\n"},
        {"discovery: [{type: consul, servers: [\"consul\"]}]\n",
         "w.yaml:1:13: discovery[0].services: is missing\n"
         "w.yaml:1:38: discovery[0].servers[0]: \"consul\" is not a URL; write http://host:port\n"},
        {"discovery: [{type: kubernetes}]\n",
         "w.yaml:1:13: discovery[0].services: give either services or a selector\n"},
        {"discovery: [{type: etcd, servers: [\"http://e:2379\"], cert: \"file:/c\"}]\n",
         "w.yaml:1:13: discovery[0].key: is missing: cert and key go together\n"},
        {"discovery: [{type: eureka, endpoints: []}]\n",
         "w.yaml:1:20: discovery[0].type: \"eureka\" is not supported yet in this version\n"},
        {"routes: [{trust: [me]}]\n",
         "w.yaml:1:19: routes[0].trust[0]: \"me\" is unknown; choose priority or tenant\n"},
        {"routes: [{hash_on: [ip]}]\n", "w.yaml:1:21: routes[0].hash_on[0]: \"ip\" is unknown; "
                                        "choose header:NAME, cookie:NAME, user, "
                                        "prompt_cache_key, previous_response_id or client_ip\n"},
        {"routes: [{hash_on: ['header:']}]\n",
         "w.yaml:1:21: routes[0].hash_on[0]: \"header:\" is unknown; choose header:NAME, "
         "cookie:NAME, user, "
         "prompt_cache_key, previous_response_id or client_ip\n"},
        {"models: {m: {aliases: [a, a]}}\n", "w.yaml:1:27: models.m.aliases[1]: is listed twice\n"},
        {"models: {m: {aliases: ['']}}\n", "w.yaml:1:24: models.m.aliases[0]: must not be empty\n"},
        {"models: {m: {aliases: [\"a\\tb\"]}}\n",
         "w.yaml:1:24: models.m.aliases[0]: \"a\\x09b\" contains a control character\n"},
        {"discovery: [{type: static, endpoints: [{url: ''}]}]\n",
         "w.yaml:1:46: discovery[0].endpoints[0].url: must not be empty\n"},
        {"policies: {p: {use: chain, curve: {101: 1}}}\n",
         "w.yaml:1:36: policies.p.curve.101: the utilization must be a percentage from 0 to 100\n"},
        {"policies: {p: {use: chain, curve: {50: 1, 50: 2}}}\n",
         "w.yaml:1:43: policies.p.curve.50: utilizations must rise from one point to the next\n"},
        {"policies: {p: {use: chain, curve: {50: 0}}}\n",
         "w.yaml:1:40: policies.p.curve.50: \"0\" is too small; the least is 0.03125\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void addresses(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"admin: {address: 29000}\n", "w.yaml:1:18: admin.address: \"29000\" is not an address; "
                                      "write host:port, as 127.0.0.1:8080 or [::1]:8080\n"},
        {"registry: {address: on}\n",
         "w.yaml:1:21: registry.address: \"on\" is not an address; write host:port, as "
         "127.0.0.1:8080 or [::1]:8080, or off\n"},
        {"admin: {address: off}\n", "w.yaml:1:18: admin.address: \"off\" is not an address; write "
                                    "host:port, as 127.0.0.1:8080 or [::1]:8080\n"},
        {"admin: {address: 'gpu1:1'}\n", "w.yaml:1:18: admin.address: \"gpu1:1\": the host must be "
                                         "a literal address or localhost\n"},
        {"admin: {address: '127.0.0.1:65536'}\n",
         "w.yaml:1:18: admin.address: \"127.0.0.1:65536\": the port must be a number from 0 to "
         "65535\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void secrets_are_never_repeated(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"admin: {token: hunter2}\n", "w.yaml:1:16: admin.token: a secret is not written here; say "
                                      "where it is with file:PATH or env:NAME\n"},
        {"admin: {token: 'env:hunter-2'}\n", "w.yaml:1:16: admin.token: a secret is not written "
                                             "here; say where it is with file:PATH or env:NAME\n"},
        {"admin: {token: 'file:'}\n", "w.yaml:1:16: admin.token: a secret is not written here; say "
                                      "where it is with file:PATH or env:NAME\n"},
        {"admin: {token: \"file:a\\0b\"}\n", "w.yaml:1:16: admin.token: a secret is not written "
                                             "here; say where it is with file:PATH or env:NAME\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void all_errors_are_told_up_to_twenty(void **state)
{
    (void)state;
    struct loaded l;
    expect_errors(
        "threads: x\nhealth: {path: y, down_after: 0}\nroutes: [{policy: chian}]\n",
        "w.yaml:1:10: threads: \"x\" is not a whole number, or auto\n"
        "w.yaml:2:16: health.path: \"y\" must start with /, or be auto\n"
        "w.yaml:2:31: health.down_after: \"0\" is too small; the least is 1\n"
        "w.yaml:3:19: routes[0].policy: unknown policy \"chian\"; did you mean \"chain\"?\n");
    char text[2048] = "";
    for (int i = 0; i < 30; i++)
        strcat(text, "a: 1\n");
    assert_int_equal(load_with(&l, text, NULL, 0), WEIR_E_INVALID);
    assert_int_equal(l.errors.n, 20);
    assert_int_equal(l.errors.total, 30);
    load_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(kinds),
        cmocka_unit_test(values),
        cmocka_unit_test(addresses),
        cmocka_unit_test(secrets_are_never_repeated),
        cmocka_unit_test(all_errors_are_told_up_to_twenty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
