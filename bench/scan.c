/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-benchmark of what every request passes through: head parser, body scanner, answer reader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peek/peek.h"
#include "peek/usage.h"
#include "wire/chunked.h"
#include "wire/http1.h"

enum { ROUNDS = 7, READ = 16384 };

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The best of several rounds: what the code costs when the machine does nothing else. */
static void measure(const char *what, void (*once)(void *), void *arg, size_t bytes, unsigned times)
{
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (unsigned i = 0; i < times; i++)
            once(arg);
        double ns = (now_ns() - start) / times;
        best = round == 0 || ns < best ? ns : best;
    }
    printf("%-44s %8zu B %12.1f ns %8.2f GB/s\n", what, bytes, best, (double)bytes / best);
}

struct text {
    char *p;
    size_t n;
};

static void add(struct text *t, const char *s)
{
    size_t n = strlen(s);

    memcpy(t->p + t->n, s, n);
    t->n += n;
}

static void ask(bool ok)
{
    if (!ok) {
        fprintf(stderr, "a parser refused the benchmark's own input\n");
        exit(1);
    }
}

/* A chat of `size` bytes whose messages hold `line` again and again; the model comes last. */
static struct text chat(size_t size, const char *line)
{
    struct text t = {.p = malloc(size + 4096)};

    ask(t.p);
    add(&t, "{\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"}");
    while (t.n < size) {
        add(&t, ",{\"role\":\"user\",\"content\":\"");
        for (size_t end = t.n + 2000; t.n < end;)
            add(&t, line);
        add(&t, "\"}");
    }
    add(&t, "],\"stream\":true,\"max_tokens\":512,\"temperature\":0.7,\"model\":\"llama-3-8b\"}");
    return t;
}

static void peek_once(void *arg)
{
    static struct peek k;
    const struct text *t = arg;

    peek_init(&k);
    for (size_t at = 0; at < t->n; at += READ)
        ask(peek_feed(&k, t->p + at, t->n - at < READ ? t->n - at : READ) == 0);
    ask(peek_end(&k) == 0 && k.found.model.n == 10);
}

static void request_once(void *arg)
{
    static struct http1_head head;
    struct http1_error error;
    const struct text *t = arg;

    ask(wire_http1_request(t->p, t->n, HTTP1_FIELDS_MAX, &head, &error) == (int64_t)t->n);
}

static void response_once(void *arg)
{
    static struct http1_head head;
    struct http1_error error;
    const struct text *t = arg;

    ask(wire_http1_response(t->p, t->n, SLICE("POST"), &head, &error) == (int64_t)t->n);
}

static void usage_once(void *arg)
{
    struct peek_usage u;
    const struct text *t = arg;

    peek_usage_init(&u);
    peek_usage_feed(&u, t->p, t->n);
    ask(u.usage.known == 0);
}

static void chunked_once(void *arg)
{
    struct chunked c = {0};
    const struct text *t = arg;
    struct slice payload;

    for (size_t at = 0; at < t->n;) {
        int64_t used = wire_chunked_read(&c, t->p + at, t->n - at, &payload);
        ask(used > 0);
        at += (size_t)used;
    }
}

int main(void)
{
    static char request[] = "POST /v1/chat/completions HTTP/1.1\r\n"
                            "Host: gateway.example:30000\r\n"
                            "Accept: application/json\r\n"
                            "Content-Type: application/json\r\n"
                            "User-Agent: OpenAI/Python 1.40.0\r\n"
                            "Authorization: Bearer sk-0123456789abcdef0123456789\r\n"
                            "X-Stainless-Lang: python\r\n"
                            "Accept-Encoding: gzip, deflate\r\n"
                            "Connection: keep-alive\r\n"
                            "Content-Length: 131\r\n"
                            "\r\n";
    static char response[] = "HTTP/1.1 200 OK\r\n"
                             "date: Tue, 01 Dec 2026 00:00:00 GMT\r\n"
                             "server: uvicorn\r\n"
                             "content-type: text/event-stream; charset=utf-8\r\n"
                             "cache-control: no-cache\r\n"
                             "x-request-id: 0123456789abcdef\r\n"
                             "transfer-encoding: chunked\r\n"
                             "\r\n";
    static char event[] =
        "data: {\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\","
        "\"created\":1700000000,\"model\":\"llama-3-8b\",\"choices\":[{\"index\":0,"
        "\"delta\":{\"content\":\" token\"},\"finish_reason\":null}],\"usage\":null}\n\n";
    static char chunk[512];
    struct text head = {request, sizeof(request) - 1};
    struct text answer = {response, sizeof(response) - 1};
    struct text sse = {event, sizeof(event) - 1};
    struct text coded = {chunk, 0};
    struct text prose =
        chat(220000, "The quick brown fox jumps over the lazy dog, again and again, until noon. ");
    struct text code = chat(220000, "    if (x == \\\"a\\\") {\\n        return y;\\n    }\\n");
    struct text chinese =
        chat(220000, "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82");
    struct text small = chat(1, "Hi. ");

    coded.n = wire_chunked_prefix(chunk, sse.n);
    add(&coded, event);
    add(&coded, "\r\n");
    measure("request head, 11 fields", request_once, &head, head.n, 200000);
    measure("response head, 6 fields", response_once, &answer, answer.n, 200000);
    measure("peek: small chat", peek_once, &small, small.n, 20000);
    measure("peek: 220 KB chat, prose", peek_once, &prose, prose.n, 200);
    measure("peek: 220 KB chat, source code (escapes)", peek_once, &code, code.n, 200);
    measure("peek: 220 KB chat, Chinese", peek_once, &chinese, chinese.n, 200);
    measure("usage: one event of a stream", usage_once, &sse, sse.n, 200000);
    measure("chunked: one event of a stream", chunked_once, &coded, coded.n, 200000);
    free(prose.p);
    free(code.p);
    free(chinese.p);
    free(small.p);
    return 0;
}
