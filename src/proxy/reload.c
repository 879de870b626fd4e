/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another configuration takes over while everything runs. What can fail comes first, on the control thread: the plan,
 * its sockets, the pools. Then the pointer is swapped, and each lane is posted one job: it opens and closes its
 * listeners, looks at its timers anew, and has left the old plan. Requests under way keep theirs (proxy/plan.h).
 */
#include <errno.h>

#include "loop/log.h"
#include "proxy/decision_log.h"
#include "proxy/exchange.h"

enum { ROUTES_MAX = 4096 };

bool proxy_routing_ok(const struct routing *r)
{
    return r && r->n_routes <= ROUTES_MAX && r->limits.header_bytes >= 256 &&
           r->limits.header_bytes <= (uint64_t)16 * LOOP_SCRATCH;
}

static void on_leave(struct loop_job *j)
{
    struct plan_leave *leave = container_of(j, struct plan_leave, job);
    struct plan *left = leave->plan;
    struct lane *l = leave->lane;

    (void)doors_pass(l, left->opened, left->closed);
    /* Timeouts of connections may be shorter now. */
    weir_list_foreach_safe (n, &l->clients)
        client_arm(container_of(n, struct client, node));
    atomic_fetch_sub(&left->inside, 1);
}

static void swap(struct proxy *p, struct plan *next)
{
    struct plan *left = atomic_load(&p->plan);

    atomic_store(&left->inside, p->n_lanes);
    doors_closing(p, left->closed);
    list_add(&p->left, &left->node);
    atomic_store(&p->plan, next);
    for (unsigned i = 0; i < p->n_lanes; i++) {
        struct plan_leave *leave = &left->leaves[i];
        *leave = (struct plan_leave){.job = {.run = on_leave}, .plan = left, .lane = &p->lanes[i]};
        loop_post(p->lanes[i].loop, &leave->job);
    }
}

/* Places that every lane has left can be used again. */
static void free_places(struct proxy *p)
{
    weir_list_foreach (at, &p->left) {
        struct plan *n = container_of(at, struct plan, node);
        if (atomic_load(&n->inside) > 0)
            continue;
        doors_gone(p, n->closed);
        n->closed = 0;
    }
}

int proxy_reload(struct proxy *p, const struct proxy_options *o, struct net_addr *bound)
{
    struct plan *left = atomic_load(&p->plan);
    struct plan *next = NULL;

    if (!proxy_routing_ok(o->routing) || o->n_listen > PROXY_LISTENERS_MAX)
        return WEIR_E_INVALID;
    memset(bound, 0, o->n_listen * sizeof(*bound));
    free_places(p);
    pthread_mutex_lock(&p->pools_lock);
    int rc = plan_new(p, o, &next);
    if (!rc)
        rc = doors_open(p, o->listen, o->n_listen, bound, &left->opened, &left->closed);
    if (!rc) {
        rc = pools_follow(p, next, left);
        if (rc)
            doors_undo(p, left->opened);
    }
    if (!rc) {
        if (o->access_fd >= 0)
            atomic_store(&p->access_fd, o->access_fd);
        decision_log_rate(p->decisions, o->decisions_per_s);
        doors_tls(p, o->listen, o->n_listen);
        swap(p, next);
        plan_in_force(next);
    }
    pthread_mutex_unlock(&p->pools_lock);
    if (rc) {
        int saved = errno;
        plan_free(next);
        errno = saved;
        return rc;
    }
    /* A larger limit, another policy: somebody who waits may fit now. */
    offer_all(&p->control_asker);
    return 0;
}

static bool in_use(const struct proxy *p, const struct plan *n)
{
    if (atomic_load(&n->inside) > 0)
        return true;
    for (unsigned i = 0; i < p->n_lanes; i++)
        if (atomic_load_explicit(&n->users[i].n, memory_order_acquire) > 0)
            return true;
    return false;
}

void proxy_reclaim(struct proxy *p, void (*unused)(void *ctx, const struct routing *r), void *ctx)
{
    free_places(p);
    weir_list_foreach_safe (at, &p->left) {
        struct plan *n = container_of(at, struct plan, node);
        const struct routing *r = n->routing;
        if (in_use(p, n))
            continue;
        list_del(&n->node);
        plan_free(n);
        unused(ctx, r);
    }
}
