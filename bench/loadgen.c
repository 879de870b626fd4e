/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load generator: one thread, epoll, HTTP/1.1 keep-alive.
 *
 * Closed loop (no --rate): every connection sends its next request when the last one is answered; finds the
 * saturation rate. Open loop (--rate R): request i is planned at start + i/R whatever the server does, and its
 * latency counts from that moment, so a stall is charged to every request that it delayed (no coordinated
 * omission). A request that finds no idle connection waits; what was never sent is reported as "unsent".
 *
 * Events that carry "t=" and 16 hex digits of CLOCK_MONOTONIC nanoseconds (bench/backend.c writes them) give the
 * relay time per event. "events_per_read" tells how far a lagging proxy merged events.
 */
#include "hist.h"
#include "response.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

struct conn {
    int fd;
    bool connecting, busy, want_write, measured;
    bool reused;      /* has answered before: a close in between is no error */
    uint64_t planned; /* what latency counts from */
    uint64_t sent;    /* bytes of the request */
    uint64_t last_event;
    struct response response;
};

static struct {
    struct sockaddr_in to;
    const char *path, *model, *headers;
    unsigned connections;
    uint64_t requests; /* closed loop: end after so many; 0 = by time alone */
    double rate, seconds, warmup;
    size_t body_bytes;
    bool stream, get;
} opt = {.path = "/v1/chat/completions",
         .model = "m",
         .headers = "",
         .connections = 1,
         .seconds = 3,
         .warmup = 0.5};

static struct {
    int epoll, timer;
    uint64_t start, measure, end;
    uint64_t planned;    /* open loop: requests planned so far */
    uint64_t dispatched; /* of those, given to a connection */
    char *request;
    size_t request_bytes;
    struct conn *conns;
    unsigned *idle; /* stack: the warmest connection is used first */
    unsigned idle_n;
    uint64_t requests, requests_total, events, events_total, event_reads, bytes;
    uint64_t errors_connect, errors_status, errors_broken, reconnects;
    int bad_status;
    struct hist latency, first_event, relay, gap;
} run;

static char scratch[262144];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(struct conn *c, int op, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(run.epoll, op, c->fd, &e) != 0)
        die("epoll_ctl");
}

static void write_request(struct conn *c);

static void open_conn(struct conn *c)
{
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    int one = 1;
    if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        die("TCP_NODELAY");
    c->connecting = c->want_write = true;
    c->reused = false;
    if (connect(c->fd, (struct sockaddr *)&opt.to, sizeof opt.to) != 0 && errno != EINPROGRESS)
        die("connect");
    watch(c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void reopen(struct conn *c)
{
    close(c->fd);
    run.reconnects++;
    open_conn(c);
}

static void begin(struct conn *c, uint64_t planned)
{
    c->busy = true;
    c->planned = planned;
    c->measured = planned >= run.measure;
    c->sent = 0;
    c->last_event = 0;
    response_reset(&c->response);
    if (!c->connecting)
        write_request(c);
}

/* Open loop: how many are planned up to then, however late it is asked. */
static uint64_t planned_until(uint64_t when)
{
    return (uint64_t)((double)((when < run.end ? when : run.end) - run.start) / (1e9 / opt.rate)) +
           1;
}

/* Give planned requests to idle connections. Closed loop: every idle connection goes again at once. */
static void dispatch(void)
{
    uint64_t now = now_ns();
    if (opt.rate <= 0) {
        while (run.idle_n > 0 && now < run.end &&
               (opt.requests == 0 || run.dispatched < opt.requests)) {
            run.dispatched++;
            begin(&run.conns[run.idle[--run.idle_n]], now);
        }
        return;
    }
    double gap = 1e9 / opt.rate;
    run.planned = planned_until(now);
    while (run.dispatched < run.planned && run.idle_n > 0) {
        uint64_t at = run.start + (uint64_t)((double)run.dispatched * gap);
        run.dispatched++;
        begin(&run.conns[run.idle[--run.idle_n]], at);
    }
    if (now < run.end) {
        uint64_t next = run.start + (uint64_t)((double)run.planned * gap);
        struct itimerspec when = {.it_value = {.tv_sec = (time_t)(next / 1000000000ULL),
                                               .tv_nsec = (long)(next % 1000000000ULL)}};
        if (timerfd_settime(run.timer, TFD_TIMER_ABSTIME, &when, NULL) != 0)
            die("timerfd_settime");
    }
}

static void to_idle(struct conn *c)
{
    c->busy = false;
    run.idle[run.idle_n++] = (unsigned)(c - run.conns);
}

static void finished(struct conn *c, uint64_t now)
{
    run.requests_total++;
    if (c->response.status != 200) {
        run.errors_status++;
        run.bad_status = c->response.status;
    } else if (c->measured && now <= run.end) {
        run.requests++;
        hist_add(&run.latency, now - c->planned);
    }
    bool again = !c->response.close;
    c->reused = true;
    to_idle(c);
    if (!again)
        reopen(c);
}

/* The connection broke. Between two requests that is the server's right; a reused one may be sent again. */
static void broken(struct conn *c)
{
    bool connecting = c->connecting;
    if (c->busy && response_eof(&c->response)) {
        finished(c, now_ns());
        return;
    }
    if (c->busy && c->reused && c->response.state == RESPONSE_HEAD && c->response.head_bytes == 0) {
        reopen(c);
        c->sent = 0;
        return;
    }
    if (c->busy) {
        *(connecting ? &run.errors_connect : &run.errors_broken) += 1;
        to_idle(c);
    }
    if (run.errors_connect + run.errors_broken > 100000) {
        fprintf(stderr, "loadgen: more than 100000 failures, giving up\n");
        exit(1);
    }
    reopen(c);
}

static void write_request(struct conn *c)
{
    while (c->sent < run.request_bytes) {
        ssize_t n = send(c->fd, run.request + c->sent, run.request_bytes - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN)
                break; /* the read side will see it and decide */
            if (!c->want_write) {
                c->want_write = true;
                watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            }
            return;
        }
        c->sent += (uint64_t)n;
    }
    if (c->want_write) {
        c->want_write = false;
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
    }
}

static void saw_events(struct conn *c, uint64_t now)
{
    unsigned n = c->response.events;
    run.events_total += n;
    if (n == 0)
        return;
    uint64_t last = c->last_event;
    c->last_event = now;
    if (now < run.measure || now > run.end) /* a stream may begin in the warm-up and count later */
        return;
    run.events += n;
    run.event_reads++;
    if (c->response.stamp != 0 && now >= c->response.stamp)
        hist_add(&run.relay, now - c->response.stamp);
    if (last != 0)
        hist_add(&run.gap, now - last);
    else if (c->measured)
        hist_add(&run.first_event, now - c->planned);
}

static void readable(struct conn *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, scratch, sizeof scratch, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || !c->busy) {
            broken(c);
            return;
        }
        run.bytes += (uint64_t)n;
        uint64_t now = now_ns();
        size_t used = response_feed(&c->response, scratch, (size_t)n);
        saw_events(c, now);
        if (c->response.state == RESPONSE_BAD || used < (size_t)n) {
            broken(c);
            return;
        }
        if (c->response.state == RESPONSE_DONE) {
            finished(c, now);
            return;
        }
        if ((size_t)n < sizeof scratch)
            return; /* level triggered: a short read was all there is */
    }
}

static void writable(struct conn *c)
{
    if (c->connecting) {
        int err = 0;
        socklen_t len = sizeof err;
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0) {
            broken(c);
            return;
        }
        c->connecting = false;
    }
    if (c->busy) {
        write_request(c);
    } else {
        c->want_write = false;
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
    }
}

/* One request for all: the head, and a JSON body of exactly body_bytes with the model named first. */
static void build_request(const char *host)
{
    size_t room = opt.body_bytes + strlen(opt.headers) + 4096;
    run.request = malloc(room);
    char *body = malloc(opt.body_bytes + 4096);
    if (run.request == NULL || body == NULL)
        die("malloc");
    int n = snprintf(body, 4096,
                     "{\"model\":\"%s\",\"stream\":%s,\"max_tokens\":64,\"messages\":[{\"role\":"
                     "\"user\",\"content\":\"",
                     opt.model, opt.stream ? "true" : "false");
    static const char tail[] = "\"}]}",
                      words[] = "the river runs over the weir and keeps its level ";
    size_t at = (size_t)n;
    while (at + sizeof tail - 1 < opt.body_bytes) {
        body[at] = words[(at - (size_t)n) % (sizeof words - 1)];
        at++;
    }
    memcpy(body + at, tail, sizeof tail - 1);
    at += sizeof tail - 1;
    if (opt.get)
        at = 0;
    int head =
        snprintf(run.request, room, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: weir-loadgen\r\n%s",
                 opt.get ? "GET" : "POST", opt.path, host, opt.headers);
    if (!opt.get)
        head += snprintf(run.request + head, room - (size_t)head,
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n", at);
    head += snprintf(run.request + head, room - (size_t)head, "\r\n");
    memcpy(run.request + head, body, at);
    run.request_bytes = (size_t)head + at;
    free(body);
}

static void loop(void)
{
    struct epoll_event ready[512];
    run.start = now_ns();
    run.measure = run.start + (uint64_t)(opt.warmup * 1e9);
    run.end = run.measure + (uint64_t)(opt.seconds * 1e9);
    for (;;) {
        dispatch();
        uint64_t now = now_ns();
        if (now >= run.end || (opt.requests != 0 && run.requests_total >= opt.requests)) {
            if (opt.rate > 0)
                run.planned = planned_until(now); /* since dispatch() looked */
            return;
        }
        int ms = (int)((run.end - now) / 1000000) + 1;
        int n = epoll_wait(run.epoll, ready, 512, ms);
        if (n < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (c == NULL) {
                uint64_t ticks;
                if (read(run.timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
                    die("timerfd");
                continue;
            }
            int fd = c->fd;
            if ((ready[i].events & EPOLLOUT) != 0)
                writable(c);
            if (c->fd == fd && (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 &&
                !c->connecting)
                readable(c);
        }
    }
}

static void report(void)
{
    uint64_t errors = run.errors_connect + run.errors_status + run.errors_broken;
    double perread = run.event_reads > 0 ? (double)run.events / (double)run.event_reads : 0;
    uint64_t unsent = run.planned > run.dispatched ? run.planned - run.dispatched : 0;
    printf(
        "{\"requests\":%llu,\"requests_total\":%llu,\"seconds\":%.3f,\"rps\":%.1f,\"errors\":%llu",
        (unsigned long long)run.requests, (unsigned long long)run.requests_total, opt.seconds,
        (double)run.requests / opt.seconds, (unsigned long long)errors);
    printf(
        ",\"errors_connect\":%llu,\"errors_status\":%llu,\"bad_status\":%d,\"errors_broken\":%llu",
        (unsigned long long)run.errors_connect, (unsigned long long)run.errors_status,
        run.bad_status, (unsigned long long)run.errors_broken);
    unsigned open = 0;
    for (unsigned i = 0; i < opt.connections; i++)
        open += run.conns[i].busy && run.conns[i].measured;
    printf(",\"open\":%u,\"unsent\":%llu,\"reconnects\":%llu,\"bytes\":%llu,\"events\":%llu,"
           "\"events_total\":%"
           "llu,\"events_per_read\":%.3f,",
           open, (unsigned long long)unsent, (unsigned long long)run.reconnects,
           (unsigned long long)run.bytes, (unsigned long long)run.events,
           (unsigned long long)run.events_total, perread);
    hist_json(&run.latency, "latency_us", stdout);
    if (run.events > 0) {
        static const char comma = ',';
        putchar(comma);
        hist_json(&run.first_event, "first_event_us", stdout);
        putchar(comma);
        hist_json(&run.relay, "relay_us", stdout);
        putchar(comma);
        hist_json(&run.gap, "gap_us", stdout);
    }
    puts("}");
}

static const char usage[] =
    "usage: loadgen --target IP:PORT [options]\n"
    "  --connections N   connections, kept alive (1)\n"
    "  --requests N      closed loop: end after N, or at --seconds\n"
    "  --rate R          open loop: R requests per second, latency from the planned moment (closed "
    "loop without)\n"
    "  --seconds S       measured time (3), after --warmup S (0.5)\n"
    "  --path P          (/v1/chat/completions)   --get: a GET without a body\n"
    "  --body-bytes N    size of the JSON body (210)   --model ID (m)   --stream: ask for a "
    "stream\n"
    "  --header 'K: V'   one more request header; may be repeated\n"
    "Prints one JSON object. Exit status 1 when nothing was answered.\n";

static void add_header(const char *text)
{
    size_t n = strlen(opt.headers) + strlen(text) + 3;
    char *all = malloc(n);
    if (all == NULL)
        die("malloc");
    int wrote = snprintf(all, n, "%s%s\r\n", opt.headers, text);
    if (wrote > 0)
        opt.headers = all; /* the former stays: a handful of bytes until exit */
}

static void parse_target(const char *text)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    opt.to.sin_family = AF_INET;
    if (colon == NULL || (size_t)(colon - text) >= sizeof host) {
        fprintf(stderr, "loadgen: --target wants IP:PORT, not %s\n", text);
        exit(2);
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    opt.to.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(AF_INET, host, &opt.to.sin_addr) != 1 || opt.to.sin_port == 0) {
        fprintf(stderr, "loadgen: --target wants IP:PORT, not %s\n", text);
        exit(2);
    }
}

static const char *parse_options(int argc, char **argv)
{
    static const struct option names[] = {{"target", 1, NULL, 't'},   {"connections", 1, NULL, 'c'},
                                          {"rate", 1, NULL, 'r'},     {"seconds", 1, NULL, 's'},
                                          {"warmup", 1, NULL, 'w'},   {"path", 1, NULL, 'p'},
                                          {"get", 0, NULL, 'g'},      {"body-bytes", 1, NULL, 'b'},
                                          {"model", 1, NULL, 'm'},    {"stream", 0, NULL, 'S'},
                                          {"header", 1, NULL, 'H'},   {"help", 0, NULL, 'h'},
                                          {"requests", 1, NULL, 'n'}, {NULL, 0, NULL, 0}};
    const char *target = NULL;
    opt.body_bytes = 210;
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (o) {
        case 't':
            target = optarg;
            break;
        case 'c':
            opt.connections = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            opt.rate = strtod(optarg, NULL);
            break;
        case 'n':
            opt.requests = strtoull(optarg, NULL, 10);
            break;
        case 's':
            opt.seconds = strtod(optarg, NULL);
            break;
        case 'w':
            opt.warmup = strtod(optarg, NULL);
            break;
        case 'p':
            opt.path = optarg;
            break;
        case 'g':
            opt.get = true;
            break;
        case 'b':
            opt.body_bytes = strtoul(optarg, NULL, 10);
            break;
        case 'm':
            opt.model = optarg;
            break;
        case 'S':
            opt.stream = true;
            break;
        case 'H':
            add_header(optarg);
            break;
        default:
            fputs(usage, o == 'h' ? stdout : stderr);
            exit(o == 'h' ? 0 : 2);
        }
    }
    if (target == NULL || optind < argc || opt.connections == 0 || opt.connections > 60000 ||
        opt.seconds <= 0) {
        fputs(usage, stderr);
        exit(2);
    }
    parse_target(target);
    return target;
}

int main(int argc, char **argv)
{
    build_request(parse_options(argc, argv));
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    run.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    run.conns = calloc(opt.connections, sizeof *run.conns);
    run.idle = calloc(opt.connections, sizeof *run.idle);
    if (run.epoll < 0 || run.timer < 0 || run.conns == NULL || run.idle == NULL)
        die("start");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.timer, &e) != 0)
        die("epoll_ctl");
    for (unsigned i = 0; i < opt.connections; i++) {
        open_conn(&run.conns[i]);
        run.idle[run.idle_n++] = i;
    }
    loop();
    report();
    return run.requests + run.events > 0 ? 0 : 1;
}
