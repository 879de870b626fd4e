// SPDX-License-Identifier: Apache-2.0
// The npm package `nacos`, unchanged, against SERVER: subscribes, registers, beats, sees changes, deregisters.
// Prints one line per step; each step waits for what it brings about. This client ignores an empty list, so the last
// deregistration is judged by whoever runs this.
"use strict";
const { NacosNamingClient } = require("nacos");

const quiet = { info() {}, warn() {}, debug() {}, error: console.error };
const service = "chat";
const say = (...words) => console.log(words.join(" "));

async function main() {
  const client = new NacosNamingClient({ logger: quiet, serverList: process.env.SERVER, namespace: "public" });
  await client.ready();
  say("ready");
  const a = { ip: "127.0.0.1", port: 7001, metadata: { model_id: "m", gpu_type: "A100" } };
  const b = { ip: "127.0.0.1", port: 7002, metadata: { model_id: "m" } };
  await client.registerInstance(service, a);
  say("registered", a.port);

  let last = [];
  let waiting = null;
  const look = () => waiting && waiting.ports === last.join(" ") && waiting.resolve();
  client.subscribe(service, (hosts) => {
    last = hosts.map((h) => h.port).sort();
    look();
  });
  const until = (ports) => new Promise((resolve) => { waiting = { ports, resolve }; look(); });

  await until("7001");
  say("seen", last.join(" "));
  await client.registerInstance(service, b);
  await until("7001 7002");
  say("seen", last.join(" "));
  // Its own loop beats by the same call.
  const beat = { serviceName: "DEFAULT_GROUP@@" + service, ip: a.ip, port: a.port, cluster: "DEFAULT", weight: 1,
                 metadata: a.metadata, scheduled: false };
  const interval = await client._serverProxy.sendBeat(beat);
  if (interval !== 5000) throw new Error("beat interval " + interval);
  say("beaten", a.port);
  await client.deregisterInstance(service, a);
  await until("7002");
  say("seen", last.join(" "));
  await client.deregisterInstance(service, b);
  say("deregistered", b.port);
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
