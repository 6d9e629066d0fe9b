-- Questions to a person about tool calls. Their key is the call's own id, which no other call ever has.
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
) STRICT, WITHOUT ROWID;
CREATE INDEX questions_of_turn ON questions (turn);
