/* SPDX-License-Identifier: Apache-2.0 */
/** @file The sources of the configuration: static lists are told by hand, all others run by themselves. */
#include "apps/serve/control.h"
#include "discovery/static.h"
#include "loop/alloc.h"
#include "loop/log.h"

static bool runs(const struct conf *conf, uint32_t i)
{
    return conf && i < conf->n_sources && conf->sources[i].type != CONF_SOURCE_STATIC;
}

/* Do our own checks of this address pass? Only for those that a source no longer lists, so a walk is cheap enough. */
static bool passing(void *ctx, bool tls, struct slice host, uint16_t port)
{
    const struct control *c = ctx;

    for (uint32_t i = 0; c->snapshot && i < c->snapshot->n_members; i++) {
        const struct member *m = &c->snapshot->members[i];
        if (m->endpoint->port == port && m->endpoint->tls == tls &&
            slice_eq_nocase(m->endpoint->host, host))
            return atomic_load_explicit(&m->cell->health, memory_order_relaxed) == HEALTH_UP &&
                   !(atomic_load_explicit(&m->cell->gate, memory_order_relaxed) & GATE_BREAKER);
    }
    return false;
}

static void name_sources(struct control *c, const struct conf *conf)
{
    for (uint32_t i = 0; i < CONTROL_CONFIG_SOURCES; i++) {
        c->sources[i].name = i < conf->n_sources ? conf->sources[i].name : (struct slice){NULL, 0};
        c->sources[i].stats = NULL;
        /* A place without a source has nothing to tell. */
        if (i < conf->n_sources)
            continue;
        c->source_state[i] = SOURCE_SILENT;
        if (c->fleet)
            fleet_synced(c->fleet, (uint16_t)i);
    }
}

static void start(struct control *c, const struct conf *conf, uint32_t i, struct discovery *before)
{
    struct discovery_env env = {.loop = c->loop,
                                .fetcher = c->fetcher,
                                .sink = &c->sink,
                                .passing = passing,
                                .requests = control_current_requests,
                                .ctx = c};

    int rc = discovery_start(&env, &conf->sources[i], (uint16_t)i, before, &c->running[i]);
    if (rc == 0)
        return;
    log_error("control", "source=%.*s cannot be used: %s", SLICE_ARG(conf->sources[i].name),
              err_text(rc));
    c->running[i] = before;
}

static void show_stats(struct control *c)
{
    for (uint32_t i = 0; i < CONTROL_CONFIG_SOURCES; i++)
        c->sources[i].stats = c->running[i] ? discovery_stats(c->running[i]) : NULL;
}

void control_name_sources(struct control *c, const struct conf *conf)
{
    name_sources(c, conf);
    show_stats(c);
}

void control_source_is(struct control *c, uint16_t source, bool ok, const char *why)
{
    enum control_source_state state = ok ? SOURCE_OK : SOURCE_FAILED;
    struct buf b;

    if (c->source_state[source] == state)
        return;
    c->source_state[source] = state;
    buf_init(&b, loop_mem(), 4096);
    buf_put_str(&b, "{\"source\":");
    buf_put_json(&b, c->sources[source].name);
    if (why) {
        buf_put_str(&b, ",\"why\":");
        buf_put_json(&b, slice_str(why));
    }
    buf_put_char(&b, '}');
    if (!b.err)
        admin_event(c->admin, ok ? "source_ok" : "source_failed", buf_slice(&b));
    buf_fini(&b);
}

void control_look_at_sources(struct control *c)
{
    for (uint16_t i = 0; i < CONTROL_CONFIG_SOURCES; i++) {
        const struct source_stats *s = c->sources[i].stats;
        if (s && s->up)
            control_source_is(c, i, true, NULL);
        else if (s && s->errors)
            control_source_is(c, i, false, s->why);
    }
}

void control_tell_sources(struct control *c, const struct conf *conf)
{
    name_sources(c, conf);
    for (uint32_t i = 0; i < conf->n_sources; i++)
        if (!runs(conf, i))
            discovery_static_start(&conf->sources[i], (uint16_t)i, &c->sink);
        else if (!c->running[i])
            start(c, conf, i, NULL);
    show_stats(c);
}

void control_drop_sources(struct control *c, const struct conf *before, const struct conf *now)
{
    for (uint32_t i = 0; i < CONTROL_CONFIG_SOURCES; i++) {
        if (i < before->n_sources && !runs(before, i))
            discovery_static_drop(&before->sources[i], i < now->n_sources ? &now->sources[i] : NULL,
                                  (uint16_t)i, &c->sink);
        if (!c->running[i])
            continue;
        if (!runs(now, i)) {
            discovery_free(c->running[i]);
            c->running[i] = NULL;
        } else if (!conf_source_same(before, now, i)) {
            start(c, now, i, c->running[i]);
        }
    }
    show_stats(c);
}

void control_end_sources(struct control *c)
{
    for (uint32_t i = 0; i < CONTROL_CONFIG_SOURCES; i++) {
        discovery_free(c->running[i]);
        c->running[i] = NULL;
    }
    show_stats(c);
}
