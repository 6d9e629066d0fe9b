-- What the tool says that the call would change, as JSON; none where it does not say.
ALTER TABLE questions ADD COLUMN preview TEXT;
