/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdbool.h>
#include <string.h>

#include "wire/scan.h"

static bool stops_text(unsigned char c)
{
    return c < 0x20 || c == 0x7F;
}

static bool stops_json(unsigned char c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

/* Every byte value at every place of a run, against the definition; both the wide and the portable loop. */
static void every_byte_at_every_place(void **state)
{
    (void)state;
    char run[41];

    for (unsigned c = 0; c < 256; c++)
        for (size_t at = 0; at < sizeof(run); at++) {
            memset(run, at % 2 ? 'a' : 0xFF, sizeof(run));
            run[at] = (char)c;
            const char *end = run + sizeof(run);
            const char *text = stops_text((unsigned char)c) ? run + at : end;
            const char *json = stops_json((unsigned char)c) ? run + at : end;
            assert_ptr_equal(scan_text(run, end), text);
            assert_ptr_equal(scan_text_words(run, end), text);
            assert_ptr_equal(scan_json_text(run, end), json);
            assert_ptr_equal(scan_json_text_words(run, end), json);
            assert_ptr_equal(scan_text(run + at + 1, end), end);
            assert_ptr_equal(scan_json_text(run, run + at), run + at);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_byte_at_every_place)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
