/* SPDX-License-Identifier: Apache-2.0 */
/* What clients write into identifiers, paths and numbers: what passes is harmless in a head and in a log line. */
#include "fuzz.h"

#include "base/num.h"
#include "proxy/exchange.h"

static void check_path(struct slice path)
{
    if (!route_path_ok(path))
        return;
    for (size_t i = 0; i + 1 < path.n; i++)
        if (path.p[i] == '/' && path.p[i + 1] == '.')
            FUZZ_CHECK(i + 2 < path.n && path.p[i + 2] != '/' &&
                       !(path.p[i + 2] == '.' && (i + 3 == path.n || path.p[i + 3] == '/')));
}

static void check_numbers(struct slice text)
{
    uint64_t u;
    uint64_t scaled;
    int64_t i;
    double d;

    if (num_u64(text, &u) == 0)
        for (size_t k = 0; k < text.n; k++)
            FUZZ_CHECK(text.p[k] >= '0' && text.p[k] <= '9');
    if (num_f64(text, &d) == 0)
        FUZZ_CHECK(d - d == 0); /* neither infinite nor nan */
    if (num_u64(text, &u) == 0 && u < 1000000)
        FUZZ_CHECK(num_scaled(text, 100, &scaled) == 0 && scaled == u * 100);
    (void)!num_i64(text, &i);
    (void)!num_duration(text, &u);
    (void)!num_size(text, &u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of((const char *)data, size);

    if (route_request_id_ok(text)) {
        FUZZ_CHECK(text.n > 0 && text.n <= 128);
        for (size_t i = 0; i < text.n; i++)
            FUZZ_CHECK(text.p[i] > 0x20 && text.p[i] < 0x7f && text.p[i] != '"' &&
                       text.p[i] != '\\');
    }
    /* Later versions may add to these 55 bytes. */
    if (route_traceparent_ok(text))
        for (size_t i = 0; i < 55; i++)
            FUZZ_CHECK(text.p[i] > 0x20 && text.p[i] < 0x7f);
    check_path(text);
    check_numbers(text);
    return 0;
}
