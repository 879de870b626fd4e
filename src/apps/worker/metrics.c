/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/worker/metrics.h"

#include "base/bug.h"
#include "base/num.h"
#include "wire/prom.h"

/* vLLM's bucket bounds. */
static const double first_token_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                            0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                            20,    40,    80,   160,  640,  2560};
static const double between_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                        0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double request_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

static void observe(struct metrics_histogram *h, const double *bounds, unsigned n, double v)
{
    unsigned i = 0;

    while (i < n && v > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += v;
}

void metrics_first_token(struct metrics *m, double seconds)
{
    observe(&m->first_token, first_token_bounds, ARRAY_LEN(first_token_bounds), seconds);
}

void metrics_between_tokens(struct metrics *m, double seconds)
{
    observe(&m->between_tokens, between_bounds, ARRAY_LEN(between_bounds), seconds);
}

void metrics_whole(struct metrics *m, double seconds)
{
    observe(&m->whole, request_bounds, ARRAY_LEN(request_bounds), seconds);
}

void metrics_queue(struct metrics *m, double seconds)
{
    observe(&m->queue, request_bounds, ARRAY_LEN(request_bounds), seconds);
}

static struct slice number(char text[24], uint64_t v)
{
    char *at = text + 24;

    do
        *--at = (char)('0' + v % 10);
    while (v /= 10);
    return slice_of(at, (size_t)(text + 24 - at));
}

static void
write_finished(struct buf *out, const struct metrics *m, const struct prom_label *labels)
{
    static const char *const reasons[N_FINISH] = {"stop", "length", "abort"};

    wire_prom_family(out, "vllm:request_success_total", "counter",
                     "Requests that ended, by reason.");
    for (unsigned i = 0; i < N_FINISH; i++) {
        const struct prom_label with[] = {
            labels[0], labels[1], {"finished_reason", slice_str(reasons[i])}};
        wire_prom_sample(out, "vllm:request_success_total", with, 3, (double)m->finished[i]);
    }
}

/* vLLM's block is 16 tokens; the capacity is block_size x num_gpu_blocks. */
static void write_cache_config(struct buf *out, const struct engine_stats *s)
{
    char text[24];
    const struct prom_label labels[] = {
        {"block_size", SLICE("16")},
        {"cache_dtype", SLICE("auto")},
        {"enable_prefix_caching", SLICE("True")},
        {"engine", SLICE("0")},
        {"gpu_memory_utilization", SLICE("0.9")},
        {"num_gpu_blocks", number(text, s->kv_capacity / 16)},
    };

    wire_prom_family(out, "vllm:cache_config_info", "gauge", "Configuration of the KV cache.");
    wire_prom_sample(out, "vllm:cache_config_info", labels, ARRAY_LEN(labels), 1);
}

void metrics_write(struct buf *out,
                   const struct metrics *m,
                   const struct engine_stats *s,
                   struct slice model,
                   uint64_t memory_free_bytes)
{
    const struct prom_label labels[] = {{"engine", SLICE("0")}, {"model_name", model}};
    const struct {
        const char *name, *type, *help;
        double value;
    } plain[] = {
        {"vllm:num_requests_running", "gauge", "Requests in the batch.", s->running},
        {"vllm:num_requests_waiting", "gauge", "Requests waiting for a place in it.", s->waiting},
        {"vllm:kv_cache_usage_perc", "gauge", "KV cache in use; 1 is all of it.",
         (double)s->kv_used / (double)s->kv_capacity},
        {"vllm:prefix_cache_queries_total", "counter",
         "Prompt tokens looked up in the prefix cache.", (double)s->prefix_queries},
        {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.",
         (double)s->prefix_hits},
        {"vllm:num_preemptions_total", "counter", "Requests thrown back for lack of KV memory.",
         (double)s->preemptions},
        {"vllm:prompt_tokens_total", "counter", "Prompt tokens processed.",
         (double)s->prompt_tokens},
        {"vllm:generation_tokens_total", "counter", "Tokens generated.",
         (double)s->generation_tokens},
        {"weir_worker_gpu_util_ratio", "gauge", "Share of the last second inside steps.",
         s->utilization},
        {"weir_worker_memory_free_bytes", "gauge", "Bytes a request could still get.",
         (double)memory_free_bytes},
    };
    const struct {
        const char *name, *help;
        const double *bounds;
        unsigned n;
        const struct metrics_histogram *h;
    } histograms[] = {
        {"vllm:time_to_first_token_seconds", "Arrival to first token.", first_token_bounds,
         ARRAY_LEN(first_token_bounds), &m->first_token},
        {"vllm:inter_token_latency_seconds", "Between two tokens of a request.", between_bounds,
         ARRAY_LEN(between_bounds), &m->between_tokens},
        {"vllm:e2e_request_latency_seconds", "Arrival to last token.", request_bounds,
         ARRAY_LEN(request_bounds), &m->whole},
        {"vllm:request_queue_time_seconds", "Arrival to first place in the batch.", request_bounds,
         ARRAY_LEN(request_bounds), &m->queue},
    };

    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        wire_prom_family(out, plain[i].name, plain[i].type, plain[i].help);
        wire_prom_sample(out, plain[i].name, labels, 2, plain[i].value);
    }
    write_finished(out, m, labels);
    write_cache_config(out, s);
    for (size_t i = 0; i < ARRAY_LEN(histograms); i++) {
        wire_prom_family(out, histograms[i].name, "histogram", histograms[i].help);
        wire_prom_histogram(out, histograms[i].name, labels, 2, histograms[i].bounds,
                            histograms[i].h->counts, histograms[i].n, histograms[i].h->sum);
    }
}
