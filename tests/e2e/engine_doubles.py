# SPDX-License-Identifier: Apache-2.0
"""Inference servers as far as Weir asks them: health, model list and numbers, in the shape of each engine.

`pages` maps a path to (status, body) or to a function (conn) that answers as it likes. What is not there is 404. Clients'
requests go to the behaviour, as with every FakeUpstream.
"""
import json
import socket

from weir_harness import FakeUpstream, answer_at_once


class Engine(FakeUpstream):
    def __init__(self, pages, behaviour=answer_at_once, name="engine", posts=()):
        self.pages, self.probe_posts = pages, posts
        super().__init__(behaviour, name=name)

    def _probe(self, conn, request):
        path = request.path.split("?")[0]
        if request.method == "GET" or path in self.probe_posts:
            with self.cond:
                self.probes.append(request)
                self.cond.notify_all()
            if not self.probe_gate.wait(60):
                return True
            page = self.pages.get(path, (404, '{"detail":"Not Found"}'))
            if callable(page):
                page(conn)
            else:
                status, body = page
                conn.respond(status, body if isinstance(body, (str, bytes)) else json.dumps(body))
            return True
        return False

    def asked(self, path):
        with self.lock:
            return sum(r.path == path for r in self.probes)

    def wait_asked(self, path, more):
        """Until it was asked for path that many more times than now."""
        with self.cond:
            want = sum(r.path == path for r in self.probes) + more
            ok = self.cond.wait_for(lambda: sum(r.path == path for r in self.probes) >= want, 30)
            assert ok, f"{self.name}: asked for {path} too seldom"


def openai_list(models, owner, **more):
    return 200, {"object": "list", "data": [{"id": m, "object": "model", "created": 1, "owned_by": owner, **more}
                                            if isinstance(m, str) else {"object": "model", "owned_by": owner, **m}
                                            for m in models]}


def vllm(models=("m",), running=0, waiting=0, kv=0.0, blocks=1000, max_model_len=8192, **kw):
    """Names of vLLM 0.11."""
    text = f"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="x"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="x"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="x"}} {kv}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{blocks}"}} 1.0
"""
    return Engine({"/health": (200, ""), "/v1/models": openai_list(models, "vllm", parent=None,
                                                                   max_model_len=max_model_len),
                   "/metrics": (200, text), "/version": (200, {"version": "0.11.0"})}, name="vllm", **kw)


def sglang(models=("m",), running=0, waiting=0, **kw):
    text = (f'sglang:num_running_reqs{{model_name="x",tp_rank="0"}} {running}\n'
            f'sglang:num_queue_reqs{{model_name="x",tp_rank="0"}} {waiting}\n'
            'sglang:token_usage{model_name="x",tp_rank="0"} 0.25\n'
            'sglang:max_total_num_tokens{model_name="x",tp_rank="0"} 4000\n')
    return Engine({"/health": (200, ""), "/v1/models": openai_list(models, "sglang"), "/metrics": (200, text)},
                  name="sglang", **kw)


def llamacpp(models=("m",), busy=0, slots=2, metrics=False, **kw):
    """Started without --metrics, as by default, unless asked for."""
    text = f"llamacpp:requests_processing {busy}\nllamacpp:requests_deferred 0\n"
    refused = {"error": {"code": 501, "message": "This server does not support metrics endpoint.",
                         "type": "not_supported_error"}}
    return Engine({"/health": (200, {"status": "ok"}),
                   "/v1/models": (200, {"models": [{"name": m, "model": m, "type": "model"} for m in models],
                                        "object": "list",
                                        "data": [{"id": m, "object": "model", "owned_by": "llamacpp",
                                                  "meta": {"n_ctx_train": 4096}} for m in models]}),
                   "/metrics": (200, text) if metrics else (501, refused),
                   "/slots": (200, [{"id": i, "n_ctx": 2048, "is_processing": i < busy} for i in range(slots)])},
                  name="llamacpp", **kw)


def tgi(model="m", running=0, waiting=0, **kw):
    return Engine({"/health": (200, ""),
                   "/info": (200, {"model_id": model, "max_total_tokens": 2048, "max_input_tokens": 1024,
                                   "router": "text-generation-router", "version": "3.0.0"}),
                   "/metrics": (200, f"tgi_queue_size {waiting}\ntgi_batch_current_size {running}\n")},
                  name="tgi", **kw)


def tei(model="m", waiting=0, **kw):
    return Engine({"/health": (200, ""),
                   "/info": (200, {"model_id": model, "model_type": {"embedding": {"pooling": "cls"}},
                                   "max_input_length": 512, "tokenization_workers": 4, "max_client_batch_size": 32}),
                   "/metrics": (200, f"te_queue_size {waiting}\n")}, name="tei", **kw)


def ollama(models=("m",), **kw):
    return Engine({"/": (200, "Ollama is running"), "/api/version": (200, {"version": "0.5.1"}),
                   "/api/tags": (200, {"models": [{"name": m, "model": m, "size": 1} for m in models]}),
                   "/v1/models": openai_list(models, "library")}, name="ollama", **kw)


class Triton:
    """Two listeners: the API, and its metrics two ports above, as 8000 and 8002."""

    def __init__(self, index, pending=0, **kw):
        while True:
            self.api = Engine({"/v2": (200, {"name": "triton", "version": "2.40.0", "extensions": []}),
                               "/v2/health/ready": (200, ""), "/v2/health/live": (200, ""),
                               "/v2/repository/index": (200, index)},
                              name="triton", posts=("/v2/repository/index",), **kw)
            try:
                listener = socket.create_server(("127.0.0.1", self.api.port + 2))
            except OSError:
                self.api.stop()
                continue
            break
        text = f'nv_inference_pending_request_count{{model="m",version="1"}} {pending}\n'
        self.numbers = Engine({"/metrics": (200, text)}, name="triton-metrics")
        self.numbers.refuse()           # its own port is not the one that is needed
        self.numbers.listener = listener
        self.numbers.thread.__init__(target=self.numbers._accept, daemon=True)
        self.numbers.thread.start()
        self.url, self.name = self.api.url, "triton"

    def stop(self):
        self.numbers.stop()
        self.api.stop()


def plain(models=None, **kw):
    """Some server: a health path, perhaps a model list, no numbers."""
    pages = {"/health": (200, "")}
    if models:
        pages["/v1/models"] = openai_list(models, "somebody")
    return Engine(pages, name="plain", **kw)
