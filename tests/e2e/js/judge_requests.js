// SPDX-License-Identifier: Apache-2.0
// Node's HTTP/1 parser as the judge of what a gateway forwards. One JSON object per line, both ways:
//   out {"port"}          where the judge's own server listens: the gateway's worker
//   in  {"host","port"}   the gateway
//   in  {"bytes","cut"}   base64; sent on a connection of its own, in two writes when cut > 0
//   out per case          {"answer": all bytes that came back, "direct": what Node reads from the same bytes itself}
//   out at the end        {"records": every request that reached the server}
// A request is [method, target, body in base64]. Records carry the number that their answer had in X-Judge.
"use strict";
const http = require("http");
const net = require("net");
const readline = require("readline");
const { Duplex } = require("stream");

const LANES = 24;
const QUIET_MS = 25; // after so long without a byte the client has nothing more to say; decides coverage, no verdict
const PROBES = new Set(["/health", "/healthz", "/v1/models", "/metrics", "/", "/ping", "/version", "/get_model_info",
  "/v2/health/ready", "/load", "/v2", "/info", "/api/version", "/api/tags", "/slots",
  "/sdapi/v1/progress?skip_current_image=true", "/prometheus/metrics", "/monitoring/prometheus/metrics",
  "/worker_get_status"]);
const options = { maxHeaderSize: 1 << 20, keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 };
const records = [];

function whole(req, then) {
  const parts = [];
  req.on("data", (d) => parts.push(d));
  req.on("end", () => req.complete && then([req.method, req.url, Buffer.concat(parts).toString("base64")]));
  req.on("error", () => {});
}

function server(onWhole) {
  const onRequest = (req, res) => whole(req, (request) => onWhole(request, req, res));
  const s = http.createServer(options, onRequest);
  s.on("checkExpectation", onRequest);
  s.httpAllowHalfOpen = true;
  return s;
}

// What the gateway passes on.
const worker = server((request, req, res) => {
  if (!req.headers["x-request-id"] && req.method === "GET" && PROBES.has(req.url)) {
    res.writeHead(req.url === "/health" ? 200 : 404).end();
    return;
  }
  res.setHeader("X-Judge", records.length);
  records.push(request);
  res.end("seen");
});

// The same bytes without a gateway.
const alone = server((request, req, res) => {
  req.socket.seen.push(request);
  if (req.headers.upgrade) req.socket.fault = "upgrade"; // Node reads no further, whether it upgrades or not
  res.end();
});
alone.on("clientError", (e, socket) => {
  socket.fault = e.code;
  setImmediate(() => socket.destroy()); // what was read before it is still being handed over
});

function direct(bytes) {
  return new Promise((resolve) => {
    const socket = new Duplex({ read() {}, write: (chunk, encoding, done) => done(), allowHalfOpen: true });
    socket.seen = [];
    socket.setTimeout = socket.setKeepAlive = socket.setNoDelay = socket.ref = socket.unref = () => socket;
    socket.on("close", () => resolve({ requests: socket.seen, fault: socket.fault || null }));
    alone.emit("connection", socket);
    socket.push(bytes);
    socket.push(null);
    // Node waits for ever on some requests to upgrade with a body.
    setTimeout(() => {
      socket.fault = "upgrade";
      socket.destroy();
    }, 2000).unref();
  });
}

function through(gateway, bytes, cut) {
  return new Promise((resolve) => {
    const got = [];
    const c = net.connect({ ...gateway, noDelay: true, allowHalfOpen: true });
    let timer;
    const quiet = () => {
      clearTimeout(timer);
      timer = setTimeout(() => c.end(), QUIET_MS);
    };
    c.on("connect", () => {
      c.write(cut ? bytes.subarray(0, cut) : bytes);
      if (cut) setImmediate(() => c.write(bytes.subarray(cut)));
      quiet();
    });
    c.on("data", (d) => {
      got.push(d);
      quiet();
    });
    c.on("end", () => c.end());
    c.on("error", () => {});
    c.on("close", () => {
      clearTimeout(timer);
      resolve(Buffer.concat(got));
    });
  });
}

async function main() {
  await new Promise((resolve) => worker.listen(0, "127.0.0.1", resolve));
  console.log(JSON.stringify({ port: worker.address().port }));
  const lines = [];
  for await (const line of readline.createInterface({ input: process.stdin })) lines.push(JSON.parse(line));
  const gateway = lines.shift();
  const out = new Array(lines.length);
  let next = 0;
  const lane = async () => {
    while (next < lines.length) {
      const i = next++;
      const bytes = Buffer.from(lines[i].bytes, "base64");
      const answer = await through(gateway, bytes, lines[i].cut);
      out[i] = { answer: answer.toString("base64"), direct: await direct(bytes) };
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  for (const o of out) console.log(JSON.stringify(o));
  console.log(JSON.stringify({ records }));
  process.stdout.write("", () => process.exit(0));
}

main();
