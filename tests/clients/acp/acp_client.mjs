// An editor made of the official SDK, against the command that is given as arguments.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

import * as acp from "@agentclientprotocol/sdk";

const [command, ...args] = process.argv.slice(2);
const cwd = process.cwd();
const text = (text) => [{ type: "text", text }];

/** Runs an editor to its end: what it does is given the connection and the updates that came. */
async function editor(run) {
  const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.once("exit", resolve));
  const updates = [];
  const client = acp
    .client({ name: "drupe-test" })
    .onRequest("session/request_permission", ({ params }) => {
      const allow = params.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: allow.optionId } };
    })
    .onNotification("session/update", ({ params }) => void updates.push(params.update));
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const result = await client.connectWith(stream, async (connection) => {
    const hello = await connection.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
    assert.equal(hello.protocolVersion, acp.PROTOCOL_VERSION ?? 1);
    assert.ok(hello.agentCapabilities.loadSession);
    assert.ok(hello.agentCapabilities.sessionCapabilities.resume);
    assert.equal(hello.authMethods[0].id, "token");
    return run(connection, updates);
  });
  agent.stdin.end();
  assert.equal(await ended, 0, "the program ends well");
  return result;
}

/** All text of chunks of one kind. */
const said = (updates, kind) =>
  updates
    .filter((update) => update.sessionUpdate === kind)
    .map((update) => update.content.text)
    .join("");

const refused = async (call, code) =>
  assert.rejects(call, (error) => (assert.equal(error.code, code, String(error)), true));

const first = await editor(async (connection, updates) => {
  const made = await connection.request("session/new", { cwd, mcpServers: [] });
  assert.equal(made.modes.currentModeId, "drupe");
  assert.equal(made.configOptions[0].id, "agent");
  const { sessionId } = made;
  const ended = await connection.request("session/prompt", { sessionId, prompt: text("hello") });
  assert.equal(ended.stopReason, "end_turn");
  const answer = said(updates, "agent_message_chunk");
  assert.ok(answer.length > 0, "it answers");
  assert.ok(updates.some((update) => update.sessionUpdate === "available_commands_update"));
  const chosen = await connection.request("session/set_config_option", { sessionId, configId: "agent", value: "drupe" });
  assert.equal(chosen.configOptions[0].currentValue, "drupe");
  await connection.request("session/set_mode", { sessionId, modeId: "drupe" });
  await refused(connection.request("session/load", { sessionId: "acp:none", cwd, mcpServers: [] }), -32002);
  await refused(connection.request("session/prompt", { sessionId, prompt: [] }), -32602);
  await refused(connection.request("session/none", {}), -32601);
  const prompt = connection.request("session/prompt", { sessionId, prompt: text("take your time") });
  await connection.notify("session/cancel", { sessionId });
  const stopped = await prompt;
  assert.ok(["cancelled", "end_turn"].includes(stopped.stopReason), stopped.stopReason);
  return { sessionId, answer, stopped: stopped.stopReason };
});

await editor(async (connection, updates) => {
  const { sessionId, answer } = first;
  const { sessions } = await connection.request("session/list", {});
  assert.ok(sessions.some((session) => session.sessionId === sessionId));
  await connection.request("session/load", { sessionId, cwd, mcpServers: [] });
  assert.ok(said(updates, "user_message_chunk").startsWith("hello"), "messages are shown again");
  assert.ok(said(updates, "agent_message_chunk").startsWith(answer), "answers are shown again");
  await connection.request("session/close", { sessionId });
  await connection.request("session/resume", { sessionId, cwd, mcpServers: [] });
  const ended = await connection.request("session/prompt", { sessionId, prompt: text("again") });
  assert.equal(ended.stopReason, "end_turn");
});

console.log(`ok: ${first.sessionId}, the prompt that was taken back ended with ${first.stopped}`);
