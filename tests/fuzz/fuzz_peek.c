/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies: any cut finds the same, whether the body is JSON to its end or not. */
#include "fuzz.h"

#include "peek/peek.h"

static void scan(struct peek *k, const uint8_t *data, size_t size, enum fuzz_cutting how)
{
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    int rc = 0;

    peek_init(k);
    for (size_t at = 0; at < size && !rc;) {
        size_t piece = fuzz_piece(&cutter, size - at);
        rc = peek_feed(k, (const char *)data + at, piece);
        at += piece;
    }
    if (!rc)
        rc = peek_end(k);
    FUZZ_CHECK(rc == 0 || rc == WEIR_E_PROTO);
    FUZZ_CHECK(k->broken == (rc != 0));
    FUZZ_CHECK(rc || k->complete);
}

static void same_text(const struct peek_text *a, const struct peek_text *b)
{
    FUZZ_CHECK(a->present == b->present && a->too_long == b->too_long && a->n == b->n &&
               a->hash == b->hash);
    FUZZ_CHECK(a->n <= PEEK_TEXT_MAX && memcmp(a->bytes, b->bytes, a->n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct peek whole;
    static struct peek k;

    scan(&whole, data, size, FUZZ_WHOLE);
    /* A token number counts 4 bytes and needs 2 in the body; an escape at most doubles. */
    FUZZ_CHECK(whole.found.prompt_bytes <= 2 * size);
    for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
        scan(&k, data, size, how);
        const struct peek_found *a = &whole.found;
        const struct peek_found *b = &k.found;
        same_text(&a->model, &b->model);
        same_text(&a->user, &b->user);
        same_text(&a->prompt_cache_key, &b->prompt_cache_key);
        same_text(&a->previous_response_id, &b->previous_response_id);
        FUZZ_CHECK(a->stream == b->stream && a->has_stream == b->has_stream &&
                   a->max_tokens == b->max_tokens);
        FUZZ_CHECK(a->prompt_bytes == b->prompt_bytes && a->n_images == b->n_images &&
                   a->n_audio == b->n_audio);
        FUZZ_CHECK(whole.complete == k.complete && whole.broken == k.broken);
    }
    struct features f = {.prompt_tokens = 0};
    peek_features(&whole, &f);
    FUZZ_CHECK(f.prompt_tokens * 4 >= f.prompt_bytes);
    return 0;
}
