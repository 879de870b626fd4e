/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads HTTP/1 responses of servers we trust not to attack us: Content-Length, chunked, or until close; counts
 * server-sent events on the way. Independent of src/wire on purpose: a load generator that shares the parser
 * of what it measures would share its mistakes.
 */
#ifndef BENCH_RESPONSE_H
#define BENCH_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum response_state {
    RESPONSE_HEAD,
    RESPONSE_LENGTH,
    RESPONSE_CLOSE,
    RESPONSE_CHUNK_SIZE,
    RESPONSE_CHUNK_DATA,
    RESPONSE_CHUNK_END,
    RESPONSE_TRAILER,
    RESPONSE_DONE,
    RESPONSE_BAD,
};

#define RESPONSE_HEAD_MAX 8192

struct response {
    enum response_state state;
    int status;
    bool close;            /**< the server ends the connection after this response */
    uint64_t left;         /**< bytes of the body or chunk still to come */
    uint64_t body_bytes;   /**< body so far, without framing */
    unsigned events;       /**< complete events in the last call */
    uint64_t stamp;        /**< the last "t=" stamp seen in the last call, 0 for none */
    unsigned line_bytes;   /**< of the trailer or chunk-size line */
    unsigned match;        /**< how much of "t=" + digits was seen */
    uint64_t stamp_so_far; /**< */
    bool newline;          /**< the last body byte was a newline */
    size_t head_bytes;
    char head[RESPONSE_HEAD_MAX];
};

void response_reset(struct response *r);

/**
 * Feed bytes. Returns how many were used: all of them, or up to the end of the response. On RESPONSE_BAD the
 * connection is of no further use.
 */
size_t response_feed(struct response *r, const char *p, size_t n);

/** The peer has closed: was that the end of a whole response? */
bool response_eof(struct response *r);

#endif /* BENCH_RESPONSE_H */
