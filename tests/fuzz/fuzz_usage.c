/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: any cut reads the same usage. */
#include "fuzz.h"

#include "peek/usage.h"

static struct peek_usage scan(const uint8_t *data, size_t size, enum fuzz_cutting how)
{
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    struct peek_usage u;

    peek_usage_init(&u);
    for (size_t at = 0; at < size;) {
        size_t piece = fuzz_piece(&cutter, size - at);
        peek_usage_feed(&u, (const char *)data + at, piece);
        at += piece;
    }
    return u;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct peek_usage whole = scan(data, size, FUZZ_WHOLE);

    for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
        struct peek_usage u = scan(data, size, how);
        FUZZ_CHECK(u.usage.known == whole.usage.known &&
                   u.usage.prompt_tokens == whole.usage.prompt_tokens);
        FUZZ_CHECK(u.usage.completion_tokens == whole.usage.completion_tokens &&
                   u.usage.cached_tokens == whole.usage.cached_tokens);
    }
    return 0;
}
