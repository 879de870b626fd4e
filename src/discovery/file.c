/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Endpoints from a file, watched. Changes of the folder are told by inotify, so that a file put in place by rename is
 * seen too; where nobody tells (network file systems, links into other folders) the file is looked at every interval.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bug.h"
#include "confio/confio.h"
#include "discovery/adapter.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { FOLDER_MAX = 4096, LARGE_FILE = 64 << 10 };

struct file {
    const struct discovery_env *env;
    const struct conf_source *conf;
    struct source *source;
    struct source_list list;
    struct loop_timer look;
    struct loop_watch watch; /**< fd -1: nobody tells */
    struct stat seen;        /**< as it was when it was read last */
    bool read_once;
};

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void tell(struct file *f, const struct conf_source *read)
{
    source_list_begin(&f->list);
    for (uint32_t i = 0; i < read->n_endpoints; i++) {
        int rc = source_list_put(&f->list, &read->endpoints[i].instance);
        if (rc)
            log_warn("discovery", "source=%s: %s: %.*s is left out: %s", f->source->o.name,
                     f->conf->path.p, SLICE_ARG(read->endpoints[i].url), err_text(rc));
    }
    source_list_end(&f->list);
}

static void read_file(struct file *f)
{
    struct confio_options o = {.mem = loop_mem(), .endpoints_only = true};
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));
    struct conf *c = NULL;

    if (!errors)
        return;
    int rc = confio_load(&o, f->conf->path.p, &c, errors);
    if (rc == 0 && c->n_sources)
        tell(f, &c->sources[0]);
    else if (rc == 0)
        source_failed(f->source, "%s: it is empty; \"endpoints: []\" says that there are none",
                      f->conf->path.p);
    else
        source_failed(f->source, "%s", errors->n ? errors->list[0].text : err_text(rc));
    conf_free(c);
    mem_free(loop_mem(), errors);
    /* The tree of a large file is many times its size. */
    if (f->seen.st_size >= LARGE_FILE)
        loop_mem_trim();
}

static void look(struct file *f)
{
    struct stat now;

    loop_timer_set(f->env->loop, &f->look, loop_now(f->env->loop) + f->conf->interval_ns);
    if (stat(f->conf->path.p, &now)) {
        char text[128];
        source_failed(f->source, "%s: %s", f->conf->path.p, strerror_r(errno, text, sizeof(text)));
        f->read_once = false;
        return;
    }
    if (f->read_once && same_file(&now, &f->seen))
        return;
    f->seen = now;
    f->read_once = true;
    if (!S_ISREG(now.st_mode) && !S_ISDIR(now.st_mode))
        source_failed(f->source, "%s: is a pipe, socket or device, not a file", f->conf->path.p);
    else
        read_file(f);
}

static void on_look(struct loop_timer *t)
{
    look(container_of(t, struct file, look));
}

static void on_watch(struct loop_watch *w, uint32_t events)
{
    struct file *f = container_of(w, struct file, watch);
    char told[4096];

    (void)events;
    while (read(w->fd, told, sizeof(told)) > 0)
        ;
    look(f);
}

static void watch_folder(struct file *f)
{
    const char *slash = strrchr(f->conf->path.p, '/');
    char folder[FOLDER_MAX];

    (void)snprintf(folder, sizeof(folder), "%.*s",
                   slash ? (int)(slash - f->conf->path.p) + (slash == f->conf->path.p) : 1,
                   slash ? f->conf->path.p : ".");
    f->watch.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (f->watch.fd < 0)
        return;
    if (inotify_add_watch(f->watch.fd, folder,
                          IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM) < 0 ||
        loop_watch(f->env->loop, &f->watch, EPOLLIN)) {
        (void)close(f->watch.fd);
        f->watch.fd = -1;
    }
}

static int file_open(const struct discovery_env *env,
                     const struct conf_source *conf,
                     struct source *source,
                     void **out)
{
    struct file *f = mem_zalloc(loop_mem(), sizeof(*f));

    if (!f)
        return WEIR_E_NOMEM;
    f->env = env;
    f->conf = conf;
    f->source = source;
    f->look.on_timer = on_look;
    f->watch.fd = -1;
    f->watch.on_event = on_watch;
    source_list_init(&f->list, source, SLICE("file"));
    *out = f;
    return 0;
}

static void file_begin(void *adapter)
{
    watch_folder(adapter);
    look(adapter);
}

static void file_close(void *adapter)
{
    struct file *f = adapter;

    loop_timer_cancel(&f->look);
    if (f->watch.fd >= 0) {
        loop_unwatch(&f->watch);
        (void)close(f->watch.fd);
    }
    mem_free(loop_mem(), f);
}

const struct adapter_kind discovery_file = {file_open, file_begin, file_close};
