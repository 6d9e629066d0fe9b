-- A turn that is to end without going on: why. Committed before whoever stopped it is answered.
ALTER TABLE turns ADD COLUMN cancelled TEXT;
-- The last position that was given, where the rows that show it were let go.
ALTER TABLE sessions ADD COLUMN least_seq INTEGER NOT NULL DEFAULT 0;
