/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FastChat: one text as a request, as a conversation template and as a worker's answer, streamed or vectors. What is written is bounded and
 * whole, any cut of an answer gives the same, nothing is kept.
 */
#include "fuzz.h"

#include "heap_mem.h"
#include "proxy/fastchat_codec.h"
#include "wire/http1.h"

static const char vicuna[] =
    "{\"conv\":{\"name\":\"v\",\"system_template\":\"{system_message}\",\"system_message\":\"S\","
    "\"roles\":[\"U\",\"A\"],\"messages\":[],\"offset\":0,\"sep_style\":2,\"sep\":\" \","
    "\"sep2\":\"</s>\",\"stop_str\":null,\"stop_token_ids\":null}}";

static void ask(struct mem *mem, struct slice text, bool chat)
{
    struct fastchat_request r;
    struct fastchat_fault why;
    const struct json_node *told[2];
    struct arena a;

    arena_init(&a, mem, FASTCHAT_TREE_MAX);
    if (fastchat_read(&a, text, chat, &r, &why) == 0) {
        const struct json_node *own = wire_json_get(r.body, "conv");
        FUZZ_CHECK(wire_json_tree(&a, slice_str(vicuna), &told[0]) == 0);
        told[0] = wire_json_get(told[0], "conv");
        told[1] = own ? own : told[0];
        for (int i = 0; i < 2; i++) {
            const struct json_node *written;
            struct buf prompt, images, out;
            buf_init(&prompt, mem, 1 << 20);
            buf_init(&images, mem, 1 << 20);
            buf_init(&out, mem, 8 << 20);
            if (fastchat_prompt(told[i], &r, &prompt, &images, &why) == 0) {
                fastchat_write_request(&out, &r, told[i], SLICE("m"), buf_slice(&prompt),
                                       buf_slice(&images), 7);
                FUZZ_CHECK(out.err || wire_json_tree(&a, buf_slice(&out), &written) == 0);
            }
            buf_fini(&prompt);
            buf_fini(&images);
            buf_fini(&out);
        }
    }
    arena_fini(&a);
}

static int answer(struct mem *mem,
                  const uint8_t *data,
                  size_t size,
                  enum fuzz_cutting how,
                  bool stream,
                  struct buf *out)
{
    struct fuzz_cutter cutter = fuzz_cutter(how, data, size);
    struct fastchat_request r = {.chat = size % 2, .stream = stream, .usage_asked = true};
    struct fastchat_answer f;
    int rc = 0;

    buf_init(out, mem, 64 << 20);
    fastchat_answer_init(&f, mem, &r, SLICE("m"), 1, 2);
    for (size_t at = 0; at < size && rc == 0;) {
        size_t piece = fuzz_piece(&cutter, size - at);
        rc = fastchat_answer_feed(&f, slice_of((const char *)data + at, piece), out);
        at += piece;
    }
    if (rc == 0)
        rc = fastchat_answer_end(&f, out);
    fastchat_answer_fini(&f);
    return rc;
}

/* The text as a request for vectors, and as the worker's answer to each batch of another. */
static void embed(struct mem *mem, struct slice text, const char *request)
{
    struct fastchat_embedding e;
    struct fastchat_fault why;
    struct http1_head head;
    struct http1_error error;
    const struct json_node *written;
    struct buf out;
    struct arena a;

    arena_init(&a, mem, FASTCHAT_TREE_MAX);
    buf_init(&out, mem, 64 << 20);
    int rc = fastchat_embed_read(&a, request ? slice_str(request) : text, &e, &why);
    while (rc == 0 && e.left) {
        uint32_t before = e.left;
        buf_clear(&out);
        fastchat_embed_ask(&out, &e, SLICE("m"));
        FUZZ_CHECK(e.left < before && e.asked == before - e.left);
        FUZZ_CHECK(out.err || wire_json_tree(&a, buf_slice(&out), &written) == 0);
        rc = fastchat_embed_hear(&e, request ? text : SLICE("{\"embedding\":[[1]]}"), &why);
    }
    buf_clear(&out);
    if (rc == 0 && fastchat_embed_write(&out, &e, SLICE("m")) == 0) {
        int64_t n =
            wire_http1_response(out.p + out.from, buf_len(&out), SLICE("POST"), &head, &error);
        FUZZ_CHECK(n > 0 && (uint64_t)n + head.content_length == buf_len(&out));
        FUZZ_CHECK(wire_json_tree(&a, slice_from(buf_slice(&out), (size_t)n), &written) == 0);
    }
    fastchat_embedding_fini(&e);
    buf_fini(&out);
    arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct http1_head head;
    struct http1_error error;
    struct buf whole, cut;

    ask(&mem, slice_of((const char *)data, size), true);
    ask(&mem, slice_of((const char *)data, size), false);
    embed(&mem, slice_of((const char *)data, size), NULL);
    embed(&mem, slice_of((const char *)data, size), "{\"input\":[\"a\",\"b\"]}");
    embed(&mem, slice_of((const char *)data, size),
          "{\"input\":\"a\",\"encoding_format\":\"base64\"}");
    for (int stream = 0; stream < 2; stream++) {
        int rc = answer(&mem, data, size, FUZZ_WHOLE, stream, &whole);
        FUZZ_CHECK(rc != 0 || wire_http1_response(whole.p + whole.from, buf_len(&whole),
                                                  SLICE("POST"), &head, &error) > 0);
        for (enum fuzz_cutting how = FUZZ_BYTES; how < FUZZ_CUTTINGS; how++) {
            FUZZ_CHECK(answer(&mem, data, size, how, stream, &cut) == rc);
            FUZZ_CHECK(rc != 0 || slice_eq(buf_slice(&cut), buf_slice(&whole)));
            buf_fini(&cut);
        }
        buf_fini(&whole);
    }
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
