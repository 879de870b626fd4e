/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "fleet/cell.h"
#include "fleet/fleet.h"
#include "fleet_rig.h"

enum { T0 = 1000 };

struct world {
    struct test_heap heap;
    struct mem mem;
    struct fleet *fleet;
    const struct snapshot *s;
};

static void open_world(struct world *w, uint16_t sources)
{
    *w = (struct world){0};
    w->mem = test_heap_mem(&w->heap);
    struct fleet_options o = {.mem = &w->mem, .n_sources = sources, .remember_ns = 100};
    assert_int_equal(fleet_new(&o, &w->fleet), 0);
}

static bool nobody(void *ctx, const struct snapshot *s)
{
    (void)ctx;
    (void)s;
    return false;
}

static void build(struct world *w, uint64_t now)
{
    assert_int_equal(fleet_build(w->fleet, now, &w->s), 0);
    fleet_reclaim(w->fleet, nobody, NULL);
}

static void close_world(struct world *w)
{
    fleet_free(w->fleet);
    assert_int_equal(w->heap.live, 0);
}

static void eq(struct slice got, const char *want)
{
    if (!slice_eq(got, slice_str(want)))
        fail_msg("got \"%.*s\", want \"%s\"", SLICE_ARG(got), want);
}

static void one_endpoint_per_address_first_source_wins(void **state)
{
    (void)state;
    struct world w;
    struct rig_host a;
    struct rig_host b;
    struct slice service_a[] = {SLICE("chat"), SLICE("shared")};
    struct slice service_b[] = {SLICE("shared"), SLICE("embed")};
    struct model_ref models_b[] = {{.id = RIG_MODEL}, {.id = SLICE("e"), .max_model_len = 7}};
    struct device d[] = {{.type = SLICE("A100"), .memory_total_bytes = 40},
                         {.memory_total_bytes = 24}};

    open_world(&w, 2);
    rig_host(&a, 1, "team=red gpu_type=H100");
    a.i.key = SLICE("from-a");
    a.i.services = service_a;
    a.i.n_services = 2;
    a.i.host = SLICE("GPU1.example");
    rig_host(&b, 1, "team=blue extra=1 max_concurrency=7");
    b.i.key = SLICE("from-b");
    b.i.id = SLICE("gpu-one");
    b.i.services = service_b;
    b.i.n_services = 2;
    b.i.models = models_b;
    b.i.n_models = 2;
    b.i.host = SLICE("gpu1.EXAMPLE");
    b.i.weight = 5000;
    b.i.devices = d;
    b.i.n_devices = 2;
    b.i.zone = SLICE("z2");
    /* The second source speaks first: order of config decides, not of arrival. */
    assert_int_equal(fleet_upsert(w.fleet, 1, &b.i, T0), 0);
    assert_int_equal(fleet_upsert(w.fleet, 0, &a.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->n_members, 1);
    const struct endpoint *e = w.s->members[0].endpoint;
    eq(e->host, "GPU1.example");
    eq(e->authority, "GPU1.example:8000");
    eq(e->id, "gpu-one");
    eq(e->service, "chat");
    assert_int_equal(e->n_services, 3);
    eq(e->services[2], "embed");
    assert_int_equal(e->n_models, 2);
    assert_int_equal(e->models[1].max_model_len, 7);
    assert_int_equal(e->weight, 1000);
    eq(e->zone, "z2");
    assert_int_equal(e->max_concurrency, 7);
    eq(e->gpu_type, "A100");
    assert_int_equal(e->memory_total_bytes, 64);
    assert_int_equal(e->source, 0);
    assert_int_equal(e->n_metadata, 4);
    eq(e->metadata[0].value, "red");
    assert_int_equal(w.s->n_live_models, 2);
    assert_int_equal(model_find(w.s, SLICE("e"))->n_members, 1);

    /* Any source's veto wins over all. */
    b.i.weight = 0;
    assert_int_equal(fleet_upsert(w.fleet, 1, &b.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->members[0].endpoint->weight, 0);
    assert_int_equal(w.s->members[0].endpoint->generation, 1);
    b.i.weight = 1000;
    b.i.draining = true;
    b.i.healthy = false;
    assert_int_equal(fleet_upsert(w.fleet, 1, &b.i, T0), 0);
    build(&w, T0);
    assert_true(w.s->members[0].endpoint->draining);
    assert_false(w.s->members[0].endpoint->registry_healthy);
    b.i.enabled = false;
    assert_int_equal(fleet_upsert(w.fleet, 1, &b.i, T0), 0);
    build(&w, T0);
    assert_false(w.s->members[0].endpoint->enabled);
    assert_int_equal(w.s->n_live_models, 0);

    /* It leaves when the last source drops it. */
    struct cell *cell = w.s->members[0].cell;
    fleet_remove(w.fleet, 1, SLICE("from-b"), T0);
    build(&w, T0);
    assert_int_equal(w.s->n_members, 1);
    assert_ptr_equal(w.s->members[0].cell, cell);
    eq(w.s->members[0].endpoint->gpu_type, "H100");
    assert_int_equal(w.s->members[0].endpoint->n_models, 1);
    fleet_remove(w.fleet, 0, SLICE("from-a"), T0);
    fleet_remove(w.fleet, 0, SLICE("from-a"), T0);
    build(&w, T0);
    assert_int_equal(w.s->n_members, 0);
    close_world(&w);
}

static void scheme_and_port_tell_endpoints_apart(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;

    open_world(&w, 1);
    rig_host(&h, 1, "");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    h.i.key = SLICE("tls");
    h.i.tls = true;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    h.i.key = SLICE("port");
    h.i.port = 80;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    h.i.key = SLICE("v6");
    h.i.host = SLICE("2001:db8::1");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->n_members, 4);
    eq(w.s->members[2].endpoint->authority, "10.0.0.1:80");
    eq(w.s->members[3].endpoint->authority, "[2001:db8::1]:80");
    close_world(&w);
}

static void generations(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample s = {.known = 1u << SAMPLE_RUNNING, .fresh_for_ns = 1000, .epoch = 5, .seq = 1};

    open_world(&w, 1);
    rig_host(&h, 1, "k=1");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    struct cell *first = w.s->members[0].cell;
    assert_int_equal(w.s->members[0].endpoint->generation, 1);
    /* Other weight, other metadata: the same endpoint. */
    h.i.weight = 77;
    h.kv[0].value = SLICE("2");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_ptr_equal(w.s->members[0].cell, first);
    /* The first reporter is no news; its restart is. */
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &s, T0), 0);
    assert_false(fleet_dirty(w.fleet));
    s.seq = 1;
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &s, T0), WEIR_E_STALE);
    s.seq = 2;
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &s, T0), 0);
    s.epoch = 4;
    s.seq = 9;
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &s, T0), WEIR_E_STALE);
    s.epoch = 6;
    s.seq = 1;
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &s, T0), 0);
    assert_true(fleet_dirty(w.fleet));
    build(&w, T0);
    assert_int_equal(w.s->members[0].endpoint->generation, 2);
    assert_int_equal(fleet_sample(w.fleet, 0, SLICE("nobody"), &s, T0), WEIR_E_NOTFOUND);
    /* A changed registration epoch, and coming back after leaving. */
    h.i.epoch = 1;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->members[0].endpoint->generation, 3);
    fleet_remove(w.fleet, 0, h.i.key, T0);
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->members[0].endpoint->generation, 4);
    assert_int_equal(w.s->members[0].endpoint->slot, 0);
    /* One key that moves to another address. */
    h.i.port = 9000;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->n_members, 1);
    eq(w.s->members[0].endpoint->authority, "10.0.0.1:9000");
    close_world(&w);
}

static void beats_publish_samples_without_a_new_snapshot(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample s;

    open_world(&w, 1);
    rig_host(&h, 1,
             "remaining_memory=1.5 gpu_util=12.34 current_requests=3 queue_length=4 "
             "health_status=busy x=y");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    struct cell *c = w.s->members[0].cell;
    fleet_cell_last(c, &s);
    assert_int_equal(s.memory_free_bytes, GIB * 3 / 2);
    assert_int_equal(s.gpu_util_bp, 1234);
    assert_int_equal(s.running, 3);
    assert_int_equal(s.waiting, 4);
    assert_int_equal(s.state, REPORTED_BUSY);
    assert_true(s.while_leased);
    assert_int_equal(atomic_load(&c->excess), 7);
    assert_int_equal(atomic_load(&c->sample_count), 1);
    /* The same numbers again are fresh, but nothing newer. */
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    assert_int_equal(atomic_load(&c->sample_count), 1);
    rig_host(&h, 1,
             "remaining_memory=2 gpu_util=99 current_requests=0 queue_length=0 "
             "health_status=healthy x=y");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0 + 1), 0);
    assert_false(fleet_dirty(w.fleet));
    assert_int_equal(atomic_load(&c->sample_count), 2);
    fleet_cell_last(c, &s);
    assert_int_equal(s.gpu_util_bp, 9900);
    assert_int_equal(atomic_load(&c->excess), 0);
    const struct snapshot *before = w.s;
    assert_int_equal(fleet_build(w.fleet, T0, &w.s), 0);
    assert_ptr_equal(w.s, before);
    /* Another key, or another value of a slow one, is a change of identity. */
    rig_host(&h, 1,
             "remaining_memory=2 gpu_util=99 current_requests=0 queue_length=0 "
             "health_status=healthy x=z");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0 + 2), 0);
    assert_true(fleet_dirty(w.fleet));
    /* When the keys are gone, so is what they said. */
    rig_host(&h, 1, "x=z");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0 + 3), 0);
    fleet_cell_last(c, &s);
    assert_int_equal(s.known, 0);
    close_world(&w);
}

static void typed_reports_beat_metadata_while_fresh(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample s = {.known = 1u << SAMPLE_GPU_UTIL, .gpu_util_bp = 4000, .fresh_for_ns = 10};
    struct sample got;

    open_world(&w, 2);
    rig_host(&h, 1, "gpu_util=10");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    assert_int_equal(fleet_upsert(w.fleet, 1, &h.i, T0), 0);
    build(&w, T0);
    struct cell *c = w.s->members[0].cell;
    assert_int_equal(fleet_sample(w.fleet, 1, h.i.key, &s, T0), 0);
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0 + 9), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.gpu_util_bp, 4000);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 10);
    /* Stale now: metadata counts again. */
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0 + 10), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.gpu_util_bp, 1000);
    /* Of two typed reporters the first source's fresh word stands. */
    s.gpu_util_bp = 5000;
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &s, T0 + 20), 0);
    s.gpu_util_bp = 6000;
    assert_int_equal(fleet_sample(w.fleet, 1, h.i.key, &s, T0 + 21), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.gpu_util_bp, 5000);
    /* The reporter leaves: what it said leaves too. */
    fleet_remove(w.fleet, 0, h.i.key, T0 + 22);
    fleet_cell_last(c, &got);
    assert_int_equal(got.gpu_util_bp, 1000);
    assert_int_equal(got.source, 1);
    close_world(&w);
}

static void what_is_known_of_devices_fills_gaps(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample gpu = {.known = 1u << SAMPLE_GPU_UTIL | 1u << SAMPLE_MEMORY_FREE |
                                  1u << SAMPLE_MEMORY_TOTAL,
                         .gpu_util_bp = 3000,
                         .memory_free_bytes = 10,
                         .memory_total_bytes = 40,
                         .fresh_for_ns = 10};
    struct sample typed = {.known = 1u << SAMPLE_RUNNING | 1u << SAMPLE_GPU_UTIL,
                           .running = 5,
                           .gpu_util_bp = 9000,
                           .fresh_for_ns = 5};
    struct sample nothing = {0};
    struct sample got;

    open_world(&w, 1);
    rig_host(&h, 1, "");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    uint32_t slot = w.s->members[0].endpoint->slot;
    struct cell *c = w.s->members[0].cell;
    /* Alone it is the sample. */
    assert_int_equal(fleet_device_sample(w.fleet, slot, 1, &gpu, T0), 0);
    assert_int_equal(atomic_load(&c->sample_count), 1);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 10);
    assert_int_equal(atomic_load(&c->free_bytes), 10);
    /* Under a report it fills what that leaves open; memory that only it shows is not shown anew by the report. */
    atomic_store(&c->address->inflight, 2);
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &typed, T0 + 1), 0);
    atomic_store(&c->address->inflight, 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 5);
    assert_int_equal(got.gpu_util_bp, 9000);
    assert_int_equal(got.memory_free_bytes, 10);
    assert_int_equal(got.memory_total_bytes, 40);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 6);
    assert_int_equal(atomic_load(&c->sample_count), 1);
    /* The same numbers again are nothing newer; others are. The report keeps what was in flight at its time. */
    assert_int_equal(fleet_device_sample(w.fleet, slot, 1, &gpu, T0 + 2), 0);
    assert_int_equal(atomic_load(&c->sample_count), 1);
    gpu.memory_free_bytes = 7;
    assert_int_equal(fleet_device_sample(w.fleet, slot, 1, &gpu, T0 + 3), 0);
    assert_int_equal(atomic_load(&c->sample_count), 2);
    fleet_cell_last(c, &got);
    assert_int_equal(got.memory_free_bytes, 7);
    assert_int_equal(got.inflight_then, 2);
    assert_int_equal(atomic_load(&c->excess), 3);
    /* The report is stale: devices alone again, then nothing. */
    fleet_tick(w.fleet, T0 + 5);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 5);
    fleet_tick(w.fleet, T0 + 6);
    fleet_cell_last(c, &got);
    assert_int_equal(got.known, gpu.known);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 13);
    assert_int_equal(atomic_load(&c->sample_count), 2);
    assert_int_equal(fleet_device_sample(w.fleet, slot, 1, &nothing, T0 + 7), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.known, 0);
    /* What went stale does not come back under the next report. */
    assert_int_equal(fleet_device_sample(w.fleet, slot, 1, &gpu, T0 + 8), 0);
    assert_int_equal(fleet_sample(w.fleet, 0, h.i.key, &typed, T0 + 18), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.known, typed.known);
    assert_int_equal(fleet_device_sample(w.fleet, slot, 2, &gpu, T0 + 19), WEIR_E_STALE);
    close_world(&w);
}

static void found_devices_count_where_no_source_tells_any(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct device told = {.uuid = SLICE("GPU-t"), .type = SLICE("L4"), .memory_total_bytes = 24};
    struct device found[] = {
        {.uuid = SLICE("GPU-a"), .type = SLICE("A100"), .memory_total_bytes = 40},
        {.uuid = SLICE("GPU-b"), .type = SLICE("A100"), .memory_total_bytes = 40}};

    open_world(&w, 1);
    rig_host(&h, 1, "");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    uint32_t slot = w.s->members[0].endpoint->slot;
    assert_int_equal(fleet_set_devices(w.fleet, slot, 1, found, 2), 0);
    assert_true(fleet_dirty(w.fleet));
    build(&w, T0);
    const struct endpoint *e = w.s->members[0].endpoint;
    assert_int_equal(e->n_devices, 2);
    assert_true(e->devices_probed);
    eq(e->devices[1].uuid, "GPU-b");
    eq(e->gpu_type, "A100");
    assert_int_equal(e->memory_total_bytes, 80);
    /* The same again changes nothing. */
    assert_int_equal(fleet_set_devices(w.fleet, slot, 1, found, 2), 0);
    assert_false(fleet_dirty(w.fleet));
    /* What metadata says of the type is somebody's word. */
    rig_host(&h, 1, "gpu_type=H100");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    eq(w.s->members[0].endpoint->gpu_type, "H100");
    assert_int_equal(w.s->members[0].endpoint->n_devices, 2);
    h.i.devices = &told;
    h.i.n_devices = 1;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_false(w.s->members[0].endpoint->devices_probed);
    eq(w.s->members[0].endpoint->devices[0].uuid, "GPU-t");
    assert_int_equal(fleet_set_devices(w.fleet, slot, 2, found, 2), WEIR_E_STALE);
    close_world(&w);
}

static bool shared(const struct world *w, uint32_t i)
{
    return atomic_load(&w->s->members[i].cell->gate) & GATE_SHARED;
}

/* Or every pick would read it anew for good, after the first restart. */
static void a_device_is_shared_as_long_as_others_may_promise_on_it(void **state)
{
    (void)state;
    struct world w;
    struct rig_host a;
    struct rig_host b;
    struct device one = {.uuid = SLICE("GPU-a")};

    open_world(&w, 1);
    rig_host(&a, 1, "");
    rig_host(&b, 2, "");
    a.i.devices = b.i.devices = &one;
    a.i.n_devices = b.i.n_devices = 1;
    assert_int_equal(fleet_upsert(w.fleet, 0, &a.i, T0), 0);
    build(&w, T0);
    assert_false(shared(&w, 0));
    /* Another life of it: the old one may hold requests, as long as anybody has it. */
    struct cell *old = w.s->members[0].cell;
    sched_cell_get(old);
    a.i.epoch = 7;
    assert_int_equal(fleet_upsert(w.fleet, 0, &a.i, T0), 0);
    build(&w, T0);
    fleet_tick(w.fleet, T0);
    assert_true(shared(&w, 0));
    unsigned before = atomic_load(&w.s->members[0].cell->address->changes);
    sched_cell_put(old);
    build(&w, T0);
    fleet_tick(w.fleet, T0);
    assert_false(shared(&w, 0));
    assert_int_not_equal(atomic_load(&w.s->members[0].cell->address->changes), before);
    /* A neighbour comes and goes. */
    assert_int_equal(fleet_upsert(w.fleet, 0, &b.i, T0), 0);
    build(&w, T0);
    assert_true(shared(&w, 0) && shared(&w, 1));
    fleet_remove(w.fleet, 0, b.i.key, T0);
    build(&w, T0);
    fleet_reclaim(w.fleet, nobody, NULL);
    fleet_tick(w.fleet, T0);
    assert_false(shared(&w, 0));
    close_world(&w);
}

static void scraped_numbers_count_where_nobody_reports(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample s = {.known = 1u << SAMPLE_RUNNING, .running = 3, .fresh_for_ns = 10};
    struct sample typed = {.known = 1u << SAMPLE_RUNNING, .running = 5, .fresh_for_ns = 10};
    struct sample nothing = {0};
    struct sample got;

    open_world(&w, 2);
    rig_host(&h, 1, "");
    assert_int_equal(fleet_upsert(w.fleet, 1, &h.i, T0), 0);
    build(&w, T0);
    const struct endpoint *e = w.s->members[0].endpoint;
    struct cell *c = w.s->members[0].cell;
    assert_true(fleet_wants_scrape(w.fleet, e->slot, e->generation, T0));
    assert_int_equal(fleet_scraped(w.fleet, e->slot, e->generation, &s, T0), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 3);
    assert_int_equal(got.source, 1);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 10);
    assert_true(fleet_wants_scrape(w.fleet, e->slot, e->generation, T0 + 1));
    /* A report counts at once, and keeps what is scraped out while it is fresh. */
    assert_int_equal(fleet_sample(w.fleet, 1, h.i.key, &typed, T0 + 2), 0);
    assert_false(fleet_wants_scrape(w.fleet, e->slot, e->generation, T0 + 11));
    assert_int_equal(fleet_scraped(w.fleet, e->slot, e->generation, &s, T0 + 11), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 5);
    assert_true(fleet_wants_scrape(w.fleet, e->slot, e->generation, T0 + 12));
    assert_int_equal(fleet_scraped(w.fleet, e->slot, e->generation, &s, T0 + 12), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 3);
    /* One that tells nothing any more: what was known goes stale on its own. */
    assert_int_equal(fleet_scraped(w.fleet, e->slot, e->generation, &nothing, T0 + 13), 0);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 3);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 22);
    /* Another source of the address leaves: no word of it was in force. */
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0 + 14), 0);
    fleet_remove(w.fleet, 0, h.i.key, T0 + 15);
    fleet_cell_last(c, &got);
    assert_int_equal(got.running, 3);
    /* The kind counts where no source tells one, until the next generation. */
    assert_int_equal(fleet_set_engine(w.fleet, e->slot, e->generation, ENGINE_VLLM), 0);
    build(&w, T0 + 16);
    e = w.s->members[0].endpoint;
    assert_int_equal(e->engine, ENGINE_VLLM);
    assert_true(e->engine_probed);
    h.i.engine = ENGINE_SGLANG;
    assert_int_equal(fleet_upsert(w.fleet, 1, &h.i, T0 + 17), 0);
    build(&w, T0 + 17);
    e = w.s->members[0].endpoint;
    assert_int_equal(e->engine, ENGINE_SGLANG);
    assert_false(e->engine_probed);
    uint32_t generation = e->generation;
    uint32_t slot = e->slot;
    h.i.engine = ENGINE_UNKNOWN;
    h.i.epoch++;
    assert_int_equal(fleet_upsert(w.fleet, 1, &h.i, T0 + 18), 0);
    build(&w, T0 + 18);
    assert_int_equal(w.s->members[0].endpoint->engine, ENGINE_UNKNOWN);
    assert_int_equal(fleet_scraped(w.fleet, slot, generation, &s, T0 + 19), WEIR_E_STALE);
    assert_int_equal(fleet_set_engine(w.fleet, slot, generation, ENGINE_VLLM), WEIR_E_STALE);
    assert_false(fleet_wants_scrape(w.fleet, slot, generation, T0 + 19));
    close_world(&w);
}

static void another_process_is_another_generation(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample scraped = {.known = 1u << SAMPLE_RUNNING, .running = 3, .fresh_for_ns = 10};
    struct model_ref model = {.id = SLICE("probed")};
    struct sample got;

    open_world(&w, 1);
    rig_host(&h, 1, "gpu_util=10");
    h.i.n_models = 0;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    const struct endpoint *e = w.s->members[0].endpoint;
    const uint32_t slot = e->slot;
    const uint32_t generation = e->generation;
    assert_int_equal(fleet_set_models(w.fleet, slot, generation, &model, 1), 0);
    assert_int_equal(fleet_probe(w.fleet, slot, generation, true, T0 + 1), HEALTH_UP);
    assert_int_equal(fleet_restarted(w.fleet, slot, generation, T0 + 2), 0);
    assert_true(fleet_dirty(w.fleet));
    build(&w, T0 + 2);
    e = w.s->members[0].endpoint;
    assert_int_equal(e->slot, slot);
    assert_int_equal(e->generation, generation + 1);
    assert_int_equal(e->n_models, 0);
    assert_int_equal(atomic_load(&w.s->members[0].cell->health), HEALTH_UNKNOWN);
    /* What a registry says still holds, what we read from the old process does not. */
    fleet_cell_last(w.s->members[0].cell, &got);
    assert_int_equal(got.known, 1u << SAMPLE_GPU_UTIL);
    assert_int_equal(got.gpu_util_bp, 1000);
    assert_int_equal(fleet_restarted(w.fleet, slot, generation, T0 + 3), WEIR_E_STALE);
    assert_int_equal(fleet_scraped(w.fleet, slot, generation, &scraped, T0 + 3), WEIR_E_STALE);
    close_world(&w);
}

static void report_times_make_timed_samples(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct sample s;

    open_world(&w, 1);
    rig_host(&h, 1, "gpu_util=10 report_time_ms=5000");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    struct cell *c = w.s->members[0].cell;
    fleet_cell_last(c, &s);
    assert_false(s.while_leased);
    assert_int_equal(atomic_load(&c->fresh_until_ns), T0 + 15 * NS_PER_S);
    /* Reports 500 ms apart on the reporter's clock: fresh for 1500 ms from when we saw it. */
    rig_host(&h, 1, "gpu_util=20 report_time_ms=5500");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, NS_PER_S), 0);
    assert_int_equal(atomic_load(&c->fresh_until_ns), NS_PER_S + 1500 * NS_PER_MS);
    /* The same report beaten again is not younger, an older one changes nothing. */
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, 2 * NS_PER_S), 0);
    assert_int_equal(atomic_load(&c->fresh_until_ns), NS_PER_S + 1500 * NS_PER_MS);
    rig_host(&h, 1, "gpu_util=99 report_time_ms=4000");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, 2 * NS_PER_S), 0);
    fleet_cell_last(c, &s);
    assert_int_equal(s.gpu_util_bp, 2000);
    close_world(&w);
}

static void models_stay_known(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    struct slice config[] = {SLICE("z"), SLICE("b")};

    open_world(&w, 1);
    rig_host(&h, 1, "model_id=a,,c model_version=v9 max_model_len=4096");
    h.i.n_models = 0;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    assert_int_equal(fleet_set_known_models(w.fleet, config, 2), 0);
    build(&w, T0);
    static const char *const want[] = {"a", "b", "c", "z"};
    assert_int_equal(w.s->n_models, 4);
    for (int i = 0; i < 4; i++) {
        eq(w.s->models[i].id, want[i]);
        assert_int_equal(w.s->models[i].n_members, i % 2 == 0 && i < 3);
    }
    assert_int_equal(w.s->n_live_models, 2);
    eq(w.s->members[0].endpoint->models[1].version, "v9");
    assert_int_equal(w.s->members[0].endpoint->models[1].max_model_len, 4096);
    /* Gone, but known for remember_ns; then only the config's are. */
    fleet_remove(w.fleet, 0, h.i.key, T0 + 50);
    build(&w, T0 + 149);
    assert_int_equal(w.s->n_models, 4);
    assert_int_equal(w.s->n_live_models, 0);
    assert_int_equal(fleet_set_known_models(w.fleet, config, 1), 0);
    build(&w, T0 + 150);
    assert_int_equal(w.s->n_models, 1);
    eq(w.s->models[0].id, "z");
    assert_null(model_find(w.s, SLICE("a")));
    close_world(&w);
}

static void synced_when_every_source_is(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, 2);
    build(&w, T0);
    assert_false(w.s->synced);
    fleet_synced(w.fleet, 1);
    build(&w, T0);
    assert_false(w.s->synced);
    fleet_synced(w.fleet, 0);
    assert_true(fleet_dirty(w.fleet));
    build(&w, T0);
    assert_true(w.s->synced);
    fleet_synced(w.fleet, 0);
    assert_false(fleet_dirty(w.fleet));
    close_world(&w);
}

static void vouching_and_probation(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;

    open_world(&w, 2);
    rig_host(&h, 1, "");
    h.i.probation = true;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_false(w.s->members[0].endpoint->vouched);
    h.i.vouched = false;
    h.i.probation = false;
    assert_int_equal(fleet_upsert(w.fleet, 1, &h.i, T0), 0);
    build(&w, T0);
    assert_false(w.s->members[0].endpoint->vouched);
    h.i.vouched = true;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_true(w.s->members[0].endpoint->vouched);
    close_world(&w);
}

static void bad_instances_change_nothing(void **state)
{
    (void)state;
    struct world w;
    static char long_text[ENDPOINT_TEXT_MAX + 1];
    static struct kv many[ENDPOINT_KV_MAX + 1];

    memset(long_text, 'x', sizeof(long_text));
    open_world(&w, 1);
    build(&w, T0);
    long live = w.heap.live;
    for (int bad = 0; bad < 11; bad++) {
        struct rig_host h;
        rig_host(&h, 1, "");
        switch (bad) {
        case 0:
            h.i.host = SLICE("");
            break;
        case 1:
            h.i.host = SLICE("a b");
            break;
        case 2:
            h.i.host = SLICE("a\r\nX: y");
            break;
        case 3:
            h.i.port = 0;
            break;
        case 4:
            h.i.weight = WEIGHT_MAX + 1;
            break;
        case 5:
            h.i.id = slice_of(long_text, sizeof(long_text));
            break;
        case 6:
            h.model.id = SLICE("");
            break;
        case 7:
            h.i.metadata = many;
            h.i.n_metadata = ENDPOINT_KV_MAX + 1;
            break;
        case 8:
            h.i.key = SLICE("");
            break;
        case 9:
            h.i.host = SLICE("user@host");
            break;
        default:
            h.i.host = slice_of(long_text, 256);
            break;
        }
        assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), WEIR_E_INVALID);
        assert_false(fleet_dirty(w.fleet));
        assert_int_equal(w.heap.live, live);
    }
    close_world(&w);
}

static void the_table_has_an_end(void **state)
{
    (void)state;
    struct world w = {0};
    struct rig_host h;

    w.mem = test_heap_mem(&w.heap);
    struct fleet_options o = {.mem = &w.mem, .n_sources = 1, .endpoints_max = 100};
    assert_int_equal(fleet_new(&o, &w.fleet), 0);
    for (uint32_t i = 0; i < 101; i++) {
        rig_host(&h, i, "");
        assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), i < 100 ? 0 : WEIR_E_FULL);
    }
    fleet_remove(w.fleet, 0, SLICE("10.0.0.42"), T0);
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_int_equal(w.s->n_members, 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(w.s->members[i].endpoint->slot, i);
    close_world(&w);
}

static void drain_by_the_operator_survives_updates(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;

    open_world(&w, 1);
    rig_host(&h, 1, "");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    assert_int_equal(fleet_set_drain(w.fleet, SLICE("10.0.0.1"), true), WEIR_E_NOTFOUND);
    assert_int_equal(fleet_set_drain(w.fleet, SLICE("10.0.0.1:8000"), true), 0);
    h.i.weight = 5;
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    build(&w, T0);
    assert_true(w.s->members[0].endpoint->draining);
    assert_int_equal(fleet_set_drain(w.fleet, SLICE("10.0.0.1:8000"), false), 0);
    build(&w, T0);
    assert_false(w.s->members[0].endpoint->draining);
    close_world(&w);
}

static bool is_first(void *ctx, const struct snapshot *s)
{
    return s == ctx;
}

static void snapshots_live_while_used(void **state)
{
    (void)state;
    struct world w;
    struct rig_host h;
    const struct snapshot *first;
    void *ctx;

    open_world(&w, 1);
    rig_host(&h, 1, "");
    assert_int_equal(fleet_upsert(w.fleet, 0, &h.i, T0), 0);
    assert_int_equal(fleet_build(w.fleet, T0, &first), 0);
    memcpy(&ctx, &first, sizeof(ctx));
    fleet_remove(w.fleet, 0, h.i.key, T0);
    assert_int_equal(fleet_build(w.fleet, T0, &w.s), 0);
    assert_int_equal(w.s->seq, first->seq + 1);
    fleet_reclaim(w.fleet, is_first, ctx);
    eq(first->members[0].endpoint->host, "10.0.0.1");
    assert_int_equal(atomic_load(&first->members[0].cell->refs), 1);
    fleet_reclaim(w.fleet, nobody, NULL);
    assert_int_equal(w.s->n_members, 0);
    close_world(&w);
}

static void snapshots_share_who_did_not_change(void **state)
{
    (void)state;
    struct world w;
    struct rig_host one, two;
    const struct snapshot *first;

    open_world(&w, 2);
    rig_host(&one, 1, "model_id=a");
    rig_host(&two, 2, "model_id=b");
    one.i.n_models = two.i.n_models = 0;
    assert_int_equal(fleet_upsert(w.fleet, 0, &one.i, T0), 0);
    assert_int_equal(fleet_upsert(w.fleet, 0, &two.i, T0), 0);
    assert_int_equal(fleet_build(w.fleet, T0, &first), 0);
    two.i.weight = 7;
    assert_int_equal(fleet_upsert(w.fleet, 0, &two.i, T0), 0);
    assert_int_equal(fleet_build(w.fleet, T0, &w.s), 0);
    assert_ptr_equal(w.s->members[0].endpoint, first->members[0].endpoint);
    assert_int_equal(w.s->members[0].endpoint->seq, first->seq);
    assert_ptr_not_equal(w.s->members[1].endpoint, first->members[1].endpoint);
    assert_int_equal(w.s->members[1].endpoint->seq, w.s->seq);
    assert_int_equal(first->members[1].endpoint->weight, one.i.weight);
    assert_int_equal(w.s->members[1].endpoint->weight, 7);
    fleet_reclaim(w.fleet, nobody, NULL);

    /* A second source has a word in it, and takes it back: merged, and shown as it was. */
    struct rig_host other;
    rig_host(&other, 1, "model_id=c zone=z");
    other.i.zone = SLICE("z");
    other.i.n_models = 0;
    assert_int_equal(fleet_upsert(w.fleet, 1, &other.i, T0), 0);
    build(&w, T0);
    eq(w.s->members[0].endpoint->zone, "z");
    assert_int_equal(w.s->members[0].endpoint->n_models, 2);
    fleet_remove(w.fleet, 1, other.i.key, T0);
    build(&w, T0);
    assert_int_equal(w.s->members[0].endpoint->zone.n, 0);
    assert_int_equal(w.s->members[0].endpoint->n_models, 1);
    assert_int_equal(model_find(w.s, SLICE("b"))->members[0], 1);
    fleet_reclaim(w.fleet, nobody, NULL);
    close_world(&w);
}

/* Fail the n-th allocation in turn, until one run needs none: each failure leaves everything as it was. */
static void failing_allocations_leave_the_fleet_as_it_was(void **state)
{
    (void)state;
    struct world w = {0};
    struct rig_host h;

    w.mem = test_heap_mem(&w.heap);
    struct slice known = SLICE("k");
    struct fleet_options o = {
        .mem = &w.mem, .n_sources = 2, .known_models = &known, .n_known_models = 1};
    int rc = WEIR_E_NOMEM;
    for (long n = 1; rc; n++) {
        w.heap.fail_at = n;
        rc = fleet_new(&o, &w.fleet);
        w.heap.fail_at = 0;
        if (rc)
            assert_int_equal(w.heap.live, 0);
    }
    /* New endpoint, same endpoint again, second source, changed epoch, moved address. */
    for (int step = 0; step < 5; step++) {
        uint16_t source = step == 2;
        rig_host(&h, 1, step == 0 ? "model_id=a,b" : "model_id=a,c gpu_util=5 max_model_len=9");
        h.i.n_models = 0;
        h.i.epoch = step == 3;
        if (step == 4)
            h.i.port = 81;
        const struct snapshot *before = NULL;
        assert_int_equal(fleet_build(w.fleet, T0, &before), 0);
        fleet_reclaim(w.fleet, nobody, NULL);
        rc = WEIR_E_NOMEM;
        for (long n = 1; rc; n++) {
            w.heap.fail_at = n;
            rc = fleet_upsert(w.fleet, source, &h.i, T0);
            w.heap.fail_at = 0;
            if (rc) {
                assert_int_equal(rc, WEIR_E_NOMEM);
                assert_false(fleet_dirty(w.fleet));
            }
        }
        assert_true(step == 1 || fleet_dirty(w.fleet) || rc == 0);
        rc = WEIR_E_NOMEM;
        for (long n = 1; rc && fleet_dirty(w.fleet); n++) {
            long live = w.heap.live;
            const struct snapshot *s = before;
            w.heap.fail_at = n;
            rc = fleet_build(w.fleet, T0, &s);
            w.heap.fail_at = 0;
            if (rc) {
                assert_true(fleet_dirty(w.fleet));
                assert_ptr_equal(s, before);
                assert_int_equal(w.heap.live, live);
            }
        }
    }
    build(&w, T0);
    /* 10.0.0.1:8000 of the second source and 10.0.0.1:81 of the first. */
    assert_int_equal(w.s->n_members, 2);
    struct model_ref m[] = {{.id = SLICE("new1")}, {.id = SLICE("new2")}};
    rc = WEIR_E_NOMEM;
    for (long n = 1; rc; n++) {
        w.heap.fail_at = n;
        rc = fleet_set_models(w.fleet, w.s->members[0].endpoint->slot,
                              w.s->members[0].endpoint->generation, m, 2);
        w.heap.fail_at = 0;
    }
    assert_int_equal(fleet_set_models(w.fleet, 0, 99, m, 2), WEIR_E_STALE);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_endpoint_per_address_first_source_wins),
        cmocka_unit_test(scheme_and_port_tell_endpoints_apart),
        cmocka_unit_test(generations),
        cmocka_unit_test(beats_publish_samples_without_a_new_snapshot),
        cmocka_unit_test(typed_reports_beat_metadata_while_fresh),
        cmocka_unit_test(what_is_known_of_devices_fills_gaps),
        cmocka_unit_test(found_devices_count_where_no_source_tells_any),
        cmocka_unit_test(a_device_is_shared_as_long_as_others_may_promise_on_it),
        cmocka_unit_test(scraped_numbers_count_where_nobody_reports),
        cmocka_unit_test(another_process_is_another_generation),
        cmocka_unit_test(report_times_make_timed_samples),
        cmocka_unit_test(models_stay_known),
        cmocka_unit_test(synced_when_every_source_is),
        cmocka_unit_test(vouching_and_probation),
        cmocka_unit_test(bad_instances_change_nothing),
        cmocka_unit_test(the_table_has_an_end),
        cmocka_unit_test(drain_by_the_operator_survives_updates),
        cmocka_unit_test(snapshots_live_while_used),
        cmocka_unit_test(snapshots_share_who_did_not_change),
        cmocka_unit_test(failing_allocations_leave_the_fleet_as_it_was),
    };
    return cmocka_run_group_tests_name("fleet", tests, NULL, NULL);
}
