/* SPDX-License-Identifier: Apache-2.0 */
/* What a foreign Nacos may answer, and the URL that names it: nothing is read past its end, no token is empty. */
#include "fuzz.h"

#include "heap_mem.h"
#include "report/nacos_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    const struct slice text = slice_of((const char *)data, size);
    const struct instance in = {.host = SLICE("10.0.0.5"), .port = 8000};
    enum nacos_holder who;
    struct nacos_url url;
    struct buf token;
    uint64_t a;
    uint64_t b;

    if (report_nacos_read_list(text, &in, (struct slice){NULL, 0}, &who) == 0)
        FUZZ_CHECK(who <= NACOS_ANOTHERS);
    (void)!report_nacos_read_beat(text, &a, &b);
    buf_init(&token, &mem, 8192);
    if (report_nacos_read_login(text, &token, &a) == 0)
        FUZZ_CHECK(buf_len(&token) > 0);
    buf_fini(&token);
    if (report_nacos_url(text, &url) == 0)
        FUZZ_CHECK(url.authority.n > 0 && url.path.n > 0);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
