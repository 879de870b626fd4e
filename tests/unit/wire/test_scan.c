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

/* It may stop early, never late. */
static void words_end_before_every_other_byte(void **state)
{
    (void)state;
    char run[41];

    for (unsigned c = 0; c < 256; c++)
        for (size_t at = 0; at < sizeof(run); at++) {
            bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '.';
            memset(run, at % 2 ? 'Z' : '9', sizeof(run));
            run[at] = (char)c;
            const char *stop = scan_word(run, run + sizeof(run));
            assert_true(stop <= (word ? run + sizeof(run) : run + at));
#ifdef __SSE2__
            assert_ptr_equal(stop, word || at >= 32 ? run + 32 : run + at);
#endif
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_at_every_place),
        cmocka_unit_test(words_end_before_every_other_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
