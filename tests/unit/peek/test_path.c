/* SPDX-License-Identifier: Apache-2.0 */
/* The model and version that a path names. */
#include "ct.h"

#include "base/bug.h"
#include "peek/peek.h"

static void models_in_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path, *model, *version; /* model NULL: none is named */
    } cases[] = {
        {"/v2/models/m/infer", "m", ""},
        {"/v2/models/m/versions/3/infer", "m", "3"},
        {"/v2/models/m/versions/3", "m", "3"},
        {"/v2/models/m/generate_stream", "m", ""},
        {"/v2/models/m", "m", ""},
        {"/v2/models/a%2Fb/infer", "a%2Fb", ""},
        {"/v2/models/", NULL, NULL},
        {"/v2/models//infer", NULL, NULL},
        {"/v2/models", NULL, NULL},
        {"/v2/health/ready", NULL, NULL},
        {"/v1/models/m:predict", "m", ""},
        {"/v1/models/m:classify", "m", ""},
        {"/v1/models/m:regress", "m", ""},
        {"/v1/models/m/versions/12:predict", "m", "12"},
        {"/v1/models/m/labels/stable:predict", "m", ""},
        {"/v1/models/a:b:predict", "a:b", ""},
        {"/v1/models/a/b:predict", NULL, NULL},
        {"/v1/models/:predict", NULL, NULL},
        {"/v1/models/m", NULL, NULL},
        {"/v1/models/m:other", NULL, NULL},
        {"/v1/models:predict", NULL, NULL},
        {"/v1/chat/completions", NULL, NULL},
        {"/x/v2/models/m/infer", NULL, NULL},
        {"", NULL, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slice model;
        struct slice version;
        bool found = peek_path_model(slice_str(cases[i].path), &model, &version);
        assert_int_equal(found, cases[i].model != NULL);
        if (found) {
            assert_true(slice_eq(model, slice_str(cases[i].model)));
            assert_true(slice_eq(version, slice_str(cases[i].version)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_in_paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
