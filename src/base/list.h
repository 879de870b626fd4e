/* SPDX-License-Identifier: Apache-2.0 */
/** @file Intrusive doubly linked ring. A node outside any list points to itself. */
#ifndef WEIR_BASE_LIST_H
#define WEIR_BASE_LIST_H

#include <stdbool.h>

#include "base/bug.h"

struct list {
    struct list *next; /**< first element of a head */
    struct list *prev; /**< last element of a head */
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

/** Append node before head, that is at the end. node must be in no list. */
static inline void list_add(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/** Take node out of whatever list it is in; harmless when it is in none. */
static inline void list_del(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define weir_list_foreach(pos, head)                                                               \
    for (struct list *pos = (head)->next; pos != (head); pos = pos->next)

/** As above; the current element may be taken out or freed. */
#define weir_list_foreach_safe(pos, head)                                                          \
    for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);                  \
         pos = pos##_next, pos##_next = pos->next)

#endif /* WEIR_BASE_LIST_H */
