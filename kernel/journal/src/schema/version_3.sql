-- A turn and the message that set it off are one row: they are written together and read together.
ALTER TABLE turns RENAME TO turns_2;
DROP INDEX turns_of_session;
DROP INDEX turns_open;
CREATE TABLE turns (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    channel TEXT NOT NULL,
    external_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    address TEXT,
    text TEXT NOT NULL,
    agent TEXT,
    model TEXT,
    output TEXT,
    time_budget_ms INTEGER,
    chain TEXT,
    accepted_ms INTEGER NOT NULL,
    after_seq INTEGER NOT NULL,
    until_seq INTEGER,
    starts INTEGER NOT NULL DEFAULT 0,
    started_ms INTEGER,
    finished_ms INTEGER,
    root TEXT,
    correlation TEXT,
    response TEXT,
    spend TEXT,
    diagnostics TEXT,
    snapshot BLOB,
    UNIQUE (channel, external_id)
) STRICT;
INSERT INTO turns
SELECT turns_2.number, turns_2.id, session, channel, external_id, iif(kind = 'kernel', 'user', kind), 'followup',
       address, text, agent, model, output, time_budget_ms, NULL, accepted_ms, after_seq, NULL, starts, started_ms,
       finished_ms, root, correlation, response, spend, diagnostics, snapshot
FROM turns_2 JOIN inbox ON inbox.turn = turns_2.number;
DROP TABLE inbox;
DROP TABLE turns_2;
CREATE INDEX turns_of_session ON turns (session, number);
CREATE INDEX turns_open ON turns (number) WHERE finished_ms IS NULL;

-- What one commit recorded is one row: its events and its entries, as JSON arrays.
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    turn INTEGER,
    time_ms INTEGER NOT NULL,
    positions INTEGER NOT NULL,
    events TEXT,
    entries TEXT
) STRICT;
INSERT INTO log
SELECT events.id, turns.number, CAST(round(unixepoch(body ->> 'time', 'subsec') * 1000) AS INTEGER), 1,
       '[' || body || ']', NULL
FROM events LEFT JOIN turns ON turns.id = body ->> 'turn';
-- The first event of a turn was always committed before its first entry.
WITH first AS (SELECT turn, min(id) AS id FROM log WHERE turn IS NOT NULL GROUP BY turn),
     whole AS (
         SELECT first.id, '[' || group_concat(entries.body, ',' ORDER BY entries.number) || ']' AS entries
         FROM entries JOIN invocations ON invocations.id = entries.invocation
         JOIN turns ON turns.id = invocations.turn JOIN first ON first.turn = turns.number
         GROUP BY first.id)
UPDATE log SET entries = whole.entries FROM whole WHERE whole.id = log.id;
UPDATE turns SET until_seq = span.last FROM
    (SELECT turn, max(id) & 4294967295 AS last FROM log WHERE turn IS NOT NULL GROUP BY turn) AS span
WHERE span.turn = turns.number AND finished_ms IS NOT NULL;
DROP TABLE events;
ALTER TABLE sessions DROP COLUMN last_seq;

-- What was used: sums that no restart begins anew. Runs of agents count under no model.
CREATE TABLE usage (
    day INTEGER NOT NULL,
    session INTEGER NOT NULL,
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    invocations INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    lost_tokens INTEGER NOT NULL,
    unpriced_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    PRIMARY KEY (day, session, agent, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_of_session ON usage (session);
INSERT INTO usage
SELECT coalesce(started_ms, accepted_ms) / 86400000, session, invocations.agent, '', count(*), 0, 0, 0, 0, 0, 0, 0, 0
FROM invocations JOIN turns ON turns.id = invocations.turn
GROUP BY 1, 2, 3;
INSERT INTO usage
SELECT coalesce(started_ms, accepted_ms) / 86400000, session, invocations.agent, body ->> 'model', 0, count(*),
       sum(body -> 'usage' ->> 'input_tokens'), sum(body -> 'usage' ->> 'cached_tokens'),
       sum(body -> 'usage' ->> 'output_tokens'), sum(body -> 'usage' ->> 'reasoning_tokens'), 0,
       sum(iif(body ->> 'cost_usd' IS NULL,
               (body -> 'usage' ->> 'input_tokens') + (body -> 'usage' ->> 'output_tokens'), 0)),
       total(body ->> 'cost_usd')
FROM entries JOIN invocations ON invocations.id = entries.invocation JOIN turns ON turns.id = invocations.turn
WHERE body ->> 'entry' = 'answer'
GROUP BY 1, 2, 3, 4;
DROP TABLE entries;
DROP TABLE invocations;

-- A turn has one answer, so the answer's delivery has the number of its turn.
ALTER TABLE outbox RENAME TO outbox_2;
DROP INDEX outbox_open;
CREATE TABLE outbox (
    turn INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    address TEXT,
    text TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'sending', 'sent', 'uncertain')),
    attempts INTEGER NOT NULL DEFAULT 0,
    remote_id TEXT,
    why TEXT,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;
INSERT INTO outbox
SELECT turns.number, outbox_2.channel, outbox_2.address, outbox_2.text, state, attempts, remote_id, why, created_ms,
       updated_ms
FROM outbox_2 JOIN turns ON turns.id = outbox_2.key;
DROP TABLE outbox_2;
CREATE INDEX outbox_open ON outbox (turn) WHERE state IN ('due', 'sending');

-- Durable topics. Numbers are not given twice, so that a reader can tell a message that comes again.
CREATE TABLE followers (
    subscriber TEXT NOT NULL,
    topic TEXT NOT NULL,
    PRIMARY KEY (subscriber, topic)
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    payload TEXT NOT NULL,
    chain TEXT NOT NULL,
    correlation TEXT,
    published_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0 CHECK (dead IN (0, 1)),
    attempts INTEGER NOT NULL DEFAULT 0,
    due_ms INTEGER NOT NULL,
    why TEXT
) STRICT;
CREATE INDEX deliveries_waiting ON deliveries (subscriber, number) WHERE dead = 0;
CREATE INDEX deliveries_dead ON deliveries (number) WHERE dead = 1;
CREATE INDEX deliveries_of_message ON deliveries (message);
