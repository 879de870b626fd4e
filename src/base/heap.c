/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include "base/bug.h"

void heap_init(struct heap *h, const struct mem *mem, heap_before_fn before)
{
    *h = (struct heap){.mem = mem, .before = before};
}

void heap_fini(struct heap *h)
{
    mem_free(h->mem, h->slots);
    heap_init(h, h->mem, h->before);
}

int heap_reserve(struct heap *h, uint32_t n)
{
    if (n <= h->cap)
        return 0;
    struct heap_node **slots = mem_resize(h->mem, h->slots, n, sizeof(struct heap_node *));
    if (!slots)
        return WEIR_E_NOMEM;
    h->slots = slots;
    h->cap = n;
    return 0;
}

static void place(struct heap *h, uint32_t at, struct heap_node *node)
{
    h->slots[at] = node;
    node->at = at + 1;
}

static void sift_up(struct heap *h, uint32_t at, struct heap_node *node)
{
    while (at > 0) {
        uint32_t up = (at - 1) / 2;
        if (!h->before(node, h->slots[up]))
            break;
        place(h, at, h->slots[up]);
        at = up;
    }
    place(h, at, node);
}

static void sift_down(struct heap *h, uint32_t at, struct heap_node *node)
{
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= h->n)
            break;
        if (kid + 1 < h->n && h->before(h->slots[kid + 1], h->slots[kid]))
            kid++;
        if (!h->before(h->slots[kid], node))
            break;
        place(h, at, h->slots[kid]);
        at = kid;
    }
    place(h, at, node);
}

int heap_push(struct heap *h, struct heap_node *node)
{
    BUG_ON(node->at != 0);
    if (h->n == h->cap) {
        if (h->cap > UINT32_MAX / 4)
            return WEIR_E_FULL;
        int rc = heap_reserve(h, h->cap ? h->cap * 2 : 16);
        if (rc)
            return rc;
    }
    h->n++;
    sift_up(h, h->n - 1, node);
    return 0;
}

void heap_update(struct heap *h, struct heap_node *node)
{
    BUG_ON(node->at == 0 || node->at > h->n || h->slots[node->at - 1] != node);
    uint32_t at = node->at - 1;
    if (at > 0 && h->before(node, h->slots[(at - 1) / 2]))
        sift_up(h, at, node);
    else
        sift_down(h, at, node);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    BUG_ON(node->at == 0 || node->at > h->n || h->slots[node->at - 1] != node);
    uint32_t at = node->at - 1;
    struct heap_node *last = h->slots[--h->n];
    node->at = 0;
    if (last == node)
        return;
    place(h, at, last);
    heap_update(h, last);
}
