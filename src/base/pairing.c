/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986), without recursion. */
#include "base/pairing.h"

/* Two heaps to one; neither has siblings. */
static struct pairing_node *
meld(struct pairing_node *a, struct pairing_node *b, pairing_before_fn before)
{
    if (!a || !b)
        return a ? a : b;
    if (before(b, a)) {
        struct pairing_node *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    if (b->next)
        b->next->prev = b;
    b->prev = a;
    a->child = b;
    return a;
}

/* Siblings to one heap: in pairs from the left, the pairs then from the right. */
static struct pairing_node *join(struct pairing_node *first, pairing_before_fn before)
{
    struct pairing_node *pairs = NULL; /* the last one first, by next */
    struct pairing_node *all = NULL;

    while (first) {
        struct pairing_node *a = first;
        struct pairing_node *b = a->next;
        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = meld(a, b, before);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct pairing_node *a = pairs;
        pairs = a->next;
        a->next = NULL;
        all = meld(all, a, before);
    }
    return all;
}

void pairing_push(struct pairing *p, struct pairing_node *node, pairing_before_fn before)
{
    *node = (struct pairing_node){0};
    p->top = meld(p->top, node, before);
}

void pairing_remove(struct pairing *p, struct pairing_node *node, pairing_before_fn before)
{
    struct pairing_node *below = join(node->child, before);

    if (p->top == node) {
        p->top = below;
    } else {
        if (node->prev->child == node)
            node->prev->child = node->next;
        else
            node->prev->next = node->next;
        if (node->next)
            node->next->prev = node->prev;
        p->top = meld(p->top, below, before);
    }
    *node = (struct pairing_node){0};
}
