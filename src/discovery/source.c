/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/source.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "discovery/source_priv.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "model/instance.h"

enum { HELD_BYTES_MAX = 1 << 20 };

static const uint64_t CHECK_NS = 200 * NS_PER_MS;
static const uint64_t SAY_NS = 60 * NS_PER_S; /* the same trouble is told again after this long */
static const uint64_t HIDDEN = UINT64_MAX;    /* leaving_ns: no time ends it */

static void on_check(struct loop_timer *t);

/* --- one instance --- */

static void free_held(struct held *h)
{
    if (h->kept) {
        arena_fini(&h->kept->arena);
        mem_free(loop_mem(), h->kept);
    }
    mem_free(loop_mem(), h);
}

static bool keeps(const struct source *s)
{
    return s->o.whole || s->o.state_file;
}

static int keep(struct held *h, const struct instance *i)
{
    h->kept = mem_zalloc(loop_mem(), sizeof(*h->kept));
    if (!h->kept)
        return WEIR_E_NOMEM;
    arena_init(&h->kept->arena, loop_mem(), HELD_BYTES_MAX);
    int rc = arena_reserve(&h->kept->arena, model_instance_room(i));
    return rc ? rc : model_instance_copy(&h->kept->arena, i, &h->kept->instance);
}

/* The key in the sink is "name key": one instance may stand in several lists. */
static int new_held(const struct source_list *l, const struct instance *i, struct held **out)
{
    size_t n = l->name.n + 1 + i->key.n;
    struct held *h = mem_zalloc(loop_mem(), sizeof(*h) + n + 1 + i->host.n + 1);

    if (!h)
        return WEIR_E_NOMEM;
    char *p = h->text;
    memcpy(p, l->name.p, l->name.n);
    p[l->name.n] = ' ';
    memcpy(p + l->name.n + 1, i->key.p, i->key.n);
    h->sink_key = slice_of(p, n);
    h->key = slice_from(h->sink_key, l->name.n + 1);
    memcpy(p + n + 1, i->host.p, i->host.n);
    h->host = slice_of(p + n + 1, i->host.n);
    h->port = i->port;
    h->tls = i->tls;
    h->described = i->n_metadata > 0;
    list_init(&h->going);
    int rc = keeps(l->source) ? keep(h, i) : 0;
    if (rc) {
        free_held(h);
        return rc;
    }
    *out = h;
    return 0;
}

static void stay(struct source_list *l, struct held *h)
{
    l->n_leaving -= h->leaving_ns != 0;
    l->source->stats.n_leaving -= h->leaving_ns != 0;
    h->leaving_ns = 0;
    list_del(&h->going); /* missed, and named again */
}

static void let_go(struct source_list *l, struct held *h)
{
    struct source *s = l->source;

    stay(l, h);
    (void)map_del(&l->held, h->key);
    s->stats.n--;
    s->o.sink->remove(s->o.sink->ctx, s->o.index, h->sink_key);
    free_held(h);
    statefile_changed(&s->file);
}

static bool passes(const struct source *s, const struct held *h)
{
    return s->o.passing && s->o.passing(s->o.ctx, h->tls, h->host, h->port);
}

int source_list_put(struct source_list *l, const struct instance *instance)
{
    struct source *s = l->source;
    struct held *old = map_get(&l->held, instance->key);
    uint64_t hash = hash_pair(model_instance_hash(instance, NULL), instance->epoch);
    struct instance told = *instance;
    struct held *h;

    if (old) {
        stay(l, old);
        old->round = l->round;
        if (old->hash == hash && (old->kept || !keeps(s)))
            return 0;
    }
    int rc = new_held(l, instance, &h);
    if (rc)
        return rc;
    h->hash = hash;
    h->round = l->round;
    rc = map_put(&l->held, h->key, h);
    if (rc) {
        free_held(h);
        return rc;
    }
    told.key = h->sink_key;
    rc = s->o.sink->upsert(s->o.sink->ctx, s->o.index, &told);
    if (rc) {
        /* The old one was there before, so putting it back needs no memory. */
        int back = old ? map_put(&l->held, old->key, old) : 0;
        BUG_ON(back);
        if (!old)
            (void)map_del(&l->held, h->key);
        free_held(h);
        s->stats.refused++;
        return rc;
    }
    s->stats.n += !old;
    if (old && old->described && !h->described)
        log_warn("discovery", "source=%s: %.*s has lost its metadata", s->o.name,
                 SLICE_ARG(h->sink_key));
    if (old)
        free_held(old);
    statefile_changed(&s->file);
    return 0;
}

/* --- answers --- */

static void say_synced(struct source *s)
{
    if (s->synced)
        return;
    weir_list_foreach (at, &s->lists)
        if (!container_of(at, struct source_list, node)->answered)
            return;
    s->synced = true;
    s->o.sink->synced(s->o.sink->ctx, s->o.index);
}

static void set_silent(struct source *s, bool silent)
{
    if (s->silent == silent)
        return;
    s->silent = silent;
    if (s->o.sink->silent)
        s->o.sink->silent(s->o.sink->ctx, s->o.index, silent);
}

void source_ok(struct source *s)
{
    if (!s->stats.up && s->stats.errors)
        log_info("discovery", "source=%s answers again", s->o.name);
    s->stats.up = true;
    s->stats.answers++;
    s->stats.good_ns = loop_now(s->o.loop);
    s->stats.why[0] = '\0';
    set_silent(s, false);
}

void source_failed(struct source *s, const char *format, ...)
{
    char why[SOURCE_WHY_MAX];
    uint64_t now = loop_now(s->o.loop);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    if (s->stats.up || !s->stats.errors || strcmp(why, s->stats.why) != 0 ||
        now - s->logged_ns >= SAY_NS) {
        log_warn("discovery", "source=%s: %s; its last list of %u stays", s->o.name, why,
                 s->stats.n);
        s->logged_ns = now;
    }
    memcpy(s->stats.why, why, sizeof(why));
    s->stats.up = false;
    s->stats.errors++;
    set_silent(s, true);
}

static void answered(struct source_list *l)
{
    l->answered = true;
    source_ok(l->source);
    say_synced(l->source);
}

void source_list_begin(struct source_list *l)
{
    l->round++;
    l->in_round = true;
    l->resumed = l->narrowed = false;
}

void source_list_partial(struct source_list *l, bool partial)
{
    struct source *s = l->source;

    l->narrowed = partial && !l->partial;
    if (partial == l->partial)
        return;
    l->partial = partial;
    s->stats.n_partial += partial ? 1U : -1U;
    if (partial)
        log_warn("discovery",
                 "source=%s: the token may read only a part of %.*s: endpoints that it no longer "
                 "shows stay while they pass our checks",
                 s->o.name, SLICE_ARG(l->name));
    else
        log_info("discovery", "source=%s: all of %.*s is shown again", s->o.name,
                 SLICE_ARG(l->name));
}

void source_list_keep(struct source_list *l, struct slice key)
{
    struct held *h = map_get(&l->held, key);

    if (!h)
        return;
    stay(l, h);
    h->round = l->round;
}

void source_list_resume(struct source_list *l)
{
    l->in_round = l->resumed = true;
}

void source_list_miss(struct source_list *l, struct slice key)
{
    struct held *h = map_get(&l->held, key);

    if (h && list_empty(&h->going))
        list_add(&l->missed, &h->going);
}

void source_list_abandon(struct source_list *l)
{
    BUG_ON(l->resumed);
    l->in_round = false;
}

void source_list_same(struct source_list *l)
{
    answered(l);
}

/* Who is missing in a mass removal is held while it passes; see the head of source.h. */
static void hold(struct source_list *l, struct held *h)
{
    struct source *s = l->source;
    bool anew = h->leaving_ns == 0;

    if (l->narrowed)
        h->leaving_ns = HIDDEN;
    else if (anew)
        h->leaving_ns = loop_now(s->o.loop) + s->o.grace_ns;
    l->n_leaving += anew;
    s->stats.n_leaving += anew;
    if (!loop_timer_active(&s->check))
        loop_timer_set(s->o.loop, &s->check, loop_now(s->o.loop) + CHECK_NS);
}

/* A map must not change while it is walked: who goes is gathered first. */
static void let_all_go(struct source_list *l, struct list *going)
{
    while (!list_empty(going)) {
        struct held *h = container_of(going->next, struct held, going);
        list_del(&h->going);
        let_go(l, h);
    }
}

/* Who was not named. After events those are known, and nobody else is looked at. */
static void gather_missed(struct source_list *l)
{
    if (l->resumed)
        return;
    map_foreach(e, &l->held)
    {
        struct held *h = e->value;
        if (h->round != l->round)
            list_add(&l->missed, &h->going);
    }
}

/* A complete answer without them: now they are missing like anybody else. */
static void no_longer_hidden(struct source_list *l)
{
    weir_list_foreach (at, &l->missed) {
        struct held *h = container_of(at, struct held, going);
        if (h->leaving_ns != HIDDEN)
            continue;
        h->leaving_ns = 0;
        l->n_leaving--;
        l->source->stats.n_leaving--;
    }
}

static bool is_mass(const struct source_list *l)
{
    const struct source *s = l->source;
    uint32_t listed = l->held.n - l->n_leaving;
    uint32_t missing = 0;

    weir_list_foreach (at, &l->missed)
        missing += container_of(at, const struct held, going)->leaving_ns == 0;
    if (!s->o.grace_ns || !missing ||
        (uint64_t)missing * 100 < (uint64_t)listed * s->o.hold_percent)
        return false;
    log_warn("discovery",
             "source=%s: %u of %u endpoints of %.*s are gone at once: those that pass our checks "
             "stay for up to %" PRIu64 " s",
             s->o.name, missing, listed, SLICE_ARG(l->name), s->o.grace_ns / NS_PER_S);
    return true;
}

void source_list_end(struct source_list *l)
{
    BUG_ON(!l->in_round);
    gather_missed(l);
    if (!l->partial)
        no_longer_hidden(l);
    bool mass = l->narrowed || is_mass(l);
    weir_list_foreach_safe (at, &l->missed) {
        struct held *h = container_of(at, struct held, going);
        if (!(mass || h->leaving_ns) || !passes(l->source, h))
            continue;
        list_del(&h->going);
        hold(l, h);
    }
    let_all_go(l, &l->missed);
    l->in_round = l->resumed = l->narrowed = false;
    answered(l);
}

static void on_check(struct loop_timer *t)
{
    struct source *s = container_of(t, struct source, check);
    uint64_t now = loop_now(s->o.loop);
    struct list going;

    list_init(&going);
    weir_list_foreach (at, &s->lists) {
        struct source_list *l = container_of(at, struct source_list, node);
        map_foreach(e, &l->held)
        {
            struct held *h = e->value;
            if (h->leaving_ns && (now >= h->leaving_ns || !passes(s, h)))
                list_add(&going, &h->going);
        }
        let_all_go(l, &going);
    }
    if (s->stats.n_leaving)
        loop_timer_set(s->o.loop, t, now + CHECK_NS);
}

/* --- life --- */

void source_init(struct source *s, const struct source_options *o)
{
    struct statefile_options file = {.path = o->state_file,
                                     .room = "discovery",
                                     .option = "discovery[].state_file",
                                     .write = source_state_write,
                                     .ctx = s};

    *s = (struct source){.o = *o};
    if (s->o.hold_percent == 0)
        s->o.hold_percent = 100;
    s->check.on_timer = on_check;
    list_init(&s->lists);
    statefile_init(&s->file, o->loop, &file);
}

void source_list_init(struct source_list *l, struct source *s, struct slice name)
{
    *l = (struct source_list){.source = s, .name = name};
    map_init(&l->held, loop_mem());
    list_init(&l->missed);
    list_add(&s->lists, &l->node);
}

static struct source_list *list_named(const struct source *s, struct slice name)
{
    weir_list_foreach (at, &s->lists) {
        struct source_list *l = container_of(at, struct source_list, node);
        if (slice_eq(l->name, name))
            return l;
    }
    return NULL;
}

void source_adopt(struct source *to, struct source *from)
{
    bool all_kept = true;

    weir_list_foreach (at, &to->lists) {
        struct source_list *l = container_of(at, struct source_list, node);
        struct source_list *old = list_named(from, l->name);
        if (!old)
            continue;
        l->held = old->held;
        l->round = old->round;
        map_init(&old->held, loop_mem());
        map_foreach(e, &l->held)
        {
            const struct held *h = e->value;
            all_kept = all_kept && h->kept;
            stay(old, e->value);
            from->stats.n--;
            to->stats.n++;
        }
    }
    to->synced = from->synced;
    to->silent = from->silent;
    /* What is left in `from` is not what the file should have. */
    from->file.dirty = false;
    /* A file that is new to the source is written once it knows what to write; until then the old text is better. */
    if (all_kept)
        statefile_changed(&to->file);
}

void source_start(struct source *s)
{
    s->started = true;
    if (s->stats.n == 0 && source_state_load(s) > 0 && !s->synced) {
        s->synced = true;
        s->o.sink->synced(s->o.sink->ctx, s->o.index);
    }
}

void source_fini(struct source *s)
{
    if (!s->started && !s->lists.next)
        return;
    statefile_fini(&s->file);
    loop_timer_cancel(&s->check);
    while (!list_empty(&s->lists))
        source_list_fini(container_of(s->lists.next, struct source_list, node));
}

void source_list_fini(struct source_list *l)
{
    struct source *s = l->source;

    map_foreach(e, &l->held)
    {
        struct held *h = e->value;
        stay(l, h);
        s->stats.n--;
        s->o.sink->remove(s->o.sink->ctx, s->o.index, h->sink_key);
        free_held(h);
    }
    map_fini(&l->held);
    list_del(&l->node);
}
