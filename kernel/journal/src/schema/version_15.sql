-- Who talks with the user, where that is not simply the orchestrator: the state of a handoff, as JSON.
ALTER TABLE sessions ADD COLUMN conversation TEXT;
