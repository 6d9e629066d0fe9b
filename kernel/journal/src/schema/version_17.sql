-- What older turns of a session were summed up to. `made_in` is the turn that did, `up_to` the last one that is in it.
CREATE TABLE summaries (
    session INTEGER NOT NULL,
    made_in INTEGER NOT NULL,
    up_to INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (session, made_in)
) STRICT, WITHOUT ROWID;
