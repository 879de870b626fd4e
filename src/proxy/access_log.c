/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One JSON line per request: identifiers, sizes, times and the outcome; never headers, prompts or credentials, and no
 * query string (it may carry a key). Lines are gathered per lane and written whole, so that lanes can share the file.
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/num.h"
#include "loop/log.h"
#include "proxy/exchange.h"

enum { LOG_FLUSH = 32768, LOG_PATH_MAX = 512 };

static void put_digits(struct buf *b, unsigned v, unsigned width)
{
    char text[4];

    for (unsigned i = width; i > 0; i--, v /= 10)
        text[i - 1] = (char)('0' + v % 10);
    buf_put(b, text, width);
}

static void put_time(struct buf *b, uint64_t wall_ns)
{
    time_t s = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;

    gmtime_r(&s, &tm);
    put_digits(b, (unsigned)tm.tm_year + 1900, 4);
    buf_put_char(b, '-');
    put_digits(b, (unsigned)tm.tm_mon + 1, 2);
    buf_put_char(b, '-');
    put_digits(b, (unsigned)tm.tm_mday, 2);
    buf_put_char(b, 'T');
    put_digits(b, (unsigned)tm.tm_hour, 2);
    buf_put_char(b, ':');
    put_digits(b, (unsigned)tm.tm_min, 2);
    buf_put_char(b, ':');
    put_digits(b, (unsigned)tm.tm_sec, 2);
    buf_put_char(b, '.');
    put_digits(b, (unsigned)(wall_ns % NS_PER_S / NS_PER_MS), 3);
    buf_put_char(b, 'Z');
}

static void put_ms(struct buf *b, const char *name, uint64_t ns)
{
    buf_put_str(b, name);
    buf_put_f64(b, (double)ns / 1e6, 3);
}

static void put_text(struct buf *b, const char *name, struct slice v)
{
    buf_put_str(b, name);
    if (v.n)
        buf_put_json(b, v);
    else
        buf_put_str(b, "null");
}

void access_log_add(struct exchange *x, enum proxy_outcome outcome)
{
    struct lane *l = x->lane;
    struct buf *b = &l->log;
    uint64_t now = loop_now(l->loop);
    size_t before = buf_len(b);
    char peer[NET_ADDR_TEXT];
    struct slice path = exchange_path(x);

    path.n = MIN(path.n, (size_t)LOG_PATH_MAX);
    buf_put_str(b, "{\"time\":\"");
    put_time(b, loop_wall_clock());
    put_text(b, "\",\"request_id\":", exchange_request_id(x));
    put_text(b, ",\"client\":", slice_str(net_addr_text(&x->client->peer, peer)));
    put_text(b, ",\"method\":", x->method_len ? exchange_method(x) : (struct slice){NULL, 0});
    put_text(b, ",\"path\":", path);
    buf_put_str(b, ",\"status\":");
    buf_put_u64(b, x->status);
    put_text(b, ",\"route\":", x->route ? route_name(x->route) : (struct slice){NULL, 0});
    put_text(b, ",\"model\":", x->f.model);
    put_text(b, ",\"endpoint\":", x->target ? x->target->id : (struct slice){NULL, 0});
    put_text(b, ",\"outcome\":", slice_str(proxy_outcome_names[outcome]));
    put_text(b, ",\"code\":",
             x->rejection ? slice_str(error_code(x->rejection)) : (struct slice){NULL, 0});
    buf_put_str(b, ",\"request_bytes\":");
    buf_put_u64(b, x->body_seen);
    buf_put_str(b, ",\"response_bytes\":");
    buf_put_u64(b, x->rsp_bytes);
    put_ms(b, ",\"queue_ms\":", x->queue_ns);
    if (x->first_byte_ns)
        put_ms(b, ",\"ttfb_ms\":", x->first_byte_ns - x->start_ns);
    else
        buf_put_str(b, ",\"ttfb_ms\":null");
    put_ms(b, ",\"total_ms\":", now - x->start_ns);
    buf_put_str(b, "}\n");
    if (b->err) {
        /* Half a line is worse than none. */
        b->to = b->from + before;
        b->err = 0;
        stat_add(&l->stats.log_lost, 1);
    }
    if (buf_len(b) >= LOG_FLUSH)
        access_log_flush(l);
}

static void count_lost(struct lane *l)
{
    struct slice s = buf_slice(&l->log);
    uint64_t lines = 0;

    for (size_t i = 0; i < s.n; i++)
        lines += s.p[i] == '\n';
    stat_add(&l->stats.log_lost, lines);
}

/* @param cut the file ends in half a line of ours. */
static void give_up(struct lane *l, bool cut)
{
    static struct log_limit limit;
    uint64_t missed;
    char words[128];
    char more[LOG_MISSED_TEXT];

    if (log_limit_pass(&limit, loop_now(l->loop), NS_PER_S, &missed))
        log_error("proxy", "access log (logging.access): cannot write, lines are lost: %s%s",
                  strerror_r(errno, words, sizeof(words)), log_missed(missed, more));
    count_lost(l);
    if (cut)
        atomic_store_explicit(&l->proxy->access_cut, true, memory_order_relaxed);
}

void access_log_flush(struct lane *l)
{
    struct buf *b = &l->log;
    bool cut = false;

    if (buf_len(b) == 0)
        return;
    /* A disk that was full has kept half a line: whoever writes next ends it, or the line after it were lost too. */
    int fd = atomic_load(&l->proxy->access_fd);
    if (atomic_load_explicit(&l->proxy->access_cut, memory_order_relaxed) &&
        write(fd, "\n", 1) == 1)
        atomic_store_explicit(&l->proxy->access_cut, false, memory_order_relaxed);
    while (buf_len(b) > 0) {
        struct slice s = buf_slice(b);
        ssize_t n = write(fd, s.p, s.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            give_up(l, cut);
            break;
        }
        cut = s.p[n - 1] != '\n';
        buf_consume(b, (size_t)n);
    }
    buf_clear(b);
}
