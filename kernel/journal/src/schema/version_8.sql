-- What runs are made of, once for each content, and the last turn that began a run of it: it leaves with that.
CREATE TABLE recipes (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE recipe_uses (
    hash TEXT PRIMARY KEY,
    last_turn INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
