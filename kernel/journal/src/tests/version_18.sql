-- A journal as version 18 makes it, without content.
PRAGMA foreign_keys = OFF;
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1685222768;
PRAGMA user_version = 18;
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
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    hash TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
CREATE TABLE checkpoints (
    turn INTEGER PRIMARY KEY,
    upto INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0 CHECK (dead IN (0, 1)),
    attempts INTEGER NOT NULL DEFAULT 0,
    due_ms INTEGER NOT NULL,
    why TEXT
, cut INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE extension_settings (
    extension TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE TABLE extension_states (
    number INTEGER PRIMARY KEY,
    extension TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT
) STRICT;
CREATE TABLE followers (
    subscriber TEXT NOT NULL,
    topic TEXT NOT NULL,
    PRIMARY KEY (subscriber, topic)
) STRICT, WITHOUT ROWID;
CREATE TABLE grants (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions (number),
    agent TEXT NOT NULL,
    about TEXT NOT NULL,
    for_taint INTEGER NOT NULL,
    given_ms INTEGER NOT NULL,
    given_by TEXT NOT NULL,
    UNIQUE (session, agent, about)
) STRICT;
CREATE TABLE image_uses (
    turn INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (turn, hash)
) STRICT, WITHOUT ROWID;
CREATE TABLE images (
    number INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE let_go (
    subscriber TEXT PRIMARY KEY,
    messages INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    turn INTEGER,
    time_ms INTEGER NOT NULL,
    positions INTEGER NOT NULL,
    events TEXT,
    entries TEXT
) STRICT;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    payload TEXT NOT NULL,
    chain TEXT NOT NULL,
    correlation TEXT,
    published_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
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
CREATE TABLE people (
    channel TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'allowed', 'denied')),
    code TEXT UNIQUE,
    asked_ms INTEGER NOT NULL,
    shown INTEGER NOT NULL DEFAULT 1,
    codes INTEGER NOT NULL DEFAULT 1,
    answered_ms INTEGER,
    may_approve INTEGER NOT NULL DEFAULT 0 CHECK (may_approve IN (0, 1)),
    per_day TEXT,
    PRIMARY KEY (channel, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE questions (
    effect TEXT PRIMARY KEY,
    turn INTEGER NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    params TEXT NOT NULL,
    need TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'allowed', 'denied', 'expired', 'withdrawn')),
    asked_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    answered_ms INTEGER,
    answered_by TEXT
, about TEXT, for_taint INTEGER NOT NULL DEFAULT 0, preview TEXT, given TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE recipe_uses (
    hash TEXT PRIMARY KEY,
    last_turn INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE recipes (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE restarts (
    number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    session TEXT,
    turn TEXT,
    unattended INTEGER NOT NULL,
    requested_ms INTEGER NOT NULL,
    consumed_ms INTEGER
) STRICT;
CREATE TABLE schedule_runs (
    schedule INTEGER NOT NULL REFERENCES schedules (number),
    slot_ms INTEGER NOT NULL,
    last_slot_ms INTEGER,
    slots INTEGER NOT NULL,
    state TEXT NOT NULL,
    turn TEXT,
    detail TEXT,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (schedule, slot_ms)
) STRICT, WITHOUT ROWID;
CREATE TABLE schedules (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    definition TEXT,
    timing TEXT NOT NULL,
    through_ms INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    held_until_ms INTEGER,
    paused TEXT
) STRICT;
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    agent TEXT,
    title TEXT NOT NULL DEFAULT '',
    turns INTEGER NOT NULL DEFAULT 0, least_seq INTEGER NOT NULL DEFAULT 0, tainted_by TEXT, conversation TEXT, snapshot TEXT, personas TEXT) STRICT;
CREATE TABLE summaries (
    session INTEGER NOT NULL,
    made_in INTEGER NOT NULL,
    up_to INTEGER NOT NULL,
    text TEXT NOT NULL,
    failed INTEGER NOT NULL CHECK (failed IN (0, 1)),
    PRIMARY KEY (session, made_in)
) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    may TEXT NOT NULL,
    sessions TEXT,
    agents TEXT,
    created_ms INTEGER NOT NULL
, per_day TEXT, per_day_each TEXT) STRICT, WITHOUT ROWID;
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
    diagnostics TEXT, carried TEXT,
    UNIQUE (origin, channel, external_id)
) STRICT;
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
CREATE UNIQUE INDEX activations_pending ON activations (extension) WHERE state = 'pending';
CREATE INDEX deliveries_dead ON deliveries (subscriber, message) WHERE dead = 1;
CREATE INDEX deliveries_of_message ON deliveries (message);
CREATE INDEX deliveries_waiting ON deliveries (subscriber, number) WHERE dead = 0;
CREATE INDEX outbox_open ON outbox (number) WHERE state IN ('due', 'sending');
CREATE INDEX questions_of_turn ON questions (turn);
CREATE INDEX schedule_runs_open ON schedule_runs (schedule) WHERE state IN ('waiting', 'running');
CREATE INDEX states_of_extension ON extension_states (extension, number);
CREATE INDEX turns_of_session ON turns (session, number);
CREATE INDEX turns_open ON turns (number) WHERE finished_ms IS NULL;
CREATE INDEX usage_of_session ON usage (session);
CREATE INDEX uses_of_image ON image_uses (hash);
