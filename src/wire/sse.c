/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/sse.h"

#include "wire/scan.h"

enum state { LINE_START = 0, IN_LINE, AFTER_CR };

size_t wire_sse_split(struct sse_split *s, const char *p, size_t n)
{
    const char *at = p;
    const char *end = p + n;

    while (at < end) {
        char c = *at;
        if (s->state == IN_LINE && c != '\n' && c != '\r') {
            at = scan_text(at + 1, end);
            continue;
        }
        at++;
        if (c != '\n' && c != '\r') {
            s->in_event = s->in_event || c != ':';
            s->state = IN_LINE;
            continue;
        }
        if (c == '\n' && s->state == AFTER_CR) {
            s->state = LINE_START;
            continue;
        }
        bool empty = s->state != IN_LINE;
        s->state = c == '\r' ? AFTER_CR : LINE_START;
        if (!empty || !s->in_event)
            continue;
        s->in_event = false;
        s->events++;
        if (c == '\r' && at < end && *at == '\n') {
            s->state = LINE_START;
            at++;
        }
        return (size_t)(at - p);
    }
    return 0;
}

/* Cut the next line off, whatever ends it. */
static bool next_line(struct slice *rest, struct slice *line)
{
    size_t n = 0;

    if (rest->n == 0)
        return false;
    while (n < rest->n && rest->p[n] != '\n' && rest->p[n] != '\r')
        n = (size_t)(scan_text(rest->p + n + 1, rest->p + rest->n) - rest->p);
    *line = slice_of(rest->p, n);
    if (n + 1 < rest->n && rest->p[n] == '\r' && rest->p[n + 1] == '\n')
        n++;
    *rest = slice_from(*rest, n + 1);
    return true;
}

bool wire_sse_data(struct slice event, struct slice *data)
{
    struct slice line;

    while (next_line(&event, &line)) {
        if (slice_starts(line, SLICE("data:"))) {
            *data = slice_from(line, line.n > 5 && line.p[5] == ' ' ? 6 : 5);
            return true;
        }
        if (slice_eq(line, SLICE("data"))) {
            *data = slice_from(line, 4);
            return true;
        }
    }
    return false;
}
