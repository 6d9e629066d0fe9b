-- By which tool text of strangers came into a session; none where none did.
ALTER TABLE sessions ADD COLUMN tainted_by TEXT;
-- Which calls an answer for the rest of the session is about, where there can be one, and whether it is asked for what
-- strangers wrote.
ALTER TABLE questions ADD COLUMN about TEXT;
ALTER TABLE questions ADD COLUMN for_taint INTEGER NOT NULL DEFAULT 0;
-- What was allowed for the rest of a session. To take one back is to delete it.
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
