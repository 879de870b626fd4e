/* SPDX-License-Identifier: Apache-2.0 */
/* URLs: parts lie inside the text, queries end, and percent encoding undoes itself. */
#include "fuzz.h"

#include "heap_mem.h"
#include "wire/url.h"

static void inside(struct slice part, struct slice whole)
{
    FUZZ_CHECK(part.n == 0 || (part.p >= whole.p && part.p + part.n <= whole.p + whole.n));
}

static void check_parse(struct slice text)
{
    struct url u;

    if (wire_url_parse(text, &u))
        return;
    inside(u.host, text);
    inside(u.authority, text);
    if (u.path.n > 1)
        inside(u.path, text);
    inside(u.query, text);
    FUZZ_CHECK(u.host.n > 0 && u.port > 0 && u.path.n > 0 && u.path.p[0] == '/');
    FUZZ_CHECK(slice_find(u.authority, '@') == u.authority.n);
}

static void check_query(struct slice text)
{
    struct slice rest = text;
    struct slice name;
    struct slice value;
    size_t n = 0;

    while (wire_query_next(&rest, &name, &value)) {
        inside(name, text);
        inside(value, text);
        n++;
    }
    FUZZ_CHECK(n <= text.n);
}

static void check_decode(struct slice text)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf coded;
    struct buf plain;

    buf_init(&coded, &mem, SIZE_MAX / 2);
    buf_init(&plain, &mem, SIZE_MAX / 2);
    int rc = wire_url_decode(text, true, &plain);
    FUZZ_CHECK(rc == 0 || rc == WEIR_E_INVALID);
    FUZZ_CHECK(rc != 0 || wire_url_means(text, true, buf_slice(&plain)));
    buf_put_char(&plain, 'x');
    FUZZ_CHECK(rc != 0 || !wire_url_means(text, true, buf_slice(&plain)));
    buf_clear(&plain);
    for (size_t i = 0; i < text.n; i++) {
        buf_put_char(&coded, '%');
        buf_put_hex(&coded, (unsigned char)text.p[i], 2);
    }
    FUZZ_CHECK(wire_url_decode(buf_slice(&coded), false, &plain) == 0);
    FUZZ_CHECK(slice_eq(buf_slice(&plain), text));
    FUZZ_CHECK(wire_url_means(buf_slice(&coded), false, text));
    buf_fini(&coded);
    buf_fini(&plain);
    FUZZ_CHECK(heap.live == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of((const char *)data, size);
    struct slice path;
    struct slice query;

    check_parse(text);
    wire_target_split(text, &path, &query);
    FUZZ_CHECK(path.n > 0);
    check_query(text);
    check_decode(text);
    return 0;
}
