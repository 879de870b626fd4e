/* SPDX-License-Identifier: Apache-2.0 */
/* YAML text to a configuration. What is taken must print as text that is taken, and comes to the same. */
#include <stdlib.h>

#include "base/bug.h"
#include "confio/confio.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct conf_errors errors;
    const struct mem mem = {.resize = resize};
    const struct confio_options o = {.mem = &mem};
    struct slice text = slice_of((const char *)data, size);
    struct conf *first;
    struct conf *second;
    struct conf_change changes[CONF_CHANGES_MAX];
    struct buf printed;

    memset(&errors, 0, sizeof(errors));
    int rc = confio_load_text(&o, SLICE("fuzz"), text, &first, &errors);
    BUG_ON((rc == 0) != (first != NULL));
    BUG_ON((rc == 0) != (errors.total == 0));
    for (uint32_t i = 0; i < errors.n; i++) {
        BUG_ON(strlen(errors.list[i].text) >= CONF_ERROR_TEXT);
        BUG_ON(errors.list[i].message > strlen(errors.list[i].text));
        BUG_ON(strchr(errors.list[i].text, '\n'));
    }
    if (rc)
        return 0;
    buf_init(&printed, &mem, 64 << 20);
    BUG_ON(conf_print(first, CONF_YAML, &printed));
    /* Quoting can make a text of almost 1 MiB longer than that. */
    if (buf_len(&printed) <= CONFIO_FILE_MAX) {
        rc = confio_load_text(&o, SLICE("printed"), buf_slice(&printed), &second, &errors);
        BUG_ON(rc);
        BUG_ON(conf_diff(first, second, changes) != 0);
        conf_free(second);
    }
    buf_fini(&printed);
    conf_free(first);
    return 0;
}
