/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/check/check.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/bug.h"
#include "confio/confio.h"
#include "loop/alloc.h"

enum { OUTPUT_MAX = 64 << 20 };

static const char help[] =
    "usage: weir check FILE [--print-effective] [--json]\n"
    "       weir check --reference\n"
    "\n"
    "Checks a configuration file and prints every error with its place. Files that secrets name "
    "are not read.\n"
    "\n"
    "  --print-effective  print every value in use, defaults included, as YAML\n"
    "  --json             print the result as one JSON object\n"
    "  --reference        print docs/config.md: every key with type, range, default and meaning\n"
    "  --help             print this\n"
    "\n"
    "exit status: 0 the file is fine, 1 it is not\n";

struct options {
    const char *file;
    bool print, json, reference, help;
};

static bool parse_arguments(int argc, char **argv, struct options *o)
{
    static const char *const known[] = {"--print-effective", "--json", "--reference", "--help"};
    bool *const switches[] = {&o->print, &o->json, &o->reference, &o->help};

    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(known) && strcmp(argv[i], known[k]) != 0)
            k++;
        if (k < ARRAY_LEN(known)) {
            *switches[k] = true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            struct slice near = conf_nearest(slice_str(argv[i]), known, ARRAY_LEN(known));
            (void)fprintf(stderr, "weir check: unknown flag %s", argv[i]);
            if (near.p)
                (void)fprintf(stderr, "; did you mean %.*s?", SLICE_ARG(near));
            (void)fprintf(stderr, "\n");
            return false;
        } else if (o->file) {
            (void)fprintf(stderr, "weir check: one file at a time; %s is too much\n", argv[i]);
            return false;
        } else {
            o->file = argv[i];
        }
    }
    if (!o->file && !o->reference && !o->help) {
        (void)fprintf(stderr, "weir check: which file? See weir check --help\n");
        return false;
    }
    return true;
}

static void errors_json(const struct conf_errors *errors, struct buf *out)
{
    buf_put_str(out, ", \"errors_found\": ");
    buf_put_u64(out, errors->total);
    buf_put_str(out, ", \"errors\": [");
    for (uint32_t i = 0; i < errors->n; i++) {
        const struct conf_error *e = &errors->list[i];
        buf_put_str(out, i ? ", {\"line\": " : "{\"line\": ");
        buf_put_u64(out, e->line);
        buf_put_str(out, ", \"column\": ");
        buf_put_u64(out, e->column);
        buf_put_str(out, ", \"message\": ");
        buf_put_json(out, slice_str(e->text + e->message));
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static int report_json(const struct options *o,
                       const struct conf *c,
                       const struct conf_errors *errors,
                       struct buf *out)
{
    buf_put_str(out, "{\"file\": ");
    buf_put_json(out, slice_str(o->file));
    buf_put_str(out, ", \"ok\": ");
    buf_put_str(out, c ? "true" : "false");
    errors_json(errors, out);
    if (c && o->print) {
        buf_put_str(out, ", \"config\": ");
        int rc = conf_print(c, CONF_JSON, out);
        if (rc)
            return rc;
    }
    return buf_put_str(out, "}\n");
}

static int report_text(const struct options *o,
                       const struct conf *c,
                       const struct conf_errors *errors,
                       struct buf *out)
{
    for (uint32_t i = 0; i < errors->n; i++)
        (void)fprintf(stderr, "%s\n", errors->list[i].text);
    if (errors->total > errors->n)
        (void)fprintf(stderr, "%s: %u more errors\n", o->file,
                      (unsigned)(errors->total - errors->n));
    if (!c)
        return 0;
    if (o->print)
        return conf_print(c, CONF_YAML, out);
    buf_put_str(out, o->file);
    return buf_put_str(out, ": ok\n");
}

static int check_file(const struct options *o, struct buf *out, bool *fine)
{
    static struct conf_errors errors; /* large, and there is one check in a process */
    struct confio_options load = {.mem = loop_mem()};
    struct conf *c;

    memset(&errors, 0, sizeof(errors));
    int rc = confio_load(&load, o->file, &c, &errors);
    *fine = rc == 0;
    if (rc == WEIR_E_NOMEM)
        return rc;
    rc = o->json ? report_json(o, c, &errors, out) : report_text(o, c, &errors, out);
    conf_free(c);
    return rc;
}

int check_main(int argc, char **argv)
{
    struct options o = {.file = NULL};
    struct buf out;
    bool fine = true;
    int rc = 0;

    if (!parse_arguments(argc, argv, &o))
        return 2;
    buf_init(&out, loop_mem(), OUTPUT_MAX);
    if (o.help)
        rc = buf_put_str(&out, help);
    else if (o.reference)
        rc = conf_reference(&out);
    else
        rc = check_file(&o, &out, &fine);
    struct slice text = buf_slice(&out);
    if (rc) {
        (void)fprintf(stderr, "weir check: %s\n", err_text(rc));
    } else if (fwrite(text.p, 1, text.n, stdout) != text.n || fflush(stdout)) {
        (void)fprintf(stderr, "weir check: cannot write the output\n");
        rc = WEIR_E_IO;
    }
    buf_fini(&out);
    return rc == 0 && fine ? 0 : 1;
}
