# SPDX-License-Identifier: Apache-2.0
"""A FastChat model worker without a model: FastChat's own base worker (its HTTP side, its registration, its heart
beats), which says what it was asked. Run by the interpreter of a virtual environment that has fschat.

usage: fastchat_worker.py CONTROLLER PORT MODEL[,MODEL] TEMPLATE
"""
import json
import sys

import uvicorn
from fastchat.conversation import get_conv_template
from fastchat.serve import base_model_worker


class Tokens:
    """One for each word."""

    def num_tokens(self, prompt):
        return len(prompt.split())


class Worker(base_model_worker.BaseModelWorker):
    def __init__(self, controller, address, models, template):
        self.template = template
        super().__init__(controller, address, "w", models[0], models, 5, conv_template=template)
        self.tokenizer = Tokens()
        self.context_len = 64
        self.init_heart_beat()

    def make_conv_template(self, conv_template=None, model_path=None):
        return get_conv_template(conv_template)

    def generate_stream_gate(self, params):
        words = params["prompt"].split()
        if "FAIL" in words:
            yield json.dumps({"text": "out of memory", "error_code": 50002}).encode() + b"\0"
            return
        said = f"[{params['model']}:{params['max_new_tokens']}]" + params["prompt"]
        for end in range(0, len(said) + 1, 7):
            yield self.chunk(said[:end], words, None)
        yield self.chunk(said, words, "stop")

    def chunk(self, text, words, finish):
        return json.dumps({"text": text, "error_code": 0, "finish_reason": finish, "logprobs": None,
                           "usage": {"prompt_tokens": len(words), "completion_tokens": 3,
                                     "total_tokens": len(words) + 3}}).encode() + b"\0"

    def generate_gate(self, params):
        for x in self.generate_stream_gate(params):
            pass
        return json.loads(x[:-1].decode())

    def get_embeddings(self, params):
        return {"embedding": [[1.0, 2.0] for _ in params["input"]], "token_num": 2}


if __name__ == "__main__":
    controller, port, models, template = sys.argv[1:5]
    Worker(controller, f"http://127.0.0.1:{port}", models.split(","), template)
    uvicorn.run(base_model_worker.app, host="127.0.0.1", port=int(port), log_level="warning")
