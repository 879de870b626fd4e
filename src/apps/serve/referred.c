/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and variables that the configuration only names: tokens, certificates, the access log. They may change while the YAML does
 * not, so every reload reads them again, before anything is changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "apps/serve/state.h"
#include "confio/confio.h"
#include "loop/alloc.h"
#include "loop/log.h"

static void add_error(struct conf_errors *errors, const char *key, struct slice text)
{
    struct conf_place at = {.file = slice_str(key)};

    conf_error_add(errors, &at, &text, 1);
}

static int read_secret(const char *key,
                       const struct conf_secret *secret,
                       char **out,
                       struct conf_errors *errors)
{
    struct conf_errors *own = mem_zalloc(loop_mem(), sizeof(*own));
    int rc = own ? confio_secret(loop_mem(), secret, out, own) : WEIR_E_NOMEM;

    for (uint32_t i = 0; own && i < own->n; i++)
        add_error(errors, key, slice_str(own->list[i].text));
    mem_free(loop_mem(), own);
    return rc;
}

static int open_access(const char *path, struct conf_errors *errors)
{
    char words[128];
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    if (fd >= 0)
        return fd;
    const char *why = strerror_r(errno, words, sizeof(words));
    struct slice parts[] = {slice_str("cannot open the access log "), slice_str(path),
                            slice_str(" (logging.access): "), slice_str(why)};
    struct conf_place at = {0};
    conf_error_add(errors, &at, parts, ARRAY_LEN(parts));
    return -1;
}

int referred_read(const struct conf *conf, struct referred *out, struct conf_errors *errors)
{
    *out = (struct referred){.access_fd = -1};
    int rc = read_secret("admin.token", &conf->admin.token, &out->admin_token, errors);
    int second = read_secret("registry.token", &conf->registry.token, &out->registry_token, errors);

    rc = rc ? rc : second;
    if (conf->logging.access.p) {
        out->access_fd = open_access(conf->logging.access.p, errors);
        rc = rc || out->access_fd >= 0 ? rc : WEIR_E_IO;
    }
    int third = serve_tls_read(conf, &out->tls, errors);
    rc = rc ? rc : third;
    if (rc)
        referred_fini(out);
    return rc;
}

void referred_fini(struct referred *r)
{
    confio_secret_free(loop_mem(), r->admin_token);
    confio_secret_free(loop_mem(), r->registry_token);
    if (r->access_fd >= 0)
        close(r->access_fd);
    serve_tls_fini(&r->tls);
    *r = (struct referred){.access_fd = -1};
}

void referred_use_access(struct serve *s, struct referred *r)
{
    if (r->access_fd < 0)
        return;
    if (s->access_fd < 0) {
        s->access_fd = r->access_fd;
    } else {
        /* Under the old number, in one step: no writer is disturbed. */
        if (dup3(r->access_fd, s->access_fd, O_CLOEXEC) < 0)
            log_error("serve", "the access log stays where it is: errno=%d", errno);
        close(r->access_fd);
    }
    r->access_fd = -1;
}

void serve_reopen_logs(struct serve *s)
{
    const struct conf *conf = s->edition->conf;
    struct referred r = {.access_fd = -1};
    struct conf_errors *errors;

    if (!conf->logging.access.p) {
        log_info("serve", "SIGUSR1: there is no log file to open again (logging.access)");
        return;
    }
    errors = mem_zalloc(loop_mem(), sizeof(*errors));
    if (!errors)
        return;
    r.access_fd = open_access(conf->logging.access.p, errors);
    if (r.access_fd < 0) {
        log_error("serve", "SIGUSR1: %s; the old one stays open", errors->list[0].text);
    } else {
        referred_use_access(s, &r);
        log_info("serve", "SIGUSR1: the access log is opened again");
    }
    mem_free(loop_mem(), errors);
}
