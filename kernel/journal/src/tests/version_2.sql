-- A journal as version 2 wrote it: one finished turn, one that was begun twice, one that waits, one restart; one
-- extension turned on and one off; one activation withdrawn, one agreed to and one that waits.
PRAGMA foreign_keys = OFF;
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1685222768;
PRAGMA user_version = 2;
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
INSERT INTO "activations" VALUES(1,'kv','h1','["native code"]','withdrawn',1700000000000,NULL);
INSERT INTO "activations" VALUES(2,'kv','h2','["native code"]','allowed',1700000000000,1700000000000);
INSERT INTO "activations" VALUES(3,'files','h1','["native code"]','pending',1700000000000,NULL);
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    hash TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
INSERT INTO "audit" VALUES(1,1700000000000,'operator','extension.activate','kv','h2','allowed');
CREATE TABLE entries (
    number INTEGER PRIMARY KEY,
    invocation TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
INSERT INTO "entries" VALUES(1,'root','{"entry":"begin","invocation":"root","agent":"main","parent":null,"depth":0,"task":"hello"}');
INSERT INTO "entries" VALUES(2,'root','{"entry":"step","invocation":"root","step":1,"attempt":1,"model":"offline/test","request_hash":"00","reserved_tokens":100}');
INSERT INTO "entries" VALUES(3,'root','{"entry":"answer","invocation":"root","step":1,"message":{"role":"assistant","content":"hi"},"model":"offline/test","usage":{"input_tokens":10,"cached_tokens":0,"output_tokens":5,"reasoning_tokens":0},"cost_usd":null}');
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;
INSERT INTO "events" VALUES(4294967297,'{"seq":1,"time":"2023-11-14T22:13:20Z","session":"s","turn":"01a200ea-7301-75bb-827d-a2ca4d6014ec","correlation_id":"c-1","kind":"interaction.diagnostic","data":{"code":"test","message":"start"}}');
INSERT INTO "events" VALUES(4294967298,'{"seq":2,"time":"2023-11-14T22:13:20Z","session":"s","turn":"01a200ea-7301-75bb-827d-a2ca4d6014ec","correlation_id":"c-1","kind":"interaction.diagnostic","data":{"code":"test","message":"done"}}');
CREATE TABLE extension_settings (
    extension TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;
INSERT INTO "extension_settings" VALUES('files',0);
INSERT INTO "extension_settings" VALUES('kv',1);
CREATE TABLE extension_states (
    number INTEGER PRIMARY KEY,
    extension TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT
) STRICT;
INSERT INTO "extension_states" VALUES(1,'kv',1700000000000,'awaiting_approval','native code');
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
INSERT INTO "inbox" VALUES(1,'test','1','user','room','hello',NULL,NULL,NULL,NULL,1700000000000);
INSERT INTO "inbox" VALUES(2,'test','2','user','room','and again',NULL,NULL,NULL,NULL,1700000000000);
INSERT INTO "inbox" VALUES(3,'test','3','user','room','and more',NULL,NULL,NULL,NULL,1700000000000);
CREATE TABLE invocations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    turn TEXT NOT NULL,
    agent TEXT NOT NULL,
    parent TEXT,
    depth INTEGER NOT NULL
) STRICT;
INSERT INTO "invocations" VALUES(1,'root','01a200ea-7301-75bb-827d-a2ca4d6014ec','main',NULL,0);
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
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
INSERT INTO "outbox" VALUES(1,'01a200ea-7301-75bb-827d-a2ca4d6014ec',1,'test','room','hi','due',0,NULL,NULL,1700000000000,1700000000000);
CREATE TABLE restarts (
    number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    session TEXT,
    turn TEXT,
    unattended INTEGER NOT NULL,
    requested_ms INTEGER NOT NULL,
    consumed_ms INTEGER
) STRICT;
INSERT INTO "restarts" VALUES(1,'why','s',NULL,1,1700000000000,NULL);
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
INSERT INTO "sessions" VALUES(1,'s',1700000000000,1700000000000,NULL,'hello',3,2);
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
, starts INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "turns" VALUES(1,'01a200ea-7301-75bb-827d-a2ca4d6014ec',1,0,1700000000000,1700000000000,'root','c-1','{"status":"success","content":"hi"}','{"usage":{"input_tokens":0,"cached_tokens":0,"output_tokens":0,"reasoning_tokens":0},"turns":1,"tool_calls":0,"invocations":0,"elapsed_ms":0}','[]',X'6869',1);
INSERT INTO "turns" VALUES(2,'01a200ea-7304-7464-90bf-7b961eabeee6',1,2,1700000000000,NULL,'root-2','c-1',NULL,NULL,NULL,NULL,2);
INSERT INTO "turns" VALUES(3,'01a200ea-7307-7455-9865-5e1be1cc4223',1,2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
CREATE INDEX turns_of_session ON turns (session, number);
CREATE INDEX turns_open ON turns (number) WHERE finished_ms IS NULL;
CREATE INDEX invocations_of_turn ON invocations (turn, number);
CREATE INDEX entries_of_invocation ON entries (invocation, number);
CREATE INDEX outbox_open ON outbox (state, number) WHERE state IN ('due', 'sending');
CREATE INDEX states_of_extension ON extension_states (extension, number);
CREATE UNIQUE INDEX activations_pending ON activations (extension) WHERE state = 'pending';
