-- What the turns of a session have made use of, as JSON: a later turn tells what of it is not what it was.
ALTER TABLE sessions ADD COLUMN snapshot TEXT;
-- The agents that a session alone has, as JSON; null where it has none.
ALTER TABLE sessions ADD COLUMN personas TEXT;
