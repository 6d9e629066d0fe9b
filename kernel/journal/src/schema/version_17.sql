-- What older turns of a session were summed up to. `made_in` is the turn that did, `up_to` the last one that is in it. Where
-- nothing came of it, which `failed` says, both are those of before.
CREATE TABLE summaries (
    session INTEGER NOT NULL,
    made_in INTEGER NOT NULL,
    up_to INTEGER NOT NULL,
    text TEXT NOT NULL,
    failed INTEGER NOT NULL CHECK (failed IN (0, 1)),
    PRIMARY KEY (session, made_in)
) STRICT, WITHOUT ROWID;
