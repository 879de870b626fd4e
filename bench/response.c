/* SPDX-License-Identifier: Apache-2.0 */
/* See response.h. */
#include "response.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void response_reset(struct response *r)
{
    r->state = RESPONSE_HEAD;
    r->status = 0;
    r->close = false;
    r->left = r->body_bytes = 0;
    r->events = 0;
    r->stamp = 0;
    r->line_bytes = r->match = 0;
    r->stamp_so_far = 0;
    r->newline = false;
    r->head_bytes = 0;
}

/* The value of a field in the collected head, or NULL. */
static const char *field(const struct response *r, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = strstr(r->head, "\r\n"); p != NULL; p = strstr(p, "\r\n")) {
        p += 2;
        if (strncasecmp(p, name, n) == 0 && p[n] == ':') {
            p += n + 1;
            while (*p == ' ')
                p++;
            return p;
        }
    }
    return NULL;
}

static void head_done(struct response *r)
{
    r->head[r->head_bytes] = '\0';
    if (strncmp(r->head, "HTTP/1.", 7) != 0 || r->head_bytes < 12) {
        r->state = RESPONSE_BAD;
        return;
    }
    r->status = (int)strtol(r->head + 9, NULL, 10);
    const char *connection = field(r, "connection");
    r->close =
        r->head[7] == '0' || (connection != NULL && strncasecmp(connection, "close", 5) == 0);
    const char *coding = field(r, "transfer-encoding");
    const char *length = field(r, "content-length");
    r->head_bytes = 0;
    if (r->status / 100 == 1) {
        response_reset(r);
    } else if (coding != NULL && strncasecmp(coding, "chunked", 7) == 0) {
        r->state = RESPONSE_CHUNK_SIZE;
        r->left = 0;
    } else if (length != NULL) {
        r->left = strtoull(length, NULL, 10);
        r->state = r->left > 0 ? RESPONSE_LENGTH : RESPONSE_DONE;
    } else {
        r->state = r->status == 204 || r->status == 304 ? RESPONSE_DONE : RESPONSE_CLOSE;
        r->close = r->state == RESPONSE_CLOSE;
    }
}

static size_t feed_head(struct response *r, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (r->head_bytes == RESPONSE_HEAD_MAX - 1) {
            r->state = RESPONSE_BAD;
            return i;
        }
        r->head[r->head_bytes++] = p[i];
        if (p[i] == '\n' && r->head_bytes >= 4 &&
            memcmp(r->head + r->head_bytes - 4, "\r\n\r\n", 4) == 0) {
            head_done(r);
            return i + 1;
        }
    }
    return n;
}

/* Count "\n\n" and pick up "t=" with 16 hex digits, wherever reads cut them. */
static void body(struct response *r, const char *p, size_t n)
{
    r->body_bytes += n;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        r->events += c == '\n' && r->newline;
        r->newline = c == '\n' && !r->newline;
        if (r->match >= 2 && isxdigit((unsigned char)c)) {
            unsigned digit = c <= '9' ? (unsigned)c - '0' : ((unsigned)c | 32U) - 'a' + 10;
            r->stamp_so_far = r->stamp_so_far << 4 | digit;
            if (++r->match == 18) {
                r->stamp = r->stamp_so_far;
                r->match = 0;
            }
        } else if (r->match == 1 && c == '=') {
            r->match = 2;
            r->stamp_so_far = 0;
        } else {
            r->match = c == 't';
        }
    }
}

static size_t feed_chunk_size(struct response *r, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '\n') {
            r->state = r->left > 0 ? RESPONSE_CHUNK_DATA : RESPONSE_TRAILER;
            r->line_bytes = 0;
            return i + 1;
        }
        if (isxdigit((unsigned char)c)) {
            unsigned digit = c <= '9' ? (unsigned)c - '0' : ((unsigned)c | 32U) - 'a' + 10;
            r->left = r->left << 4 | digit;
        } else if (c != '\r') {
            r->state = RESPONSE_BAD;
            return i;
        }
        if (++r->line_bytes > 18) {
            r->state = RESPONSE_BAD;
            return i;
        }
    }
    return n;
}

/* The CRLF after a chunk's bytes, or trailers up to an empty line. */
static size_t feed_lines(struct response *r, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\n') {
            r->line_bytes += p[i] != '\r';
            continue;
        }
        if (r->state == RESPONSE_CHUNK_END) {
            r->state = r->line_bytes == 0 ? RESPONSE_CHUNK_SIZE : RESPONSE_BAD;
            r->left = 0;
            return i + 1;
        }
        if (r->line_bytes == 0) {
            r->state = RESPONSE_DONE;
            return i + 1;
        }
        r->line_bytes = 0;
    }
    return n;
}

static size_t feed_body(struct response *r, const char *p, size_t n)
{
    size_t take = r->state == RESPONSE_CLOSE || n < r->left ? n : (size_t)r->left;
    body(r, p, take);
    if (r->state == RESPONSE_CLOSE)
        return take;
    r->left -= take;
    if (r->left == 0) {
        r->state = r->state == RESPONSE_LENGTH ? RESPONSE_DONE : RESPONSE_CHUNK_END;
        r->line_bytes = 0;
    }
    return take;
}

size_t response_feed(struct response *r, const char *p, size_t n)
{
    size_t used = 0;
    r->events = 0;
    r->stamp = 0;
    while (used < n && r->state != RESPONSE_DONE && r->state != RESPONSE_BAD) {
        const char *at = p + used;
        size_t left = n - used;
        switch (r->state) {
        case RESPONSE_HEAD:
            used += feed_head(r, at, left);
            break;
        case RESPONSE_CHUNK_SIZE:
            used += feed_chunk_size(r, at, left);
            break;
        case RESPONSE_CHUNK_END:
        case RESPONSE_TRAILER:
            used += feed_lines(r, at, left);
            break;
        case RESPONSE_LENGTH:
        case RESPONSE_CLOSE:
        case RESPONSE_CHUNK_DATA:
            used += feed_body(r, at, left);
            break;
        case RESPONSE_DONE:
        case RESPONSE_BAD:
            break;
        }
    }
    return used;
}

bool response_eof(struct response *r)
{
    if (r->state == RESPONSE_CLOSE)
        r->state = RESPONSE_DONE;
    return r->state == RESPONSE_DONE;
}
