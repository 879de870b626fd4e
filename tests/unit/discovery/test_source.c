/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "discovery/source.h"
#include "loop/log.h"

/* What the fleet was told, as text: "+key@port " "-key " "synced " "silent " "heard ". */
static char told[4096];
static bool refuse;
static unsigned failing_port; /* our own checks of this one fail */
static unsigned last_weight;
static bool last_probation;

static void say(const char *format, ...)
{
    va_list args;
    size_t n = strlen(told);

    va_start(args, format);
    (void)vsnprintf(told + n, sizeof(told) - n, format, args);
    va_end(args);
}

static int on_upsert(void *ctx, uint16_t source, const struct instance *i)
{
    (void)ctx;
    assert_int_equal(source, 3);
    if (refuse)
        return WEIR_E_DENIED;
    last_weight = i->weight;
    last_probation = i->probation;
    say("+%.*s@%u ", SLICE_ARG(i->key), i->port);
    return 0;
}

static void on_remove(void *ctx, uint16_t source, struct slice key)
{
    (void)ctx;
    (void)source;
    say("-%.*s ", SLICE_ARG(key));
}

static void on_synced(void *ctx, uint16_t source)
{
    (void)ctx;
    (void)source;
    say("synced ");
}

static void on_silent(void *ctx, uint16_t source, bool silent)
{
    (void)ctx;
    (void)source;
    say(silent ? "silent " : "heard ");
}

static bool passing(void *ctx, bool tls, struct slice host, uint16_t port)
{
    (void)ctx;
    (void)tls;
    assert_true(slice_eq(host, SLICE("10.0.0.1")));
    return port != failing_port;
}

static const struct update_sink sink = {
    .upsert = on_upsert, .remove = on_remove, .synced = on_synced, .silent = on_silent};

static void expect(const char *text)
{
    assert_string_equal(told, text);
    told[0] = '\0';
}

struct rig {
    struct loop *loop;
    struct source source;
    struct source_list list;
};

static void rig_open(struct rig *r, const char *state_file, uint64_t grace_ns, uint32_t hold)
{
    assert_int_equal(loop_new(&r->loop), 0);
    struct source_options o = {.loop = r->loop,
                               .sink = &sink,
                               .index = 3,
                               .name = "test",
                               .state_file = state_file,
                               .grace_ns = grace_ns,
                               .hold_percent = hold,
                               .passing = passing};
    told[0] = '\0';
    refuse = false;
    failing_port = 0;
    source_init(&r->source, &o);
    source_list_init(&r->list, &r->source, SLICE("llm"));
    source_start(&r->source);
}

static void rig_close(struct rig *r)
{
    source_fini(&r->source);
    loop_free(r->loop);
}

static int put(struct rig *r, const char *key, uint16_t port, uint32_t weight)
{
    struct kv metadata[] = {{SLICE("model_id"), SLICE("m")}};
    struct instance i = {.key = slice_str(key),
                         .id = slice_str(key),
                         .host = SLICE("10.0.0.1"),
                         .port = port,
                         .weight = weight,
                         .enabled = true,
                         .healthy = true,
                         .metadata = metadata,
                         .n_metadata = 1};

    return source_list_put(&r->list, &i);
}

/* An answer with the named instances, one letter each; the letter's number is the port. */
static void answer(struct rig *r, const char *letters)
{
    char key[2] = "";

    source_list_begin(&r->list);
    for (; *letters; letters++) {
        key[0] = *letters;
        assert_int_equal(put(r, key, (uint16_t)(*letters - 'a' + 1), 1000), 0);
    }
    source_list_end(&r->list);
}

/* A timer and the loop that it ends. */
struct end {
    struct loop_timer timer;
    struct loop *loop;
};

static void on_end(struct loop_timer *t)
{
    loop_stop(container_of(t, struct end, timer)->loop);
}

/* Let the loop run until `ms` have passed. */
static void run_for(struct rig *r, uint64_t ms)
{
    struct end end = {.timer = {.on_timer = on_end}, .loop = r->loop};

    loop_timer_set(r->loop, &end.timer, loop_clock() + ms * NS_PER_MS);
    loop_run(r->loop);
}

static void the_fleet_hears_only_what_changed(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 0, 0);
    answer(&r, "ab");
    expect("+llm a@1 +llm b@2 synced ");
    answer(&r, "ab");
    expect("");
    source_list_begin(&r.list);
    assert_int_equal(put(&r, "a", 1, 500), 0);
    assert_int_equal(put(&r, "c", 3, 1000), 0);
    source_list_end(&r.list);
    expect("+llm a@1 +llm c@3 -llm b ");
    assert_int_equal(r.source.stats.n, 2);
    /* Events name those that change, and nobody else is looked at; the last word on one of them counts. */
    source_list_resume(&r.list);
    source_list_miss(&r.list, SLICE("a"));
    source_list_miss(&r.list, SLICE("c"));
    source_list_miss(&r.list, SLICE("nobody"));
    assert_int_equal(put(&r, "c", 3, 1000), 0);
    source_list_end(&r.list);
    expect("-llm a ");
    rig_close(&r);
    expect("-llm c ");
}

static void a_refused_change_leaves_what_was_there(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 0, 0);
    answer(&r, "a");
    expect("+llm a@1 synced ");
    refuse = true;
    assert_int_equal(put(&r, "a", 1, 7), WEIR_E_DENIED);
    assert_int_equal(put(&r, "b", 2, 7), WEIR_E_DENIED);
    assert_int_equal(r.source.stats.n, 1);
    assert_int_equal(r.source.stats.refused, 2);
    refuse = false;
    answer(&r, "a");
    expect("");
    rig_close(&r);
}

static void an_answer_cut_short_removes_nobody(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 0, 0);
    answer(&r, "ab");
    told[0] = '\0';
    source_list_begin(&r.list);
    assert_int_equal(put(&r, "a", 1, 1000), 0);
    source_list_abandon(&r.list);
    source_failed(&r.source, "bad JSON");
    expect("silent ");
    assert_false(r.source.stats.up);
    assert_string_equal(r.source.stats.why, "bad JSON");
    answer(&r, "ab");
    expect("heard ");
    assert_true(r.source.stats.up);
    assert_int_equal(r.source.stats.errors, 1);
    rig_close(&r);
}

static void an_empty_list_keeps_those_that_pass(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 3600 * NS_PER_S, 0);
    answer(&r, "abc");
    told[0] = '\0';
    failing_port = 2;
    answer(&r, "");
    expect("-llm b ");
    assert_int_equal(r.source.stats.n_leaving, 2);
    /* Empty again: the same. */
    answer(&r, "");
    expect("");
    /* Back on the list: nothing was lost, nothing is told. */
    answer(&r, "ac");
    expect("");
    assert_int_equal(r.source.stats.n_leaving, 0);
    /* One of two that leaves is believed. */
    answer(&r, "a");
    expect("-llm c ");
    rig_close(&r);
}

static void one_that_fails_while_it_is_held_goes_at_once(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 3600 * NS_PER_S, 0);
    answer(&r, "ab");
    answer(&r, "");
    told[0] = '\0';
    failing_port = 1;
    run_for(&r, 300);
    expect("-llm a ");
    assert_int_equal(r.source.stats.n_leaving, 1);
    rig_close(&r);
}

static void the_grace_ends(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 100 * NS_PER_MS, 0);
    answer(&r, "a");
    answer(&r, "");
    told[0] = '\0';
    run_for(&r, 400);
    expect("-llm a ");
    assert_int_equal(r.source.stats.n, 0);
    rig_close(&r);
}

static void a_mass_removal_is_held_like_an_empty_list(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 3600 * NS_PER_S, 50);
    answer(&r, "abcd");
    told[0] = '\0';
    answer(&r, "abc"); /* a quarter */
    expect("-llm d ");
    answer(&r, "a"); /* two of three */
    expect("");
    assert_int_equal(r.source.stats.n_leaving, 2);
    answer(&r, "abc");
    expect("");
    assert_int_equal(r.source.stats.n_leaving, 0);
    rig_close(&r);
}

static void partial(struct rig *r, const char *letters)
{
    char key[2] = "";

    source_list_begin(&r->list);
    source_list_partial(&r->list, true);
    for (; *letters; letters++) {
        key[0] = *letters;
        assert_int_equal(put(r, key, (uint16_t)(*letters - 'a' + 1), 1000), 0);
    }
    source_list_end(&r->list);
}

/* Whatever the grace is: those are no removals. */
static void who_is_hidden_stays_while_it_passes(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 1, 0);
    answer(&r, "abcde");
    told[0] = '\0';
    failing_port = 2;
    partial(&r, "ae");
    expect("-llm b ");
    assert_int_equal(r.source.stats.n_leaving, 2);
    assert_int_equal(r.source.stats.n_partial, 1);
    /* Who is no longer shown now has left. The others are hidden for as long as it takes. */
    partial(&r, "a");
    expect("-llm e ");
    run_for(&r, 300);
    expect("");
    failing_port = 3;
    run_for(&r, 300);
    expect("-llm c ");
    /* All is shown: whom it does not have is gone. */
    source_list_begin(&r.list);
    source_list_partial(&r.list, false);
    assert_int_equal(put(&r, "a", 1, 1000), 0);
    source_list_end(&r.list);
    expect("-llm d ");
    assert_int_equal(r.source.stats.n_leaving, 0);
    assert_int_equal(r.source.stats.n_partial, 0);
    rig_close(&r);
}

static void the_last_good_list_survives_a_restart(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-source-XXXXXX";
    struct rig r;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    (void)close(fd);
    (void)unlink(path);
    rig_open(&r, path, 0, 0);
    expect("");
    source_list_begin(&r.list);
    assert_int_equal(put(&r, "a", 1, 1500), 0);
    source_list_end(&r.list);
    rig_close(&r);

    /* The registry is down: what was known comes back, not to be used before it was checked. */
    rig_open(&r, path, 0, 0);
    expect("+llm a@1 synced ");
    assert_int_equal(last_weight, 1500);
    assert_true(last_probation);
    source_failed(&r.source, "refused");
    expect("silent ");
    /* It answers: the same instance is vouched for again. */
    source_list_begin(&r.list);
    assert_int_equal(put(&r, "a", 1, 1500), 0);
    source_list_end(&r.list);
    expect("+llm a@1 heard ");
    assert_false(last_probation);
    rig_close(&r);
    (void)unlink(path);
}

static void a_spoilt_state_file_is_kept_aside(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-source-XXXXXX";
    char bad[64];
    struct rig r;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"format\":", 10), 10);
    (void)close(fd);
    (void)snprintf(bad, sizeof(bad), "%s.bad", path);
    rig_open(&r, path, 0, 0);
    expect("");
    assert_int_equal(access(bad, F_OK), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    rig_close(&r);
    (void)unlink(bad);
    (void)unlink(path);
}

static void events_stand_beside_what_was_answered(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 60 * NS_PER_S, 60);
    answer(&r, "abc");
    expect("+llm a@1 +llm b@2 +llm c@3 synced ");
    source_list_resume(&r.list);
    source_list_miss(&r.list, SLICE("a"));
    source_list_miss(&r.list, SLICE("never there"));
    assert_int_equal(put(&r, "d", 4, 1000), 0);
    source_list_end(&r.list);
    expect("+llm d@4 -llm a ");
    /* Two of three at once: held, as in a whole answer; another batch of events does not bring them back. */
    source_list_resume(&r.list);
    source_list_miss(&r.list, SLICE("b"));
    source_list_miss(&r.list, SLICE("c"));
    source_list_end(&r.list);
    assert_int_equal(r.source.stats.n_leaving, 2);
    source_list_resume(&r.list);
    source_list_end(&r.list);
    assert_int_equal(r.source.stats.n_leaving, 2);
    expect("");
    rig_close(&r);
}

static void who_cannot_be_read_stays_as_it_was(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, NULL, 0, 0);
    answer(&r, "ab");
    expect("+llm a@1 +llm b@2 synced ");
    source_list_begin(&r.list);
    source_list_keep(&r.list, SLICE("a"));
    source_list_keep(&r.list, SLICE("never there"));
    source_list_end(&r.list);
    expect("-llm b ");
    rig_close(&r);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fleet_hears_only_what_changed),
        cmocka_unit_test(a_refused_change_leaves_what_was_there),
        cmocka_unit_test(an_answer_cut_short_removes_nobody),
        cmocka_unit_test(an_empty_list_keeps_those_that_pass),
        cmocka_unit_test(one_that_fails_while_it_is_held_goes_at_once),
        cmocka_unit_test(the_grace_ends),
        cmocka_unit_test(a_mass_removal_is_held_like_an_empty_list),
        cmocka_unit_test(events_stand_beside_what_was_answered),
        cmocka_unit_test(who_cannot_be_read_stays_as_it_was),
        cmocka_unit_test(who_is_hidden_stays_while_it_passes),
        cmocka_unit_test(the_last_good_list_survives_a_restart),
        cmocka_unit_test(a_spoilt_state_file_is_kept_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
