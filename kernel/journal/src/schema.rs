//! The tables, and how an older file becomes a newer one.
//!
//! | table | a row is | key |
//! |---|---|---|
//! | `meta` | a fact about the file: that a kernel has it open, how many turns were let go and what is left to remove of them, of which deleted sessions the log is left, what was settled when a backup was put back, when it was `upgraded` last, how many bytes a token of a model stands for | `key` |
//! | `sessions` | a conversation, the agent that its user chose, who has the `conversation` where that is not the orchestrator; positions of its log are given after `least_seq`. Of one that is deleted the row stays, with `!` and its number behind the id | `number`; `id` unique |
//! | `turns` | a message and what it sets off: queued until `started_ms`, begun `starts` times, open until `finished_ms`, and to end without going on where it is `cancelled`; then its response, spend and remarks. Its log is after `after_seq` and up to `until_seq` | `number`, in order of acceptance; `id` unique; (`origin`, `channel`, `external_id`) unique |
//! | `log` | what one commit recorded: events and entries of runs, as JSON arrays, and in place of an event that an entry tells of, which one that is; takes as many `positions` as it has events, at least one | session number × 2³² + position of its first event |
//! | `checkpoints` | what a turn without an answer needs of its log up to a row when it goes on, in the form of a `version` (`checkpoints.rs`) | `turn` |
//! | `usage` | sums of runs, model calls, tokens and cost | `day` (since 1970, UTC), `session`, `agent`, `model` |
//! | `outbox` | what goes out through a channel, the `answer` of a turn or a `notice`, which is a file where its key begins with `file:`, and whose `text` is then JSON: `due` → `sending` → `sent`, `uncertain` or `failed`, which are never left | `number`; `key` unique, which channels are told; one answer a `turn` |
//! | `followers` | a durable subscription | `subscriber`, `topic` |
//! | `messages` | a message of a topic, for as long as there is a delivery of it | `number` |
//! | `deliveries` | such a message on its way to one subscriber, waiting or `dead`; one that is dead may stand for all that were `cut` at its topic, the latest of which is its message | `number`, in order of publication |
//! | `let_go` | how many dead deliveries of a subscriber were let go, because there were too many | `subscriber` |
//! | `images` | the bytes of a picture that models were shown | `number`; `hash` of the bytes unique |
//! | `image_uses` | that a turn refers to it; without any it goes | `turn`, `hash` |
//! | `restarts` | a restart that was asked for, until it is consumed | `number` |
//! | `extension_states` | one step of an extension's life | `number` |
//! | `extension_settings` | an extension that the operator turned on or off, over its manifest | `extension` |
//! | `activations` | the operator's agreement to activate an extension: `pending` → `allowed` or `denied`, or `withdrawn`; never deleted, as its number is its name | `number`; (`extension`, `hash`) unique; one `pending` an extension |
//! | `tokens` | a named token of the control API: the hash of what its bearer shows, what they `may` do, the sessions and agents that they reach, all where none are named, and what may be used in those sessions | `name`; `hash` unique |
//! | `questions` | a question to a person about a tool call: `pending` → `allowed`, `denied`, `expired` or `withdrawn`, once | `effect`, the call's id |
//! | `schedules` | what is done at set times, with the definition of one that somebody added; its slots up to `through_ms` are settled | `number`; `id` unique |
//! | `schedule_runs` | what became of a slot: `waiting` → `running` → `done`, `failed` or `unknown`; or `missed` or `skipped`, and then perhaps several at once | `schedule`, `slot_ms` |
//! | `audit` | one answer of the operator: who, about what, with which content, and which | `number` |
//!
//! Times are milliseconds since 1970. The key of `log` keeps what a session recorded side by side and in order without
//! an index of its own.
//!
//! Versions only go forward: `upgrade.rs` takes the steps.

use rusqlite::Connection;

use crate::StoreError;

/// Marks a file as one of ours: "drup".
pub(crate) const APPLICATION_ID: i32 = 0x6472_7570;

/// What each version adds; the first makes an empty file version 1. Released steps are never changed.
pub(crate) const STEPS: &[&str] = &[
    "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    agent TEXT,
    title TEXT NOT NULL DEFAULT '',
    turns INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE turns (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES sessions (number),
    after_seq INTEGER NOT NULL,
    started_ms INTEGER,
    finished_ms INTEGER,
    root TEXT,
    correlation TEXT,
    response TEXT,
    spend TEXT,
    diagnostics TEXT,
    snapshot BLOB
) STRICT;
CREATE INDEX turns_of_session ON turns (session, number);
CREATE INDEX turns_open ON turns (number) WHERE finished_ms IS NULL;

CREATE TABLE inbox (
    turn INTEGER PRIMARY KEY REFERENCES turns (number),
    channel TEXT NOT NULL,
    external_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    address TEXT,
    text TEXT NOT NULL,
    agent TEXT,
    model TEXT,
    output TEXT,
    time_budget_ms INTEGER,
    accepted_ms INTEGER NOT NULL,
    UNIQUE (channel, external_id)
) STRICT;

CREATE TABLE invocations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    turn TEXT NOT NULL,
    agent TEXT NOT NULL,
    parent TEXT,
    depth INTEGER NOT NULL
) STRICT;
CREATE INDEX invocations_of_turn ON invocations (turn, number);

CREATE TABLE entries (
    number INTEGER PRIMARY KEY,
    invocation TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX entries_of_invocation ON entries (invocation, number);

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES sessions (number),
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
CREATE INDEX outbox_open ON outbox (state, number) WHERE state IN ('due', 'sending');

CREATE TABLE restarts (
    number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    session TEXT,
    turn TEXT,
    unattended INTEGER NOT NULL,
    requested_ms INTEGER NOT NULL,
    consumed_ms INTEGER
) STRICT;

CREATE TABLE extension_states (
    number INTEGER PRIMARY KEY,
    extension TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT
) STRICT;
CREATE INDEX states_of_extension ON extension_states (extension, number);
",
    "
ALTER TABLE turns ADD COLUMN starts INTEGER NOT NULL DEFAULT 0;
UPDATE turns SET starts = 1 WHERE started_ms IS NOT NULL;

CREATE TABLE extension_settings (
    extension TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE activations (
    number INTEGER PRIMARY KEY,
    extension TEXT NOT NULL,
    hash TEXT NOT NULL,
    needs TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'allowed', 'denied', 'withdrawn')),
    asked_ms INTEGER NOT NULL,
    answered_ms INTEGER,
    UNIQUE (extension, hash)
) STRICT;
CREATE UNIQUE INDEX activations_pending ON activations (extension) WHERE state = 'pending';

CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    hash TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
",
    include_str!("schema/version_3.sql"),
    include_str!("schema/version_4.sql"),
    include_str!("schema/version_5.sql"),
    include_str!("schema/version_6.sql"),
    include_str!("schema/version_7.sql"),
    include_str!("schema/version_8.sql"),
    include_str!("schema/version_9.sql"),
    include_str!("schema/version_10.sql"),
    include_str!("schema/version_11.sql"),
    include_str!("schema/version_12.sql"),
    include_str!("schema/version_13.sql"),
    include_str!("schema/version_14.sql"),
    include_str!("schema/version_15.sql"),
    include_str!("schema/version_16.sql"),
    include_str!("schema/version_17.sql"),
    include_str!("schema/version_18.sql"),
];

/// The version that this release reads and writes.
pub fn version() -> u32 {
    number(STEPS)
}

/// The version of a file; 0 for one without tables.
pub(crate) fn version_of(db: &Connection) -> Result<u32, StoreError> {
    Ok(db.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

pub(crate) fn number(steps: &[&str]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX)
}
