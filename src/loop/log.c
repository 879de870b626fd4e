/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"

enum { LINE_MAX_BYTES = 1024 };

static atomic_int lowest = LOG_INFO;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&lowest, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&lowest, memory_order_relaxed);
}

/* Control bytes would let a client forge lines: write them as \xNN. */
static size_t escape(char *to, size_t cap, const char *from, size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c >= 0x20 && c != 0x7f) {
            if (at + 1 > cap)
                break;
            to[at++] = (char)c;
            continue;
        }
        if (at + 4 > cap)
            break;
        to[at++] = '\\';
        to[at++] = 'x';
        to[at++] = "0123456789abcdef"[c >> 4];
        to[at++] = "0123456789abcdef"[c & 15];
    }
    return at;
}

void log_at(enum log_level level, const char *room, const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    if (level < log_get_level())
        return;
    uint64_t now = loop_wall_clock();
    time_t seconds = (time_t)(now / 1000000000u);
    struct tm tm;
    char text[LINE_MAX_BYTES];
    char line[LINE_MAX_BYTES + 128];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n < 0)
        return;
    size_t text_len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    gmtime_r(&seconds, &tm);
    int head = snprintf(line, sizeof(line),
                        "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %s: ", tm.tm_year + 1900,
                        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                        (int)(now / 1000000u % 1000u), names[level], room);
    if (head < 0 || (size_t)head >= sizeof(line) - 2)
        return;
    size_t at = (size_t)head;
    at += escape(line + at, sizeof(line) - at - 1, text, text_len);
    line[at++] = '\n';
    /* A full or closed stderr must not stop the service: nothing useful can be done about it. */
    ssize_t written = write(STDERR_FILENO, line, at);
    (void)written;
}

int log_limit_pass(struct log_limit *l, uint64_t now_ns, uint64_t interval_ns, uint64_t *missed)
{
    uint64_t last = atomic_load_explicit(&l->last_ns, memory_order_relaxed);

    if ((last != 0 && now_ns - last < interval_ns) ||
        !atomic_compare_exchange_strong_explicit(&l->last_ns, &last, now_ns, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        atomic_fetch_add_explicit(&l->missed, 1, memory_order_relaxed);
        return 0;
    }
    *missed = atomic_exchange_explicit(&l->missed, 0, memory_order_relaxed);
    return 1;
}

const char *log_missed(uint64_t missed, char text[LOG_MISSED_TEXT])
{
    text[0] = '\0';
    if (missed)
        snprintf(text, LOG_MISSED_TEXT, " (said %llu times less)", (unsigned long long)missed);
    return text;
}
