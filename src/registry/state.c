/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/state.h"

#include "loop/alloc.h"
#include "loop/log.h"

enum { TEXT_MAX = 1 << 30 };

static void write_text(void *ctx, struct buf *out)
{
    const struct state *s = ctx;

    state_write(out, s->store, s->generation);
}

void state_init(struct state *s, struct loop *loop, struct store *store, const char *path)
{
    struct statefile_options o = {.path = path,
                                  .room = "registry",
                                  .option = "registry.state_file",
                                  .write = write_text,
                                  .ctx = s};

    *s = (struct state){.store = store};
    statefile_init(&s->file, loop, &o);
}

void state_changed(struct state *s)
{
    if (s->loading)
        return;
    s->generation++;
    statefile_changed(&s->file);
}

void state_fini(struct state *s)
{
    statefile_fini(&s->file);
}

void state_load(struct state *s, uint64_t now_ns)
{
    struct buf text;
    uint32_t bad = 0;

    buf_init(&text, loop_mem(), TEXT_MAX);
    if (statefile_read(&s->file, &text) != 0) {
        buf_fini(&text);
        return;
    }
    s->loading = true;
    int rc = state_read(s->store, buf_slice(&text), now_ns, &s->generation, &bad);
    s->loading = false;
    buf_fini(&text);
    if (rc == WEIR_E_INVALID)
        statefile_put_aside(&s->file, "not a state file of this version, or damaged", false);
    else if (rc || bad)
        statefile_put_aside(&s->file, rc ? err_text(rc) : "some entries could not be read", true);
    log_info("registry", "state file %s: %u instances come back in probation", s->file.o.path,
             s->store->n);
}
