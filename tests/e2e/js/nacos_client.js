// SPDX-License-Identifier: Apache-2.0
// The npm package `nacos`, unchanged, against SERVER: subscribe, register, see changes, deregister.
// Prints one JSON object with what it saw, in order.
"use strict";
const { NacosNamingClient } = require("nacos");

const quiet = { info() {}, warn() {}, debug() {}, error: console.error };
const service = "chat";

async function main() {
  const client = new NacosNamingClient({ logger: quiet, serverList: process.env.SERVER, namespace: "public" });
  await client.ready();
  const seen = { version: require(process.env.NODE_PATH + "/nacos/package.json").version, ports: [] };

  // A change is awaited by what it brings, not by time.
  let last = null;
  let waiting = [];
  client.subscribe(service, (hosts) => {
    last = hosts;
    // Weir's own metadata comes a moment after what was registered: news, but not of ports.
    const ports = hosts.map((h) => h.port).sort();
    if (String(ports) !== String(seen.ports.at(-1))) seen.ports.push(ports);
    const met = waiting.filter((w) => w.test(hosts));
    waiting = waiting.filter((w) => !met.includes(w));
    met.forEach((w) => w.resolve());
  });
  const until = (test) => new Promise((resolve) => (last && test(last) ? resolve() : waiting.push({ test, resolve })));

  const a = { ip: "127.0.0.1", port: 7001, metadata: { model_id: "m", gpu_type: "A100", team: "blue" } };
  const b = { ip: "127.0.0.1", port: 7002, metadata: { model_id: "m", gpu_type: "T4" } };
  await client.registerInstance(service, a);
  await until((hosts) => hosts.length === 1);
  await client.registerInstance(service, b);
  await until((hosts) => hosts.length === 2);
  let all;
  do {
    all = await client.getAllInstances(service, undefined, undefined, false);
  } while (!all.every((i) => "current_requests" in i.metadata));
  seen.metadata = Object.fromEntries(all.map((i) => [i.port, i.metadata]));
  seen.healthy = all.map((i) => i.healthy);
  seen.status = await client.getServerStatus();
  await client.deregisterInstance(service, a);
  await until((hosts) => hosts.length === 1 && hosts[0].port === 7002);
  // The SDK keeps its last list rather than believe an empty one, so this last step is not seen from here.
  await client.deregisterInstance(service, b);
  console.log(JSON.stringify(seen));
  await client.close();
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
