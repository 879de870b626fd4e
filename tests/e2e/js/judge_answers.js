// SPDX-License-Identifier: Apache-2.0
// A worker whose answers are given byte by byte, and what Node's client reads from them. One JSON object per line:
//   out {"port"}            the worker's
//   in  {"host","port"}     the gateway
//   in  {"method","bytes","close","cut"}   a case: answer in base64; close: the worker closes after it
//   out per case            {"answer": all bytes that came back, "direct": [status, body in base64] or null}
// After each case's request the same connection carries a second one, and a third goes over another connection: the
// worker answers both with what they asked for.
"use strict";
const http = require("http");
const net = require("net");
const readline = require("readline");
const { Duplex } = require("stream");

const LANES = 16;
const QUIET_MS = 25; // after so long without a byte a lane goes on; decides coverage, no verdict
const cases = [];

function ask(method, fields) {
  return `${method} /v1/t HTTP/1.1\r\nHost: x\r\n${fields}${method === "POST" ? "Content-Length: 0\r\n" : ""}\r\n`;
}

const worker = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
  let text = "";
  socket.on("error", () => {});
  socket.on("end", () => socket.end());
  socket.on("data", (d) => {
    text += d.toString("latin1");
    for (let at; (at = text.indexOf("\r\n\r\n")) >= 0; ) {
      const head = text.slice(0, at);
      text = text.slice(at + 4);
      const probe = /\r\nx-after: (\S+)/i.exec(head);
      const index = /\r\nx-case: (\d+)/i.exec(head);
      if (probe) {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${probe[1].length}\r\n\r\n${probe[1]}`);
      } else if (!index) {
        const ok = / \/health /.test(head);
        socket.write(`HTTP/1.1 ${ok ? "200 OK" : "404 Not Found"}\r\nContent-Length: 0\r\n\r\n`);
      } else {
        const c = cases[index[1]];
        const bytes = Buffer.from(c.bytes, "base64");
        socket.write(c.cut ? bytes.subarray(0, c.cut) : bytes);
        if (c.cut) setImmediate(() => !socket.destroyed && socket.write(bytes.subarray(c.cut)));
        if (c.close) setImmediate(() => setImmediate(() => socket.end()));
      }
    }
  });
});

// What comes back to these requests; the second is sent once the first one's answer has gone quiet. When that one
// gets nothing either, the client leaves.
function through(gateway, requests) {
  const patient = requests.length === 1; // a worker that is sound answers
  return new Promise((resolve) => {
    const got = [];
    let timer;
    const c = net.connect({ ...gateway, noDelay: true, allowHalfOpen: true });
    const next = () => {
      clearTimeout(timer);
      if (!requests.length) return c.end();
      if (!c.destroyed) c.write(requests.shift());
      if (!patient) timer = setTimeout(next, QUIET_MS);
    };
    c.on("connect", next);
    c.on("data", (d) => {
      got.push(d);
      clearTimeout(timer);
      if (!patient) timer = setTimeout(next, QUIET_MS);
    });
    c.on("end", () => c.end());
    c.on("error", () => {});
    c.on("close", () => {
      clearTimeout(timer);
      resolve(Buffer.concat(got).toString("base64"));
    });
  });
}

function direct(c) {
  return new Promise((resolve) => {
    const socket = new Duplex({ read() {}, write: (chunk, encoding, done) => done() });
    socket.setTimeout = socket.setKeepAlive = socket.setNoDelay = socket.ref = socket.unref = () => socket;
    const request = http.request({ method: c.method, path: "/", createConnection: () => socket, maxHeaderSize: 1 << 20 });
    let seen = null;
    request.on("response", (res) => {
      // As the parser hands it over: an error in what follows would take it away again.
      const { push } = res;
      const parts = [];
      res.push = (chunk) => (chunk && parts.push(chunk), push.call(res, chunk));
      res.on("error", () => {});
      res.resume();
      seen = () => (res.complete ? [res.statusCode, Buffer.concat(parts).toString("base64")] : null);
    });
    request.on("upgrade", () => {});
    request.on("error", () => {});
    request.on("close", () => setImmediate(() => resolve(seen && seen())));
    request.end();
    setImmediate(() => {
      socket.push(Buffer.from(c.bytes, "base64"));
      if (c.close) socket.push(null);
      setTimeout(() => socket.destroy(), 50);
    });
  });
}

async function main() {
  await new Promise((resolve) => worker.listen(0, "127.0.0.1", resolve));
  console.log(JSON.stringify({ port: worker.address().port }));
  let gateway = null;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (gateway) cases.push(JSON.parse(line));
    else gateway = JSON.parse(line);
  }
  const out = new Array(cases.length);
  let next = 0;
  const lane = async () => {
    while (next < cases.length) {
      const i = next++;
      const c = cases[i];
      const answer = await through(gateway, [ask(c.method, `X-Case: ${i}\r\n`), ask("GET", `Connection: close\r\nX-After: same-${i}\r\n`)]);
      const after = await through(gateway, [ask("GET", `Connection: close\r\nX-After: other-${i}\r\n`)]);
      out[i] = { answer, after, direct: await direct(c) };
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  for (const o of out) console.log(JSON.stringify(o));
  process.stdout.write("", () => process.exit(0));
}

main();
