/* SPDX-License-Identifier: Apache-2.0 */
/* docs/config.md from the table, so that the page cannot differ from what the binary does. */
#include "base/bug.h"
#include "base/num.h"
#include "conf/conf.h"
#include "conf/option.h"
#include "conf/scalar.h"

static const char intro[] =
    "# Configuration\n"
    "\n"
    "<!-- Written by `weir check --reference` from the option table in src/conf/options.c; do not "
    "edit. -->\n"
    "\n"
    "One YAML file, read by `weir serve --config FILE` and checked by `weir check FILE`; every key "
    "may be left out unless\n"
    "it is required. `weir check FILE --print-effective` prints every value in use. Flags of `weir "
    "serve` beat the file\n"
    "([cli.md](cli.md)). An unknown key, a key given twice or a value out of range is an error "
    "that names file, line and\n"
    "column; the file is then not used at all.\n"
    "\n"
    "- **duration**: a number and a unit, `250ms`, `10s`, `5m`, `1h`.\n"
    "- **size**: bytes, or a number and a unit, `64KiB`, `16MiB`, `1GiB`.\n"
    "- **secret**: where it is, never the secret: `file:PATH` (trailing newlines do not count) or "
    "`env:NAME`.\n"
    "- **address**: a literal host or `localhost`, and a port: `127.0.0.1:8080`, `[::1]:8080`.\n"
    "- **tls**: written alike under `listeners[]`, `admin` and `registry`.\n"
    "- YAML anchors, aliases and tags are not accepted. At most 1 MiB, 32 levels, 100,000 values.\n"
    "\n"
    "*live*: can change without a restart.\n"
    "\n";

static const char *type_name(const struct conf_option *o)
{
    switch (o->type) {
    case CONF_T_BOOL:
        return "true or false";
    case CONF_T_COUNT:
        return "number";
    case CONF_T_RATE:
        return "rate";
    case CONF_T_WEIGHT:
    case CONF_T_FACTOR:
        return "decimal";
    case CONF_T_DURATION:
        return "duration";
    case CONF_T_SIZE:
        return "size";
    case CONF_T_WORD:
        return "word";
    case CONF_T_TEXT:
        return "text";
    case CONF_T_ADDRESS:
        return "address";
    case CONF_T_SECRET:
        return "secret";
    case CONF_T_FILE:
        return "`file:PATH`";
    case CONF_T_WORDS:
        return "list of words";
    case CONF_T_TEXTS:
    case CONF_T_HASH_ON:
        return "list of texts";
    case CONF_T_LABELS:
        return "map of texts";
    case CONF_T_GPU_WEIGHTS:
    case CONF_T_CURVE:
        return "map of decimals";
    case CONF_T_SECTION:
        return "section";
    case CONF_T_LIST:
        return "list";
    case CONF_T_MAP:
        return "map";
    case CONF_T_LATER:
        return "";
    }
    return "";
}

static bool is_number(const struct conf_option *o)
{
    return o->type == CONF_T_COUNT || o->type == CONF_T_RATE || o->type == CONF_T_WEIGHT ||
           o->type == CONF_T_FACTOR || o->type == CONF_T_DURATION || o->type == CONF_T_SIZE;
}

static void code(struct buf *out, struct slice s)
{
    buf_put_char(out, '`');
    buf_put_slice(out, s);
    buf_put_char(out, '`');
}

static void range(const struct conf_option *o, struct buf *out)
{
    char text[CONF_NUMBER_TEXT];

    if (is_number(o)) {
        buf_put_slice(out, conf_number_text(o->type, o->min, text));
        buf_put_str(out, " .. ");
        buf_put_slice(out, conf_number_text(o->type, o->max, text));
    } else if (o->words) {
        for (uint32_t i = 0; o->words[i]; i++) {
            buf_put_str(out, i ? ", " : "");
            code(out, slice_str(o->words[i]));
        }
    } else if (o->type == CONF_T_TEXT) {
        buf_put_str(out, "at most ");
        buf_put_u64(out, o->max);
        buf_put_str(out, " bytes");
    } else if (o->max) {
        buf_put_str(out, "at most ");
        buf_put_u64(out, o->max);
        buf_put_str(out, " entries");
    }
    if (o->zero) {
        buf_put_str(out, is_number(o) || o->words || o->type == CONF_T_TEXT ? ", or " : "or ");
        code(out, slice_str(o->zero));
    }
}

static void types(const struct conf_section *s, const struct conf_option *o, struct buf *out)
{
    const char *const *words = conf_option_find(s, SLICE("type"))->words;
    const char *comma = "*";

    for (uint32_t i = 0; words[i]; i++)
        if (o->only & (UINT32_C(1) << i)) {
            buf_put_str(out, comma);
            buf_put_str(out, words[i]);
            comma = ", ";
        }
    buf_put_str(out, ":* ");
}

static void row(const struct conf_section *s, const struct conf_option *o, struct buf *out)
{
    buf_put_str(out, "| ");
    code(out, slice_str(o->key));
    buf_put_str(out, " | ");
    buf_put_str(out, type_name(o));
    buf_put_str(out, " | ");
    if (o->flags & CONF_REQUIRED)
        buf_put_str(out, "**required**");
    else if (o->fallback)
        code(out, slice_str(o->fallback));
    buf_put_str(out, " | ");
    range(o, out);
    buf_put_str(out, o->flags & CONF_LIVE ? " | yes | " : " | | ");
    if (o->only)
        types(s, o, out);
    buf_put_str(out, o->doc);
    buf_put_str(out, " |\n");
}

/* Of a section that stands in several places, the first tells it. */
static bool told_before(const struct conf_section *s, const struct conf_section *by)
{
    for (uint32_t i = 0; i < conf_root.n_options; i++) {
        const struct conf_section *top = conf_root.options[i].child;
        for (uint32_t k = 0; top && k < top->n_options; k++)
            if (top->options[k].child == s)
                return top != by;
    }
    return false;
}

static void section(const struct conf_section *s, struct buf *out)
{
    const char *separator = "Not in this version yet: ";

    buf_put_str(out, "## ");
    if (s->name[0])
        code(out, slice_str(s->name));
    else
        buf_put_str(out, "Top level");
    buf_put_str(
        out, "\n\n| key | type | default | range | live | meaning |\n|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < s->n_options; i++)
        if (s->options[i].type != CONF_T_LATER)
            row(s, &s->options[i], out);
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < s->n_options; i++)
        if (s->options[i].type == CONF_T_LATER) {
            buf_put_str(out, separator);
            code(out, slice_str(s->options[i].key));
            separator = ", ";
        }
    if (separator[0] == ',')
        buf_put_str(out, ".\n\n");
    for (uint32_t i = 0; i < s->n_options; i++)
        if (s->options[i].child && !told_before(s->options[i].child, s))
            section(s->options[i].child, out);
}

int conf_reference(struct buf *out)
{
    buf_put_str(out, intro);
    section(&conf_root, out);
    /* One newline ends the page. */
    if (!out->err)
        out->to--;
    return out->err;
}
