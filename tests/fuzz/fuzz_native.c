/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the native registry API: what is taken keeps the limits, what is refused says why, in JSON. */
#include "fuzz.h"

#include "heap_mem.h"
#include "registry/native_json.h"
#include "wire/json_scan.h"

static int ignore(void *ctx, enum json_event event, struct slice text, bool last)
{
    (void)ctx;
    (void)event;
    (void)text;
    (void)last;
    return 0;
}

static void check_error(const struct mem *mem, const struct native_error *e)
{
    struct json_scan s;
    struct buf out;

    FUZZ_CHECK(e->code && e->message[0]);
    buf_init(&out, mem, 1 << 16);
    native_write_error(&out, e->code, e->field, e->message);
    wire_json_init(&s, ignore, NULL);
    FUZZ_CHECK(out.err == 0 && wire_json_scan(&s, out.p, buf_len(&out)) == 0 &&
               wire_json_end(&s) == 0);
    buf_fini(&out);
}

static void plain(struct slice s, size_t max)
{
    FUZZ_CHECK(s.n <= max);
    for (size_t i = 0; i < s.n; i++)
        FUZZ_CHECK((unsigned char)s.p[i] >= 0x20 && s.p[i] != 0x7f);
}

static void check_endpoint(const struct mem *mem, const json_t *doc)
{
    struct native_error error = {0};
    struct native_doc d;
    struct arena a;

    arena_init(&a, mem, 1 << 20);
    if (native_read_endpoint(&a, doc, &d, &error) == 0) {
        FUZZ_CHECK(d.instance.n_models <= ENDPOINT_MODELS_MAX &&
                   d.instance.n_metadata <= ENDPOINT_KV_MAX);
        FUZZ_CHECK(d.instance.host.n > 0 && d.instance.port > 0 && d.instance.weight <= WEIGHT_MAX);
        plain(d.instance.host, 255);
        for (uint32_t i = 0; i < d.instance.n_models; i++)
            plain(d.instance.models[i].id, ENDPOINT_TEXT_MAX);
    } else {
        check_error(mem, &error);
    }
    arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct native_error error = {0};
    struct sample s;
    const struct kv *kv;
    uint32_t n;
    struct arena a;
    json_t *doc = native_load_json(slice_of((const char *)data, size), &error);

    if (!doc) {
        check_error(&mem, &error);
        FUZZ_CHECK(heap.live == 0);
        return 0;
    }
    check_endpoint(&mem, doc);
    if (native_read_load(doc, &s, &error) == 0)
        FUZZ_CHECK(!sample_has(&s, SAMPLE_GPU_UTIL) || s.gpu_util_bp <= 10000);
    else
        check_error(&mem, &error);
    arena_init(&a, &mem, 1 << 20);
    if (native_read_map(&a, doc, "metadata", &kv, &n, &error) == 0)
        FUZZ_CHECK(n <= ENDPOINT_KV_MAX);
    arena_fini(&a);
    json_decref(doc);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
