/* SPDX-License-Identifier: Apache-2.0 */
/* Multipart bodies: any cut finds the same. The first line of an input is the Content-Type. */
#include "fuzz.h"

#include "peek/multipart.h"

static int scan(struct multipart *m, const uint8_t *data, size_t size, enum fuzz_cutting how)
{
    struct slice body = slice_of((const char *)data, size);
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    struct slice type = slice_of(body.p, slice_find(body, '\n'));
    int rc = peek_multipart_init(m, type);

    if (rc)
        return rc;
    body = slice_from(body, type.n + 1);
    while (body.n && !rc) {
        size_t piece = fuzz_piece(&cutter, body.n);
        rc = peek_multipart_feed(m, body.p, piece);
        body = slice_from(body, piece);
    }
    FUZZ_CHECK(rc == 0 || (rc == WEIR_E_PROTO && !m->complete));
    return rc;
}

static void same_text(const struct peek_text *a, const struct peek_text *b)
{
    FUZZ_CHECK(a->present == b->present && a->too_long == b->too_long && a->n == b->n &&
               a->hash == b->hash);
    FUZZ_CHECK(a->n <= PEEK_TEXT_MAX && memcmp(a->bytes, b->bytes, a->n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct multipart whole;
    static struct multipart m;
    int rc = scan(&whole, data, size, FUZZ_WHOLE);

    for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
        FUZZ_CHECK(scan(&m, data, size, how) == rc);
        same_text(&whole.found.model, &m.found.model);
        same_text(&whole.found.user, &m.found.user);
        FUZZ_CHECK(whole.found.stream == m.found.stream &&
                   whole.found.has_stream == m.found.has_stream);
        FUZZ_CHECK(whole.found.prompt_bytes == m.found.prompt_bytes &&
                   whole.complete == m.complete);
        FUZZ_CHECK(whole.found.n_audio == m.found.n_audio &&
                   whole.found.n_images == m.found.n_images);
    }
    return 0;
}
