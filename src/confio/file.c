/* SPDX-License-Identifier: Apache-2.0 */
#include "confio/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bug.h"

/* Who writes into a pipe has begun by then, and goes on. */
enum { SILENCE_MS = 10000 };

int confio_open(const char *path)
{
    int fd;

    /* Not blocking: a named pipe that nobody writes to would hold a running gateway for good. */
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    return fd;
}

ssize_t confio_read(int fd, char *to, size_t n)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    for (;;) {
        int ready = poll(&wait, 1, SILENCE_MS);
        if (ready == 0)
            errno = ETIMEDOUT;
        ssize_t got = ready > 0 ? read(fd, to, n) : -1;
        if (got >= 0 || (errno != EINTR && errno != EAGAIN))
            return got;
    }
}

static int
fail(struct conf_errors *errors, const struct conf_place *at, const char *what, int error)
{
    const char *words = error ? strerrordesc_np(error) : NULL;
    struct slice parts[] = {slice_str(what), slice_str(words ? words : "")};

    conf_error_add(errors, at, parts, ARRAY_LEN(parts));
    return WEIR_E_IO;
}

static int
read_all(int fd, struct buf *out, const struct conf_place *at, struct conf_errors *errors)
{
    enum { PIECE = 16384 };

    for (;;) {
        size_t left = out->max - buf_len(out);
        /* One byte more than fits tells "at the limit" from "above it". */
        char extra;
        char *p = left ? buf_reserve(out, MIN(left, (size_t)PIECE)) : &extra;
        if (!p)
            return WEIR_E_NOMEM;
        ssize_t n = confio_read(fd, p, left ? MIN(left, (size_t)PIECE) : 1);
        if (n < 0 && errno == ETIMEDOUT)
            return fail(errors, at, "is a pipe that nobody writes to", 0);
        if (n < 0)
            return fail(errors, at, "cannot read: ", errno);
        if (n == 0)
            return 0;
        if (!left)
            return fail(errors, at, "is too large", 0);
        buf_commit(out, (size_t)n);
    }
}

int confio_read_file(const char *path,
                     struct buf *out,
                     const struct conf_place *at,
                     struct conf_errors *errors)
{
    struct stat st;
    int fd = confio_open(path);

    if (fd < 0)
        return fail(errors, at, "cannot open: ", errno);
    int rc;
    if (fstat(fd, &st))
        rc = fail(errors, at, "cannot read: ", errno);
    else if (S_ISDIR(st.st_mode))
        rc = fail(errors, at, "is a directory, not a file", 0);
    else
        rc = read_all(fd, out, at, errors);
    (void)close(fd);
    return rc;
}
