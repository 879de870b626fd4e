/* SPDX-License-Identifier: Apache-2.0 */
/* Files and secrets. */
#include "unit/confio/load.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bug.h"

static char folder[] = "/tmp/weir-confio-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    strcat(strcpy(path, folder), "/f");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    assert_int_equal(close(fd), 0);
}

static void load_file(const char *name, int want, const char *message)
{
    struct loaded l = {.conf = NULL};
    l.mem = test_heap_mem(&l.heap);
    struct confio_options o = {.mem = &l.mem};
    assert_int_equal(confio_load(&o, name, &l.conf, &l.errors), want);
    if (message) {
        assert_int_equal(l.errors.n, 1);
        assert_string_equal(l.errors.list[0].text + l.errors.list[0].message, message);
        assert_true(slice_starts(slice_str(l.errors.list[0].text), slice_str(name)));
        assert_null(l.conf);
    } else {
        assert_int_equal(l.errors.total, 0);
    }
    conf_free(l.conf);
    assert_int_equal(l.heap.live, 0);
}

static void files(void **state)
{
    (void)state;
    static char big[CONFIO_FILE_MAX + 1];

    load_file(NULL, 0, NULL);
    load_file("/nonexistent/weir.yaml", WEIR_E_IO, "cannot open: No such file or directory");
    load_file(folder, WEIR_E_IO, "is a directory, not a file");
    write_file("threads: 2\n", 11);
    load_file(path, 0, NULL);
    write_file("", 0);
    load_file(path, 0, NULL);
    memset(big, '#', sizeof(big));
    write_file(big, sizeof(big) - 1);
    load_file(path, 0, NULL);
    write_file(big, sizeof(big));
    load_file(path, WEIR_E_IO, "is too large");
    write_file("threads: x\n", 11);
    load_file(path, WEIR_E_INVALID, "threads: \"x\" is not a whole number, or auto");

    struct loaded l = {.conf = NULL};
    l.mem = test_heap_mem(&l.heap);
    struct confio_options o = {.mem = &l.mem};
    assert_int_equal(
        confio_load_text(&o, SLICE("w"), slice_of(big, sizeof(big)), &l.conf, &l.errors),
        WEIR_E_INVALID);
    assert_string_equal(l.errors.list[0].text, "w: is too large; the most is 1MiB");
}

/* @param message NULL: the secret is `want`. */
static void secret(const struct conf_secret *s, const char *want, const char *message)
{
    struct test_heap heap = {.live = 0};
    struct mem mem = test_heap_mem(&heap);
    static struct conf_errors errors;
    char *out = NULL;

    memset(&errors, 0, sizeof(errors));
    int rc = confio_secret(&mem, s, &out, &errors);
    if (message) {
        assert_true(rc == WEIR_E_INVALID || rc == WEIR_E_IO);
        assert_int_equal(errors.n, 1);
        assert_string_equal(errors.list[0].text + errors.list[0].message, message);
        assert_null(out);
    } else {
        assert_int_equal(rc, 0);
        assert_int_equal(errors.n, 0);
        if (want)
            assert_string_equal(out, want);
        else
            assert_null(out);
    }
    confio_secret_free(&mem, out);
    assert_int_equal(heap.live, 0);
}

static void secrets(void **state)
{
    (void)state;
    static char text[CONFIO_SECRET_MAX + 4];
    struct conf_secret file = {.kind = CONF_SECRET_FILE, .name = slice_str(path)};
    struct conf_secret missing = {.kind = CONF_SECRET_FILE, .name = SLICE("/nonexistent/secret")};
    struct conf_secret env = {.kind = CONF_SECRET_ENV, .name = SLICE("WEIR_TEST_SECRET")};
    struct conf_secret none = {.kind = CONF_SECRET_NONE};

    secret(&none, NULL, NULL);
    write_file("abc\r\n\n", 6);
    secret(&file, "abc", NULL);
    write_file("\n", 1);
    secret(&file, NULL, "the secret is empty");
    write_file("a b", 3);
    secret(&file, NULL, "the secret must be one line of visible ASCII characters");
    write_file("a\0b", 3);
    secret(&file, NULL, "the secret must be one line of visible ASCII characters");
    memset(text, 'k', sizeof(text));
    write_file(text, CONFIO_SECRET_MAX + 1);
    secret(&file, NULL, "the secret is too long; the most is 4096 bytes");
    write_file(text, CONFIO_SECRET_MAX + 3);
    secret(&file, NULL, "is too large");
    text[CONFIO_SECRET_MAX] = '\0';
    write_file(text, CONFIO_SECRET_MAX);
    secret(&file, text, NULL);
    secret(&missing, NULL, "cannot open: No such file or directory");

    assert_int_equal(unsetenv("WEIR_TEST_SECRET"), 0);
    secret(&env, NULL, "this environment variable is not set");
    assert_int_equal(setenv("WEIR_TEST_SECRET", "", 1), 0);
    secret(&env, NULL, "the secret is empty");
    assert_int_equal(setenv("WEIR_TEST_SECRET", "s3cret", 1), 0);
    secret(&env, "s3cret", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files), cmocka_unit_test(secrets)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
