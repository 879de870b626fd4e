/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever Consul or etcd answers: what is taken is an endpoint with a host and a port, and nothing is left behind. */
#include "fuzz.h"

#include "discovery/consul_read.h"
#include "discovery/etcd_read.h"
#include "heap_mem.h"

static void check(const struct instance *i)
{
    FUZZ_CHECK(i->host.n > 0 && i->port > 0 && i->key.n > 0);
    FUZZ_CHECK(i->weight <= WEIGHT_MAX);
    FUZZ_CHECK(i->n_metadata <= ENDPOINT_KV_MAX && i->n_labels <= ENDPOINT_KV_MAX);
}

static void try_etcd(struct arena *a, const struct etcd_answer *answer)
{
    struct instance i;
    char why[640];

    for (uint32_t n = 0; n < answer->n; n++)
        if (!answer->kvs[n].deleted &&
            etcd_read_endpoint(a, &answer->kvs[n], SLICE("/w/"), &i, why) == 0)
            check(&i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct slice text = slice_of((const char *)data, size);
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct consul_answer consul;
    struct etcd_answer etcd;
    struct slice token;
    struct arena a;

    arena_init(&a, &mem, 1 << 24);
    if (consul_read(&a, text, NULL, 0, 0, &consul) == 0) {
        struct consul_answer again;
        struct consul_seen *seen = arena_array(&a, consul.n, sizeof(*seen));
        for (uint32_t i = 0; i < consul.n; i++) {
            check(&consul.entries[i].instance);
            seen[i] = (struct consul_seen){consul.entries[i].text, consul.entries[i].instance.key};
        }
        FUZZ_CHECK(consul_read(&a, text, seen, consul.n, 0, &again) == 0);
        FUZZ_CHECK(again.n == consul.n && again.n_bad == consul.n_bad);
        for (uint32_t i = 0; i < again.n; i++)
            FUZZ_CHECK(slice_eq(again.entries[i].instance.key, consul.entries[i].instance.key));
    }
    if (etcd_read_range(&a, text, &etcd) == 0)
        try_etcd(&a, &etcd);
    if (etcd_read_watch(&a, text, &etcd) == 0)
        try_etcd(&a, &etcd);
    if (etcd_read_token(&a, text, &token) == 0)
        FUZZ_CHECK(token.n > 0);
    arena_fini(&a);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
