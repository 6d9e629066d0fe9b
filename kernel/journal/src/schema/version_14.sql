-- What a person filled in with their answer, as the text of a JSON object without secrets; none where nothing was asked for.
ALTER TABLE questions ADD COLUMN given TEXT;
-- The bytes of a picture that models were shown, once for each content; and which turns refer to it.
CREATE TABLE images (
    number INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE image_uses (
    turn INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (turn, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX uses_of_image ON image_uses (hash);
