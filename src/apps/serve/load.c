/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/load.h"

#include <stdio.h>

#include "apps/serve/flags.h"
#include "confio/confio.h"
#include "loop/alloc.h"

enum { TEXT_MAX = 1 << 20 };

static void print_errors(const struct conf_errors *errors)
{
    for (uint32_t i = 0; i < errors->n; i++)
        fprintf(stderr, "weir: %s\n", errors->list[i].text);
    if (errors->total > errors->n)
        fprintf(stderr, "weir: and %u more\n", errors->total - errors->n);
}

/* @return the exit status. */
static int print_text(int (*write_text)(struct buf *out))
{
    struct buf b;

    buf_init(&b, loop_mem(), TEXT_MAX);
    int rc = write_text(&b);
    if (rc == 0)
        fwrite(buf_slice(&b).p, 1, buf_len(&b), stdout);
    buf_fini(&b);
    return rc ? 1 : 0;
}

static bool load(int argc,
                 char **argv,
                 struct serve_flags *flags,
                 struct conf_errors *errors,
                 struct conf **out,
                 int *status)
{
    int rc = serve_flags_parse(loop_mem(), argc, argv, flags, errors);

    if (rc == 0 && (flags->help || flags->reference)) {
        *status = print_text(flags->help ? serve_flags_help : serve_flags_reference);
        return false;
    }
    if (rc == 0) {
        struct confio_options o = {.mem = loop_mem(),
                                   .overrides = flags->overrides,
                                   .n_overrides = flags->n_overrides,
                                   .generation = 1};
        rc = confio_load(&o, flags->config, out, errors);
    }
    if (rc == WEIR_E_NOMEM)
        fprintf(stderr, "weir: out of memory\n");
    print_errors(errors);
    *status = rc ? 2 : 0;
    return rc == 0;
}

bool load_configuration(
    int argc, char **argv, struct serve_flags *flags, struct conf **out, int *status)
{
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));

    if (!errors) {
        *status = 1;
        return false;
    }
    bool go_on = load(argc, argv, flags, errors, out, status);
    mem_free(loop_mem(), errors);
    return go_on;
}
