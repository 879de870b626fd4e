/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One family after the other, as the text format asks: all samples of a family stand together. Series exist for
 * endpoints, sources, configured routes and models that have a pool; nothing a client sends makes one.
 */
#include "apps/serve/metrics.h"

#include "apps/serve/panic.h"
#include "base/bug.h"
#include "loop/alloc.h"
#include "net/tls.h"
#include "sched/breaker.h"
#include "sched/row.h"
#include "wire/prom.h"

static void counter(struct buf *out, const char *name, const char *help)
{
    wire_prom_family(out, name, "counter", help);
}

static void gauge(struct buf *out, const char *name, const char *help)
{
    wire_prom_family(out, name, "gauge", help);
}

static void hist(struct buf *out,
                 const char *name,
                 const struct prom_label *labels,
                 unsigned n_labels,
                 const double *bounds,
                 const struct proxy_hist *h)
{
    wire_prom_histogram(out, name, labels, n_labels, bounds, h->counts, PROXY_BOUNDS,
                        (double)h->sum_ns / 1e9);
}

static void plain_hist(struct buf *out,
                       const char *name,
                       const char *help,
                       const double *bounds,
                       const struct proxy_hist *h)
{
    wire_prom_family(out, name, "histogram", help);
    hist(out, name, NULL, 0, bounds, h);
}

static void put_requests(const struct proxy_stats *s, struct buf *out)
{
    counter(out, "weir_requests_total", "Requests that ended, by how.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        const struct proxy_series *x = &s->series[i];
        for (int o = 0; o < OUTCOME_COUNT; o++) {
            struct prom_label labels[] = {{"model", x->model},
                                          {"route", x->route},
                                          {"outcome", slice_str(proxy_outcome_names[o])}};
            wire_prom_sample(out, "weir_requests_total", labels, 3, (double)x->requests[o]);
        }
    }
    static const char *const codes[] = {"none",
#define CODE(name, code, status, type) code,
                                        WEIR_REJECTIONS(CODE)
#undef CODE
    };
    counter(out, "weir_rejections_total", "Errors that Weir itself answered, by code.");
    for (int i = 1; i < REJECT_COUNT; i++) {
        struct prom_label label = {"code", slice_str(codes[i])};
        wire_prom_sample(out, "weir_rejections_total", &label, 1, (double)s->rejections[i]);
    }
    counter(out, "weir_retries_total",
            "Requests tried again at another endpoint or connection, by reason.");
    for (int i = 0; i < RETRY_COUNT; i++) {
        struct prom_label label = {"reason", slice_str(proxy_retry_names[i])};
        wire_prom_sample(out, "weir_retries_total", &label, 1, (double)s->retries[i]);
    }
    counter(out, "weir_locality_spilled_total",
            "Requests sent out of locality, because nobody there fitted and had room.");
    wire_prom_sample(out, "weir_locality_spilled_total", NULL, 0, (double)s->spilled);
}

static void put_times(const struct proxy_stats *s, struct buf *out)
{
    plain_hist(out, "weir_request_duration_seconds", "Arrival of the head to the last byte.",
               proxy_bounds, &s->duration);
    plain_hist(out, "weir_first_byte_seconds",
               "Arrival of the head to the first byte of the answer.", proxy_bounds,
               &s->first_byte);
    plain_hist(out, "weir_queue_seconds",
               "Wait in the gateway's queue, of requests that waited or not.", proxy_bounds,
               &s->queue);
    plain_hist(out, "weir_decision_seconds", "Time of one scheduling decision.",
               proxy_decision_bounds, &s->decision);
    wire_prom_family(out, "weir_compute_seconds", "histogram",
                     "Answered requests: duration without the gateway's queue.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        struct prom_label labels[] = {{"model", s->series[i].model}, {"route", s->series[i].route}};
        hist(out, "weir_compute_seconds", labels, 2, proxy_bounds, &s->series[i].compute);
    }
}

/* By OpenTelemetry's gen_ai conventions, dots and unit as its Prometheus exporter writes them. */
static void put_tokens(const struct proxy_stats *s, struct buf *out)
{
    static const char *const kinds[TOKENS_KINDS] = {"input", "output"};

    wire_prom_family(out, "gen_ai_client_token_usage", "histogram",
                     "Tokens used by a request, as its answer says.");
    for (uint32_t i = 0; i < s->n_series; i++)
        for (unsigned o = 0; o < OPERATION_COUNT; o++)
            for (unsigned k = 0; k < TOKENS_KINDS; k++) {
                const struct proxy_token_hist *h = &s->series[i].tokens[o][k];
                uint64_t n = 0;
                for (unsigned b = 0; b <= PROXY_TOKEN_BOUNDS; b++)
                    n += h->counts[b];
                if (!n)
                    continue;
                struct prom_label labels[] = {
                    {"gen_ai_operation_name", slice_str(proxy_operation_names[o])},
                    {"gen_ai_provider_name", SLICE("weir")},
                    {"gen_ai_token_type", slice_str(kinds[k])},
                    {"gen_ai_request_model", s->series[i].model},
                    {"route", s->series[i].route}};
                wire_prom_histogram(out, "gen_ai_client_token_usage", labels, 5, proxy_token_bounds,
                                    h->counts, PROXY_TOKEN_BOUNDS, (double)h->sum);
            }
    counter(out, "weir_cached_tokens_total",
            "Prompt tokens that engines found in their prefix cache, as answers say.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        struct prom_label labels[] = {{"model", s->series[i].model}, {"route", s->series[i].route}};
        wire_prom_sample(out, "weir_cached_tokens_total", labels, 2,
                         (double)s->series[i].cached_tokens);
    }
    gauge(out, "weir_prefix_hit_ratio",
          "Share of prompt tokens that engines found in their prefix cache, where answers say.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        uint64_t hits = 0;
        uint64_t of = 0;
        bool first = true;
        /* One line a model: its routes together. */
        for (uint32_t k = 0; k < s->n_series; k++) {
            if (!slice_eq(s->series[k].model, s->series[i].model))
                continue;
            first = first && k >= i;
            hits += s->series[k].cached_tokens;
            of += s->series[k].cached_of;
        }
        struct prom_label labels[] = {{"model", s->series[i].model}};
        if (first && of)
            wire_prom_sample(out, "weir_prefix_hit_ratio", labels, 1,
                             MIN((double)hits / (double)of, 1));
    }
    counter(out, "weir_usage_unknown_total",
            "Good answers of models that do not say what they used.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        struct prom_label labels[] = {{"model", s->series[i].model}, {"route", s->series[i].route}};
        wire_prom_sample(out, "weir_usage_unknown_total", labels, 2,
                         (double)s->series[i].usage_unknown);
    }
}

/* Those that a configuration named, and all others as one: what clients send makes no series. */
static void put_tenants(const struct proxy_stats *s, struct buf *out)
{
    static const struct {
        const char *name, *help;
        bool is_gauge;
    } families[] = {
        {"weir_tenant_requests_total", "Requests of a tenant that ended.", false},
        {"weir_tenant_refused_total", "Requests above a tenant's limits.", false},
        {"weir_tenant_input_tokens_total", "Prompt tokens of a tenant, as answers say.", false},
        {"weir_tenant_output_tokens_total", "Generated tokens of a tenant, as answers say.", false},
        {"weir_tenant_queue_seconds_total", "Time that its requests waited in the gateway.", false},
        {"weir_tenant_in_flight", "Requests of a tenant that wait or are answered.", true},
    };

    for (unsigned k = 0; k < ARRAY_LEN(families); k++) {
        if (families[k].is_gauge)
            gauge(out, families[k].name, families[k].help);
        else
            counter(out, families[k].name, families[k].help);
        for (uint32_t i = 0; i < s->n_tenants; i++) {
            const struct proxy_tenant *t = &s->tenants[i];
            struct prom_label label = {"tenant", t->name};
            const double values[ARRAY_LEN(families)] = {
                (double)t->requests,      (double)t->refused,         (double)t->input_tokens,
                (double)t->output_tokens, (double)t->queued_ns / 1e9, (double)t->inflight};
            wire_prom_sample(out, families[k].name, &label, 1, values[k]);
        }
    }
}

static void put_pools(const struct proxy_stats *s, struct buf *out)
{
    gauge(out, "weir_queue_length", "Requests waiting in the gateway.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        struct prom_label labels[] = {{"model", s->series[i].model}, {"route", s->series[i].route}};
        wire_prom_sample(out, "weir_queue_length", labels, 2, s->series[i].waiting);
    }
    gauge(out, "weir_candidates_fit_ratio",
          "Candidates that fit, of those looked at, over all decisions.");
    for (uint32_t i = 0; i < s->n_series; i++) {
        const struct proxy_series *x = &s->series[i];
        struct prom_label labels[] = {{"model", x->model}, {"route", x->route}};
        if (x->offered_sum)
            wire_prom_sample(out, "weir_candidates_fit_ratio", labels, 2,
                             (double)x->fit_sum / (double)x->offered_sum);
    }
    gauge(out, "weir_connections", "Client connections open now.");
    wire_prom_sample(out, "weir_connections", NULL, 0, (double)s->connections);
    counter(out, "weir_access_log_lost_total",
            "Lines that could not be written to the access log (logging.access).");
    wire_prom_sample(out, "weir_access_log_lost_total", NULL, 0, (double)s->access_log_lost);
    counter(out, "weir_connections_refused_total", "Client connections above limits.connections.");
    wire_prom_sample(out, "weir_connections_refused_total", NULL, 0,
                     (double)s->connections_refused);
    counter(out, "weir_upstream_connections_total", "Connections made to workers.");
    wire_prom_sample(out, "weir_upstream_connections_total", NULL, 0,
                     (double)s->upstream_connections);
    gauge(out, "weir_active_requests", "Requests under way.");
    wire_prom_sample(out, "weir_active_requests", NULL, 0, (double)s->active);
    gauge(out, "weir_sockets", "Of them, sockets switched to another protocol (WebSocket).");
    wire_prom_sample(out, "weir_sockets", NULL, 0, (double)s->sockets);
    gauge(out, "weir_buffered_bytes", "Request bodies and unsent answers held.");
    wire_prom_sample(out, "weir_buffered_bytes", NULL, 0, (double)s->buffered_bytes);
}

/* One number of an endpoint: false = unknown, then there is no sample line. */
typedef bool (*endpoint_value_fn)(const struct member *m,
                                  const struct sample *s,
                                  uint64_t now,
                                  double *v);

static bool value_inflight(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)s, (void)now;
    *v = atomic_load_explicit(&m->cell->inflight, memory_order_relaxed);
    return true;
}

static bool value_up(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)s, (void)now;
    *v = atomic_load_explicit(&m->cell->health, memory_order_relaxed) == HEALTH_UP;
    return true;
}

static bool value_breaker(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)s;
    *v = sched_breaker_look(m->cell, now).state;
    return true;
}

static bool value_gpu_util(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = s->gpu_util_bp / 100.0;
    return sample_has(s, SAMPLE_GPU_UTIL);
}

static bool value_membw(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = s->membw_util_bp / 100.0;
    return sample_has(s, SAMPLE_MEMBW_UTIL);
}

static bool value_sm(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = s->sm_active_bp / 100.0;
    return sample_has(s, SAMPLE_SM_ACTIVE);
}

static bool
value_memory_free(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = (double)s->memory_free_bytes;
    return sample_has(s, SAMPLE_MEMORY_FREE);
}

static bool
value_memory_total(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)now;
    *v = (double)(sample_has(s, SAMPLE_MEMORY_TOTAL) ? s->memory_total_bytes
                                                     : m->endpoint->memory_total_bytes);
    return *v > 0;
}

static bool value_running(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = s->running;
    return sample_has(s, SAMPLE_RUNNING);
}

static bool value_waiting(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = s->waiting;
    return sample_has(s, SAMPLE_WAITING);
}

static bool value_kv(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m, (void)now;
    *v = s->kv_capacity_tokens ? (double)s->kv_used_tokens / (double)s->kv_capacity_tokens : 0;
    return sample_has(s, SAMPLE_KV_USED) && sample_has(s, SAMPLE_KV_CAPACITY) &&
           s->kv_capacity_tokens > 0;
}

static bool value_age(const struct member *m, const struct sample *s, uint64_t now, double *v)
{
    (void)m;
    *v = (double)(now - MIN(now, s->received_ns)) / 1e9;
    return s->known != 0;
}

static const struct {
    const char *name, *help;
    endpoint_value_fn value;
} endpoint_gauges[] = {
    {"weir_inflight", "Requests sent to the endpoint and not ended.", value_inflight},
    {"weir_endpoint_up", "1 when the endpoint's checks say it is up.", value_up},
    {"weir_breaker_state", "0 closed, 1 half-open (one request tries), 2 open.", value_breaker},
    {"weir_endpoint_gpu_util_percent", "Reported GPU utilization.", value_gpu_util},
    {"weir_endpoint_membw_util_percent", "Reported memory bandwidth utilization.", value_membw},
    {"weir_endpoint_sm_active_percent", "Reported SM activity.", value_sm},
    {"weir_endpoint_memory_free_bytes", "Reported free device memory.", value_memory_free},
    {"weir_endpoint_memory_total_bytes", "Device memory.", value_memory_total},
    {"weir_endpoint_running", "Reported running requests.", value_running},
    {"weir_endpoint_waiting", "Reported requests in the engine's own queue.", value_waiting},
    {"weir_endpoint_kv_used_ratio", "Reported share of the KV cache in use.", value_kv},
    {"weir_endpoint_report_age_seconds", "Age of the last report.", value_age},
};

static void put_endpoints(const struct metrics_input *in, struct buf *out)
{
    const struct snapshot *s = in->snapshot;

    for (size_t g = 0; g < ARRAY_LEN(endpoint_gauges); g++) {
        gauge(out, endpoint_gauges[g].name, endpoint_gauges[g].help);
        for (uint32_t i = 0; i < s->n_members; i++) {
            const struct member *m = &s->members[i];
            const struct endpoint *e = m->endpoint;
            struct sample sample;
            double v;
            sched_sample_read(m->cell, &sample);
            if (!endpoint_gauges[g].value(m, &sample, in->now_ns, &v))
                continue;
            struct prom_label labels[] = {{"endpoint", e->id},
                                          {"model", e->n_models ? e->models[0].id : SLICE("")},
                                          {"gpu", e->gpu_type.p ? e->gpu_type : SLICE("")}};
            wire_prom_sample(out, endpoint_gauges[g].name, labels, 3, v);
        }
    }
}

/* An engine with continuous batching runs all its requests in one batch: that is its size where it tells no other. */
static void put_batches(const struct metrics_input *in, struct buf *out)
{
    const struct snapshot *s = in->snapshot;

    gauge(out, "weir_batch_size",
          "Requests that an endpoint of the model computes together: the mean of those that tell.");
    for (uint32_t i = 0; i < s->n_models; i++) {
        const struct snapshot_model *model = &s->models[i];
        struct prom_label label = {"model", model->id};
        double sum = 0;
        uint32_t told = 0;
        for (uint32_t k = 0; k < model->n_members; k++) {
            struct sample sample;
            sched_sample_read(s->members[model->members[k]].cell, &sample);
            bool batch = sample_has(&sample, SAMPLE_BATCH);
            if (!sample_fresh(&sample, in->now_ns) ||
                !(batch || sample_has(&sample, SAMPLE_RUNNING)))
                continue;
            sum += batch ? sample.batch : sample.running;
            told++;
        }
        if (told)
            wire_prom_sample(out, "weir_batch_size", &label, 1, sum / told);
    }
}

static void put_stale(const struct metrics_input *in, struct buf *out)
{
    const struct snapshot *s = in->snapshot;
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_members; i++) {
        struct sample sample;
        sched_sample_read(s->members[i].cell, &sample);
        n += s->members[i].endpoint->enabled && !sample_fresh(&sample, in->now_ns);
    }
    gauge(out, "weir_stale_endpoints",
          "Endpoints without fresh numbers, reported or scraped: routed by our own counts alone.");
    wire_prom_sample(out, "weir_stale_endpoints", NULL, 0, n);
}

static void put_panic(const struct metrics_input *in, struct buf *out)
{
    const struct snapshot *s = in->snapshot;
    struct panic_model *look = mem_array(loop_mem(), s->n_models + 1, sizeof(*look));

    if (!look) {
        out->err = WEIR_E_NOMEM;
        return;
    }
    panic_look(s, in->panic_percent, in->now_ns, look);
    gauge(out, "weir_panic",
          "1 while so many endpoints of the model are red that all of them are used.");
    for (uint32_t i = 0; i < s->n_models; i++) {
        struct prom_label label = {"model", s->models[i].id};
        if (s->models[i].n_members)
            wire_prom_sample(out, "weir_panic", &label, 1, look[i].panic);
    }
    mem_free(loop_mem(), look);
}

/* Sources of one kind are one series; places without a name are not in use. */
static bool first_of_name(const struct metrics_input *in, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (slice_eq(in->sources[k].name, in->sources[i].name))
            return false;
    return in->sources[i].name.n > 0;
}

static void put_sources(const struct metrics_input *in, struct buf *out)
{
    static const char *const states[] = {"up", "down", "unknown", "draining", "disabled"};
    enum { N_STATES = ARRAY_LEN(states) };

    gauge(out, "weir_endpoints", "Endpoints by the source that describes them first and by state.");
    for (uint32_t i = 0; i < in->n_sources; i++) {
        uint32_t counts[N_STATES] = {0};
        if (!first_of_name(in, i))
            continue;
        for (uint32_t k = 0; k < in->snapshot->n_members; k++) {
            const struct member *m = &in->snapshot->members[k];
            int health = atomic_load_explicit(&m->cell->health, memory_order_relaxed);
            if (!slice_eq(in->sources[m->endpoint->source].name, in->sources[i].name))
                continue;
            if (!m->endpoint->enabled || m->endpoint->weight == 0)
                counts[4]++;
            else if (m->endpoint->draining)
                counts[3]++;
            else
                counts[health == HEALTH_UP ? 0 : health == HEALTH_DOWN ? 1 : 2]++;
        }
        for (unsigned k = 0; k < N_STATES; k++) {
            struct prom_label labels[] = {{"source", in->sources[i].name},
                                          {"state", slice_str(states[k])}};
            wire_prom_sample(out, "weir_endpoints", labels, 2, counts[k]);
        }
    }
    gauge(out, "weir_registry_update_delay_seconds",
          "From a source's last word to its publication to the data plane.");
    for (uint32_t i = 0; i < in->n_sources; i++) {
        struct prom_label label = {"source", in->sources[i].name};
        if (!first_of_name(in, i))
            continue;
        wire_prom_sample(out, "weir_registry_update_delay_seconds", &label, 1,
                         in->sources[i].delay_seconds);
    }
}

static void put_source_stats(const struct metrics_input *in, struct buf *out)
{
    static const struct {
        const char *name, *help;
        bool is_counter;
    } families[] = {
        {"weir_source_up", "Did the source's last answer make sense?", false},
        {"weir_source_held_endpoints",
         "Endpoints that left their list in a mass, or are hidden by its server, and stay while "
         "our checks pass.",
         false},
        {"weir_source_partial_lists", "Lists of which a source's token may read only a part.",
         false},
        {"weir_source_answers_total", "Good answers of a source.", true},
        {"weir_source_errors_total", "Failed or bad answers of a source.", true},
        {"weir_source_refused_total", "Instances of a source that could not be used.", true},
    };

    for (unsigned k = 0; k < ARRAY_LEN(families); k++) {
        wire_prom_family(out, families[k].name, families[k].is_counter ? "counter" : "gauge",
                         families[k].help);
        for (uint32_t i = 0; i < in->n_sources; i++) {
            const struct source_stats *s = in->sources[i].stats;
            struct prom_label label = {"source", in->sources[i].name};
            if (!s)
                continue;
            const double values[ARRAY_LEN(families)] = {s->up,
                                                        s->n_leaving,
                                                        s->n_partial,
                                                        (double)s->answers,
                                                        (double)s->errors,
                                                        (double)s->refused};
            wire_prom_sample(out, families[k].name, &label, 1, values[k]);
        }
    }
}

/* Of this process since its start. A resumed handshake is one that is done, too. */
static void put_tls(struct buf *out)
{
    static const char *const sides[] = {"endpoint", "client"};

    counter(
        out, "weir_tls_handshakes_total",
        "TLS handshakes with clients and with endpoints; resumed ones are counted as done, too.");
    for (int s = 0; s < 2; s++) {
        struct net_tls_counts c;
        net_tls_count(s, &c);
        const struct {
            const char *result;
            uint64_t n;
        } rows[] = {
            {"done", c.done}, {"resumed", c.resumed}, {"failed", c.failed}, {"refused", c.refused}};
        for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
            struct prom_label labels[] = {{"side", slice_str(sides[s])},
                                          {"result", slice_str(rows[i].result)}};
            wire_prom_sample(out, "weir_tls_handshakes_total", labels, 2, (double)rows[i].n);
        }
    }
}

void metrics_render(const struct metrics_input *in, struct buf *out)
{
    gauge(out, "weir_build_info", "Always 1; the version is the label.");
    struct prom_label version = {"version", SLICE(WEIR_VERSION)};
    wire_prom_sample(out, "weir_build_info", &version, 1, 1);
    put_requests(in->stats, out);
    put_times(in->stats, out);
    put_tokens(in->stats, out);
    put_tenants(in->stats, out);
    put_pools(in->stats, out);
    put_endpoints(in, out);
    put_batches(in, out);
    put_stale(in, out);
    put_panic(in, out);
    put_sources(in, out);
    put_source_stats(in, out);
    put_tls(out);
    counter(out, "weir_config_reloads_total", "Attempts to load a changed configuration.");
    struct prom_label ok = {"result", SLICE("ok")}, failed = {"result", SLICE("failed")};
    wire_prom_sample(out, "weir_config_reloads_total", &ok, 1, (double)in->reloads_ok);
    wire_prom_sample(out, "weir_config_reloads_total", &failed, 1, (double)in->reloads_failed);
}
