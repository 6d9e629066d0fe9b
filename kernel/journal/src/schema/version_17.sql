-- The agents that a session alone has, as JSON; null where it has none.
ALTER TABLE sessions ADD COLUMN personas TEXT;
