// SPDX-License-Identifier: Apache-2.0
// The npm package `openai`, unchanged, against BASE_URL. Prints one JSON object with what it saw.
"use strict";
// Debian 12's Node 18 with the node-fetch that this package uses by default calls every chunked answer cut off, also one of
// Node's own server. The package's other official way is the fetch of Node itself.
if (Number(process.versions.node.split(".")[0]) < 20) require("openai/shims/web");
const OpenAI = require("openai");

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "sk-test", maxRetries: 0 });
const model = process.env.MODEL;
const messages = [{ role: "user", content: "Why do weirs hum?" }];

async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (e) {
    return { name: e.constructor.name, status: e.status, code: e.code, type: e.type, message: e.message };
  }
}

async function main() {
  const seen = { version: require(process.env.NODE_PATH + "/openai/package.json").version };
  seen.models = (await client.models.list()).data.map((m) => m.id);

  const whole = await client.chat.completions.create({ model, messages, max_tokens: 8 });
  seen.chat = { object: whole.object, role: whole.choices[0].message.role, text: whole.choices[0].message.content,
                finish: whole.choices[0].finish_reason, tokens: whole.usage.completion_tokens };

  const stream = await client.chat.completions.create({ model, messages, max_tokens: 8, stream: true,
                                                        stream_options: { include_usage: true } });
  seen.stream = { text: "", chunks: 0, finish: null, tokens: null };
  for await (const chunk of stream) {
    seen.stream.chunks += 1;
    if (chunk.usage) seen.stream.tokens = chunk.usage.completion_tokens;
    if (chunk.choices.length) {
      seen.stream.text += chunk.choices[0].delta.content || "";
      seen.stream.finish = chunk.choices[0].finish_reason || seen.stream.finish;
    }
  }

  const completion = await client.completions.create({ model, prompt: "A weir is", max_tokens: 4 });
  seen.completion = { object: completion.object, tokens: completion.usage.completion_tokens };

  const embedding = await client.embeddings.create({ model, input: ["one", "two"] });
  seen.embedding = { n: embedding.data.length, same: embedding.data[0].embedding.length === embedding.data[1].embedding.length,
                     number: typeof embedding.data[0].embedding[0] };

  // Leaving in the middle of a stream is a client's right.
  const left = await client.chat.completions.create({ model, messages, max_tokens: 4000, stream: true });
  for await (const chunk of left) {
    if (chunk.choices.length) break;
  }

  seen.unknown = await failure(client.chat.completions.create({ model: "no-such-model", messages }));
  seen.unknownStream = await failure(client.chat.completions.create({ model: "no-such-model", messages, stream: true }));
  seen.badHeader = await failure(client.chat.completions.create({ model, messages },
                                                                { headers: { "X-Required-Memory": "lots" } }));
  console.log(JSON.stringify(seen));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
