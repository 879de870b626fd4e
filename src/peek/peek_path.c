/* SPDX-License-Identifier: Apache-2.0 */
/** @file The model that a path names, where a protocol has it there: KServe v2 (Triton), TensorFlow Serving. */
#include "peek/peek.h"

/* "M", "M/versions/V/...", "M/verb" (v2) or "M/versions/V" (v1, its verb already cut off). */
static bool split(struct slice rest, bool labels, struct slice *model, struct slice *version)
{
    static const struct slice words[] = {SLICE("versions/"), SLICE("labels/")};

    *version = (struct slice){NULL, 0};
    *model = slice_of(rest.p, slice_find(rest, '/'));
    rest = slice_from(rest, model->n);
    if (rest.n)
        rest = slice_from(rest, 1);
    if (slice_starts(rest, words[0])) {
        rest = slice_from(rest, words[0].n);
        *version = slice_of(rest.p, slice_find(rest, '/'));
    } else if (labels && rest.n && !slice_starts(rest, words[1])) {
        return false;
    }
    return model->n > 0;
}

bool peek_path_model(struct slice path, struct slice *model, struct slice *version)
{
    static const struct slice v2 = SLICE("/v2/models/");
    static const struct slice v1 = SLICE("/v1/models/");
    static const struct slice verbs[] = {SLICE(":predict"), SLICE(":classify"), SLICE(":regress")};

    if (slice_starts(path, v2)) /* the path of every request comes by here */
        return split(slice_from(path, v2.n), false, model, version);
    if (!slice_starts(path, v1))
        return false;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (slice_ends(path, verbs[i])) {
            path.n -= verbs[i].n;
            return path.n > v1.n && split(slice_from(path, v1.n), true, model, version);
        }
    return false;
}
