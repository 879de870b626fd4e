/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks of any bytes: no more names than places, the same twice, and whatever the emulated worker takes has its blocks. */
#include "fuzz.h"

#include "apps/worker/ask.h"
#include "loop/alloc.h"
#include "model/endpoint_t.h"
#include "peek/prefix.h"
#include "wire/json_scan.h"

enum { MAX = 16 };

static int ignore(void *ctx, enum json_event event, struct slice text, bool last)
{
    (void)ctx;
    (void)event;
    (void)text;
    (void)last;
    return 0;
}

static bool is_json(struct slice body)
{
    struct json_scan scan;

    wire_json_init(&scan, ignore, NULL);
    return wire_json_scan(&scan, body.p, body.n) == 0 && wire_json_end(&scan) == 0;
}

static void compare(enum ask_kind kind, struct slice body, const uint64_t *names, uint32_t n)
{
    static const struct slice models[] = {SLICE("m")};
    struct ask ask;
    struct ask_error error;

    /* The worker's library takes some that is no JSON. */
    if (!is_json(body) || ask_parse(kind, body, models, 1, &ask, &error) != 0)
        return;
    /* Keys that stand twice inside a tool, and lone surrogates, are read otherwise by the worker's library: such prompts
     * are only told apart from themselves. Without tools, all is as the worker has it. */
    if (!memmem(body.p, body.n, "tools", 5) && !memmem(body.p, body.n, "\\u", 2) &&
        !memmem(body.p, body.n, "system", 6) && !memmem(body.p, body.n, "instructions", 12)) {
        uint32_t want = ask.n_blocks < MAX ? ask.n_blocks : (uint32_t)MAX;
        FUZZ_CHECK(n == want && memcmp(names, ask.blocks, n * sizeof(*names)) == 0);
    }
    ask_fini(&ask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice body = slice_of((const char *)data, size);
    struct slice none = {NULL, 0};
    uint64_t a[MAX], b[MAX];

    for (uint32_t task = TASK_CHAT; task <= TASK_COMPLETION; task <<= 1) {
        uint32_t n = peek_prefix(body, task, SLICE("m"), none, loop_mem(), a, MAX);
        uint32_t m = peek_prefix(body, task, SLICE("m"), none, loop_mem(), b, MAX);
        FUZZ_CHECK(n <= MAX && n == m && memcmp(a, b, n * sizeof(a[0])) == 0);
        FUZZ_CHECK(peek_prefix_key(body, task) == peek_prefix_key(body, task));
        compare(task == TASK_CHAT ? ASK_CHAT : ASK_COMPLETION, body, a, n);
    }
    return 0;
}
