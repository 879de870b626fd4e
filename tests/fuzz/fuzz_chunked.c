/* SPDX-License-Identifier: Apache-2.0 */
/* Chunked coding: any cut gives the same payload, and what is encoded decodes to itself. */
#include "fuzz.h"

#include "wire/chunked.h"

struct result {
    uint64_t hash;
    size_t payload;
    size_t used;
    int64_t rc;
    bool done;
};

static struct result decode(const uint8_t *data, size_t size, enum fuzz_cutting how)
{
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    struct chunked c = {0};
    struct result r = {0};

    while (r.used < size && !c.done) {
        size_t piece = fuzz_piece(&cutter, size - r.used);
        for (size_t at = 0; at < piece && !c.done;) {
            const char *p = (const char *)data + r.used;
            struct slice payload;
            r.rc = wire_chunked_read(&c, p, piece - at, &payload);
            if (r.rc < 0)
                return r;
            FUZZ_CHECK(r.rc > 0 && (size_t)r.rc <= piece - at);
            FUZZ_CHECK(payload.p >= p && payload.p + payload.n <= p + r.rc);
            r.hash = fuzz_hash(r.hash, payload.p, payload.n);
            r.payload += payload.n;
            at += (size_t)r.rc;
            r.used += (size_t)r.rc;
        }
    }
    r.rc = 0;
    r.done = c.done;
    return r;
}

static void round_trip(const uint8_t *data, size_t size)
{
    struct fuzz_cutter cutter = fuzz_cutter(FUZZ_LONG, data, size);
    uint8_t *coded = malloc(size * (CHUNKED_PREFIX_MAX + 3) + 5);
    size_t n = 0;

    FUZZ_CHECK(coded);
    for (size_t at = 0; at < size;) {
        size_t piece = fuzz_piece(&cutter, size - at);
        n += wire_chunked_prefix((char *)coded + n, piece);
        memcpy(coded + n, data + at, piece);
        memcpy(coded + n + piece, "\r\n", 2);
        n += piece + 2;
        at += piece;
    }
    memcpy(coded + n, "0\r\n\r\n", 5);
    struct result r = decode(coded, n + 5, FUZZ_SHORT);
    FUZZ_CHECK(r.rc == 0 && r.done && r.used == n + 5 && r.payload == size);
    FUZZ_CHECK(r.hash == fuzz_hash(0, data, size));
    free(coded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result whole = decode(data, size, FUZZ_WHOLE);

    for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
        struct result r = decode(data, size, how);
        FUZZ_CHECK(r.rc == whole.rc && r.done == whole.done);
        FUZZ_CHECK(r.rc < 0 ||
                   (r.hash == whole.hash && r.payload == whole.payload && r.used == whole.used));
    }
    round_trip(data, size);
    return 0;
}
