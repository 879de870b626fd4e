/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "base/hash.h"
#include "peek/multipart.h"

static struct multipart m;

static int feed(const char *type, const char *body, size_t cut)
{
    assert_int_equal(peek_multipart_init(&m, slice_str(type)), 0);
    int rc = peek_multipart_feed(&m, body, cut);
    return rc ? rc : peek_multipart_feed(&m, body + cut, strlen(body) - cut);
}

static void text_is(const struct peek_text *t, const char *want)
{
    assert_int_equal(t->present, want != NULL);
    if (!want)
        return;
    assert_int_equal(t->n, strlen(want));
    assert_memory_equal(t->bytes, want, t->n);
    assert_true(t->hash == hash_slice(slice_str(want), 0));
}

#define FILE_PART                                                                                  \
    "--b-1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"name=model\\\"; "    \
    "ü.wav\"\r\n"                                                                                 \
    "Content-Type: audio/wav\r\n\r\nRIFF\r\n\r\r\n--b-\r\n--b\r\n--\r\n"

static const struct {
    const char *type;
    const char *body;
    const char *model;
    const char *user;
    bool stream;
    uint32_t audio, images;
    uint64_t prompt;
} good[] = {
    {"multipart/form-data; boundary=b-1",
     "--b-1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n" FILE_PART
     "--b-1--\r\n",
     "whisper-1", NULL, false, 1, 0, 0},
    {"Multipart/Form-Data;charset=utf-8;Boundary=\"b-1\"",
     FILE_PART "--b-1\r\ncontent-disposition:form-data;name=model\r\n\r\nwhisper-1\r\n--b-1--",
     "whisper-1", NULL, false, 1, 0, 0},
    {"multipart/form-data; boundary=b-1",
     "\r\n--b-1 \t\r\nContent-Disposition: form-data; NAME=stream\r\n\r\nTrue\r\n"
     "--b-1\r\nX: y\r\nContent-Disposition: form-data; name=\"user\"\r\nA: b\r\n\r\n\r\n--b-\r\n"
     "--b-1\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nabc\r\n"
     "--b-1\r\nContent-Disposition: form-data; name=\"image\"; filename=x\r\n\r\nPNG\r\n"
     "--b-1--\r\nepilogue --b-1 x",
     NULL, "\r\n--b-", true, 0, 1, 3},
    {"multipart/form-data; boundary=b-1",
     "--b-1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n"
     "--b-1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nbc\r\n"
     "--b-1\r\n\r\nno head\r\n--b-1--",
     "bc", NULL, false, 0, 0, 0},
    {"multipart/form-data; boundary=b-1",
     "--b-1\r\nContent-Disposition: form-data; name=\"model\"; filename=\"model\"\r\n\r\na\r\n"
     "--b-1\r\nContent-Disposition: form-data; filename*=UTF-8''x; name=\"model\"\r\n\r\na\r\n"
     "--b-1\r\nContent-Disposition: form-data; xname=\"model\"\r\n\r\na\r\n--b-1--",
     NULL, NULL, false, 0, 0, 0},
    {"multipart/form-data; boundary=b-1",
     "--b-1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\r\n"
     "--b-1\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\nfalse but long\r\n--b-1--",
     "", NULL, false, 0, 0, 0},
};

static void fields_are_found_at_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        for (size_t cut = 0; cut <= strlen(good[i].body); cut++) {
            assert_int_equal(feed(good[i].type, good[i].body, cut), 0);
            assert_true(m.complete);
            text_is(&m.found.model, good[i].model);
            text_is(&m.found.user, good[i].user);
            assert_int_equal(m.found.stream, good[i].stream);
            assert_int_equal(m.found.n_audio, good[i].audio);
            assert_int_equal(m.found.n_images, good[i].images);
            assert_int_equal(m.found.prompt_bytes, good[i].prompt);
            assert_int_equal(m.bytes, strlen(good[i].body));
        }
}

static void the_model_is_known_before_the_file_ends(void **state)
{
    (void)state;
    static const char head[] =
        "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\n"
        "Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nabc";
    assert_int_equal(feed("multipart/form-data; boundary=b", head, 0), 0);
    text_is(&m.found.model, "m");
    assert_false(m.complete);
    struct features f = {.prompt_tokens = 0};
    peek_found_features(&m.found, m.complete, &f);
    assert_true(slice_eq(f.model, SLICE("m")));
    assert_int_equal(f.n_audio, 1);
    assert_false(f.prompt_complete);
}

static void what_is_not_multipart_is_refused_at_every_cut(void **state)
{
    (void)state;
    static const char *bad[] = {
        "{\"model\":1}", "--c\r\n",  "x--b\r\n", "--b\n",
        "--b-x",         "--bx\r\n", "--b\r\r",  "--b\r\nA: b\r\n\r\nc\r\n--bc\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        for (size_t cut = 0; cut <= strlen(bad[i]); cut++) {
            assert_int_equal(feed("multipart/form-data; boundary=b", bad[i], cut), WEIR_E_PROTO);
            assert_false(m.complete);
            assert_int_equal(peek_multipart_feed(&m, "x", 1), WEIR_E_PROTO);
        }
}

static void the_head_of_a_part_is_capped(void **state)
{
    (void)state;
    static char text[MULTIPART_HEAD_MAX + 1];

    memset(text, 'x', sizeof(text));
    assert_int_equal(feed("multipart/form-data; boundary=b", "--b\r\n", 0), 0);
    assert_int_equal(peek_multipart_feed(&m, text, MULTIPART_HEAD_MAX), 0);
    assert_int_equal(peek_multipart_feed(&m, text, 1), WEIR_E_PROTO);
}

#define TEN     "1234567890"
#define SEVENTY TEN TEN TEN TEN TEN TEN TEN

static void content_types_without_a_usable_boundary(void **state)
{
    (void)state;
    static const char *bad[] = {
        "",
        "multipart/form-data",
        "multipart/form-data; boundary",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a@b",
        "multipart/form-data; xboundary=b",
        "multipart/mixed; boundary=b",
        "application/json; boundary=b",
        "multipart/form-data; boundary=" SEVENTY "1",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(peek_multipart_init(&m, slice_str(bad[i])), WEIR_E_INVALID);
        assert_int_equal(peek_multipart_feed(&m, "--b", 3), WEIR_E_PROTO);
    }
    assert_int_equal(peek_multipart_init(&m, SLICE("multipart/form-data; boundary=" SEVENTY)), 0);
    assert_int_equal(peek_multipart_init(&m, SLICE("multipart/form-data; boundary=\"a b?\"; x")),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_found_at_every_cut),
        cmocka_unit_test(the_model_is_known_before_the_file_ends),
        cmocka_unit_test(what_is_not_multipart_is_refused_at_every_cut),
        cmocka_unit_test(the_head_of_a_part_is_capped),
        cmocka_unit_test(content_types_without_a_usable_boundary),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
