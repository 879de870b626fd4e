/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdint.h>

#include "base/bug.h"
#include "base/prng.h"
#include "heap_mem.h"
#include "model/instance.h"

enum { MOST = 5 };

/* An instance with what its slices point to. */
struct made {
    struct instance i;
    struct slice services[MOST];
    struct model_ref models[MOST];
    struct device devices[MOST];
    struct kv labels[MOST], metadata[MOST];
};

/* Absent, empty, or up to 40 bytes. */
static struct slice any_text(struct prng *rnd)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz-_./";
    uint64_t kind = prng_below(rnd, 4);

    if (kind == 0)
        return slice_of(NULL, 0);
    return slice_of(letters, kind == 1 ? 0 : 1 + (size_t)prng_below(rnd, sizeof(letters) - 1));
}

static uint32_t any_kv(struct prng *rnd, struct kv *kv)
{
    uint32_t n = (uint32_t)prng_below(rnd, MOST + 1);

    for (uint32_t k = 0; k < n; k++)
        kv[k] = (struct kv){.key = any_text(rnd), .value = any_text(rnd)};
    return n;
}

static void make(struct prng *rnd, struct made *m)
{
    struct instance *i = &m->i;

    *m = (struct made){.i = {.key = any_text(rnd),
                             .id = any_text(rnd),
                             .host = any_text(rnd),
                             .region = any_text(rnd),
                             .zone = any_text(rnd),
                             .cluster = any_text(rnd),
                             .services = m->services,
                             .n_services = (uint32_t)prng_below(rnd, MOST + 1),
                             .models = m->models,
                             .n_models = (uint32_t)prng_below(rnd, MOST + 1),
                             .devices = m->devices,
                             .n_devices = (uint32_t)prng_below(rnd, MOST + 1),
                             .labels = m->labels,
                             .metadata = m->metadata}};
    for (uint32_t k = 0; k < i->n_services; k++)
        m->services[k] = any_text(rnd);
    for (uint32_t k = 0; k < i->n_models; k++)
        m->models[k] = (struct model_ref){
            .id = any_text(rnd), .version = any_text(rnd), .lora_base = any_text(rnd)};
    for (uint32_t k = 0; k < i->n_devices; k++)
        m->devices[k] = (struct device){.uuid = any_text(rnd), .type = any_text(rnd)};
    i->n_labels = any_kv(rnd, m->labels);
    i->n_metadata = any_kv(rnd, m->metadata);
}

/* By hand, so that what the function counts and what the copy takes are not wrong together. */
static void the_room_is_told_in_bytes(void **state)
{
    (void)state;
    struct slice services[] = {SLICE("chat"), SLICE("")};
    struct kv metadata[] = {{SLICE("k"), SLICE("value")}, {SLICE("none"), {NULL, 0}}};
    struct model_ref models[] = {{.id = SLICE("m"), .version = SLICE("v2")}};
    struct device devices[] = {{.uuid = SLICE("GPU-1")}};
    struct instance i = {.host = SLICE("127.0.0.1"), .zone = SLICE("")};
    assert_int_equal(model_instance_room(&(struct instance){0}), 0);
    assert_int_equal(model_instance_room(&i), 10 + 1);
    i.services = services;
    i.n_services = 2;
    assert_int_equal(model_instance_room(&i), 11 + 32 + 5 + 1);
    i.metadata = metadata;
    i.n_metadata = 2;
    assert_int_equal(model_instance_room(&i), 49 + 64 + 2 + 6 + 5);
    i.labels = metadata;
    i.n_labels = 1;
    assert_int_equal(model_instance_room(&i), 126 + 32 + 2 + 6);
    i.models = models;
    i.n_models = 1;
    assert_int_equal(model_instance_room(&i), 166 + ARENA_ROOM(1, sizeof(models[0])) + 2 + 3);
    i.devices = devices;
    i.n_devices = 1;
    assert_int_equal(model_instance_room(&i), 171 + ARENA_ROOM(1, sizeof(models[0])) +
                                                  ARENA_ROOM(1, sizeof(devices[0])) + 6);
}

static void a_copy_fills_the_room_exactly(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct prng rnd = {11};
    struct arena a;
    arena_init(&a, &mem, 1 << 20);
    for (unsigned round = 0; round < 500; round++) {
        struct made m;
        struct instance copy;
        make(&rnd, &m);
        size_t room = model_instance_room(&m.i);
        assert_int_equal(arena_reserve(&a, room), 0);
        size_t total = (room + 15) / 16 * 16;
        assert_int_equal(a.total, total);
        assert_int_equal(model_instance_copy(&a, &m.i, &copy), 0);
        assert_int_equal(a.total, total);
        assert_int_equal(a.left, total - room);
        assert_int_equal(model_instance_hash(&copy, NULL), model_instance_hash(&m.i, NULL));
        assert_int_equal(slice_eq(copy.key, m.i.key), true);
        arena_fini(&a);
    }
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_room_is_told_in_bytes),
        cmocka_unit_test(a_copy_fills_the_room_exactly),
    };
    return cmocka_run_group_tests_name("instance", tests, NULL, NULL);
}
