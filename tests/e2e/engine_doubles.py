# SPDX-License-Identifier: Apache-2.0
"""Inference servers as far as Weir asks them: health, model list and numbers, in the shape of each engine.

`pages` maps a path to (status, body) or to a function (conn) that answers as it likes. What is not there is 404. Clients'
requests go to the behaviour, as with every FakeUpstream.
"""
import json
import socket

from weir_harness import PATIENCE, FakeUpstream, answer_at_once


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
            if not self.probe_gate.wait(4 * PATIENCE):
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
            ok = self.cond.wait_for(lambda: sum(r.path == path for r in self.probes) >= want, PATIENCE)
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


class FastChat(Engine):
    """A FastChat 0.2.36 model worker, as its base_model_worker.py answers: POST only, chunks ended by a zero byte.

    `say(params)` yields what /worker_generate_stream says, one dict for each chunk; `embed(params)` is what
    /worker_get_embeddings answers; `paths` are the client's requests."""

    def __init__(self, models=("m",), conv=None, context=2048, say=None, embed=None, queue=0, **kw):
        self.models_told, self.context, self.queue = list(models), context, queue
        self.conv = conv or {"name": "vicuna_v1.1", "system_template": "{system_message}", "system_message": "SYS.",
                             "roles": ["USER", "ASSISTANT"], "messages": [], "offset": 0, "sep_style": 2, "sep": " ",
                             "sep2": "</s>", "stop_str": None, "stop_token_ids": None}
        self.say = say or (lambda params: [{"text": "said " + params["prompt"], "finish_reason": "stop"}])
        self.embed = embed or (lambda params: {"embedding": [[len(t) + 0.5, -1.0] for t in params["input"]],
                                               "token_num": len(params["input"])})
        status = (405, {"detail": "Method Not Allowed"})
        super().__init__({"/worker_get_status": status}, behaviour=self._answer, name="fastchat",
                         posts=("/worker_get_status",), **kw)

    def _probe(self, conn, request):
        if request.method == "POST" and request.path == "/worker_get_status":
            with self.cond:
                self.probes.append(request)
                self.cond.notify_all()
            conn.respond(200, {"model_names": self.models_told, "speed": 1, "queue_length": self.queue})
            return True
        return super()._probe(conn, request)

    def _answer(self, conn, request):
        params = json.loads(request.body) if request.body else {}
        path = request.path
        if path == "/worker_get_conv_template":
            conn.respond(200, {"conv": self.conv})
        elif path == "/model_details":
            conn.respond(200, {"context_length": self.context})
        elif path == "/count_token":
            conn.respond(200, {"count": len(params["prompt"].split()), "error_code": 0})
        elif path == "/worker_generate_stream":
            said = self.say(params)
            if callable(said):
                said(conn)
                return
            usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
            conn.respond(200, b"".join(json.dumps({"error_code": 0, "usage": usage, "finish_reason": None,
                                                   "logprobs": None, **s}).encode() + b"\0" for s in said))
        elif path == "/worker_get_embeddings":
            conn.respond(200, self.embed(params))
        else:
            conn.respond(404, {"detail": "Not Found"}, reason="Not Found")

    def paths(self):
        with self.lock:
            return [r.path for r in self.requests]

    def asked(self, path):
        with self.lock:
            return [json.loads(r.body) for r in self.requests if r.path == path]

    def generated(self):
        """What was asked of /worker_generate_stream."""
        return self.asked("/worker_generate_stream")


def oip(models=("m",), index=True, ready=(200, ""), **kw):
    """A server of the Open Inference Protocol: MLServer's repository index, or KServe's list of names."""
    pages = {"/v2": (200, {"name": "mlserver", "version": "1.6.0", "extensions": []}),
             "/v2/health/ready": ready, "/v2/health/live": (200, "")}
    if index:
        pages["/v2/repository/index"] = (200, [{"name": m, "version": "1", "state": "READY", "reason": ""}
                                               for m in models])
    else:
        pages["/v2/models"] = (200, {"models": list(models)})
        pages["/v2/repository/index"] = (404, {"detail": "Not Found"})
    return Engine(pages, name="oip", posts=("/v2/repository/index",), **kw)


def tfserving(model="m", state="AVAILABLE", **kw):
    """TensorFlow Serving with monitoring switched on; it lists no models."""
    text = ('# TYPE :tensorflow:serving:request_count counter\n'
            f':tensorflow:serving:request_count{{model_name="{model}",status="OK"}} 3\n')
    return Engine({"/monitoring/prometheus/metrics": (200, text),
                   "/v1/models": (404, {"error": "Malformed request: GET /v1/models"}),
                   f"/v1/models/{model}": (200, {"model_version_status": [
                       {"version": "1", "state": state,
                        "status": {"error_code": "OK", "error_message": ""}}]})}, name="tfserving", **kw)


def sdwebui(models=("v1-5-pruned",), jobs=0, free=6 << 30, total=8 << 30, job="scripts_txt2img", **kw):
    """Stable Diffusion webui with --api, as 1.10. What is asked of /sdapi/v1/interrupt is in `probes`."""
    return Engine({"/sdapi/v1/interrupt": (200, {}), "/internal/ping": (200, {}),
                   "/sdapi/v1/progress": (200, {"progress": 0.4, "eta_relative": 6.2,
                                                "state": {"skipped": False, "job": job, "job_count": jobs,
                                                          "job_no": 0},
                                                "current_image": None, "textinfo": None}),
                   "/sdapi/v1/memory": (200, {"ram": {"free": 1, "used": 1, "total": 2},
                                              "cuda": {"system": {"free": free, "used": total - free, "total": total},
                                                       "events": {"retries": 0, "oom": 0}}}),
                   "/sdapi/v1/sd-models": (200, [{"title": m + ".ckpt [abc]", "model_name": m, "hash": "abc"}
                                                 for m in models])}, name="sdwebui", posts=("/sdapi/v1/interrupt",), **kw)


def trtllm(models=("m",), running=0, waiting=0, **kw):
    """trtllm-serve: Prometheus at a path of its own, JSON at /metrics."""
    text = (f"trtllm_num_requests_running {running}\ntrtllm_num_requests_waiting {waiting}\n"
            "trtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_tokens_per_block 32\n")
    return Engine({"/health": (200, ""), "/v1/models": openai_list(models, "tensorrt_llm"),
                   "/metrics": (200, []), "/prometheus/metrics": (200, text)}, name="trtllm", **kw)
