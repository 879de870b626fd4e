/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway cuts a prompt into the very blocks that the emulated worker does. */
#include "ct.h"

#include <stdio.h>
#include <string.h>

#include "apps/worker/ask.h"
#include "base/buf.h"
#include "base/bug.h"
#include "base/hash.h"
#include "base/prng.h"
#include "loop/alloc.h"
#include "model/endpoint_t.h"
#include "model/prefix.h"
#include "peek/prefix.h"

enum { ROUNDS = 400, MAX_BLOCKS = 64 };

static const struct slice none = {NULL, 0};
static const struct slice models[] = {SLICE("m")};

static uint32_t gateway(struct slice body, uint32_t task, uint64_t *names)
{
    return peek_prefix(body, task, SLICE("m"), none, loop_mem(), names, MAX_BLOCKS);
}

/* The same names from both; how many there are. */
static uint32_t same(enum ask_kind kind, struct slice body)
{
    uint64_t names[MAX_BLOCKS];
    struct ask ask;
    struct ask_error error;
    uint32_t n =
        gateway(body, kind == ASK_CHAT ? (uint32_t)TASK_CHAT : (uint32_t)TASK_COMPLETION, names);

    if (ask_parse(kind, body, models, 1, &ask, &error) != 0)
        fail_msg("the worker refuses: %s: %.*s", error.message, (int)body.n, body.p);
    uint32_t want = ask.n_blocks < MAX_BLOCKS ? ask.n_blocks : MAX_BLOCKS;
    if (n != want || memcmp(names, ask.blocks, n * sizeof(names[0])) != 0)
        fail_msg("%u blocks, the worker has %u: %.*s", n, want, (int)body.n, body.p);
    ask_fini(&ask);
    return n;
}

/* Text of about n bytes with all that JSON strings may hold. */
static void put_text(struct buf *b, struct prng *r, size_t n)
{
    static const char *const pieces[] = {
        "word ",
        "\\n",
        "\\\"",
        "\\\\",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\xc3\xa9",
        "\\/",
        "{[,:]}",
        "\\t",
        "a long run of plain text that is copied as it is, ",
        "\\u0000",
    };

    buf_put_char(b, '"');
    for (size_t from = buf_len(b); buf_len(b) - from < n;)
        buf_put_str(b, pieces[prng_below(r, prng_below(r, 2) ? 12 : 1)]);
    buf_put_char(b, '"');
}

static void put_blank(struct buf *b, struct prng *r)
{
    static const char *const blanks[] = {"", "", " ", "\n  ", "\t"};

    buf_put_str(b, blanks[prng_below(r, 5)]);
}

static void put_part(struct buf *b, struct prng *r)
{
    switch (prng_below(r, 4)) {
    case 0:
        buf_put_str(b, "{\"type\":\"image_url\",\"image_url\":{\"detail\":\"low\",\"url\":");
        put_text(b, r, prng_below(r, 3000));
        buf_put_str(b, "}}");
        return;
    case 1:
        buf_put_str(
            b,
            "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"UklGRg\",\"format\":\"wav\"}}");
        return;
    default:
        buf_put_str(b, "{\"text\":");
        put_text(b, r, prng_below(r, 3000));
        buf_put_str(b, ",\"type\":\"text\"}");
        return;
    }
}

static void put_message(struct buf *b, struct prng *r)
{
    bool role_last = prng_below(r, 2);

    buf_put_char(b, '{');
    if (!role_last)
        buf_put_str(b, "\"role\":\"user\",");
    put_blank(b, r);
    buf_put_str(b, prng_below(r, 4) ? "\"content\":" : "\"cont\\u0065nt\":");
    switch (prng_below(r, 4)) {
    case 0:
        buf_put_str(b, "null,\"tool_calls\":[{\"id\":\"x\",\"content\":\"not this\"}]");
        break;
    case 1:
        buf_put_char(b, '[');
        for (uint64_t n = prng_below(r, 4), i = 0; i < n; i++) {
            buf_put_str(b, i ? "," : "");
            put_blank(b, r);
            put_part(b, r);
        }
        buf_put_char(b, ']');
        break;
    default:
        put_text(b, r, prng_below(r, 6000));
        break;
    }
    if (role_last)
        buf_put_str(b, " , \"role\" : \"assistant\"");
    put_blank(b, r);
    buf_put_char(b, '}');
}

static void put_chat(struct buf *b, struct prng *r)
{
    static const char tools[] = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                                "\"strict\":true,\"parameters\":"
                                "{\"n\":1.5,\"enum\":[\"a\",\"b\\n\"],\"messages\":null}}}]";
    bool first = prng_below(r, 2);
    bool any = prng_below(r, 2);

    buf_put_char(b, '{');
    if (any && first) {
        buf_put_str(b, tools);
        buf_put_char(b, ',');
    }
    if (prng_below(r, 3) == 0)
        buf_put_str(b, "\"messages\":[{\"role\":\"user\",\"content\":\"the last one counts\"}],");
    buf_put_str(b, "\"messages\":[");
    for (uint64_t n = 1 + prng_below(r, 5), i = 0; i < n; i++) {
        buf_put_str(b, i ? "," : "");
        put_message(b, r);
    }
    buf_put_char(b, ']');
    if (any && !first) {
        buf_put_char(b, ',');
        buf_put_str(b, tools);
    }
    if (prng_below(r, 3) == 0)
        buf_put_str(b, ",\"cache_salt\":\"pepp\\u0065r\"");
    buf_put_str(b, ",\"model\":\"m\"}");
}

static void chats_of_any_shape_have_the_workers_blocks(void **state)
{
    (void)state;
    struct prng r = {11};
    uint32_t blocks = 0;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct buf b;
        buf_init(&b, loop_mem(), 1 << 20);
        put_chat(&b, &r);
        blocks += same(ASK_CHAT, buf_slice(&b));
        buf_fini(&b);
    }
    assert_true(blocks > ROUNDS);
}

static void completions_too(void **state)
{
    (void)state;
    struct prng r = {12};
    uint32_t blocks = 0;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct buf b;
        buf_init(&b, loop_mem(), 1 << 20);
        buf_put_str(&b, i % 3 == 1 ? "{\"prompt\": [" : "{\"prompt\":");
        if (i % 3 == 2) {
            buf_put_char(&b, '[');
            for (uint32_t k = 0; k < 1100; k++) {
                buf_put_str(&b, k ? ", " : "");
                buf_put_u64(&b, prng_below(&r, 130000));
            }
            buf_put_char(&b, ']');
        } else {
            put_text(&b, &r, prng_below(&r, 9000));
        }
        buf_put_str(&b, i % 3 == 1 ? "]}" : "}");
        blocks += same(ASK_COMPLETION, buf_slice(&b));
        buf_fini(&b);
    }
    assert_true(blocks > ROUNDS);
}

static void the_chain_starts_from_model_version_and_salt(void **state)
{
    (void)state;
    static char text[PREFIX_BLOCK_BYTES + 64];
    struct buf b;
    uint64_t a[MAX_BLOCKS], c[MAX_BLOCKS];

    memset(text, 'x', sizeof(text));
    buf_init(&b, loop_mem(), 1 << 16);
    buf_put_str(&b, "{\"prompt\":\"");
    buf_put(&b, text, sizeof(text));
    buf_put_str(&b, "\"}");
    struct slice body = buf_slice(&b);
    assert_int_equal(gateway(body, TASK_COMPLETION, a), 1);
    assert_int_equal(a[0],
                     model_prefix_next(model_prefix_root(SLICE("m"), none, none, none), text));
    assert_int_equal(peek_prefix(body, TASK_COMPLETION, SLICE("m"), SLICE("v2"), loop_mem(), c, 4),
                     1);
    assert_int_not_equal(a[0], c[0]);
    assert_int_equal(gateway(body, TASK_EMBEDDING, c), 0);
    assert_int_equal(peek_prefix(body, TASK_COMPLETION, SLICE("m"), none, loop_mem(), c, 0), 0);
    buf_fini(&b);
}

static uint64_t key_of(const char *body, uint32_t task)
{
    return peek_prefix_key(slice_str(body), task);
}

/* KubeAI's: of the first user's text, 100 characters and not bytes, however they are written. */
static void the_key_is_the_first_hundred_characters_of_the_user(void **state)
{
    (void)state;
    char chars[100 * 2 + 1];
    char body[512];

    for (int i = 0; i < 100; i++)
        memcpy(chars + 2 * i, "\xc3\xa9", 3);
    uint64_t want = hash_slice(slice_str(chars), 0);
    static const struct {
        const char *before, *after;
        uint32_t task;
    } shapes[] = {
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"content\":\"",
         "\",\"role\":\"user\"}]}", TASK_CHAT},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"},{\"text\":\"",
         "\"}]}]}", TASK_CHAT},
        {"{\"input\":\"", "\"}", TASK_CHAT},
        {"{\"prompt\":\"", "\"}", TASK_COMPLETION},
        {"{\"prompt\":[\"", "\",\"b\"]}", TASK_COMPLETION},
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int more = 0; more < 2; more++) {
            (void)snprintf(body, sizeof(body), "%s%s%s%s", shapes[i].before, chars,
                           more ? "and more \\n" : "", shapes[i].after);
            assert_int_equal(key_of(body, shapes[i].task), want);
            assert_int_equal(key_of(body, TASK_EMBEDDING), 0);
        }
    assert_int_equal(key_of("{\"prompt\":\"\\u00e9b\"}", TASK_COMPLETION),
                     key_of("{\"prompt\":\"\xc3\xa9\\u0062\"}", TASK_COMPLETION));
    static const char *const none_there[] = {
        "",
        "{",
        "[]",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}",
        "{\"messages\":[{\"role\":\"user\"}]}",
        "{\"messages\":7}"};
    for (size_t i = 0; i < ARRAY_LEN(none_there); i++)
        assert_int_equal(key_of(none_there[i], TASK_CHAT), 0);
}

/* Cut or broken anywhere it names no more than the whole has, and the same as far as it goes. */
static void what_is_cut_gives_a_part(void **state)
{
    (void)state;
    struct prng r = {13};
    struct buf b;
    uint64_t whole[MAX_BLOCKS], part[MAX_BLOCKS];

    buf_init(&b, loop_mem(), 1 << 20);
    buf_put_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":");
    put_text(&b, &r, 9000);
    buf_put_str(&b, "}]}");
    struct slice body = buf_slice(&b);
    uint32_t n = gateway(body, TASK_CHAT, whole);
    for (size_t cut = 0; cut < body.n; cut++) {
        uint32_t k = gateway(slice_of(body.p, cut), TASK_CHAT, part);
        assert_true(k <= n);
        assert_memory_equal(part, whole, k * sizeof(part[0]));
    }
    buf_fini(&b);
    /* As deep as it likes: nothing recurses. */
    buf_init(&b, loop_mem(), 1 << 22);
    buf_put_str(&b, "{\"prompt\":");
    for (uint32_t i = 0; i < 1000000; i++)
        buf_put_str(&b, "[ ");
    assert_int_equal(gateway(buf_slice(&b), TASK_COMPLETION, part), 0);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_of_any_shape_have_the_workers_blocks),
        cmocka_unit_test(completions_too),
        cmocka_unit_test(the_chain_starts_from_model_version_and_salt),
        cmocka_unit_test(the_key_is_the_first_hundred_characters_of_the_user),
        cmocka_unit_test(what_is_cut_gives_a_part),
    };

    return cmocka_run_group_tests_name("prefix", tests, NULL, NULL);
}
