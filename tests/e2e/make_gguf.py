#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a tiny model for llama.cpp: the llama architecture, one layer of random weights, a token for each byte.

usage: make_gguf.py FILE [SEED]

What it says means nothing; that it says it token by token, through a real engine, is the point. About 300 KB.
"""
import random
import struct
import sys

EMBEDDING, HEADS, FEED_FORWARD, CONTEXT = 64, 4, 128, 4096
ALIGNMENT = 32
U32, F32, STRING, ARRAY, I32, BOOL = 4, 6, 8, 9, 5, 7       # types of metadata values
UNKNOWN, CONTROL, BYTE = 2, 3, 6                            # types of tokens


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == STRING:
        return text(v)
    return struct.pack({U32: "<I", F32: "<f", I32: "<i", BOOL: "<?"}[kind], v)


def entry(key, kind, v):
    return text(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, values):
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(value(kind, v) for v in values)


def metadata():
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    return tokens, [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "weir-tiny"),
        entry("general.file_type", U32, 0),
        entry("llama.context_length", U32, CONTEXT),
        entry("llama.embedding_length", U32, EMBEDDING),
        entry("llama.block_count", U32, 1),
        entry("llama.feed_forward_length", U32, FEED_FORWARD),
        entry("llama.attention.head_count", U32, HEADS),
        entry("llama.attention.head_count_kv", U32, HEADS),
        entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        entry("llama.rope.dimension_count", U32, EMBEDDING // HEADS),
        entry("llama.vocab_size", U32, len(tokens)),
        entry("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.scores", F32, [0.0] * len(tokens)),
        array("tokenizer.ggml.token_type", I32, kinds),
        entry("tokenizer.ggml.bos_token_id", U32, 1),
        entry("tokenizer.ggml.eos_token_id", U32, 2),
        entry("tokenizer.ggml.unknown_token_id", U32, 0),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
        entry("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m['content'] }}{% endfor %}"),
    ]


def tensors(vocabulary):
    e, f = EMBEDDING, FEED_FORWARD
    return [("token_embd.weight", (e, vocabulary)), ("output_norm.weight", (e,)), ("output.weight", (e, vocabulary)),
            ("blk.0.attn_norm.weight", (e,)), ("blk.0.attn_q.weight", (e, e)), ("blk.0.attn_k.weight", (e, e)),
            ("blk.0.attn_v.weight", (e, e)), ("blk.0.attn_output.weight", (e, e)), ("blk.0.ffn_norm.weight", (e,)),
            ("blk.0.ffn_gate.weight", (e, f)), ("blk.0.ffn_up.weight", (e, f)), ("blk.0.ffn_down.weight", (f, e))]


def padded(raw):
    return raw + bytes(-len(raw) % ALIGNMENT)


def write(path, seed=1):
    rng = random.Random(seed)
    tokens, pairs = metadata()
    heads, data = b"", b""
    shapes = tensors(len(tokens))
    for name, shape in shapes:
        count = 1
        for n in shape:
            count *= n
        norm = len(shape) == 1
        heads += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        heads += struct.pack("<IQ", 0, len(data))           # 32-bit floats
        data += padded(struct.pack(f"<{count}f", *([1.0] * count if norm else
                                                   [rng.gauss(0, 0.1) for _ in range(count)])))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(pairs)) + b"".join(pairs) + heads
    with open(path, "wb") as out:
        out.write(padded(head) + data)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    write(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 1)
