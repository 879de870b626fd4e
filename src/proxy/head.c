/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/head.h"

void head_copy_fields(struct buf *out,
                      const struct http1_head *h,
                      const char *end,
                      bool (*drop)(const struct http1_head *h,
                                   const struct http1_field *f,
                                   void *ctx),
                      void *ctx)
{
    const char *from = NULL; /* start of the run of fields to keep */

    /* The strict parser leaves nothing between two fields but the first one's line end. */
    for (unsigned i = 0; i < h->n_fields; i++) {
        const char *at = h->fields[i].name.p;
        if (!drop(h, &h->fields[i], ctx)) {
            from = from ? from : at;
        } else if (from) {
            buf_put(out, from, (size_t)(at - from));
            from = NULL;
        }
    }
    if (from)
        buf_put(out, from, (size_t)(end - 2 - from));
}

void head_put(struct buf *out, const char *name_colon, struct slice value)
{
    if (!value.n)
        return;
    buf_put_str(out, name_colon);
    buf_put_slice(out, value);
    buf_put(out, "\r\n", 2);
}
