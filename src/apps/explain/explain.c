/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/explain/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bug.h"
#include "base/num.h"
#include "confio/secret.h"
#include "loop/alloc.h"
#include "loop/loop.h"
#include "net/fetch.h"
#include "wire/url.h"

enum {
    HEADERS_MAX = 64,
    REQUEST_MAX = 4 << 20, /* what the admin API takes */
    ANSWER_MAX = 64 << 20,
};

enum { EXIT_CHOSEN = 0, EXIT_NO_ANSWER = 1, EXIT_WRONG = 2, EXIT_NOBODY = 3 };

static const char help[] =
    "usage: weir explain [option ...]\n"
    "Asks a running gateway which endpoint a request would get and why; nothing is sent anywhere.\n"
    "  --admin URL          its admin API (http://127.0.0.1:29000)\n"
    "  --token env:NAME|file:PATH  admin token\n"
    "  --ca FILE            PEM: who signed its certificate (what the system trusts)\n"
    "  --model M            the model asked for\n"
    "  --model-version V    and its version\n"
    "  --prompt-tokens N    length of the prompt\n"
    "  --max-tokens N       longest output\n"
    "  --memory GB          memory the request needs\n"
    "  --session S          session key\n"
    "  --header K:V         a header of the request; may be repeated\n"
    "  --path P             (/v1/chat/completions)\n"
    "  --request FILE       a request's JSON body, or {\"request\": {...}} as in docs/explain.md; "
    "- = stdin\n"
    "  --json               print the answer as it came\n"
    "  --help               print this\n"
    "\n"
    "exit status: 0 somebody would be chosen, 3 nobody, 2 the command line or the question is "
    "wrong,\n"
    "1 no answer\n";

struct options {
    const char *admin, *token, *model, *version, *prompt, *output, *memory, *session, *path,
        *request, *ca;
    const char *headers[HEADERS_MAX];
    unsigned n_headers;
    bool json, help;
};

static int complain(const char *name, const char *value, const char *wanted)
{
    (void)fprintf(stderr, "weir explain: %s: \"%s\" is not %s\n", name, value, wanted);
    return WEIR_E_INVALID;
}

static int parse(int argc, char **argv, struct options *o)
{
    const struct {
        const char *name;
        const char **to;
    } values[] = {
        {"--admin", &o->admin},
        {"--token", &o->token},
        {"--ca", &o->ca},
        {"--model", &o->model},
        {"--model-version", &o->version},
        {"--prompt-tokens", &o->prompt},
        {"--max-tokens", &o->output},
        {"--memory", &o->memory},
        {"--session", &o->session},
        {"--path", &o->path},
        {"--request", &o->request},
    };

    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(values) && strcmp(argv[i], values[k].name) != 0)
            k++;
        bool header = strcmp(argv[i], "--header") == 0;
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            o->help = true;
        } else if (k == ARRAY_LEN(values) && !header) {
            (void)fprintf(stderr, "weir explain: unknown option %s; see weir explain --help\n",
                          argv[i]);
            return WEIR_E_INVALID;
        } else if (i + 1 == argc) {
            (void)fprintf(stderr, "weir explain: %s needs a value\n", argv[i]);
            return WEIR_E_INVALID;
        } else if (!header) {
            *values[k].to = argv[++i];
        } else if (o->n_headers == HEADERS_MAX) {
            return complain("--header", argv[i + 1], "possible: there are 64 already");
        } else {
            o->headers[o->n_headers++] = argv[++i];
        }
    }
    return 0;
}

static int read_token(const char *where, char *out, size_t size)
{
    const char *wanted;
    int rc = confio_secret_named(where, out, size, &wanted);

    /* What names no place may be the secret itself. */
    return rc ? complain("--token", rc == WEIR_E_INVALID ? "..." : where, wanted) : 0;
}

static int read_file(const char *path, struct buf *out)
{
    bool in = strcmp(path, "-") == 0;
    FILE *f = in ? stdin : fopen(path, "re");
    char piece[8192];
    size_t n;

    if (!f)
        return complain("--request", path, "a readable file");
    while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
        buf_put(out, piece, n);
    bool failed = ferror(f) != 0;
    if (!in)
        (void)fclose(f);
    if (failed || out->err)
        return complain("--request", path, "a readable file of at most 4 MiB");
    return 0;
}

static void put_member(struct buf *out, const char *key, struct slice value)
{
    if (out->p && out->p[out->to - 1] != '{')
        buf_put_char(out, ',');
    buf_put_json(out, slice_str(key));
    buf_put_char(out, ':');
    buf_put_json(out, value);
}

static int put_headers(struct buf *out, const struct options *o, bool as_request)
{
    const struct {
        const char *name, *value;
    } known[] = {{"X-Model-Id", o->model},
                 {"X-Model-Version", o->version},
                 {"X-Required-Memory", o->memory},
                 {"X-Session-Id", o->session}};

    buf_put_str(out, ",\"headers\":{");
    for (size_t i = 0; as_request && i < ARRAY_LEN(known); i++)
        if (known[i].value)
            put_member(out, known[i].name, slice_str(known[i].value));
    for (unsigned i = 0; i < o->n_headers; i++) {
        struct slice value = slice_str(o->headers[i]);
        struct slice name;
        char text[256];
        if (!slice_cut(&value, ':', &name) || !value.p || name.n == 0 || name.n >= sizeof(text))
            return complain("--header", o->headers[i], "NAME:VALUE");
        memcpy(text, name.p, name.n);
        text[name.n] = 0;
        put_member(out, text, slice_trim(value));
    }
    return buf_put_char(out, '}');
}

/* A file that holds a whole question is passed on as it is. */
static bool whole_question(struct slice text)
{
    json_t *root = json_loadb(text.p, text.n, 0, NULL);
    bool whole = json_object_size(root) == 1 && json_is_object(json_object_get(root, "request"));

    json_decref(root);
    return whole;
}

static int question_pasted(const struct options *o, struct buf *out)
{
    struct buf file;

    if (o->prompt || o->output) {
        (void)fprintf(stderr, "weir explain: --request says how long prompt and output are\n");
        return WEIR_E_INVALID;
    }
    buf_init(&file, loop_mem(), REQUEST_MAX);
    int rc = read_file(o->request, &file);
    if (rc == 0 && whole_question(buf_slice(&file))) {
        if (o->n_headers || o->path || o->model || o->version || o->memory || o->session)
            rc = complain("--request", o->request,
                          "to be changed: it is a whole question and has headers and path");
        else
            buf_put_slice(out, buf_slice(&file));
    } else if (rc == 0) {
        buf_put_str(out, "{\"request\":{\"method\":\"POST\",\"path\":");
        buf_put_json(out, slice_str(o->path ? o->path : "/v1/chat/completions"));
        rc = put_headers(out, o, true);
        put_member(out, "body", buf_slice(&file));
        buf_put_str(out, "}}");
    }
    buf_fini(&file);
    return rc;
}

static int put_count(struct buf *out, const char *option, const char *key, const char *value)
{
    uint64_t n;

    if (!value)
        return 0;
    if (num_u64(slice_str(value), &n) != 0 || n > INT64_MAX)
        return complain(option, value, "a whole number");
    buf_put_char(out, ',');
    buf_put_json(out, slice_str(key));
    buf_put_char(out, ':');
    return buf_put_u64(out, n);
}

static int question(const struct options *o, struct buf *out)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"model", o->model},
                 {"version", o->version},
                 {"required_memory", o->memory},
                 {"session", o->session}};

    if (o->request)
        return question_pasted(o, out);
    buf_put_str(out, "{\"path\":");
    buf_put_json(out, slice_str(o->path ? o->path : "/v1/chat/completions"));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (texts[i].value)
            put_member(out, texts[i].key, slice_str(texts[i].value));
    int rc = put_count(out, "--prompt-tokens", "prompt_tokens", o->prompt);
    if (rc == 0)
        rc = put_count(out, "--max-tokens", "max_tokens", o->output);
    if (rc == 0)
        rc = put_headers(out, o, false);
    return rc ? rc : buf_put_char(out, '}');
}

struct conversation {
    struct loop *loop;
    const struct options *options;
    int status; /* of the process */
};

static const char *message_of(const json_t *answer)
{
    return json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
}

static void on_answer(void *ctx, const struct fetch_result *r)
{
    struct conversation *c = ctx;
    json_t *answer = r->error ? NULL : json_loadb(r->body.p, r->body.n, 0, NULL);

    loop_stop(c->loop);
    if (r->error) {
        (void)fprintf(stderr, "weir explain: %s: %s\n", c->options->admin, r->message);
    } else if (r->status != 200) {
        const char *said = message_of(answer);
        (void)fprintf(stderr, "weir explain: %s answers %u: %s\n", c->options->admin, r->status,
                      said ? said : "no message");
        c->status = r->status == 400 ? EXIT_WRONG : EXIT_NO_ANSWER;
    } else if (!json_is_object(answer)) {
        (void)fprintf(stderr, "weir explain: %s: the answer is not JSON\n", c->options->admin);
    } else {
        c->status = json_is_string(json_object_get(answer, "chosen")) ? EXIT_CHOSEN : EXIT_NOBODY;
        if (c->options->json)
            (void)printf("%.*s\n", SLICE_ARG(r->body));
        else
            explain_table(answer, stdout);
    }
    json_decref(answer);
}

static int converse(const struct options *o, const char *secret, struct slice body)
{
    struct conversation c = {.options = o, .status = EXIT_NO_ANSWER};
    struct fetcher *fetcher = NULL;
    struct buf url;

    buf_init(&url, loop_mem(), 4096);
    buf_put_slice(&url, slice_str(o->admin));
    while (buf_len(&url) && url.p[url.to - 1] == '/')
        url.to--;
    buf_put_str(&url, "/api/v1/explain");
    buf_put(&url, "", 1);
    int rc = url.err ? url.err : loop_new(&c.loop);
    if (rc == 0)
        rc = fetcher_new(c.loop, &fetcher);
    if (rc == 0) {
        const struct fetch_tls tls = {.ca = o->ca};
        struct fetch_options f = {.method = "POST",
                                  .tls = &tls,
                                  .url = buf_slice(&url).p,
                                  .body = body,
                                  .content_type = "application/json",
                                  .bearer = secret[0] ? secret : NULL,
                                  .timeout_ns = 30 * NS_PER_S,
                                  .body_max = ANSWER_MAX,
                                  .done = on_answer,
                                  .ctx = &c};
        rc = fetch_start(fetcher, &f, NULL);
    }
    if (rc == 0)
        loop_run(c.loop);
    else
        (void)fprintf(stderr, "weir explain: %s\n", err_text(rc));
    if (fetcher)
        fetcher_free(fetcher);
    if (c.loop)
        loop_free(c.loop);
    buf_fini(&url);
    return c.status;
}

int explain_main(int argc, char **argv)
{
    struct options o = {.admin = "http://127.0.0.1:29000"};
    char secret[CONFIO_TOKEN_SIZE] = "";
    struct url url;
    struct buf body;

    if (parse(argc, argv, &o) != 0)
        return EXIT_WRONG;
    if (o.help) {
        (void)fputs(help, stdout);
        return 0;
    }
    if (wire_url_parse(slice_str(o.admin), &url) != 0) {
        (void)complain("--admin", o.admin, "a URL such as http://127.0.0.1:29000");
        return EXIT_WRONG;
    }
    if (o.token && read_token(o.token, secret, sizeof(secret)) != 0)
        return EXIT_WRONG;
    buf_init(&body, loop_mem(), (size_t)4 * REQUEST_MAX);
    int status = EXIT_WRONG;
    if (question(&o, &body) == 0)
        status = converse(&o, secret, buf_slice(&body));
    buf_fini(&body);
    return status;
}
