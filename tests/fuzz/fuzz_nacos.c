/* SPDX-License-Identifier: Apache-2.0 */
/* Nacos words: whatever is taken keeps the limits, and what is written of it is JSON that reads back the same. */
#include "fuzz.h"

#include "heap_mem.h"
#include "model/instance.h"
#include "registry/nacos_codec.h"
#include "wire/json_scan.h"

static int ignore(void *ctx, enum json_event event, struct slice text, bool last)
{
    (void)ctx;
    (void)event;
    (void)text;
    (void)last;
    return 0;
}

static void is_json(const struct buf *b)
{
    struct json_scan s;
    struct slice text = buf_slice(b);

    FUZZ_CHECK(b->err == 0);
    wire_json_init(&s, ignore, NULL);
    FUZZ_CHECK(wire_json_scan(&s, text.p, text.n) == 0 && wire_json_end(&s) == 0);
}

static void check_map(const struct mem *mem, const struct nacos_map *m)
{
    struct buf first;
    struct buf second;
    struct arena again;
    struct nacos_map same;
    const char *error;

    FUZZ_CHECK(m->n <= ENDPOINT_KV_MAX);
    buf_init(&first, mem, SIZE_MAX / 2);
    buf_init(&second, mem, SIZE_MAX / 2);
    arena_init(&again, mem, SIZE_MAX / 2);
    model_write_kv(&first, m->kv, m->n);
    is_json(&first);
    /* Invalid UTF-8 of k=v pairs is replaced when written and may then be longer than the limits. */
    if (nacos_metadata(&again, buf_slice(&first), &same, &error) == 0) {
        FUZZ_CHECK(same.n == m->n);
        model_write_kv(&second, same.kv, same.n);
        FUZZ_CHECK(slice_eq(buf_slice(&first), buf_slice(&second)));
    }
    arena_fini(&again);
    buf_fini(&first);
    buf_fini(&second);
}

static void check_beat(struct arena *a, struct slice text)
{
    struct nacos_beat beat;
    const char *error = NULL;
    int rc = nacos_beat_parse(a, text, &beat, &error);

    if (rc == 0)
        check_map(a->mem, &beat.metadata);
    else
        FUZZ_CHECK(error != NULL);
}

static void check_values(struct arena *a, struct slice text)
{
    uint32_t weight = 0;
    uint16_t port = 1;
    struct slice host = SLICE("h");
    struct slice grouped = SLICE("G@@s");
    struct buf out;

    if (nacos_weight(text, &weight) == 0)
        FUZZ_CHECK(weight <= WEIGHT_MAX);
    if (nacos_port(text, &port) == 0)
        FUZZ_CHECK(port > 0);
    if (nacos_host(text, &host) == 0)
        FUZZ_CHECK(host.n > 0 && host.n <= NACOS_HOST_MAX);
    if (nacos_grouped(a, text, (struct slice){NULL, 0}, &grouped) == 0) {
        FUZZ_CHECK(nacos_group_of(grouped).n > 0 && nacos_name_of(grouped).n > 0);
        FUZZ_CHECK(nacos_group_of(grouped).n + 2 + nacos_name_of(grouped).n == grouped.n);
    }
    const struct nacos_host_view view = {.grouped = grouped,
                                         .host = host,
                                         .port = port,
                                         .weight = weight,
                                         .cluster = SLICE("DEFAULT")};
    const struct nacos_list_view list = {.grouped = grouped, .clusters = text};
    buf_init(&out, a->mem, SIZE_MAX / 2);
    nacos_write_list_begin(&out, &list);
    nacos_write_host(&out, &view, true);
    nacos_write_host(&out, &view, false);
    nacos_write_list_end(&out, &list);
    is_json(&out);
    buf_clear(&out);
    nacos_write_detail(&out, &view, false);
    is_json(&out);
    buf_fini(&out);
}

static void check_text(struct arena *a, struct slice text)
{
    struct nacos_map map;
    const struct nacos_target *targets;
    uint32_t n;
    const char *error = NULL;

    if (nacos_metadata(a, text, &map, &error) == 0)
        check_map(a->mem, &map);
    else
        FUZZ_CHECK(error != NULL);
    check_beat(a, text);
    if (nacos_targets(a, text, &targets, &n) == 0)
        FUZZ_CHECK(n <= NACOS_TARGETS_MAX);
    check_values(a, text);
}

/* The input is a query string; its values are then read as everything a value can be. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct slice text = slice_of((const char *)data, size);
    struct arena a;
    struct nacos_params p;

    arena_init(&a, &mem, SIZE_MAX / 2);
    if (nacos_params_parse(&p, &a, text, (struct slice){NULL, 0}) == 0)
        for (uint32_t i = 0; i < p.n; i++)
            check_text(&a, p.list[i].value);
    check_text(&a, text);
    arena_fini(&a);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
