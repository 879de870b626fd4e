/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/scalar.h"

#include "base/bug.h"
#include "base/num.h"
#include "conf/address.h"

/* --- numbers --- */

static struct slice digits_of(uint64_t v, char *end)
{
    char *p = end;

    do {
        *--p = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return slice_of(p, (size_t)(end - p));
}

/* whole.fraction with `places` digits of fraction, zeros at the end dropped. */
static struct slice
decimal_of(uint64_t whole, uint64_t fraction, uint32_t places, char out[CONF_NUMBER_TEXT])
{
    char *end = out + CONF_NUMBER_TEXT;
    char *p = end;

    for (uint32_t i = 0; i < places; i++) {
        *--p = (char)('0' + fraction % 10);
        fraction /= 10;
    }
    while (end > p && end[-1] == '0')
        end--;
    if (end > p)
        *--p = '.';
    struct slice head = digits_of(whole, p);
    return slice_of(head.p, (size_t)(end - head.p));
}

static struct slice with_unit(uint64_t v, const char *unit, char out[CONF_NUMBER_TEXT])
{
    size_t n = strlen(unit);
    char *end = out + CONF_NUMBER_TEXT - n;

    memcpy(end, unit, n);
    struct slice head = digits_of(v, end);
    return slice_of(head.p, head.n + n);
}

struct unit {
    const char *name;
    uint64_t factor;
};

static struct slice largest_unit(const struct unit *units, uint64_t v, char out[CONF_NUMBER_TEXT])
{
    if (v == 0)
        return with_unit(0, "", out);
    while (v % units->factor)
        units++;
    return with_unit(v / units->factor, units->name, out);
}

struct slice conf_number_text(enum conf_type type, uint64_t v, char out[CONF_NUMBER_TEXT])
{
    static const struct unit times[] = {{"h", 3600 * NS_PER_S}, {"m", 60 * NS_PER_S},
                                        {"s", NS_PER_S},        {"ms", NS_PER_MS},
                                        {"us", NS_PER_US},      {"ns", 1}};
    static const struct unit sizes[] = {{"TiB", UINT64_C(1) << 40},
                                        {"GiB", UINT64_C(1) << 30},
                                        {"MiB", UINT64_C(1) << 20},
                                        {"KiB", UINT64_C(1) << 10},
                                        {"", 1}};

    if (type == CONF_T_DURATION)
        return largest_unit(times, v, out);
    if (type == CONF_T_SIZE)
        return largest_unit(sizes, v, out);
    if (type == CONF_T_RATE)
        return with_unit(v, "/s", out);
    if (type == CONF_T_WEIGHT)
        return decimal_of(v / WEIGHT_ONE, v % WEIGHT_ONE, 3, out);
    if (type == CONF_T_FACTOR) {
        /* Five decimals name every step of 1/65536; a remainder that rounds up to 1 cannot occur. */
        uint64_t fraction = (v % Q16_ONE * 100000 + Q16_ONE / 2) / Q16_ONE;
        return decimal_of(v / Q16_ONE, fraction, 5, out);
    }
    return with_unit(v, "", out);
}

static int number_read(enum conf_type type, struct slice text, uint64_t *v, const char **form)
{
    switch ((int)type) {
    case CONF_T_DURATION:
        *form = "a duration; write a number and a unit, as 250ms, 10s or 5m";
        return num_duration(text, v);
    case CONF_T_SIZE:
        *form = "a size; write a number and a unit, as 64KiB, 16MiB or 1GiB";
        return num_size(text, v);
    case CONF_T_RATE:
        *form = "a rate; write a whole number per second, as 100/s";
        if (!slice_ends(text, SLICE("/s")))
            return WEIR_E_INVALID;
        return num_u64(slice_of(text.p, text.n - 2), v);
    case CONF_T_WEIGHT:
        *form = "a weight; write a number, as 1 or 0.5";
        return num_scaled(text, WEIGHT_ONE, v);
    case CONF_T_FACTOR:
        *form = "a factor; write a number, as 1 or 0.5";
        return num_scaled(text, Q16_ONE, v);
    default:
        *form = "a whole number";
        return num_u64(text, v);
    }
}

static void quote(struct conf_why *why, struct slice text)
{
    enum { SHOWN = 64 };

    conf_why_put(why, SLICE("\""));
    conf_why_put(why, slice_of(text.p, MIN(text.n, SHOWN)));
    conf_why_put(why, text.n > SHOWN ? SLICE("...\"") : SLICE("\""));
}

static int
number_parse(const struct conf_option *o, struct slice text, uint64_t *out, struct conf_why *why)
{
    const char *form = NULL;
    uint64_t v = 0;

    if (o->zero && slice_eq(text, slice_str(o->zero))) {
        *out = 0;
        return 0;
    }
    int rc = number_read(o->type, text, &v, &form);
    if (rc == 0 && ((v >= o->min && v <= o->max) || (v == 0 && o->zero))) {
        *out = v;
        return 0;
    }
    quote(why, text);
    if (rc && rc != WEIR_E_RANGE) {
        conf_why_put(why, SLICE(" is not "));
        conf_why_put(why, slice_str(form));
    } else if (rc == 0 && v < o->min) {
        conf_why_put(why, SLICE(" is too small; the least is "));
        conf_why_put(why, conf_number_text(o->type, o->min, why->number));
    } else {
        conf_why_put(why, SLICE(" is too large; the most is "));
        conf_why_put(why, conf_number_text(o->type, o->max, why->number));
    }
    if (o->zero && rc != WEIR_E_RANGE && (rc || v < o->min)) {
        conf_why_put(why, SLICE(", or "));
        conf_why_put(why, slice_str(o->zero));
    }
    return WEIR_E_INVALID;
}

/* --- words and texts --- */

static uint32_t words_count(const char *const *words)
{
    uint32_t n = 0;

    while (words && words[n])
        n++;
    return n;
}

int conf_word_parse(const struct conf_option *o,
                    struct slice text,
                    uint32_t *out,
                    struct conf_why *why)
{
    uint32_t n = words_count(o->words);

    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(text, slice_str(o->words[i]))) {
            *out = i;
            return 0;
        }
    quote(why, text);
    for (uint32_t i = 0; i < words_count(o->later); i++)
        if (slice_eq(text, slice_str(o->later[i]))) {
            conf_why_put(why, SLICE(" is not supported yet in this version"));
            return WEIR_E_INVALID;
        }
    struct slice near = conf_nearest(text, o->words, n);
    if (near.p) {
        conf_why_put(why, SLICE(" is unknown; did you mean \""));
        conf_why_put(why, near);
        conf_why_put(why, SLICE("\"?"));
        return WEIR_E_INVALID;
    }
    conf_why_put(why, n == 1 ? SLICE(" is unknown; the only choice is ")
                             : SLICE(" is unknown; choose "));
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            conf_why_put(why, i + 1 == n ? SLICE(" or ") : SLICE(", "));
        conf_why_put(why, slice_str(o->words[i]));
    }
    return WEIR_E_INVALID;
}

int conf_text_parse(
    struct slice text, uint64_t max, struct arena *a, struct slice *out, struct conf_why *why)
{
    if (text.n > max) {
        conf_why_put(why, SLICE("is too long; the most is "));
        conf_why_put(why, conf_number_text(CONF_T_COUNT, max, why->number));
        conf_why_put(why, SLICE(" bytes"));
        return WEIR_E_INVALID;
    }
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f) {
            quote(why, text);
            conf_why_put(why, SLICE(" contains a control character"));
            return WEIR_E_INVALID;
        }
    return arena_slice(a, text, out);
}

static int text_value(const struct conf_option *o,
                      struct slice text,
                      struct arena *a,
                      struct slice *out,
                      struct conf_why *why)
{
    if ((o->zero && slice_eq(text, slice_str(o->zero))) ||
        (text.n == 0 && !(o->flags & CONF_REQUIRED))) {
        *out = (struct slice){NULL, 0};
        return 0;
    }
    if (text.n == 0) {
        conf_why_put(why, SLICE("must not be empty"));
        return WEIR_E_INVALID;
    }
    return conf_text_parse(text, o->max, a, out, why);
}

static int file_value(const struct conf_option *o,
                      struct slice text,
                      struct arena *a,
                      struct slice *out,
                      struct conf_why *why)
{
    enum { PATH_BYTES = 4096 };

    if (o->zero && slice_eq(text, slice_str(o->zero))) {
        *out = (struct slice){NULL, 0};
        return 0;
    }
    if (!slice_starts(text, SLICE("file:")) || text.n == 5) {
        quote(why, text);
        conf_why_put(why, SLICE(" is not a file; write file:PATH"));
        if (o->zero) {
            conf_why_put(why, SLICE(" or "));
            conf_why_put(why, slice_str(o->zero));
        }
        return WEIR_E_INVALID;
    }
    return conf_text_parse(slice_from(text, 5), PATH_BYTES, a, out, why);
}

static bool variable_name(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || c == '_' || (i > 0 && c >= '0' && c <= '9')))
            return false;
    }
    return s.n > 0;
}

/* What was written may be the secret itself, so no message repeats it. */
static int
secret_value(struct slice text, struct arena *a, struct conf_secret *out, struct conf_why *why)
{
    enum { NAME_BYTES = 4096 };
    struct conf_secret s = {.kind = CONF_SECRET_NONE};
    struct slice name = {NULL, 0};

    if (slice_starts(text, SLICE("file:"))) {
        s.kind = CONF_SECRET_FILE;
        name = slice_from(text, 5);
    } else if (slice_starts(text, SLICE("env:")) && variable_name(slice_from(text, 4))) {
        s.kind = CONF_SECRET_ENV;
        name = slice_from(text, 4);
    }
    bool bad = name.n == 0 || name.n > NAME_BYTES;
    for (size_t i = 0; i < name.n && !bad; i++)
        bad = (unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7f;
    if (bad) {
        conf_why_put(
            why, SLICE("a secret is not written here; say where it is with file:PATH or env:NAME"));
        return WEIR_E_INVALID;
    }
    int rc = arena_slice(a, name, &s.name);
    if (rc == 0)
        *out = s;
    return rc;
}

/* "unix:/path" and "systemd:name". */
static int
named_address(struct slice text, struct arena *a, struct conf_address *out, struct conf_why *why)
{
    enum { SUN_PATH_MAX = 107, NAME_MAX_BYTES = 255 };
    bool local = text.p[0] == 'u';
    struct conf_address value = {.kind = local ? CONF_ADDRESS_UNIX : CONF_ADDRESS_INHERITED};
    struct slice rest = slice_from(text, local ? 5 : 8);

    bool bad = rest.n == 0 || rest.n > (local ? SUN_PATH_MAX : NAME_MAX_BYTES) ||
               (local && (rest.p[0] != '/' || rest.n == 1));
    for (size_t i = 0; i < rest.n && !bad; i++)
        bad = (unsigned char)rest.p[i] <= 0x20 || rest.p[i] == 0x7f || (!local && rest.p[i] == ':');
    if (bad) {
        quote(why, text);
        conf_why_put(
            why,
            local ? SLICE(": write unix: and an absolute path of at most 107 bytes, without spaces")
                  : SLICE(": write systemd: and the FileDescriptorName= of the socket unit"));
        return WEIR_E_INVALID;
    }
    int rc = arena_slice(a, rest, &value.host);
    if (rc == 0)
        *out = value;
    return rc;
}

static int address_value(const struct conf_option *o,
                         struct slice text,
                         struct arena *a,
                         struct conf_address *out,
                         struct conf_why *why)
{
    struct conf_address value = {.off = false};
    struct conf_host literal;
    struct slice host;

    if (o->zero && slice_eq(text, slice_str(o->zero))) {
        *out = (struct conf_address){.off = true};
        return 0;
    }
    if (slice_starts(text, SLICE("unix:")) || slice_starts(text, SLICE("systemd:")))
        return named_address(text, a, out, why);
    int rc = conf_host_port_split(text, &host, &value.port);
    if (rc == 0 && conf_host_parse(host, &literal) == 0) {
        rc = arena_slice(a, host, &value.host);
        if (rc == 0)
            *out = value;
        return rc;
    }
    quote(why, text);
    if (rc == WEIR_E_RANGE)
        conf_why_put(why, SLICE(": the port must be a number from 0 to 65535"));
    else if (rc)
        conf_why_put(why,
                     SLICE(" is not an address; write host:port, as 127.0.0.1:8080 or [::1]:8080"));
    else
        conf_why_put(why, SLICE(": the host must be a literal address or localhost"));
    if (o->zero && rc == WEIR_E_INVALID) {
        conf_why_put(why, SLICE(", or "));
        conf_why_put(why, slice_str(o->zero));
    }
    return WEIR_E_INVALID;
}

static bool header_name(struct slice s)
{
    static const char more[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(more, c))))
            return false;
    }
    return s.n > 0 && s.n <= ENDPOINT_TEXT_MAX;
}

static const struct {
    const char *name;
    enum hash_source source;
} hash_words[] = {
    {"user", HASH_ON_BODY_USER},
    {"prompt_cache_key", HASH_ON_PROMPT_CACHE_KEY},
    {"previous_response_id", HASH_ON_PREVIOUS_RESPONSE},
    {"client_ip", HASH_ON_CLIENT_IP},
};

int conf_hash_on_parse(struct slice text,
                       struct arena *a,
                       struct hash_on *out,
                       struct conf_why *why)
{
    struct hash_on h = {.source = HASH_ON_HEADER};
    struct slice name = {NULL, 0};

    for (size_t i = 0; i < ARRAY_LEN(hash_words); i++)
        if (slice_eq(text, slice_str(hash_words[i].name))) {
            *out = (struct hash_on){.source = hash_words[i].source};
            return 0;
        }
    if (slice_starts(text, SLICE("header:"))) {
        name = slice_from(text, 7);
    } else if (slice_starts(text, SLICE("cookie:"))) {
        h.source = HASH_ON_COOKIE;
        name = slice_from(text, 7);
    }
    if (!header_name(name)) {
        quote(why, text);
        conf_why_put(why,
                     SLICE(" is unknown; choose header:NAME, cookie:NAME, user, prompt_cache_key, "
                           "previous_response_id or client_ip"));
        return WEIR_E_INVALID;
    }
    int rc = arena_slice(a, name, &h.name);
    if (rc == 0)
        *out = h;
    return rc;
}

static int bool_value(struct slice text, bool *out, struct conf_why *why)
{
    bool yes = slice_eq(text, SLICE("true"));

    if (!yes && !slice_eq(text, SLICE("false"))) {
        quote(why, text);
        conf_why_put(why, SLICE(" is not true or false"));
        return WEIR_E_INVALID;
    }
    *out = yes;
    return 0;
}

int conf_scalar_parse(
    const struct conf_option *o, struct slice text, struct arena *a, void *at, struct conf_why *why)
{
    uint64_t v = 0;
    uint32_t word = 0;
    int rc;

    switch ((int)o->type) {
    case CONF_T_BOOL:
        return bool_value(text, at, why);
    case CONF_T_COUNT:
    case CONF_T_RATE:
    case CONF_T_WEIGHT:
    case CONF_T_FACTOR:
        rc = number_parse(o, text, &v, why);
        if (rc == 0)
            *(uint32_t *)at = (uint32_t)v;
        return rc;
    case CONF_T_DURATION:
    case CONF_T_SIZE:
        rc = number_parse(o, text, &v, why);
        if (rc == 0)
            *(uint64_t *)at = v;
        return rc;
    case CONF_T_WORD:
        rc = conf_word_parse(o, text, &word, why);
        if (rc == 0)
            memcpy(at, &word, sizeof(word));
        return rc;
    case CONF_T_TEXT:
        return text_value(o, text, a, at, why);
    case CONF_T_ADDRESS:
        return address_value(o, text, a, at, why);
    case CONF_T_SECRET:
        return secret_value(text, a, at, why);
    case CONF_T_FILE:
        return file_value(o, text, a, at, why);
    default:
        BUG_ON(true); /* not a scalar */
        return WEIR_E_INVALID;
    }
}

/* --- back to text --- */

bool conf_scalar_absent(const struct conf_option *o, const void *at)
{
    if (o->type == CONF_T_TEXT || o->type == CONF_T_FILE)
        return !o->zero && !((const struct slice *)at)->p;
    if (o->type == CONF_T_SECRET)
        return ((const struct conf_secret *)at)->kind == CONF_SECRET_NONE;
    return false;
}

/* A JSON string of a prefix and a text, without a copy: both are escaped alike. */
static void put_prefixed(struct buf *out, const char *prefix, struct slice s)
{
    size_t from = buf_len(out);

    buf_put_json(out, s);
    if (out->err)
        return;
    size_t n = strlen(prefix);
    if (!buf_reserve(out, n))
        return;
    char *p = out->p + out->from + from;
    memmove(p + 1 + n, p + 1, buf_len(out) - from - 1);
    memcpy(p + 1, prefix, n);
    buf_commit(out, n);
}

static void address_print(const struct conf_address *a, struct buf *out)
{
    bool v6 = slice_find(a->host, ':') < a->host.n;

    if (a->kind != CONF_ADDRESS_TCP) {
        put_prefixed(out, a->kind == CONF_ADDRESS_UNIX ? "unix:" : "systemd:", a->host);
        return;
    }
    buf_put_str(out, v6 ? "\"[" : "\"");
    buf_put_slice(out, a->host);
    buf_put_str(out, v6 ? "]:" : ":");
    buf_put_u64(out, a->port);
    buf_put_char(out, '"');
}

void conf_hash_on_print(const struct hash_on *h, struct buf *out)
{
    if (h->source == HASH_ON_HEADER) {
        put_prefixed(out, "header:", h->name);
    } else if (h->source == HASH_ON_COOKIE) {
        put_prefixed(out, "cookie:", h->name);
    } else {
        for (size_t i = 0; i < ARRAY_LEN(hash_words); i++)
            if (hash_words[i].source == h->source)
                buf_put_json(out, slice_str(hash_words[i].name));
    }
}

static void number_print(const struct conf_option *o, uint64_t v, struct buf *out)
{
    char text[CONF_NUMBER_TEXT];

    if (v == 0 && o->zero) {
        buf_put_json(out, slice_str(o->zero));
        return;
    }
    struct slice number = conf_number_text(o->type, v, text);
    bool plain = o->type == CONF_T_COUNT || o->type == CONF_T_WEIGHT || o->type == CONF_T_FACTOR;
    if (plain)
        buf_put_slice(out, number);
    else
        buf_put_json(out, number);
}

void conf_scalar_print(const struct conf_option *o, const void *at, struct buf *out)
{
    uint32_t word;

    switch ((int)o->type) {
    case CONF_T_BOOL:
        buf_put_str(out, *(const bool *)at ? "true" : "false");
        return;
    case CONF_T_COUNT:
    case CONF_T_RATE:
    case CONF_T_WEIGHT:
    case CONF_T_FACTOR:
        number_print(o, *(const uint32_t *)at, out);
        return;
    case CONF_T_DURATION:
    case CONF_T_SIZE:
        number_print(o, *(const uint64_t *)at, out);
        return;
    case CONF_T_WORD:
        memcpy(&word, at, sizeof(word));
        buf_put_json(out, slice_str(o->words[word]));
        return;
    case CONF_T_TEXT:
        buf_put_json(out, ((const struct slice *)at)->p ? *(const struct slice *)at
                                                        : slice_str(o->zero));
        return;
    case CONF_T_FILE:
        if (((const struct slice *)at)->p)
            put_prefixed(out, "file:", *(const struct slice *)at);
        else
            buf_put_json(out, slice_str(o->zero));
        return;
    case CONF_T_SECRET:
        put_prefixed(out,
                     ((const struct conf_secret *)at)->kind == CONF_SECRET_FILE ? "file:" : "env:",
                     ((const struct conf_secret *)at)->name);
        return;
    case CONF_T_ADDRESS:
        if (((const struct conf_address *)at)->off)
            buf_put_json(out, slice_str(o->zero));
        else
            address_print(at, out);
        return;
    default:
        BUG_ON(true); /* not a scalar */
    }
}
