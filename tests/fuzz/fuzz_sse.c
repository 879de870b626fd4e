/* SPDX-License-Identifier: Apache-2.0 */
/* Event streams: any cut counts the same events, and data lies inside its event. */
#include "fuzz.h"

#include "wire/sse.h"

static struct sse_split scan(const uint8_t *data, size_t size, enum fuzz_cutting how)
{
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    struct sse_split s = {0};

    for (size_t at = 0; at < size;) {
        size_t piece = fuzz_piece(&cutter, size - at);
        for (size_t from = 0; from < piece;) {
            struct slice event = slice_of((const char *)data + at + from, piece - from);
            struct slice value;
            uint64_t before = s.events;
            size_t used = wire_sse_split(&s, event.p, event.n);
            FUZZ_CHECK(used <= event.n && s.events == before + (used > 0));
            event.n = used ? used : event.n;
            if (wire_sse_data(event, &value))
                FUZZ_CHECK(value.p >= event.p && value.p + value.n <= event.p + event.n);
            from += event.n;
        }
        at += piece;
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sse_split whole = scan(data, size, FUZZ_WHOLE);

    for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
        struct sse_split s = scan(data, size, how);
        FUZZ_CHECK(s.events == whole.events && s.in_event == whole.in_event);
    }
    return 0;
}
