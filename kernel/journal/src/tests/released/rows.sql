-- Rows of every table in the form that each version of the journal gave them, for `released.rs`.
--
-- Versions 1 and 2 are not here: their dumps beside this folder were written by a program of those versions. What stands here was
-- made from the schema: it is what a kernel of that version writes, put down by hand. A line such as `-- versions 3..5` says to
-- which of them belongs what follows; without the second number, to all later ones. Whoever adds a version adds rows of what it adds.

-- versions 3..
INSERT INTO meta VALUES ('open', '1');
INSERT INTO sessions (number, id, created_ms, updated_ms, agent, title, turns)
    VALUES (1, 's', 1700000000000, 1700000000000, NULL, 'hello', 3);
INSERT INTO log VALUES (4294967297, 1, 1700000000000, 1, '[{"kind":"interaction.diagnostic","data":{"code":"test","message":"start"}}]',
    '[{"entry":"begin","invocation":"i-72000000000000000000000000000000","agent":"main","parent":null,"depth":0,"task":"hello"},{"entry":"step","invocation":"i-72000000000000000000000000000000","step":1,"attempt":1,"model":"offline/test","request_hash":"00","reserved_tokens":100},{"entry":"answer","invocation":"i-72000000000000000000000000000000","step":1,"message":{"role":"assistant","content":"hi"},"model":"offline/test","usage":{"input_tokens":10,"cached_tokens":0,"output_tokens":5,"reasoning_tokens":0},"cost_usd":null}]');
INSERT INTO log VALUES (4294967298, 1, 1700000000000, 1, '[{"kind":"interaction.diagnostic","data":{"code":"test","message":"done"}}]', NULL);
INSERT INTO log VALUES (4294967299, 2, 1700000000000, 1, '[{"kind":"interaction.diagnostic","data":{"code":"test","message":"again"}}]',
    '[{"entry":"begin","invocation":"i-73000000000000000000000000000000","agent":"main","parent":null,"depth":0,"task":"and again"}]');
INSERT INTO usage VALUES (19675, 1, 'main', '', 1, 0, 0, 0, 0, 0, 0, 0, 0.0);
INSERT INTO usage VALUES (19675, 1, 'main', 'offline/test', 0, 1, 10, 0, 5, 0, 0, 15, 0.0);
INSERT INTO followers VALUES ('agent:digest', 'news');
INSERT INTO messages VALUES (1, 'news', '"first"', '{"hops":1,"ancestors":[]}', 'c-1', 1700000000000);
INSERT INTO messages VALUES (2, 'news', '"second"', '{"hops":1,"ancestors":[]}', NULL, 1700000000000);
INSERT INTO deliveries (number, message, subscriber, dead, attempts, due_ms, why)
    VALUES (1, 1, 'agent:digest', 1, 5, 1700000000000, 'it was refused'), (2, 2, 'agent:digest', 0, 1, 1700000000000, NULL);
INSERT INTO restarts VALUES (1, 'why', 's', NULL, 1, 1700000000000, NULL);
INSERT INTO extension_states VALUES (1, 'kv', 1700000000000, 'awaiting_approval', 'native code');
INSERT INTO extension_settings VALUES ('files', 0), ('kv', 1);
INSERT INTO activations VALUES (1, 'kv', 'h1', '["native code"]', 'withdrawn', 1700000000000, NULL),
    (2, 'kv', 'h2', '["native code"]', 'allowed', 1700000000000, 1700000000000),
    (3, 'files', 'h1', '["native code"]', 'pending', 1700000000000, NULL);
INSERT INTO audit VALUES (1, 1700000000000, 'operator', 'extension.activate', 'kv', 'h2', 'allowed');

-- versions 3..5
INSERT INTO turns (number, id, session, channel, external_id, kind, queue, address, text, accepted_ms, after_seq, until_seq, starts,
        started_ms, finished_ms, root, correlation, response, spend, diagnostics)
    VALUES (1, '01a200ea-7301-75bb-827d-a2ca4d6014ec', 1, 'test', '1', 'user', 'followup', 'room', 'hello', 1700000000000, 0, 2, 1,
        1700000000000, 1700000000000, 'i-72000000000000000000000000000000', 'c-1', '{"status":"success","content":"hi"}',
        '{"usage":{"input_tokens":10,"cached_tokens":0,"output_tokens":5,"reasoning_tokens":0},"turns":1,"tool_calls":0,"invocations":1,"elapsed_ms":0}', '[]'),
    (2, '01a200ea-7304-7464-90bf-7b961eabeee6', 1, 'test', '2', 'user', 'followup', 'room', 'and again', 1700000000000, 2, NULL, 1,
        1700000000000, NULL, 'i-73000000000000000000000000000000', 'c-2', NULL, NULL, NULL),
    (3, '01a200ea-7307-7455-9865-5e1be1cc4223', 1, 'test', '3', 'user', 'followup', 'room', 'and more', 1700000000000, 3, NULL, 0,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO outbox (turn, channel, address, text, state, created_ms, updated_ms)
    VALUES (1, 'test', 'room', 'hi', 'due', 1700000000000, 1700000000000);

-- versions 4..
INSERT INTO let_go VALUES ('agent:digest', 4);

-- versions 6..
INSERT INTO turns (number, id, session, origin, channel, external_id, queue, address, text, accepted_ms, after_seq, until_seq, starts,
        started_ms, finished_ms, root, correlation, response, spend, diagnostics)
    VALUES (1, '01a200ea-7301-75bb-827d-a2ca4d6014ec', 1, 'operator', 'test', '1', 'followup', 'room', 'hello', 1700000000000, 0, 2, 1,
        1700000000000, 1700000000000, 'i-72000000000000000000000000000000', 'c-1', '{"status":"success","content":"hi"}',
        '{"usage":{"input_tokens":10,"cached_tokens":0,"output_tokens":5,"reasoning_tokens":0},"turns":1,"tool_calls":0,"invocations":1,"elapsed_ms":0}', '[]'),
    (2, '01a200ea-7304-7464-90bf-7b961eabeee6', 1, 'extension:test', 'test', '2', 'followup', 'room', 'and again', 1700000000000, 2, NULL, 1,
        1700000000000, NULL, 'i-73000000000000000000000000000000', 'c-2', NULL, NULL, NULL),
    (3, '01a200ea-7307-7455-9865-5e1be1cc4223', 1, 'operator', 'test', '3', 'followup', 'room', 'and more', 1700000000000, 3, NULL, 0,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO outbox (number, key, kind, session, turn, channel, address, text, state, why, created_ms, updated_ms)
    VALUES (1, '01a200ea-7301-75bb-827d-a2ca4d6014ec', 'answer', 1, 1, 'test', 'room', 'hi', 'due', NULL, 1700000000000, 1700000000000),
    (2, 'n-1', 'notice', 1, NULL, 'test', 'room', 'by the way', 'failed', 'the room is gone', 1700000000000, 1700000000000);
INSERT INTO tokens (name, hash, may, sessions, agents, created_ms)
    VALUES ('phone', 'sha256:00', '["read","submit"]', 'phone:', NULL, 1700000000000);

-- versions 7..
INSERT INTO questions (effect, turn, agent, tool, params, need, digest, state, asked_ms, expires_ms, answered_ms, answered_by)
    VALUES ('e-72000000000000000000000000000000', 2, 'main', 'shell_run', '{"command":"ls"}', 'it runs a command', 'd1', 'pending', 1700000000000,
        1700000600000, NULL, NULL),
    ('e-73000000000000000000000000000000', 1, 'main', 'shell_run', '{"command":"id"}', 'it runs a command', 'd2', 'denied', 1700000000000,
        1700000600000, 1700000000001, 'operator');

-- versions 8..
INSERT INTO recipes VALUES ('00ff', '{"agent":"main"}');
INSERT INTO recipe_uses VALUES ('00ff', 1);

-- versions 9..
INSERT INTO checkpoints VALUES (3, 4294967299, 0, 'of another release');

-- versions 11..
INSERT INTO grants VALUES (1, 1, 'main', 'shell_run ls', 0, 1700000000000, 'operator');
UPDATE sessions SET tainted_by = 'web_fetch';

-- versions 12..
INSERT INTO schedules (number, id, definition, timing, through_ms, failures, paused)
    VALUES (1, 'report', NULL, '0 8 * * *', 1700000000000, 5, 'it failed five times');
INSERT INTO schedule_runs VALUES (1, 1699999200000, NULL, 1, 'done', '01a200ea-7301-75bb-827d-a2ca4d6014ec', NULL, 1700000000000),
    (1, 1700000000000, NULL, 1, 'failed', NULL, 'no model', 1700000000000);

-- versions 14..
INSERT INTO images VALUES (1, 'ab', x'89504e47');
INSERT INTO image_uses VALUES (1, 'ab');

-- versions 17..
INSERT INTO summaries VALUES (1, 1, 1, 'They said hello.', 0);

-- versions 18..
INSERT INTO people VALUES ('test', '42', 'Ada', 'allowed', NULL, 1700000000000, 1, 1, 1700000000000, 1, NULL);
