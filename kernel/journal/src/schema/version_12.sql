-- What is done at set times. One with a definition was added by somebody; that of the others is read from their extension.
-- Its slots up to `through_ms` are settled, whatever the clock says.
CREATE TABLE schedules (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    definition TEXT,
    timing TEXT NOT NULL,
    through_ms INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    held_until_ms INTEGER,
    paused TEXT
) STRICT;
-- What became of a slot, or of several that were missed together.
CREATE TABLE schedule_runs (
    schedule INTEGER NOT NULL REFERENCES schedules (number),
    slot_ms INTEGER NOT NULL,
    last_slot_ms INTEGER,
    slots INTEGER NOT NULL,
    state TEXT NOT NULL,
    turn TEXT,
    detail TEXT,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (schedule, slot_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_runs_open ON schedule_runs (schedule) WHERE state IN ('waiting', 'running');
