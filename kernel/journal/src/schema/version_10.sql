-- What may be used in the sessions of a token in a day, and in those of each name behind it; as JSON, none for no bound.
ALTER TABLE tokens ADD COLUMN per_day TEXT;
ALTER TABLE tokens ADD COLUMN per_day_each TEXT;
