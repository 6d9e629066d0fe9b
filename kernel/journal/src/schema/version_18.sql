-- People who wrote through channels whose senders are to be known. Of those who wait, `code` is what they were shown, `shown` how
-- often, and `codes` how many they have had within a day; of those who were answered, `answered_ms` is when.
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
