# SPDX-License-Identifier: Apache-2.0
"""The proxies side by side: HAProxy, nginx and Weir in front of the same backends, set up alike."""
import json
import os
import shutil
import sys
import time
import urllib.request

import rig

HAPROXY = """
global
    nbthread {threads}
    maxconn 9900
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-no-delay
    http-reuse always
listen proxy
    bind 127.0.0.1:{port}
    balance leastconn
{servers}
"""
NGINX = """
daemon off;
master_process off;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
    uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
    keepalive_requests 1000000000;
    client_max_body_size 512m;
    client_body_buffer_size 512k;
    upstream workers {{ least_conn; {servers} keepalive 1024; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://workers;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def find(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        sys.exit(f"{name} is not installed; tools/deps.sh bench installs it")
    return path


def start_haproxy(backends, folder, threads=1, cpu=1):
    port = rig.free_port()
    servers = "\n".join(f"    server s{i} {b}" for i, b in enumerate(backends))
    path = os.path.join(folder, "haproxy.cfg")
    with open(path, "w", encoding="ascii") as f:
        f.write(HAPROXY.format(port=port, servers=servers, threads=threads))
    program = rig.Program([find("haproxy"), "-db", "-f", path], cpu=cpu, log=os.path.join(folder, "haproxy.log"))
    rig.wait_port(port, program)
    return program, port


def start_nginx(backends, folder, threads=1, cpu=1):
    if threads != 1:
        raise ValueError("nginx runs one process here")
    port = rig.free_port()
    path = os.path.join(folder, "nginx.conf")
    with open(path, "w", encoding="ascii") as f:
        f.write(NGINX.format(port=port, dir=folder, servers=" ".join(f"server {b};" for b in backends)))
    program = rig.Program([find("nginx"), "-c", path, "-p", folder], cpu=cpu, log=os.path.join(folder, "nginx.log"))
    rig.wait_port(port, program)
    return program, port


def start_weir(backends, folder, threads=1, cpu=1, extra=(), under=(), binary=None):
    program = rig.Program([*under, binary or os.path.join(rig.BUILD, "weir"), "serve", "--host", "127.0.0.1", "--port", 0,
                           "--admin-port", 0, "--registry-port", "off", "--threads", threads, *extra,
                           "--worker-urls", *[f"http://{b}" for b in backends]], cpu=cpu,
                          log=os.path.join(folder, "weir.log"))
    words = dict(w.split("=", 1) for w in program.ready())
    port = int(words["data"].rsplit(":", 1)[1])
    end = time.monotonic() + 15
    while time.monotonic() < end:       # its models come from the workers, by probing
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as r:
                if json.load(r)["data"]:
                    return program, port
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("weir found no model on the backend")


START = {"haproxy": start_haproxy, "nginx": start_nginx, "weir": start_weir}
