/* list.h -- an intrusive doubly linked ring: the object carries its link, so that joining a list
 * cannot fail and leaving one costs nothing. */
#ifndef IMPEL_CORE_LIST_H
#define IMPEL_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* The object that contains `member` at `pointer`. */
#define CONTAINER(POINTER, TYPE, MEMBER) \
    ((TYPE *)(void *)((char *)(POINTER)-offsetof(TYPE, MEMBER)))

/* Both the head of a list and an element's link. An element that is in no list points at itself. */
struct link {
    struct link *previous;
    struct link *next;
};

static inline void list_init(struct link *link)
{
    link->previous = link;
    link->next = link;
}

static inline bool list_empty(const struct link *link)
{
    return link->next == link;
}

/* Puts `link` in front of `place`: with a head as `place`, at the end of its list. */
static inline void list_append(struct link *place, struct link *link)
{
    link->previous = place->previous;
    link->next = place;
    place->previous->next = link;
    place->previous = link;
}

static inline void list_prepend(struct link *head, struct link *link)
{
    list_append(head->next, link);
}

/* Leaves whatever list it is in; harmless if it is in none. */
static inline void list_remove(struct link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    list_init(link);
}

/* Takes the first element out; NULL if there is none. */
static inline struct link *list_take(struct link *head)
{
    struct link *first = head->next;
    if (first == head) {
        return NULL;
    }
    list_remove(first);
    return first;
}

#endif /* IMPEL_CORE_LIST_H */
