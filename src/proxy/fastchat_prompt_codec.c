/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FastChat's conversation templates: from messages to the one text that its workers take. The styles and their numbers
 * are those of the release 0.2.36; the development branch put LLAMA3 in front of CHATGLM and knows three more, and is
 * told by a field that only its templates have.
 */
#include "base/utf8.h"
#include "proxy/fastchat_codec.h"

enum style {
    ADD_COLON_SINGLE = 1,
    ADD_COLON_TWO,
    ADD_COLON_SPACE_SINGLE,
    NO_COLON_SINGLE,
    NO_COLON_TWO,
    ADD_NEW_LINE_SINGLE,
    LLAMA2,
    CHATGLM,
    CHATML,
    CHATINTERN,
    DOLLY,
    RWKV,
    PHOENIX,
    ROBIN,
    FALCON_CHAT,
    CHATGLM3,
    DEEPSEEK_CHAT,
    METAMATH,
    YUAN2,
    GEMMA, /* of the development branch, as LLAMA3 */
    LLAMA3,
};

static const struct slice none = {NULL, 0};

struct prompt {
    enum style style;
    struct slice name, seps[2], roles[2], system;
    struct buf *out, *images;
    unsigned i; /* of the message under way */
    bool system_given;
    uint64_t offset; /* messages before this one are examples */
};

static int refuse(struct fastchat_fault *why, const char *message)
{
    fastchat_fault_set(why, 400, "invalid_request", slice_str(message));
    return WEIR_E_INVALID;
}

static bool read_style(const struct json_node *conv, enum style *out)
{
    double v;

    if (!wire_json_number(wire_json_get(conv, "sep_style"), &v) || v < 1 || v > 40)
        return false;
    unsigned number = (unsigned)v;
    if (wire_json_get(conv, "system_message_vision")) {
        if (number == 8) {
            *out = LLAMA3;
            return true;
        }
        number -= number > 8;
    }
    *out = (enum style)number;
    return number <= (wire_json_get(conv, "system_message_vision") ? GEMMA : YUAN2);
}

/* --- the texts of a message --- */

static void put_image(struct prompt *p, struct slice url)
{
    if (p->i < p->offset || (p->i - p->offset) % 2)
        return;
    if (buf_len(p->images))
        buf_put_char(p->images, ',');
    buf_put_json(p->images, url);
}

/* The content of a message: a text, or parts. @param n_images out. @return 0 or WEIR_E_INVALID. */
static int
put_content(struct prompt *p, const struct json_node *content, struct buf *to, unsigned *n_images)
{
    bool first = true;

    *n_images = 0;
    if (!wire_json_is(content, JSON_NODE_ARRAY)) {
        buf_put_slice(to, wire_json_text(content));
        return !content || content->kind == JSON_NODE_NULL || content->kind == JSON_NODE_STRING
                   ? 0
                   : WEIR_E_INVALID;
    }
    for (const struct json_node *part = content->first; part; part = part->next) {
        struct slice type = wire_json_text(wire_json_get(part, "type"));
        if (slice_eq(type, SLICE("image_url"))) {
            put_image(p, wire_json_text(wire_json_get(wire_json_get(part, "image_url"), "url")));
            (*n_images)++;
        } else if (slice_eq(type, SLICE("text"))) {
            if (!first)
                buf_put_char(to, '\n');
            buf_put_slice(to, wire_json_text(wire_json_get(part, "text")));
            first = false;
        } else {
            return WEIR_E_INVALID;
        }
    }
    return 0;
}

static struct slice strip(struct slice s)
{
    while (s.n && (unsigned char)s.p[0] <= ' ')
        s = slice_from(s, 1);
    while (s.n && (unsigned char)s.p[s.n - 1] <= ' ')
        s.n--;
    return s;
}

/* Python's replace("\r\n", "\n").replace("\n\n", "\n"). */
static void put_rwkv(struct buf *out, struct slice s)
{
    bool held = false; /* a line end that may be one of two */

    for (size_t i = 0; i < s.n; i++) {
        bool crlf = s.p[i] == '\r' && i + 1 < s.n && s.p[i + 1] == '\n';
        i += crlf;
        if (s.p[i] != '\n') {
            held = false;
        } else if (held) {
            held = false;
            continue;
        } else {
            held = true;
        }
        buf_put_char(out, s.p[i]);
    }
}

static void put3(struct buf *out, struct slice a, const char *b, struct slice c)
{
    buf_put_slice(out, a);
    buf_put_str(out, b);
    buf_put_slice(out, c);
}

/* --- by style: what stands before a message, between role and message, and after it --- */

static void put_before(struct prompt *p)
{
    if (p->style == CHATGLM && p->i % 2 == 0) {
        buf_put_str(p->out, "[Round ");
        buf_put_u64(p->out, p->i / 2 + slice_eq(p->name, SLICE("chatglm2")));
        put3(p->out, SLICE("]"), "", p->seps[0]);
    } else if (p->style == CHATINTERN && p->i % 2 == 0) {
        buf_put_str(p->out, "<s>");
    } else if (p->style == LLAMA3) {
        buf_put_str(p->out, "<|start_header_id|>");
    } else if (p->style == GEMMA) {
        buf_put_str(p->out, "<start_of_turn>");
    }
}

static void put_between(struct prompt *p, bool blank)
{
    static const char *const words[] = {
        [ADD_COLON_SINGLE] = ": ",
        [ADD_COLON_TWO] = ": ",
        [ADD_COLON_SPACE_SINGLE] = ": ",
        [NO_COLON_SINGLE] = "",
        [NO_COLON_TWO] = "",
        [ADD_NEW_LINE_SINGLE] = "\n",
        [LLAMA2] = " ",
        [CHATGLM] = "\xef\xbc\x9a",
        [CHATML] = "\n",
        [CHATINTERN] = ":",
        [DOLLY] = ":\n",
        [RWKV] = ": ",
        [PHOENIX] = ": <s>",
        [ROBIN] = ":\n",
        [FALCON_CHAT] = ": ",
        [CHATGLM3] = "\n",
        [DEEPSEEK_CHAT] = ": ",
        [METAMATH] = ":\n",
        [YUAN2] = "",
        [GEMMA] = "\n",
        [LLAMA3] = "<|end_header_id|>\n\n",
    };

    if (p->style == METAMATH && p->i % 2)
        put3(p->out, none, ": ", p->seps[1]);
    else if (blank && (p->style == ADD_COLON_SINGLE || p->style == ADD_COLON_TWO ||
                       p->style == RWKV || p->style == FALCON_CHAT || p->style == DEEPSEEK_CHAT))
        buf_put_char(p->out, ':');
    else if (!blank || (p->style != LLAMA2 && p->style != CHATGLM3))
        buf_put_str(p->out, words[p->style]);
}

static void put_after(struct prompt *p)
{
    struct slice by_turn = p->seps[p->i % 2];

    switch (p->style) {
    case ADD_COLON_SINGLE:
    case ADD_COLON_SPACE_SINGLE:
    case NO_COLON_SINGLE:
    case ADD_NEW_LINE_SINGLE:
    case CHATGLM:
    case ROBIN:
    case FALCON_CHAT:
        buf_put_slice(p->out, p->seps[0]);
        break;
    case ADD_COLON_TWO:
    case NO_COLON_TWO:
    case LLAMA2:
    case DEEPSEEK_CHAT:
        buf_put_slice(p->out, by_turn);
        break;
    case CHATML:
        put3(p->out, p->seps[0], "\n", none);
        break;
    case CHATINTERN:
        put3(p->out, by_turn, "\n", none);
        break;
    case DOLLY:
        put3(p->out, by_turn, p->i % 2 ? "\n\n" : "", none);
        break;
    case RWKV:
        buf_put_str(p->out, "\n\n");
        break;
    case PHOENIX:
        buf_put_str(p->out, "</s>");
        break;
    case METAMATH:
        buf_put_slice(p->out, p->i % 2 ? none : p->seps[0]);
        break;
    case YUAN2:
        buf_put_str(p->out, "<n>");
        break;
    case GEMMA:
        buf_put_slice(p->out, p->seps[0]);
        break;
    case LLAMA3:
        buf_put_str(p->out, "<|eot_id|>");
        break;
    case CHATGLM3:
        break;
    }
}

/* One message. @param content NULL: the blank one that the model fills. */
static int put_message(struct prompt *p, unsigned role, const struct json_node *content)
{
    struct buf text;
    unsigned n_images;

    buf_init(&text, p->out->mem, p->out->max);
    int rc = put_content(p, content, &text, &n_images);
    struct slice said = buf_slice(&text);
    bool blank = said.n == 0;
    bool bare = p->style == LLAMA2 && p->i == 0 && !blank; /* the tag stands before already */

    if (p->style == LLAMA2)
        role = p->i % 2;
    put_before(p);
    if (!bare && p->style != YUAN2)
        buf_put_slice(p->out, p->roles[role]);
    if (!bare)
        put_between(p, blank);
    for (unsigned i = 0; i < n_images && p->style == ADD_COLON_TWO; i++)
        buf_put_str(p->out, "$$<image>$$");
    if (p->style == RWKV)
        put_rwkv(p->out, said);
    else
        buf_put_slice(p->out, p->style == LLAMA3 ? strip(said) : said);
    if (bare)
        buf_put_char(p->out, ' ');
    else if (!blank)
        put_after(p);
    p->i++;
    rc = rc ? rc : text.err;
    buf_fini(&text);
    return rc;
}

/* --- the system prompt --- */

/* Python's format() with one name. */
static void put_system(struct prompt *p, struct slice form)
{
    static const struct slice hole = SLICE("{system_message}");

    while (form.n) {
        if (slice_starts(form, hole)) {
            buf_put_slice(p->out, p->system);
            form = slice_from(form, hole.n);
        } else {
            bool twice =
                (form.p[0] == '{' || form.p[0] == '}') && form.n > 1 && form.p[1] == form.p[0];
            buf_put_char(p->out, form.p[0]);
            form = slice_from(form, twice ? 2 : 1);
        }
    }
}

static void put_beginning(struct prompt *p, struct slice form)
{
    size_t before = buf_len(p->out);

    if (p->style == LLAMA3 || p->style == GEMMA)
        buf_put_str(p->out, p->style == LLAMA3 ? "<|begin_of_text|>" : "<bos>");
    bool shown = p->style != GEMMA;
    if (p->style == LLAMA2 || p->style == CHATGLM3 || p->style == FALCON_CHAT ||
        p->style == YUAN2 || p->style == LLAMA3)
        shown = p->system.n > 0;
    if (shown)
        put_system(p, form);
    bool any = buf_len(p->out) > before;
    switch (p->style) {
    case ADD_COLON_SINGLE:
    case ADD_COLON_TWO:
    case ADD_COLON_SPACE_SINGLE:
    case ROBIN:
        buf_put_slice(p->out, p->seps[0]);
        break;
    case ADD_NEW_LINE_SINGLE:
    case CHATGLM:
    case METAMATH:
    case FALCON_CHAT:
        buf_put_slice(p->out, any ? p->seps[0] : none);
        break;
    case CHATML:
        if (any)
            put3(p->out, p->seps[0], "\n", none);
        break;
    case YUAN2:
        buf_put_slice(p->out, any ? p->seps[1] : none);
        break;
    case LLAMA2:
        if (!any)
            buf_put_str(p->out, "[INST] ");
        break;
    case NO_COLON_SINGLE:
    case NO_COLON_TWO:
    case CHATINTERN:
    case DOLLY:
    case RWKV:
    case PHOENIX:
    case CHATGLM3:
    case DEEPSEEK_CHAT:
    case GEMMA:
    case LLAMA3:
        break;
    }
}

/* --- all of it --- */

static bool is_system(struct slice role)
{
    return slice_eq(role, SLICE("system")) || slice_eq(role, SLICE("developer"));
}

/* @param text where a system message given in parts is put together. */
static int read_system(struct prompt *p, const struct json_node *messages, struct buf *text)
{
    unsigned n_images;

    for (const struct json_node *m = messages->first; m; m = m->next) {
        if (!is_system(wire_json_text(wire_json_get(m, "role"))))
            continue;
        buf_clear(text);
        if (put_content(p, wire_json_get(m, "content"), text, &n_images) || text->err)
            return WEIR_E_INVALID;
        p->system = buf_slice(text);
    }
    return 0;
}

static int put_messages(struct prompt *p,
                        const struct json_node *conv,
                        const struct json_node *messages,
                        struct fastchat_fault *why)
{
    const struct json_node *examples = wire_json_get(conv, "messages");
    int rc = 0;

    for (const struct json_node *m = examples ? examples->first : NULL; m && !rc; m = m->next) {
        bool second = m->first && slice_eq(wire_json_text(m->first), p->roles[1]);
        rc = put_message(p, second, m->first ? m->first->next : NULL);
    }
    for (const struct json_node *m = messages->first; m && !rc; m = m->next) {
        struct slice role = wire_json_text(wire_json_get(m, "role"));
        bool second = slice_eq(role, SLICE("assistant"));
        if (is_system(role))
            continue;
        if (!second && !slice_eq(role, SLICE("user")))
            return refuse(why, "messages: a FastChat worker knows the roles system, user and "
                               "assistant");
        rc = put_message(p, second, wire_json_get(m, "content"));
    }
    if (rc == 0)
        rc = put_message(p, 1, NULL);
    return rc == WEIR_E_INVALID ? refuse(why, "messages: content must be a text, or parts of type "
                                              "text and image_url")
                                : rc;
}

/* Python's rstrip("<n>"): those characters, not that word. */
static void strip_yuan(struct buf *out)
{
    while (buf_len(out) && memchr("<n>", out->p[out->to - 1], 3))
        out->to--;
}

int fastchat_prompt(const struct json_node *conv,
                    const struct fastchat_request *r,
                    struct buf *prompt,
                    struct buf *images,
                    struct fastchat_fault *why)
{
    const struct json_node *roles = wire_json_get(conv, "roles");
    struct prompt p = {.out = prompt, .images = images};
    struct buf system;
    double offset;

    if (!r->messages) {
        buf_put_slice(prompt, r->text);
        return prompt->err;
    }
    if (!read_style(conv, &p.style) || !wire_json_is(roles, JSON_NODE_ARRAY) || roles->n < 2) {
        fastchat_fault_set(why, 502, "upstream_failed",
                           SLICE("the worker's conversation template is of no known style"));
        return WEIR_E_INVALID;
    }
    p.name = wire_json_text(wire_json_get(conv, "name"));
    p.seps[0] = wire_json_text(wire_json_get(conv, "sep"));
    p.seps[1] = wire_json_text(wire_json_get(conv, "sep2"));
    p.roles[0] = wire_json_text(roles->first);
    p.roles[1] = wire_json_text(roles->first->next);
    p.system = wire_json_text(wire_json_get(conv, "system_message"));
    if (wire_json_number(wire_json_get(conv, "offset"), &offset) && offset > 0 && offset < 1e6)
        p.offset = (uint64_t)offset;
    buf_init(&system, prompt->mem, prompt->max);
    int rc = read_system(&p, r->messages, &system);
    if (rc) {
        buf_fini(&system);
        return refuse(why, "messages: content must be a text, or parts of type text and image_url");
    }
    put_beginning(&p, wire_json_text(wire_json_get(conv, "system_template")));
    rc = put_messages(&p, conv, r->messages, why);
    if (p.style == YUAN2) {
        strip_yuan(prompt);
        buf_put_slice(prompt, p.seps[0]);
    }
    buf_fini(&system);
    return rc ? rc : prompt->err ? prompt->err : images->err;
}
