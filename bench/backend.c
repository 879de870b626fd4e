/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast backend of the proxy benchmarks: one thread, epoll, several ports.
 *
 * A POST whose body names "stream":true within its first bytes gets a stream of events, one per tick of --spacing,
 * each with the moment of its sending ("t=" and 16 hex digits of CLOCK_MONOTONIC nanoseconds). Every other POST
 * gets a fixed answer of 139 bytes. GET /v1/models and /health answer what a balancer asks.
 * All streams tick together, or in --phases groups. A stream whose peer does not read skips its ticks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { LISTENER, TIMER, CONN };

struct source {
    int kind, fd;
};

struct conn {
    struct source source;
    struct conn *prev, *next; /* in the ring of live streams, while events_left > 0 */
    bool in_body, chunked, stream, is_get_models;
    uint64_t left; /* body bytes to come */
    unsigned events_left, phase;
    size_t n; /* bytes in buf: a head, or the start of a body */
    size_t out_at, out_n;
    char buf[4096], out[4096];
};

static struct {
    unsigned ports, events, event_bytes, phases;
    double spacing_ms;
    const char *model;
} opt = {.ports = 3, .events = 100, .event_bytes = 60, .phases = 1, .spacing_ms = 20, .model = "m"};

static int poller;
static unsigned phase_now, streams_made;
static struct conn ring = {.prev = &ring, .next = &ring};
static char small[512], models[512], scratch[262144];
static size_t small_n, models_n;

static void die(const char *what)
{
    fprintf(stderr, "backend: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(struct source *s, int op, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = s};
    if (epoll_ctl(poller, op, s->fd, &e) != 0)
        die("epoll_ctl");
}

static void drop(struct conn *c)
{
    if (c->next != NULL) {
        c->prev->next = c->next;
        c->next->prev = c->prev;
    }
    close(c->source.fd);
    free(c);
}

/* Answers are small: a socket buffer that cannot take one belongs to a peer that does not read. */
static bool put(struct conn *c, const char *p, size_t n)
{
    return send(c->source.fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void start_stream(struct conn *c)
{
    c->events_left = opt.events;
    c->phase = streams_made++ % opt.phases;
    c->next = &ring;
    c->prev = ring.prev;
    ring.prev->next = c;
    ring.prev = c;
}

static void end_stream(struct conn *c)
{
    c->prev->next = c->next;
    c->next->prev = c->prev;
    c->next = c->prev = NULL;
}

static bool answer(struct conn *c)
{
    static const char stream_head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                      "Transfer-Encoding: chunked\r\n\r\n";
    if (c->is_get_models)
        return put(c, models, models_n);
    if (!c->stream)
        return put(c, small, small_n);
    start_stream(c);
    return put(c, stream_head, sizeof stream_head - 1);
}

static bool contains(const char *p, size_t n, const char *what)
{
    return memmem(p, n, what, strlen(what)) != NULL;
}

/* Take the head off buf; leave the first body bytes there. False when it is not ours to serve. */
static bool take_head(struct conn *c, size_t head)
{
    c->buf[head - 1] = '\0';
    c->is_get_models = strncmp(c->buf, "GET ", 4) == 0;
    c->stream = false;
    const char *length = strcasestr(c->buf, "\r\ncontent-length:");
    c->chunked = strcasestr(c->buf, "\r\ntransfer-encoding: chunked") != NULL;
    c->left = length != NULL ? strtoull(length + 17, NULL, 10) : 0;
    c->n -= head;
    memmove(c->buf, c->buf + head, c->n);
    c->in_body = true;
    return true;
}

/* Use up body bytes at p; returns how many. A chunked body is taken to end where its last bytes say so. */
static size_t eat_body(struct conn *c, const char *p, size_t n)
{
    c->stream |= contains(p, n < 512 ? n : 512, "\"stream\":true");
    if (c->chunked) {
        c->in_body = n < 5 || memcmp(p + n - 5, "0\r\n\r\n", 5) != 0;
        return n;
    }
    size_t take = n < c->left ? n : (size_t)c->left;
    c->left -= take;
    c->in_body = c->left > 0;
    return take;
}

/* Bytes have come. False: the connection is to be dropped. */
static bool input(struct conn *c, const char *p, size_t n)
{
    while (n > 0 || c->n > 0) {
        if (c->in_body && c->n > 0) {
            size_t used = eat_body(c, c->buf, c->n);
            c->n -= used;
            memmove(c->buf, c->buf + used, c->n);
        } else if (c->in_body) {
            size_t used = eat_body(c, p, n);
            p += used;
            n -= used;
        } else {
            size_t room = sizeof c->buf - c->n, take = n < room ? n : room;
            memcpy(c->buf + c->n, p, take);
            c->n += take;
            p += take;
            n -= take;
            const char *end = memmem(c->buf, c->n, "\r\n\r\n", 4);
            if (end == NULL)
                return c->n < sizeof c->buf;
            if (!take_head(c, (size_t)(end - c->buf) + 4))
                return false;
            if (!c->chunked && c->left == 0)
                c->in_body = false;
        }
        if (!c->in_body && !answer(c))
            return false;
    }
    return true;
}

static void readable(struct conn *c)
{
    for (;;) {
        ssize_t n = recv(c->source.fd, scratch, sizeof scratch, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || !input(c, scratch, (size_t)n)) {
            drop(c);
            return;
        }
        if ((size_t)n < sizeof scratch)
            return;
    }
}

/* Send one event, or what was left of the last one. False: the connection is gone. */
static bool tick_stream(struct conn *c)
{
    if (c->out_at == c->out_n) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        unsigned long long ns =
            (unsigned long long)t.tv_sec * 1000000000ULL + (unsigned long long)t.tv_nsec;
        int n = snprintf(c->out, sizeof c->out, "%x\r\ndata: t=%016llx ", opt.event_bytes, ns);
        int head = snprintf(NULL, 0, "%x\r\n", opt.event_bytes);
        size_t end = (size_t)head + opt.event_bytes - 2;
        memset(c->out + n, '.', end - (size_t)n);
        memcpy(c->out + end, "\n\n\r\n", 4);
        c->out_n = end + 4;
        c->out_at = 0;
        c->events_left--;
        if (c->events_left == 0) {
            memcpy(c->out + c->out_n, "0\r\n\r\n", 5);
            c->out_n += 5;
        }
    }
    ssize_t sent = send(c->source.fd, c->out + c->out_at, c->out_n - c->out_at, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN;
    c->out_at += (size_t)sent;
    if (c->out_at == c->out_n && c->events_left == 0)
        end_stream(c);
    return true;
}

static void tick(int timer)
{
    uint64_t ticks;
    if (read(timer, &ticks, sizeof ticks) < 0)
        return;
    for (struct conn *c = ring.next, *next; c != &ring; c = next) {
        next = c->next;
        if (c->phase == phase_now && !tick_stream(c))
            drop(c);
    }
    phase_now = (phase_now + 1) % opt.phases;
}

static void accept_all(int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct conn *c = calloc(1, sizeof *c);
        int one = 1;
        if (c == NULL || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
            die("accept");
        c->source = (struct source){CONN, fd};
        watch(&c->source, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
    }
}

static struct source *listen_any(void)
{
    struct source *s = calloc(1, sizeof *s);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s == NULL || fd < 0 || bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        die("listen");
    *s = (struct source){LISTENER, fd};
    watch(s, EPOLL_CTL_ADD, EPOLLIN);
    printf(" 127.0.0.1:%u", ntohs(a.sin_port));
    return s;
}

static void prepare_answers(void)
{
    static const char text[] =
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"model\":"
        "\"m\",\"choices\":[{\"index\":0,"
        "\"message\":{\"role\":\"assistant\",\"content\":\"ok, done!!!!!\"}}]}";
    _Static_assert(sizeof text - 1 == 139, "the answer is 139 bytes");
    char list[256];
    int n = snprintf(list, sizeof list,
                     "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\"}]}",
                     opt.model);
    static const char form[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s";
    small_n = (size_t)snprintf(small, sizeof small, form, (int)sizeof text - 1, text);
    models_n = (size_t)snprintf(models, sizeof models, form, n, list);
}

static void parse_options(int argc, char **argv)
{
    static const struct option names[] = {{"ports", 1, NULL, 'p'},   {"events", 1, NULL, 'e'},
                                          {"spacing", 1, NULL, 's'}, {"event-bytes", 1, NULL, 'b'},
                                          {"phases", 1, NULL, 'f'},  {"model", 1, NULL, 'm'},
                                          {NULL, 0, NULL, 0}};
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        unsigned long v = optarg != NULL ? strtoul(optarg, NULL, 10) : 0;
        if (o == 'p')
            opt.ports = (unsigned)v;
        else if (o == 'e')
            opt.events = (unsigned)v;
        else if (o == 's')
            opt.spacing_ms = strtod(optarg, NULL);
        else if (o == 'b')
            opt.event_bytes = (unsigned)v;
        else if (o == 'f')
            opt.phases = (unsigned)v;
        else if (o == 'm')
            opt.model = optarg;
        else
            v = 0;
        if (v == 0 && o != 'm' && o != 's') {
            fputs("usage: backend [--ports 3] [--events 100] [--spacing MS] [--event-bytes 60] "
                  "[--phases 1] [--model m]\n",
                  stderr);
            exit(2);
        }
    }
    if (opt.event_bytes < 32 || opt.event_bytes > 4000 || opt.spacing_ms < 0.05 ||
        strlen(opt.model) > 100) {
        fputs("backend: --event-bytes is 32..4000, --spacing at least 0.05, --model at most 100 "
              "bytes\n",
              stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    prepare_answers();
    poller = epoll_create1(EPOLL_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    long step = (long)(opt.spacing_ms * 1e6 / opt.phases);
    struct timespec every = {.tv_sec = step / 1000000000L, .tv_nsec = step % 1000000000L};
    struct itimerspec when = {.it_value = every, .it_interval = every};
    if (poller < 0 || timer < 0 || timerfd_settime(timer, 0, &when, NULL) != 0)
        die("start");
    static struct source timer_source;
    timer_source = (struct source){TIMER, timer};
    watch(&timer_source, EPOLL_CTL_ADD, EPOLLIN);
    printf("ready");
    for (unsigned i = 0; i < opt.ports; i++)
        listen_any();
    putchar('\n');
    fflush(stdout);
    for (;;) {
        struct epoll_event ready[512];
        int n = epoll_wait(poller, ready, 512, -1);
        if (n < 0 && errno != EINTR)
            die("epoll_wait");
        /* Streams tick after the reads: a dropped connection can then no longer be named by this batch. */
        bool due = false;
        for (int i = 0; i < n; i++) {
            struct source *s = ready[i].data.ptr;
            if (s->kind == LISTENER)
                accept_all(s->fd);
            else if (s->kind == TIMER)
                due = true;
            else
                readable((struct conn *)s);
        }
        if (due)
            tick(timer);
    }
}
