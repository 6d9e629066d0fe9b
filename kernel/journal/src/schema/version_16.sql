-- What the turns of a session have made use of, as JSON: a later turn tells what of it is not what it was.
ALTER TABLE sessions ADD COLUMN snapshot TEXT;
