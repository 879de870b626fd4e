/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners: one TCP socket per lane and address, so the kernel spreads connections; of a Unix or inherited socket each
 * lane has a descriptor. They are bound on the control thread,
 * where it can still be refused, and started and stopped by each lane when it passes from one plan to the next. One
 * that both configurations have is not touched, so nobody in its backlog is lost; of one that goes, the backlog is
 * taken first.
 */
#include <errno.h>

#include "loop/log.h"
#include "proxy/exchange.h"

static void on_accept(struct net_listener *listener, int fd, const struct net_addr *peer)
{
    struct lane_listener *at = container_of(listener, struct lane_listener, net);
    struct lane *l = at->lane;

    client_accept(l, fd, peer, &l->proxy->listen[at - l->listeners].tls);
}

static bool same_addr(const struct net_addr *a, const struct net_addr *b)
{
    char left[NET_ADDR_TEXT];
    char right[NET_ADDR_TEXT];

    return strcmp(net_addr_text(a, left), net_addr_text(b, right)) == 0;
}

/* The place of this address among those that stay; of free ones, the first. LISTENER_PLACES = none.
 * @param taken places that another listener of the new configuration has. */
static unsigned
find_place(const struct proxy *p, const struct net_addr *want, uint64_t taken, bool *open)
{
    unsigned empty = LISTENER_PLACES;

    for (unsigned i = 0; i < LISTENER_PLACES; i++) {
        const struct listen_place *at = &p->listen[i];
        if (!at->asked.len)
            empty = MIN(empty, i);
        else if (!at->closing && !(taken >> i & 1) && same_addr(&at->asked, want)) {
            *open = true;
            return i;
        }
    }
    *open = false;
    return empty;
}

static int bind_place(struct proxy *p, unsigned place, const struct net_listen_at *want)
{
    struct listen_place *at = &p->listen[place];
    bool shared = net_listen_shared(want);
    int first = -1;

    at->asked = want->addr;
    for (unsigned n = 0; n < p->n_lanes; n++) {
        struct lane_listener *listener = &p->lanes[n].listeners[place];
        int fd = -1;
        /* Port 0 becomes the same port for all lanes. */
        int rc = net_listen_open(want, p->n_lanes > 1, first, &fd, &at->bound, &at->file);
        listener->fd = fd;
        if (rc)
            return rc;
        first = n == 0 ? fd : first;
        listener->lane = &p->lanes[n];
        listener->net = (struct net_listener){
            .addr = at->bound, .shared = shared && p->n_lanes > 1, .on_accept = on_accept};
    }
    return 0;
}

/* The slot stays: connections of the last who had it may still look into it. */
static void clear_place(struct listen_place *at)
{
    net_unix_remove(&at->file);
    net_tls_slot_set(&at->tls, NULL);
    at->asked.len = at->bound.len = 0;
    at->closing = false;
}

void doors_undo(struct proxy *p, uint64_t opened)
{
    for (unsigned i = 0; i < LISTENER_PLACES; i++) {
        if (!(opened >> i & 1))
            continue;
        for (unsigned n = 0; n < p->n_lanes; n++) {
            struct lane_listener *listener = &p->lanes[n].listeners[i];
            if (listener->fd >= 0)
                net_fd_close(listener->fd);
            listener->fd = -1;
        }
        clear_place(&p->listen[i]);
    }
}

void doors_tls(struct proxy *p, const struct net_listen_at *want, unsigned n)
{
    uint64_t taken = 0;
    bool open;

    for (unsigned i = 0; i < n; i++) {
        unsigned place = find_place(p, &want[i].addr, taken, &open);
        BUG_ON(!open);
        taken |= UINT64_C(1) << place;
        net_tls_slot_set(&p->listen[place].tls, net_tls_get(want[i].tls));
    }
}

void doors_init(struct proxy *p)
{
    for (unsigned i = 0; i < LISTENER_PLACES; i++)
        net_tls_slot_init(&p->listen[i].tls);
}

void doors_fini(struct proxy *p)
{
    for (unsigned i = 0; i < LISTENER_PLACES; i++) {
        clear_place(&p->listen[i]);
        net_tls_slot_fini(&p->listen[i].tls);
    }
}

int doors_open(struct proxy *p,
               const struct net_listen_at *want,
               unsigned n,
               struct net_addr *bound,
               uint64_t *opened,
               uint64_t *closed)
{
    uint64_t taken = 0;

    *opened = *closed = 0;
    for (unsigned i = 0; i < n; i++) {
        bool open;
        unsigned place = find_place(p, &want[i].addr, taken, &open);
        int rc = place == LISTENER_PLACES ? WEIR_E_FULL : 0;
        if (!rc && !open) {
            for (unsigned k = 0; k < p->n_lanes; k++)
                p->lanes[k].listeners[place].fd = -1;
            *opened |= UINT64_C(1) << place;
            rc = bind_place(p, place, &want[i]);
        }
        if (rc) {
            int saved = errno;
            doors_undo(p, *opened);
            errno = saved;
            return rc;
        }
        taken |= UINT64_C(1) << place;
        bound[i] = p->listen[place].bound;
    }
    for (unsigned i = 0; i < LISTENER_PLACES; i++)
        if (p->listen[i].asked.len && !p->listen[i].closing && !(taken >> i & 1))
            *closed |= UINT64_C(1) << i;
    return 0;
}

void doors_closing(struct proxy *p, uint64_t closed)
{
    for (unsigned i = 0; i < LISTENER_PLACES; i++)
        p->listen[i].closing |= (closed >> i & 1) != 0;
}

void doors_gone(struct proxy *p, uint64_t closed)
{
    for (unsigned i = 0; i < LISTENER_PLACES; i++)
        if (closed >> i & 1)
            clear_place(&p->listen[i]);
}

int doors_pass(struct lane *l, uint64_t opened, uint64_t closed)
{
    int rc = 0;

    for (unsigned i = 0; i < LISTENER_PLACES; i++) {
        struct lane_listener *listener = &l->listeners[i];
        if (opened >> i & 1) {
            int failed = net_listener_start(&listener->net, l->loop, listener->fd);
            if (failed) {
                log_error("proxy", "cannot watch a listener: %s", err_text(failed));
                net_fd_close(listener->fd);
                rc = failed;
            }
            listener->fd = -1;
        }
        if (closed >> i & 1)
            net_listener_finish(&listener->net);
    }
    return rc;
}

void doors_stop(struct lane *l)
{
    for (unsigned i = 0; i < LISTENER_PLACES; i++)
        net_listener_stop(&l->listeners[i].net);
}
