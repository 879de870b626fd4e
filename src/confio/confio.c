/* SPDX-License-Identifier: Apache-2.0 */
#include "confio/confio.h"

#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "confio/file.h"
#include "confio/nodes.h"

int confio_load_text(const struct confio_options *o,
                     struct slice file,
                     struct slice text,
                     struct conf **out,
                     struct conf_errors *errors)
{
    struct confio_nodes nodes;

    *out = NULL;
    if (text.n > CONFIO_FILE_MAX) {
        struct conf_place at = {.file = file};
        struct slice parts[] = {SLICE("is too large; the most is 1MiB")};
        conf_error_add(errors, &at, parts, ARRAY_LEN(parts));
        return WEIR_E_INVALID;
    }
    confio_nodes_init(&nodes, o->mem);
    int rc = confio_yaml_parse(file, text, &nodes, errors);
    if (rc == 0) {
        struct conf_input in = {.file = file,
                                .nodes = nodes.list,
                                .n_nodes = nodes.n,
                                .overrides = o->overrides,
                                .n_overrides = o->n_overrides,
                                .generation = o->generation,
                                .endpoints_only = o->endpoints_only};
        rc = conf_build(o->mem, &in, errors, out);
    }
    confio_nodes_fini(&nodes);
    return rc;
}

int confio_load(const struct confio_options *o,
                const char *path,
                struct conf **out,
                struct conf_errors *errors)
{
    struct conf_place at = {.file = slice_str(path)};
    struct buf text;

    *out = NULL;
    if (!path)
        return confio_load_text(o, slice_str(NULL), slice_str(NULL), out, errors);
    buf_init(&text, o->mem, CONFIO_FILE_MAX);
    int rc = confio_read_file(path, &text, &at, errors);
    if (rc == 0)
        rc = confio_load_text(o, at.file, buf_slice(&text), out, errors);
    buf_fini(&text);
    return rc;
}

static int fail_secret(struct conf_errors *errors, const struct conf_place *at, const char *what)
{
    struct slice parts[] = {slice_str(what)};

    conf_error_add(errors, at, parts, ARRAY_LEN(parts));
    return WEIR_E_INVALID;
}

/* What a header can carry: visible ASCII. */
static int check_secret(struct slice s, const struct conf_place *at, struct conf_errors *errors)
{
    if (s.n == 0)
        return fail_secret(errors, at, "the secret is empty");
    if (s.n > CONFIO_SECRET_MAX)
        return fail_secret(errors, at, "the secret is too long; the most is 4096 bytes");
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= 0x20 || s.p[i] >= 0x7f)
            return fail_secret(errors, at,
                               "the secret must be one line of visible ASCII characters");
    return 0;
}

static int secret_from_file(const struct mem *mem,
                            const struct conf_secret *s,
                            char **out,
                            struct conf_errors *errors)
{
    struct conf_place at = {.file = s->name};
    struct buf text;

    /* Two bytes more, for a newline of either kind. */
    buf_init(&text, mem, CONFIO_SECRET_MAX + 2);
    /* All room at once: a buffer that grows leaves copies behind. */
    int rc = buf_reserve(&text, text.max) ? 0 : WEIR_E_NOMEM;
    if (rc == 0)
        rc = confio_read_file(s->name.p, &text, &at, errors);
    if (rc == 0) {
        struct slice secret = buf_slice(&text);
        while (secret.n && (secret.p[secret.n - 1] == '\n' || secret.p[secret.n - 1] == '\r'))
            secret.n--;
        rc = check_secret(secret, &at, errors);
        if (rc == 0) {
            *out = mem_strdup(mem, secret);
            rc = *out ? 0 : WEIR_E_NOMEM;
        }
    }
    if (text.p)
        explicit_bzero(text.p, text.cap);
    buf_fini(&text);
    return rc;
}

int confio_secret(const struct mem *mem,
                  const struct conf_secret *s,
                  char **out,
                  struct conf_errors *errors)
{
    *out = NULL;
    if (s->kind == CONF_SECRET_NONE)
        return 0;
    if (s->kind == CONF_SECRET_FILE)
        return secret_from_file(mem, s, out, errors);

    struct conf_place at = {.file = s->name};
    const char *value =
        getenv(s->name.p); /* NOLINT(concurrency-mt-unsafe): nothing here calls setenv */
    if (!value)
        return fail_secret(errors, &at, "this environment variable is not set");
    int rc = check_secret(slice_str(value), &at, errors);
    if (rc == 0) {
        *out = mem_strdup(mem, slice_str(value));
        rc = *out ? 0 : WEIR_E_NOMEM;
    }
    return rc;
}

void confio_secret_free(const struct mem *mem, char *secret)
{
    if (!secret)
        return;
    explicit_bzero(secret, strlen(secret));
    mem_free(mem, secret);
}
