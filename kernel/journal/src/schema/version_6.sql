-- What set a turn off is a column of its own, and what makes a message unique together with the source's own id. Until
-- here it was in the beginnings of ids: `bus:` for a topic, `<extension>:` for an extension that is no channel.
DROP INDEX turns_of_session;
DROP INDEX turns_open;
ALTER TABLE turns RENAME TO turns_5;
CREATE TABLE turns (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    origin TEXT NOT NULL,
    channel TEXT NOT NULL,
    external_id TEXT NOT NULL,
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
    cancelled TEXT,
    response TEXT,
    spend TEXT,
    diagnostics TEXT,
    UNIQUE (origin, channel, external_id)
) STRICT;
WITH known AS (
    SELECT turns_5.*, CASE
           WHEN sessions.id GLOB '[a-z0-9]*:*'
                AND substr(sessions.id, 1, instr(sessions.id, ':') - 1) NOT GLOB '*[^a-z0-9_-]*'
                AND instr(sessions.id, ':') <= 49
               THEN substr(sessions.id, 1, instr(sessions.id, ':') - 1)
           ELSE '' END AS extension
    FROM turns_5 JOIN sessions ON sessions.number = turns_5.session)
INSERT INTO turns
SELECT number, id, session,
       CASE
           WHEN kind = 'event' AND agent IS NOT NULL THEN 'topic:' || agent
           WHEN extension <> '' AND (channel = extension
                OR (channel = '' AND substr(external_id, 1, length(extension) + 1) = extension || ':'))
               THEN 'extension:' || extension
           ELSE 'operator'
       END,
       channel,
       CASE
           WHEN kind = 'event' AND agent IS NOT NULL AND external_id LIKE 'bus:%' THEN substr(external_id, 5)
           WHEN kind <> 'event' AND extension <> '' AND channel = ''
                AND substr(external_id, 1, length(extension) + 1) = extension || ':'
               THEN substr(external_id, length(extension) + 2)
           ELSE external_id
       END,
       queue, address, text, agent, model, output, time_budget_ms, chain, accepted_ms, after_seq, until_seq, starts,
       started_ms, finished_ms, root, correlation, cancelled, response, spend, diagnostics
FROM known ORDER BY number;
DROP TABLE turns_5;
CREATE INDEX turns_of_session ON turns (session, number);
CREATE INDEX turns_open ON turns (number) WHERE finished_ms IS NULL;

-- What goes out has a key of its own: a turn has one answer, and a notice has no turn.
DROP INDEX outbox_open;
ALTER TABLE outbox RENAME TO outbox_5;
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('answer', 'notice')),
    session INTEGER NOT NULL,
    turn INTEGER UNIQUE,
    channel TEXT NOT NULL,
    address TEXT,
    text TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'sending', 'sent', 'uncertain', 'failed')),
    attempts INTEGER NOT NULL DEFAULT 0,
    remote_id TEXT,
    why TEXT,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;
INSERT INTO outbox
SELECT turn, turns.id, 'answer', turns.session, turn, outbox_5.channel, outbox_5.address, outbox_5.text, state, attempts,
       remote_id, why, created_ms, updated_ms
FROM outbox_5 JOIN turns ON turns.number = outbox_5.turn ORDER BY turn;
DROP TABLE outbox_5;
CREATE INDEX outbox_open ON outbox (number) WHERE state IN ('due', 'sending');

-- Named tokens of the control API, by the hash of what their bearers show.
CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    may TEXT NOT NULL,
    sessions TEXT,
    agents TEXT,
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
