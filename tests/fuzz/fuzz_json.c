/* SPDX-License-Identifier: Apache-2.0 */
/* JSON scanner: any cut gives the same events and the same verdict, and what jansson reads is accepted. */
#include "fuzz.h"

#include <jansson.h>

#include "wire/json_scan.h"

struct trace {
    uint64_t hash;
    unsigned depth;
    unsigned deepest;
    bool open;
};

static int record(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct trace *t = ctx;
    unsigned char mark = (unsigned char)event;
    bool texty = event == JSON_SCAN_KEY || event == JSON_SCAN_STRING;

    if (event == JSON_SCAN_OBJECT_BEGIN || event == JSON_SCAN_ARRAY_BEGIN)
        t->depth++;
    if (event == JSON_SCAN_OBJECT_END || event == JSON_SCAN_ARRAY_END) {
        FUZZ_CHECK(t->depth > 0);
        t->depth--;
    }
    t->deepest = t->depth > t->deepest ? t->depth : t->deepest;
    FUZZ_CHECK(texty || (last && !t->open));
    FUZZ_CHECK(!texty || last || text.n > 0);
    if (!t->open)
        t->hash = fuzz_hash(t->hash, &mark, 1);
    t->hash = fuzz_hash(t->hash, text.p, text.n);
    if (last)
        t->hash = fuzz_hash(t->hash, "\xff\xfe", 2);
    t->open = !last;
    return 0;
}

struct result {
    struct trace trace;
    uint64_t offset;
    int rc;
};

static struct result scan(const uint8_t *data, size_t size, enum fuzz_cutting how)
{
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    struct result r = {.rc = 0};
    struct json_scan s;

    wire_json_init(&s, record, &r.trace);
    for (size_t at = 0; at < size && !r.rc;) {
        size_t piece = fuzz_piece(&cutter, size - at);
        r.rc = wire_json_scan(&s, (const char *)data + at, piece);
        at += piece;
    }
    if (!r.rc)
        r.rc = wire_json_end(&s);
    FUZZ_CHECK(r.rc == 0 || (s.error && (r.rc == WEIR_E_PROTO || r.rc == WEIR_E_FULL)));
    FUZZ_CHECK(r.rc || (r.trace.depth == 0 && !r.trace.open && s.offset == size));
    r.offset = s.offset;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result whole = scan(data, size, FUZZ_WHOLE);

    for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
        struct result r = scan(data, size, how);
        FUZZ_CHECK(r.rc == whole.rc && r.offset == whole.offset &&
                   r.trace.hash == whole.trace.hash);
    }
    json_error_t error;
    /* jansson ends the text at a NUL byte, which is never JSON. */
    bool nul = size > 0 && memchr(data, 0, size) != NULL;
    json_t *tree =
        nul ? NULL : json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (tree) {
        /* Only our own limits may refuse what is JSON. */
        FUZZ_CHECK(whole.rc == 0 || whole.trace.deepest == JSON_DEPTH_MAX ||
                   size > JSON_NUMBER_MAX);
        json_decref(tree);
    }
    return 0;
}
