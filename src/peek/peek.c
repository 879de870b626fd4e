/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over JSON events that keeps where it is, not what it saw. Below a top-level key that holds prompt text
 * ("section"), the nearest object key decides how a string counts: text, not text, an image, audio, or a block in
 * which everything counts. So the order of the keys inside a content part does not matter.
 */
#include "peek/peek.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "model/endpoint_t.h"

/* What a top-level key means. Sections come last, in the order of peek.sections. */
enum field {
    F_NONE = 0,
    F_MODEL,
    F_USER,
    F_CACHE_KEY,
    F_PREVIOUS_ID,
    F_STREAM,
    F_MAX_COMPLETION,
    F_MAX_TOKENS,
    F_MAX_OUTPUT,
    F_MESSAGES,
    F_PROMPT,
    F_INPUT,
    F_TOOLS,
    F_FUNCTIONS,
    F_SYSTEM,
    F_INSTRUCTIONS,
};

/* How strings under a key count. */
enum class {
    C_OTHER = 0, /* not */
    C_TEXT,
    C_WHOLE, /* keys and all: JSON that the worker renders into its prompt */
    C_IMAGE,
    C_AUDIO,
};

/* The length is compared by the switch around it; with that known, this is a comparison of words, not a call. */
#define IS(key, text) (memcmp((key).p, (text), sizeof(text) - 1) == 0)

static enum field field_of(struct slice key)
{
    switch (key.n) {
    case 4:
        return IS(key, "user") ? F_USER : F_NONE;
    case 5:
        return IS(key, "model")   ? F_MODEL
               : IS(key, "input") ? F_INPUT
               : IS(key, "tools") ? F_TOOLS
                                  : F_NONE;
    case 6:
        return IS(key, "stream")   ? F_STREAM
               : IS(key, "prompt") ? F_PROMPT
               : IS(key, "system") ? F_SYSTEM
                                   : F_NONE;
    case 8:
        return IS(key, "messages") ? F_MESSAGES : F_NONE;
    case 9:
        return IS(key, "functions") ? F_FUNCTIONS : F_NONE;
    case 10:
        return IS(key, "max_tokens") ? F_MAX_TOKENS : F_NONE;
    case 12:
        return IS(key, "instructions") ? F_INSTRUCTIONS : F_NONE;
    case 16:
        return IS(key, "prompt_cache_key") ? F_CACHE_KEY : F_NONE;
    case 17:
        return IS(key, "max_output_tokens") ? F_MAX_OUTPUT : F_NONE;
    case 20:
        return IS(key, "previous_response_id") ? F_PREVIOUS_ID : F_NONE;
    case 21:
        return IS(key, "max_completion_tokens") ? F_MAX_COMPLETION : F_NONE;
    default:
        return F_NONE;
    }
}

static enum class class_of(struct slice key) {
    switch (key.n){
        case 4 : return IS(key, "text") ? C_TEXT : C_OTHER;
        case 5 : return IS(key, "input")       ? C_WHOLE
        : IS(key, "image") || IS(key, "video") ? C_IMAGE
        : IS(key, "audio")                     ? C_AUDIO
                                               : C_OTHER;
        case 6 : return IS(key, "output")        ? C_TEXT
        : IS(key, "images") || IS(key, "source") ? C_IMAGE
                                                 : C_OTHER;
        case 7 : return IS(key, "content") || IS(key, "refusal") ? C_TEXT : C_OTHER;
        case 8 : return IS(key, "thinking") ? C_TEXT : C_OTHER;
        case 9 : return IS(key, "arguments")           ? C_WHOLE
        : IS(key, "image_url") || IS(key, "video_url") ? C_IMAGE
        : IS(key, "audio_url")                         ? C_AUDIO
                                                       : C_OTHER;
        case 11 : return IS(key, "input_audio") ? C_AUDIO : C_OTHER;
        case 17 : return IS(key, "reasoning_content") ? C_TEXT : C_OTHER;
        default : return C_OTHER;
    }
}

static struct slice key_text(const struct peek *k)
{
    return k->key_len > PEEK_KEY_MAX ? SLICE("") : slice_of(k->key, k->key_len);
}

void peek_text_begin(struct peek_text *t)
{
    t->n = 0;
    t->present = t->too_long = false;
    t->hash = 0;
}

void peek_text_put(struct peek_text *t, struct slice piece)
{
    while (piece.n) {
        if (t->n == PEEK_TEXT_MAX) {
            t->hash = hash_pair(t->hash, hash_slice(slice_of(t->bytes, t->n), 0));
            t->too_long = true;
            t->n = 0;
        }
        size_t n = MIN(piece.n, (size_t)PEEK_TEXT_MAX - t->n);
        memcpy(t->bytes + t->n, piece.p, n);
        t->n = (uint16_t)(t->n + n);
        piece = slice_from(piece, n);
    }
}

void peek_text_done(struct peek_text *t)
{
    uint64_t last = hash_slice(slice_of(t->bytes, t->n), 0);

    t->hash = t->too_long ? hash_pair(t->hash, last) : last;
    t->present = true;
}

static struct peek_text *text_of(struct peek *k)
{
    if (k->field == F_MODEL)
        return &k->found.model;
    if (k->field == F_USER)
        return &k->found.user;
    if (k->field == F_CACHE_KEY)
        return &k->found.prompt_cache_key;
    return k->field == F_PREVIOUS_ID ? &k->found.previous_response_id : NULL;
}

static bool in_section(const struct peek *k)
{
    return k->field >= F_MESSAGES;
}

static struct peek_section *section_of(struct peek *k)
{
    BUG_ON(!in_section(k));
    return &k->sections[k->field - F_MESSAGES];
}

/* A list under prompt or input with an entry that is itself a prompt: a batch. */
static void count_prompt(struct peek *k)
{
    if (k->depth == 2 && (k->field == F_PROMPT || k->field == F_INPUT) &&
        k->found.n_prompts < UINT32_MAX)
        k->found.n_prompts++;
}

static void count_bytes(struct peek *k, uint64_t n)
{
    section_of(k)->bytes += n;
    k->found.prompt_bytes += n;
}

static void count_media(struct peek *k, bool audio)
{
    if (audio) {
        section_of(k)->n_audio++;
        k->found.n_audio++;
    } else {
        section_of(k)->n_images++;
        k->found.n_images++;
    }
}

static void set_limit(struct peek *k, uint64_t v)
{
    k->limits[k->field - F_MAX_COMPLETION] = v;
    k->found.max_tokens = k->limits[0] ? k->limits[0] : k->limits[1] ? k->limits[1] : k->limits[2];
}

/* A top-level key: what stood under it before no longer counts. */
static void field_begin(struct peek *k, struct slice key)
{
    k->field = field_of(key);
    struct peek_text *text = text_of(k);

    if (text) {
        peek_text_begin(text);
    } else if (in_section(k)) {
        struct peek_section *section = section_of(k);
        k->found.prompt_bytes -= section->bytes;
        k->found.n_images -= section->n_images;
        k->found.n_audio -= section->n_audio;
        *section = (struct peek_section){0};
        if (k->field == F_PROMPT || k->field == F_INPUT)
            k->found.n_prompts = 0;
        k->class = k->field == F_TOOLS || k->field == F_FUNCTIONS ? C_WHOLE : C_TEXT;
    } else if (k->field == F_STREAM) {
        k->found.stream = k->found.has_stream = false;
    } else if (k->field != F_NONE) {
        set_limit(k, 0);
    }
}

static int on_key(struct peek *k, struct slice text, bool last)
{
    if (k->block_depth) {
        if (k->class == C_WHOLE)
            count_bytes(k, text.n);
        return 0;
    }
    /* Nearly always a key comes in one piece, and needs no copy. */
    if (k->key_len || !last) {
        if (k->key_len + text.n > PEEK_KEY_MAX) {
            k->key_len = PEEK_KEY_MAX + 1;
        } else {
            memcpy(k->key + k->key_len, text.p, text.n);
            k->key_len = (uint8_t)(k->key_len + text.n);
        }
        text = key_text(k);
    }
    if (!last)
        return 0;
    k->key_len = 0;
    if (k->depth == 1)
        field_begin(k, text);
    else if (in_section(k))
        k->class = class_of(text);
    return 0;
}

/* The front of a string is there, whole or all that comes: is it a data URL of media? */
static void front_done(struct peek *k)
{
    struct slice front = slice_of(k->front, k->front_len);
    bool audio = slice_starts(front, SLICE("data:audio/"));

    if (audio || slice_starts(front, SLICE("data:image/")) ||
        slice_starts(front, SLICE("data:video/"))) {
        count_media(k, audio);
        k->media_string = true;
    } else {
        count_bytes(k, k->front_len);
    }
    k->front_len = PEEK_FRONT_MAX + 1;
}

static void on_text(struct peek *k, struct slice text, bool last)
{
    if (k->front_len <= PEEK_FRONT_MAX) {
        size_t n = MIN(text.n, (size_t)PEEK_FRONT_MAX - k->front_len);
        memcpy(k->front + k->front_len, text.p, n);
        k->front_len = (uint8_t)(k->front_len + n);
        text = slice_from(text, n);
        if (k->front_len == PEEK_FRONT_MAX || last)
            front_done(k);
    }
    if (!k->media_string)
        count_bytes(k, text.n);
    if (last) {
        k->front_len = 0;
        k->media_string = false;
    }
}

static int on_string(struct peek *k, struct slice text, bool last)
{
    bool first = !k->in_string;

    k->in_string = !last;
    if (first)
        count_prompt(k);
    if (!in_section(k)) {
        struct peek_text *value = k->depth == 1 ? text_of(k) : NULL;
        if (!value)
            return 0;
        peek_text_put(value, text);
        if (last)
            peek_text_done(value);
        return 0;
    }
    switch ((enum class)k->class) {
    case C_TEXT:
        on_text(k, text, last);
        return 0;
    case C_WHOLE:
        count_bytes(k, text.n);
        return 0;
    case C_IMAGE:
    case C_AUDIO:
        if (first && !k->block_depth)
            count_media(k, k->class == C_AUDIO);
        return 0;
    case C_OTHER:
    default:
        return 0;
    }
}

static int on_number(struct peek *k, struct slice text, bool last)
{
    uint64_t v;
    double d;

    (void)last;
    if (in_section(k)) {
        if (k->class == C_WHOLE)
            count_bytes(k, text.n);
        else if (k->objects == 0 && (k->field == F_PROMPT || k->field == F_INPUT))
            count_bytes(k, 4);
        return 0;
    }
    if (k->depth != 1 || k->field < F_MAX_COMPLETION)
        return 0;
    if (num_u64(text, &v) == 0)
        set_limit(k, v);
    else if (num_f64(text, &d) == 0 && d >= 1 && d < 1e15)
        set_limit(k, (uint64_t)d);
    return 0;
}

static void on_open(struct peek *k, bool object)
{
    if (!object)
        count_prompt(k);
    unsigned level = k->depth++;

    if (level == 0 || !in_section(k) || k->block_depth)
        return;
    bool media = k->class == C_IMAGE || k->class == C_AUDIO;
    if (media && object)
        count_media(k, k->class == C_AUDIO);
    if (object ? media || k->class == C_WHOLE : k->class == C_WHOLE) {
        k->block_depth = k->depth;
        return;
    }
    if (!object)
        return;
    uint8_t bit = (uint8_t)(1U << (level % 8));
    uint8_t *byte = &k->was_text[level / 8];
    *byte = (uint8_t)(k->class == C_TEXT ? *byte | bit : *byte & ~bit);
    k->objects++;
    k->class = C_OTHER;
}

static void on_close(struct peek *k, bool object)
{
    unsigned level = --k->depth;

    if (level == 0) {
        k->field = F_NONE;
        k->complete = true;
        return;
    }
    if (!in_section(k))
        return;
    if (k->block_depth) {
        if (level < k->block_depth)
            k->block_depth = 0;
        return;
    }
    if (!object)
        return;
    k->objects--;
    k->class = k->was_text[level / 8] >> (level % 8) & 1 ? C_TEXT : C_OTHER;
}

static int on_object(struct peek *k, struct slice text, bool last)
{
    (void)text;
    (void)last;
    on_open(k, true);
    return 0;
}

static int on_array(struct peek *k, struct slice text, bool last)
{
    (void)text;
    (void)last;
    on_open(k, false);
    return 0;
}

static int on_object_end(struct peek *k, struct slice text, bool last)
{
    (void)text;
    (void)last;
    on_close(k, true);
    return 0;
}

static int on_array_end(struct peek *k, struct slice text, bool last)
{
    (void)text;
    (void)last;
    on_close(k, false);
    return 0;
}

static int on_bool(struct peek *k, bool value)
{
    if (k->field == F_STREAM && k->depth == 1) {
        k->found.stream = value;
        k->found.has_stream = true;
    }
    return 0;
}

static int on_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    /* A jump and no frame of its own: it is called for every token. */
    static int (*const on[])(struct peek * k, struct slice text, bool last) = {
        [JSON_SCAN_OBJECT_BEGIN] = on_object,
        [JSON_SCAN_OBJECT_END] = on_object_end,
        [JSON_SCAN_ARRAY_BEGIN] = on_array,
        [JSON_SCAN_ARRAY_END] = on_array_end,
        [JSON_SCAN_KEY] = on_key,
        [JSON_SCAN_STRING] = on_string,
        [JSON_SCAN_NUMBER] = on_number,
    };

    if (event <= JSON_SCAN_NUMBER)
        return on[event](ctx, text, last);
    return event == JSON_SCAN_NULL ? 0 : on_bool(ctx, event == JSON_SCAN_TRUE);
}

void peek_init(struct peek *k)
{
    /* Most of it is room for texts, which need no clearing. */
    wire_json_init(&k->scan, on_event, k);
    peek_text_begin(&k->found.model);
    peek_text_begin(&k->found.user);
    peek_text_begin(&k->found.prompt_cache_key);
    peek_text_begin(&k->found.previous_response_id);
    memset(&k->found.stream, 0, sizeof(k->found) - offsetof(struct peek_found, stream));
    memset(&k->bytes, 0, sizeof(*k) - offsetof(struct peek, bytes));
}

int peek_feed(struct peek *k, const char *p, size_t n)
{
    k->bytes += n;
    int rc = wire_json_scan(&k->scan, p, n);
    if (rc)
        k->broken = true;
    return rc ? WEIR_E_PROTO : 0;
}

int peek_end(struct peek *k)
{
    int rc = wire_json_end(&k->scan);

    if (rc)
        k->broken = true;
    else
        k->complete = true;
    return rc ? WEIR_E_PROTO : 0;
}

void peek_found_features(const struct peek_found *found, bool complete, struct features *f)
{
    if (!f->model.p && found->model.present && !found->model.too_long && found->model.n)
        f->model = slice_of(found->model.bytes, found->model.n);
    f->stream = found->stream;
    f->prompt_complete = complete;
    f->prompt_bytes = found->prompt_bytes;
    f->n_prompts = found->n_prompts;
    f->prompt_tokens = found->prompt_bytes / 4 + (found->prompt_bytes % 4 != 0);
    f->output_tokens = found->max_tokens;
    f->n_images = found->n_images;
    f->n_audio = found->n_audio;
}

void peek_features(const struct peek *k, struct features *f)
{
    peek_found_features(&k->found, k->complete, f);
    if (f->body_bytes == 0)
        f->body_bytes = k->bytes;
}

uint32_t peek_task(struct slice path)
{
    static const struct {
        struct slice tail;
        uint32_t task;
    } tasks[] = {
        {{"/v1/chat/completions", 20}, TASK_CHAT},
        {{"/v1/responses", 13}, TASK_CHAT},
        {{"/v1/messages", 12}, TASK_CHAT},
        {{"/v1/completions", 15}, TASK_COMPLETION},
        {{"/v1/embeddings", 14}, TASK_EMBEDDING},
        {{"/rerank", 7}, TASK_RERANK},
        {{"/v1/audio/transcriptions", 24}, TASK_AUDIO},
        {{"/v1/audio/translations", 22}, TASK_AUDIO},
        {{"/v1/audio/speech", 16}, TASK_AUDIO},
        {{"/v1/images/generations", 22}, TASK_IMAGE},
        {{"/v1/images/edits", 16}, TASK_IMAGE},
        {{"/v1/images/variations", 21}, TASK_IMAGE},
        {{"/sdapi/v1/txt2img", 17}, TASK_IMAGE},
        {{"/sdapi/v1/img2img", 17}, TASK_IMAGE},
        {{"/worker_get_embeddings", 22}, TASK_EMBEDDING},
    };

    path.n = slice_find(path, '?');
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    for (size_t i = 0; i < ARRAY_LEN(tasks); i++)
        if (slice_ends(path, tasks[i].tail))
            return tasks[i].task;
    return 0;
}
