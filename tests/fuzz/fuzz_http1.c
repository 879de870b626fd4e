/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1 heads: what is accepted is well formed, and no prefix is judged otherwise than the whole. */
#include "fuzz.h"

#include "wire/http1.h"

enum { MAX_FIELDS = 100 };

typedef int64_t (*parse_fn)(const char *p,
                            size_t n,
                            struct http1_head *head,
                            struct http1_error *error);

static int64_t request(const char *p, size_t n, struct http1_head *head, struct http1_error *error)
{
    return wire_http1_request(p, n, MAX_FIELDS, head, error);
}

static int64_t response(const char *p, size_t n, struct http1_head *head, struct http1_error *error)
{
    return wire_http1_response(p, n, SLICE("POST"), head, error);
}

static int64_t
response_to_head(const char *p, size_t n, struct http1_head *head, struct http1_error *error)
{
    return wire_http1_response(p, n, SLICE("HEAD"), head, error);
}

static void plain(struct slice s, const char *p, size_t n)
{
    FUZZ_CHECK(s.p >= p && s.p + s.n <= p + n);
    for (size_t i = 0; i < s.n; i++)
        FUZZ_CHECK((unsigned char)s.p[i] >= 0x20 || s.p[i] == '\t');
}

static unsigned count(const struct http1_head *head, struct slice name)
{
    unsigned n = 0;

    for (unsigned i = 0; i < head->n_fields; i++)
        n += slice_eq_nocase(head->fields[i].name, name);
    return n;
}

static void well_formed(const struct http1_head *head, const char *p, size_t n)
{
    for (unsigned i = 0; i < head->n_fields; i++) {
        plain(head->fields[i].name, p, n);
        plain(head->fields[i].value, p, n);
        FUZZ_CHECK(head->fields[i].name.n > 0);
        FUZZ_CHECK(memchr(head->fields[i].name.p, ' ', head->fields[i].name.n) == NULL);
        (void)wire_http1_hop_by_hop(head, &head->fields[i]);
    }
    FUZZ_CHECK(count(head, SLICE("content-length")) + count(head, SLICE("transfer-encoding")) <= 1);
    FUZZ_CHECK(head->framing != HTTP1_BODY_LENGTH || count(head, SLICE("content-length")) == 1);
    FUZZ_CHECK(head->framing != HTTP1_BODY_CHUNKED ||
               (head->minor == 1 && count(head, SLICE("transfer-encoding")) == 1));
    if (head->status) {
        FUZZ_CHECK(head->status >= 100 && head->status <= 999);
        plain(head->reason, p, n);
        return;
    }
    plain(head->method, p, n);
    plain(head->target, p, n);
    FUZZ_CHECK(head->method.n > 0 && head->target.n > 0);
    FUZZ_CHECK(memchr(head->target.p, ' ', head->target.n) == NULL);
    FUZZ_CHECK(head->framing != HTTP1_BODY_CLOSE);
    FUZZ_CHECK(head->n_fields <= MAX_FIELDS);
    FUZZ_CHECK(count(head, SLICE("host")) == 1 || head->minor == 0);
}

/* A prefix is accepted only as the whole is, refused only when the whole is, and needs all bytes of the head. */
static void prefix(parse_fn parse, const char *p, size_t n, size_t cut, int64_t whole)
{
    static struct http1_head head;
    struct http1_error error;
    int64_t rc = parse(p, cut, &head, &error);

    if (rc > 0)
        FUZZ_CHECK(rc == whole && (size_t)rc <= cut);
    if (rc < 0)
        FUZZ_CHECK(rc == WEIR_E_PROTO && whole == WEIR_E_PROTO && error.status >= 400 &&
                   error.message);
    if (rc == 0 && whole > 0)
        FUZZ_CHECK(cut < (size_t)whole);
    if (cut == n)
        FUZZ_CHECK(rc == whole);
}

static void check(parse_fn parse, const uint8_t *data, size_t size)
{
    static struct http1_head head;
    struct http1_error error;
    const char *p = (const char *)data;
    struct fuzz_cutter cutter = fuzz_cutter(FUZZ_LONG, data, size);
    int64_t whole = parse(p, size, &head, &error);

    FUZZ_CHECK(whole <= (int64_t)size);
    if (whole > 0)
        well_formed(&head, p, (size_t)whole);
    for (size_t cut = 0; cut < size; cut += fuzz_piece(&cutter, size - cut))
        prefix(parse, p, size, cut, whole);
    for (size_t back = 0; back < 5 && back <= size; back++)
        prefix(parse, p, size, size - back, whole);
    if (whole > 0)
        prefix(parse, p, size, (size_t)whole - 1, whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(request, data, size);
    check(response, data, size);
    check(response_to_head, data, size);
    return 0;
}
