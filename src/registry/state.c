/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { FILE_MAX = 1 << 30, PATH_TEXT_MAX = 4096 };

static const uint64_t DEBOUNCE_NS = 200 * NS_PER_MS; /* after the first change */
static const uint64_t PERIOD_NS =
    700 * NS_PER_MS;                           /* between two saves; with the wait below a second */
static const uint64_t RETRY_NS = 5 * NS_PER_S; /* after a failed one */
static const uint64_t POLL_NS = 5 * NS_PER_MS; /* is the helper done? */

static void on_timer(struct loop_timer *t);

void state_init(struct state *s, struct loop *loop, struct store *store, const char *path)
{
    *s = (struct state){.loop = loop, .store = store, .path = path};
    s->timer.on_timer = on_timer;
    buf_init(&s->text, loop_mem(), FILE_MAX);
    atomic_init(&s->done, false);
    atomic_init(&s->error, 0);
}

/* --- writing: these run on the helper thread, or at the end on the loop's --- */

static int write_whole(int fd, struct slice text)
{
    while (text.n) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        text = slice_from(text, (size_t)n);
    }
    return fsync(fd) ? errno : 0;
}

/* The rename itself must reach the disk too. */
static int sync_folder(const char *path)
{
    char folder[PATH_TEXT_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    if (n >= sizeof(folder))
        return ENAMETOOLONG;
    memcpy(folder, path, n);
    folder[n] = '\0';
    int fd = open(n ? folder : slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = fsync(fd) ? errno : 0;
    (void)close(fd);
    return error;
}

static int replace_file(const char *path, struct slice text)
{
    char temporary[PATH_TEXT_MAX];

    if (snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= (int)sizeof(temporary))
        return ENAMETOOLONG;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    int error = write_whole(fd, text);
    if (close(fd) && !error)
        error = errno;
    if (!error && rename(temporary, path))
        error = errno;
    if (error) {
        (void)unlink(temporary);
        return error;
    }
    return sync_folder(path);
}

static void *helper(void *arg)
{
    struct state *s = arg;

    atomic_store(&s->error, replace_file(s->path, buf_slice(&s->text)));
    atomic_store(&s->done, true);
    return NULL;
}

/* --- when --- */

static void schedule(struct state *s, uint64_t earliest)
{
    uint64_t next = s->started_ns + PERIOD_NS;

    loop_timer_set(s->loop, &s->timer, MAX(next, earliest));
}

static void finished(struct state *s)
{
    int error = atomic_load(&s->error);
    char text[128];

    s->writing = false;
    buf_fini(&s->text);
    if (error) {
        s->dirty = true;
        if (!s->failing)
            log_warn("registry",
                     "cannot save %s (registry.state_file): %s; going on without, trying again",
                     s->path, strerror_r(error, text, sizeof(text)));
    } else if (s->failing) {
        log_info("registry", "saving %s works again", s->path);
    }
    s->failing = error != 0;
    if (s->dirty)
        schedule(s, error ? loop_now(s->loop) + RETRY_NS : 0);
}

static bool make_text(struct state *s)
{
    s->dirty = false;
    s->started_ns = loop_now(s->loop);
    state_write(&s->text, s->store, s->generation);
    if (!s->text.err)
        return true;
    log_warn("registry", "cannot save %s: %s", s->path, err_text(s->text.err));
    buf_fini(&s->text);
    s->dirty = true;
    return false;
}

static void begin(struct state *s)
{
    if (!make_text(s)) {
        schedule(s, s->started_ns + RETRY_NS);
        return;
    }
    s->writing = true;
    atomic_store(&s->done, false);
    if (pthread_create(&s->thread, NULL, helper, s) != 0) {
        /* No thread to be had: the loop waits this once. */
        (void)helper(s);
        finished(s);
        return;
    }
    loop_timer_set(s->loop, &s->timer, s->started_ns + POLL_NS);
}

static void on_timer(struct loop_timer *t)
{
    struct state *s = container_of(t, struct state, timer);

    if (!s->writing) {
        begin(s);
    } else if (atomic_load(&s->done)) {
        (void)pthread_join(s->thread, NULL);
        finished(s);
    } else {
        loop_timer_set(s->loop, &s->timer, loop_now(s->loop) + POLL_NS);
    }
}

void state_changed(struct state *s)
{
    if (!s->path || s->loading)
        return;
    s->generation++;
    s->dirty = true;
    if (!s->writing && !loop_timer_active(&s->timer))
        schedule(s, loop_now(s->loop) + DEBOUNCE_NS);
}

void state_fini(struct state *s)
{
    loop_timer_cancel(&s->timer);
    if (s->writing) {
        (void)pthread_join(s->thread, NULL);
        finished(s);
        loop_timer_cancel(&s->timer);
    }
    if (s->path && s->dirty && make_text(s)) {
        (void)helper(s);
        finished(s);
        loop_timer_cancel(&s->timer);
    }
    buf_fini(&s->text);
}

/* --- reading --- */

static int read_file(const char *path, struct buf *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return errno;
    int error = fstat(fd, &st) ? errno : !S_ISREG(st.st_mode) ? EINVAL : 0;
    while (!error) {
        char *p = buf_reserve(out, 65536);
        ssize_t n = p ? read(fd, p, 65536) : -1;
        if (!p)
            error = EFBIG;
        else if (n < 0 && errno != EINTR)
            error = errno;
        else if (n > 0)
            buf_commit(out, (size_t)n);
        else if (n == 0)
            break;
    }
    (void)close(fd);
    return error;
}

/* Keep what could not be read where nothing overwrites it. */
static void put_aside(const struct state *s, const char *why, bool copy)
{
    char bad[PATH_TEXT_MAX];

    if (snprintf(bad, sizeof(bad), "%s.bad", s->path) >= (int)sizeof(bad))
        return;
    (void)unlink(bad);
    bool kept = copy ? link(s->path, bad) == 0 : rename(s->path, bad) == 0;
    log_warn("registry", "state file %s: %s; %s %s", s->path, why,
             kept ? "kept as" : "could not be kept as", bad);
}

void state_load(struct state *s, uint64_t now_ns)
{
    struct buf text;
    char words[128];
    uint32_t bad = 0;

    if (!s->path)
        return;
    buf_init(&text, loop_mem(), FILE_MAX);
    int error = read_file(s->path, &text);
    if (error) {
        if (error == EINVAL)
            log_warn(
                "registry",
                "state file %s is not a regular file: starting without it (registry.state_file)",
                s->path);
        else if (error != ENOENT)
            put_aside(s, strerror_r(error, words, sizeof(words)), false);
        buf_fini(&text);
        return;
    }
    s->loading = true;
    int rc = state_read(s->store, buf_slice(&text), now_ns, &s->generation, &bad);
    s->loading = false;
    buf_fini(&text);
    if (rc == WEIR_E_INVALID)
        put_aside(s, "not a state file of this version, or damaged", false);
    else if (rc || bad)
        put_aside(s, rc ? err_text(rc) : "some entries could not be read", true);
    log_info("registry", "state file %s: %u instances come back in probation", s->path,
             s->store->n);
}
