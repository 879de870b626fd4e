/* SPDX-License-Identifier: Apache-2.0 */
/** @file What Nacos clients read: the shapes of the reference server 2.x and 3.x, fields in its order. */
#include "registry/nacos_codec.h"

#include "model/instance.h"

void nacos_write_weight(struct buf *out, uint32_t thousandths)
{
    uint32_t part = thousandths % WEIGHT_ONE;

    buf_put_f64(out, (double)thousandths / WEIGHT_ONE, 3);
    if (part == 0)
        buf_put_str(out, ".0");
}

static void put_field(struct buf *out, const char *name, struct slice value)
{
    buf_put_str(out, name);
    buf_put_json(out, value);
}

static void put_bool(struct buf *out, const char *name, bool v)
{
    buf_put_str(out, name);
    buf_put_str(out, v ? "true" : "false");
}

static void put_u64(struct buf *out, const char *name, uint64_t v)
{
    buf_put_str(out, name);
    buf_put_u64(out, v);
}

static void put_instance_id(struct buf *out, const struct nacos_host_view *v)
{
    /* Host, cluster and names hold nothing that JSON escapes, except a service name: it goes through the escaper
     * alone, without its quotes. */
    buf_put_str(out, "\"instanceId\":\"");
    buf_put_slice(out, v->host);
    buf_put_char(out, '#');
    buf_put_u64(out, v->port);
    buf_put_char(out, '#');
    buf_put_slice(out, v->cluster);
    buf_put_char(out, '#');
    size_t quote = buf_len(out);
    buf_put_json(out, v->grouped);
    if (out->err)
        return;
    char *p = out->p + out->from + quote;
    size_t n = buf_len(out) - quote;
    memmove(p, p + 1, n - 1);
    out->to--;
}

void nacos_write_host(struct buf *out, const struct nacos_host_view *v, bool first)
{
    buf_put_str(out, first ? "{" : ",{");
    put_instance_id(out, v);
    put_field(out, ",\"ip\":", v->host);
    put_u64(out, ",\"port\":", v->port);
    buf_put_str(out, ",\"weight\":");
    nacos_write_weight(out, v->weight);
    put_bool(out, ",\"healthy\":", v->healthy);
    put_bool(out, ",\"enabled\":", v->enabled);
    put_bool(out, ",\"ephemeral\":", v->ephemeral);
    put_field(out, ",\"clusterName\":", v->cluster);
    put_field(out, ",\"serviceName\":", v->grouped);
    buf_put_str(out, ",\"metadata\":");
    model_write_kv(out, v->metadata, v->n_metadata);
    put_u64(out, ",\"instanceHeartBeatInterval\":", v->interval_ms);
    put_u64(out, ",\"instanceHeartBeatTimeOut\":", v->timeout_ms);
    put_u64(out, ",\"ipDeleteTimeout\":", v->delete_ms);
    buf_put_str(out, ",\"instanceIdGenerator\":\"simple\"}");
}

void nacos_write_list_begin(struct buf *out, const struct nacos_list_view *v)
{
    put_field(out, "{\"name\":", v->plain ? nacos_name_of(v->grouped) : v->grouped);
    put_field(out, ",\"groupName\":", nacos_group_of(v->grouped));
    put_field(out, ",\"clusters\":", v->clusters);
    put_u64(out, ",\"cacheMillis\":", v->cache_ms);
    buf_put_str(out, ",\"hosts\":[");
}

void nacos_write_list_end(struct buf *out, const struct nacos_list_view *v)
{
    put_u64(out, "],\"lastRefTime\":", v->now_ms);
    buf_put_str(out, ",\"checksum\":\"\",\"allIPs\":false");
    put_bool(out, ",\"reachProtectionThreshold\":", v->protected_);
    buf_put_str(out, ",\"valid\":true}");
}

void nacos_write_detail(struct buf *out, const struct nacos_host_view *v, bool v2)
{
    put_field(out, v2 ? "{\"serviceName\":" : "{\"service\":", v->grouped);
    put_field(out, ",\"ip\":", v->host);
    put_u64(out, ",\"port\":", v->port);
    put_field(out, ",\"clusterName\":", v->cluster);
    buf_put_str(out, ",\"weight\":");
    nacos_write_weight(out, v->weight);
    put_bool(out, ",\"healthy\":", v->healthy);
    buf_put_char(out, ',');
    put_instance_id(out, v);
    buf_put_str(out, ",\"metadata\":");
    model_write_kv(out, v->metadata, v->n_metadata);
    buf_put_char(out, '}');
}

void nacos_write_beat(struct buf *out, uint32_t interval_ms, unsigned code)
{
    put_u64(out, "{\"clientBeatInterval\":", interval_ms);
    put_u64(out, ",\"code\":", code);
    buf_put_str(out, ",\"lightBeatEnabled\":true}");
}
