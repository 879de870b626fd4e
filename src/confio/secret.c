/* SPDX-License-Identifier: Apache-2.0 */
#include "confio/secret.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/slice.h"
#include "confio/file.h"

/* @return bytes, or size when it does not fit. */
static size_t from_variable(const char *name, char *out, size_t size)
{
    const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing here calls setenv */
    size_t n = value ? strnlen(value, size) : 0;

    if (n < size)
        memcpy(out, value ? value : "", n);
    return n;
}

/* @return likewise; 0 when it cannot be read. */
static size_t from_file(const char *path, char *out, size_t size)
{
    int fd = confio_open(path);
    size_t n = 0;
    ssize_t got = fd < 0 ? -1 : 1;

    while (got > 0 && n < size) {
        got = confio_read(fd, out + n, size - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        (void)close(fd);
    return got < 0 ? 0 : n;
}

static bool visible(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= 0x20 || s.p[i] >= 0x7f)
            return false;
    return s.n > 0;
}

int confio_secret_named(const char *where, char *out, size_t size, const char **wanted)
{
    struct slice s = slice_str(where);
    bool file = slice_starts(s, SLICE("file:"));
    size_t n = 0;

    out[0] = 0;
    if (!file && !slice_starts(s, SLICE("env:"))) {
        *wanted = "env:NAME or file:PATH";
        return WEIR_E_INVALID;
    }
    n = file ? from_file(where + 5, out, size) : from_variable(where + 4, out, size);
    *wanted =
        file ? "a readable file of 1 to 4095 bytes" : "a set variable of less than 4096 bytes";
    if (n > 0 && n < size) {
        while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == '\r'))
            n--;
        out[n] = 0;
        if (visible(slice_of(out, n)))
            return 0;
        *wanted = "a token of one line of visible ASCII characters";
    }
    explicit_bzero(out, size);
    return WEIR_E_IO;
}
