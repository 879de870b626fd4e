/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/statefile.h"

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

void statefile_init(struct statefile *f, struct loop *loop, const struct statefile_options *o)
{
    *f = (struct statefile){.loop = loop, .o = *o};
    f->timer.on_timer = on_timer;
    buf_init(&f->text, loop_mem(), FILE_MAX);
    atomic_init(&f->done, false);
    atomic_init(&f->error, 0);
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
    struct statefile *f = arg;

    atomic_store(&f->error, replace_file(f->o.path, buf_slice(&f->text)));
    atomic_store(&f->done, true);
    return NULL;
}

/* --- when --- */

static void schedule(struct statefile *f, uint64_t earliest)
{
    uint64_t next = f->started_ns + PERIOD_NS;

    loop_timer_set(f->loop, &f->timer, MAX(next, earliest));
}

static void finished(struct statefile *f)
{
    int error = atomic_load(&f->error);
    char text[128];

    f->writing = false;
    buf_fini(&f->text);
    if (error) {
        f->dirty = true;
        if (!f->failing)
            log_warn(f->o.room, "cannot save %s (%s): %s; going on without, trying again",
                     f->o.path, f->o.option, strerror_r(error, text, sizeof(text)));
    } else if (f->failing) {
        log_info(f->o.room, "saving %s works again", f->o.path);
    }
    f->failing = error != 0;
    if (f->dirty)
        schedule(f, error ? loop_now(f->loop) + RETRY_NS : 0);
}

static bool make_text(struct statefile *f)
{
    f->dirty = false;
    f->started_ns = loop_now(f->loop);
    f->o.write(f->o.ctx, &f->text);
    if (!f->text.err)
        return true;
    log_warn(f->o.room, "cannot save %s: %s", f->o.path, err_text(f->text.err));
    buf_fini(&f->text);
    f->dirty = true;
    return false;
}

static void begin(struct statefile *f)
{
    if (!make_text(f)) {
        schedule(f, f->started_ns + RETRY_NS);
        return;
    }
    f->writing = true;
    atomic_store(&f->done, false);
    if (pthread_create(&f->thread, NULL, helper, f) != 0) {
        /* No thread to be had: the loop waits this once. */
        (void)helper(f);
        finished(f);
        return;
    }
    loop_timer_set(f->loop, &f->timer, f->started_ns + POLL_NS);
}

static void on_timer(struct loop_timer *t)
{
    struct statefile *f = container_of(t, struct statefile, timer);

    if (!f->writing) {
        begin(f);
    } else if (atomic_load(&f->done)) {
        (void)pthread_join(f->thread, NULL);
        finished(f);
    } else {
        loop_timer_set(f->loop, &f->timer, loop_now(f->loop) + POLL_NS);
    }
}

void statefile_changed(struct statefile *f)
{
    if (!f->o.path)
        return;
    f->dirty = true;
    if (!f->writing && !loop_timer_active(&f->timer))
        schedule(f, loop_now(f->loop) + DEBOUNCE_NS);
}

void statefile_fini(struct statefile *f)
{
    loop_timer_cancel(&f->timer);
    if (f->writing) {
        (void)pthread_join(f->thread, NULL);
        finished(f);
        loop_timer_cancel(&f->timer);
    }
    if (f->o.path && f->dirty && make_text(f)) {
        (void)helper(f);
        finished(f);
        loop_timer_cancel(&f->timer);
    }
    buf_fini(&f->text);
}

/* --- reading --- */

static int read_file(const char *path, struct buf *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe has no end */

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
void statefile_put_aside(struct statefile *f, const char *why, bool copy)
{
    char bad[PATH_TEXT_MAX];

    if (snprintf(bad, sizeof(bad), "%s.bad", f->o.path) >= (int)sizeof(bad))
        return;
    (void)unlink(bad);
    bool kept = copy ? link(f->o.path, bad) == 0 : rename(f->o.path, bad) == 0;
    log_warn(f->o.room, "state file %s: %s; %s %s", f->o.path, why,
             kept ? "kept as" : "could not be kept as", bad);
}

int statefile_read(struct statefile *f, struct buf *out)
{
    char words[128];

    if (!f->o.path)
        return WEIR_E_NOTFOUND;
    int error = read_file(f->o.path, out);
    if (!error)
        return 0;
    if (error == ENOENT)
        return WEIR_E_NOTFOUND;
    if (error == EINVAL)
        log_warn(f->o.room, "state file %s is not a regular file: starting without it (%s)",
                 f->o.path, f->o.option);
    else
        statefile_put_aside(f, strerror_r(error, words, sizeof(words)), false);
    return WEIR_E_IO;
}
