/* SPDX-License-Identifier: Apache-2.0 */
/* Load a configuration from text and state exactly what comes of it. */
#ifndef WEIR_TESTS_CONFIO_LOAD_H
#define WEIR_TESTS_CONFIO_LOAD_H

#include "ct.h"

#include "confio/confio.h"
#include "heap_mem.h"

struct loaded {
    struct test_heap heap;
    struct mem mem;
    struct conf *conf;
    struct conf_errors errors;
    struct buf text;
};

static inline int
load_with(struct loaded *l, const char *text, const struct conf_override *overrides, uint32_t n)
{
    *l = (struct loaded){.conf = NULL};
    l->mem = test_heap_mem(&l->heap);
    buf_init(&l->text, &l->mem, 16 << 20);
    struct confio_options o = {
        .mem = &l->mem, .overrides = overrides, .n_overrides = n, .generation = 7};
    return confio_load_text(&o, SLICE("w.yaml"), slice_str(text), &l->conf, &l->errors);
}

static inline void load_fini(struct loaded *l)
{
    conf_free(l->conf);
    buf_fini(&l->text);
    assert_int_equal(l->heap.live, 0);
}

/* All errors, one a line. */
static inline const char *errors_text(struct loaded *l)
{
    buf_clear(&l->text);
    for (uint32_t i = 0; i < l->errors.n; i++) {
        buf_put_str(&l->text, l->errors.list[i].text);
        buf_put_char(&l->text, '\n');
    }
    buf_put_char(&l->text, '\0');
    assert_int_equal(l->text.err, 0);
    return l->text.p + l->text.from;
}

static inline void expect_errors(const char *text, const char *expected)
{
    struct loaded l;

    int rc = load_with(&l, text, NULL, 0);
    assert_string_equal(errors_text(&l), expected);
    assert_int_equal(rc, WEIR_E_INVALID);
    assert_null(l.conf);
    load_fini(&l);
}

static inline struct loaded *expect_conf(struct loaded *l, const char *text)
{
    int rc = load_with(l, text, NULL, 0);
    assert_string_equal(errors_text(l), "");
    assert_int_equal(rc, 0);
    return l;
}

#endif /* WEIR_TESTS_CONFIO_LOAD_H */
