/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an API server may send: as a list, as a Status, and as a stream of events in pieces. Documents are found at the same
 * places however it is cut; a copy is the same; what the fleet would be told is within its bounds.
 */
#include "fuzz.h"

#include "discovery/kubernetes_read.h"
#include "heap_mem.h"

static struct slice wanted(const uint8_t *data, size_t size)
{
    return size == 0 || data[0] & 1 ? (struct slice){NULL, 0} : SLICE("8000");
}

static void check(struct arena *a, const struct kube_object *o)
{
    struct kube_object copy;
    struct instance in;

    FUZZ_CHECK(o->name.n > 0);
    if (kube_copy(a, o, &copy) == 0)
        FUZZ_CHECK(kube_same(o, &copy));
    for (uint32_t i = 0; i < o->n_endpoints; i++) {
        const struct kube_endpoint *e = &o->endpoints[i];
        FUZZ_CHECK(e->host.n > 0 && e->host.n <= ENDPOINT_TEXT_MAX && e->port > 0);
        FUZZ_CHECK(memchr(e->host.p, '%', e->host.n) == NULL);
        if (kube_instance(a, e, o, &in) == 0)
            FUZZ_CHECK(in.weight <= WEIGHT_MAX && in.epoch < UINT64_C(1) << 53);
    }
    struct kv *kv = arena_array(a, o->metadata.n, sizeof(*kv));
    if (!kv)
        return;
    kube_unpack(&o->metadata, kv);
    for (uint32_t i = 0; i < o->metadata.n; i++)
        FUZZ_CHECK(kv[i].key.n > 0 && kv[i].key.n <= ENDPOINT_TEXT_MAX);
    if (o->metadata.n) {
        struct slice last = kv[o->metadata.n - 1].value;
        FUZZ_CHECK(last.p + last.n + 1 == o->metadata.text.p + o->metadata.text.n);
    }
}

static void read_whole(struct arena *a, enum kube_kind kind, struct slice port, struct slice text)
{
    struct kube_event event, again;
    struct kube_list list;

    if (kube_read_list(a, kind, port, text, &list) == 0)
        for (uint32_t i = 0; i < list.n; i++)
            check(a, &list.objects[i]);
    if (kube_read_event(a, kind, port, text, NULL, 0, &event) || event.type > KUBE_GONE)
        return;
    check(a, &event.object);
    /* What is known already is the same when it is not read again. */
    FUZZ_CHECK(kube_read_event(a, kind, port, text, &event.object, 0, &again) == 0);
    FUZZ_CHECK(kube_same(&event.object, &again.object) && again.object.n_bad == event.object.n_bad);
}

/* Digest of where documents end. */
static uint64_t cut_stream(struct slice text, struct fuzz_cutter *c)
{
    struct kube_frame f = {0};
    uint64_t digest = 1;
    size_t from = 0;
    size_t shown = 0;

    for (;;) {
        ssize_t n = kube_frame(&f, slice_of(text.p + from, shown - from));
        if (n < 0)
            return digest * 31 + 7;
        FUZZ_CHECK((size_t)n <= shown - from);
        from += (size_t)n;
        if (n > 0)
            digest = digest * 31 + from;
        else if (shown == text.n)
            return digest;
        else
            shown += fuzz_piece(c, text.n - shown);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    const struct slice text = slice_of((const char *)data, size);
    uint64_t first = 0;
    struct arena a;

    for (enum kube_kind kind = KUBE_SLICES; kind <= KUBE_PODS; kind++) {
        arena_init(&a, &mem, 16 << 20);
        read_whole(&a, kind, wanted(data, size), text);
        (void)kube_read_status(&a, text);
        arena_fini(&a);
    }
    for (enum fuzz_cutting how = FUZZ_WHOLE; how < FUZZ_CUTTINGS; how++) {
        struct fuzz_cutter c = fuzz_cutter(how, data, size);
        uint64_t digest = cut_stream(text, &c);
        if (how == FUZZ_WHOLE)
            first = digest;
        FUZZ_CHECK(digest == first);
    }
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
