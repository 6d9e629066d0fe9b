// The official Anthropic client for Node against a door of drupe. See README.md.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { KEY, MODEL, TOOL, URL, all, check, refused, run } from "./checks.mjs";

const client = new Anthropic({ baseURL: URL, apiKey: KEY, maxRetries: 0 });
const said = (content) => [{ role: "user", content }];
const body = (text, more) => ({ model: MODEL, max_tokens: 200, messages: said(text), ...more });
const ask = (text, more, options) => client.messages.create(body(text, more), options);
const old = { headers: { "anthropic-version": "2023-06-01" } };
const tools = [{ name: "weather", description: "Tells the weather.", input_schema: TOOL }];

check("core", "models are listed page by page", async () => {
  const ids = (await all(client.models.list({ limit: 1 }))).map((each) => each.id);
  assert.ok(ids.includes("drupe") && new Set(ids).size === ids.length, ids.join());
  assert.equal((await client.models.retrieve("drupe")).type, "model");
});

check("core", "a message is answered in both versions", async () => {
  for (const options of [undefined, old]) {
    const answer = await ask("hello", {}, options);
    assert.equal(answer.stop_reason, "end_turn");
    assert.ok(answer.content[0].text && answer.usage.output_tokens >= 0);
  }
});

check("core", "a message streams", async () => {
  const events = await all(ask("hello", { stream: true }));
  assert.equal(events[0].type, "message_start");
  assert.ok(events[0].message.usage.input_tokens > 0);
  assert.deepEqual(events.slice(-2).map((event) => event.type), ["message_delta", "message_stop"]);
  assert.ok(await client.messages.stream(body("hello")).finalText());
});

check("core", "tokens are counted", async () => {
  const count = (text) => client.messages.countTokens({ model: MODEL, messages: said(text) });
  assert.ok((await count("word ".repeat(500))).input_tokens > (await count("word")).input_tokens);
});

check("core", "what cannot be done is refused", async () => {
  const bad = Anthropic.BadRequestError;
  await refused(bad, () => ask("hello", { temperature: 1 }), { type: "invalid_request_error" });
  assert.ok((await ask("hello", { temperature: 1 }, old)).content);
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } };
  await refused(bad, () => ask([image]));
  await refused(Anthropic.NotFoundError, () => ask("hello", { model: "no-such-agent" }), { status: 404 });
  const stranger = client.withOptions({ apiKey: "wrong" });
  await refused(Anthropic.AuthenticationError, () => stranger.models.list());
});

check("session", "a session is joined", async () => {
  assert.ok((await ask("hello", { metadata: { session: "clients-anthropic-node" } })).content);
});

check("tools", "a message calls the client's tools", async () => {
  const answer = await client.messages.stream(body("call the tool", { tools })).finalMessage();
  assert.equal(answer.stop_reason, "tool_use");
  const call = answer.content.find((block) => block.type === "tool_use");
  assert.ok(call.input.city);
  const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
  const { role, content } = answer;
  const messages = [...said("call the tool"), { role, content }, ...said([result])];
  assert.match((await ask("", { messages, tools })).content[0].text, /sunny/);
});

check("scripted", "each ending is told as what it is", async () => {
  await refused(Anthropic.InternalServerError, () => ask("fail"), { type: "api_error" });
  await refused(Anthropic.APIError, () => all(ask("fail", { stream: true })), { type: "api_error" });
  await refused(Anthropic.APIError, () => client.messages.stream(body("reworded")).finalMessage());
  assert.equal((await ask("refuse")).stop_reason, "refusal");
  assert.equal((await ask("cut")).stop_reason, "max_tokens");
  assert.match(await client.messages.stream(body("steps")).finalText(), /look\.\s+Paris\.$/);
});

await run();
