// The official OpenAI client for Node against a door of drupe. See README.md.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { KEY, MODEL, TOOL, URL, all, check, refused, run } from "./checks.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: KEY, maxRetries: 0 });
const model = MODEL;
const said = (content) => [{ role: "user", content }];
const chat = (text, more) => client.chat.completions.create({ model, messages: said(text), ...more });
const weather = { name: "weather", description: "Tells the weather.", parameters: TOOL };

check("core", "models are listed", async () => {
  const ids = (await all(client.models.list())).map((each) => each.id);
  assert.ok(ids.includes("drupe"), ids.join());
  assert.equal((await client.models.retrieve("drupe")).object, "model");
});

check("core", "a chat is answered", async () => {
  const answer = await chat("hello");
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.choices[0].message.content && answer.usage.total_tokens >= 0);
});

check("core", "a chat streams", async () => {
  const chunks = await all(chat("hello", { stream: true, stream_options: { include_usage: true } }));
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.ok(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""));
  assert.ok(chunks.at(-1).usage.total_tokens >= 0);
  const helper = client.chat.completions.stream({ model, messages: said("hello") });
  assert.ok(await helper.finalContent());
});

check("core", "what cannot be done is refused by name", async () => {
  await refused(OpenAI.BadRequestError, () => chat("hello", { n: 2 }), { param: "n" });
  const image = [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }];
  await refused(OpenAI.BadRequestError, () => chat(image), { param: "messages[0].content[0].type" });
  const missing = { code: "model_not_found", status: 404 };
  await refused(OpenAI.NotFoundError, () => chat("hello", { model: "no-such-agent" }), missing);
  const stranger = client.withOptions({ apiKey: "wrong" });
  await refused(OpenAI.AuthenticationError, () => stranger.models.list(), { code: "invalid_api_key" });
});

check("core", "a response is given", async () => {
  const answer = await client.responses.create({ model, input: "hello" });
  assert.equal(answer.status, "completed");
  assert.ok(answer.output_text);
});

check("core", "a response streams", async () => {
  const events = await all(client.responses.create({ model, input: "hello", stream: true }));
  assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
  assert.equal(events.at(-1).type, "response.completed");
  assert.ok((await client.responses.stream({ model, input: "hello" }).finalResponse()).output_text);
});

check("session", "a session is joined", async () => {
  const metadata = { session: "clients-openai-node" };
  const first = await client.responses.create({ model, input: "hello", metadata });
  const next = client.responses.create({ model, input: "again", previous_response_id: first.id });
  assert.equal((await next).previous_response_id, first.id);
});

check("tools", "a chat calls the client's tools", async () => {
  const tools = [{ type: "function", function: weather }];
  const helper = client.chat.completions.stream({ model, messages: said("call the tool"), tools });
  const { message, finish_reason } = (await helper.finalChatCompletion()).choices[0];
  assert.equal(finish_reason, "tool_calls");
  const [call] = message.tool_calls;
  assert.ok(JSON.parse(call.function.arguments).city);
  const result = { role: "tool", tool_call_id: call.id, content: "sunny" };
  const messages = [...said("call the tool"), message, result];
  const answer = await client.chat.completions.create({ model, messages, tools });
  assert.match(answer.choices[0].message.content, /sunny/);
});

check("tools", "a response calls the client's tools", async () => {
  const tools = [{ type: "function", strict: true, ...weather }];
  const answer = await client.responses.stream({ model, input: "call the tool", tools }).finalResponse();
  const call = answer.output.find((item) => item.type === "function_call");
  const result = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
  const input = [...said("call the tool"), ...answer.output, result];
  assert.match((await client.responses.create({ model, input, tools })).output_text, /sunny/);
});

check("scripted", "each ending is told as what it is", async () => {
  await refused(OpenAI.InternalServerError, () => chat("fail"));
  await refused(OpenAI.APIError, () => all(chat("fail", { stream: true })));
  await refused(OpenAI.APIError, () => all(chat("reworded", { stream: true })));
  const stream = (input) => client.responses.stream({ model, input }).finalResponse();
  assert.equal((await stream("fail")).status, "failed");
  assert.equal((await stream("reworded")).output_text, "In France.");
  assert.equal((await stream("refuse")).output[0].content[0].type, "refusal");
  assert.equal((await stream("cut")).incomplete_details.reason, "max_output_tokens");
  assert.deepEqual((await stream("steps")).output.map((item) => item.phase), ["commentary", "final_answer"]);
});

await run();
