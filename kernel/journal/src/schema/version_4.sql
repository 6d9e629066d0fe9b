-- Dead letters have a bound: how many of a subscriber's were let go beyond it.
CREATE TABLE let_go (
    subscriber TEXT PRIMARY KEY,
    messages INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- By age, to find the oldest of a subscriber.
DROP INDEX deliveries_dead;
CREATE INDEX deliveries_dead ON deliveries (subscriber, message) WHERE dead = 1;

-- A dead letter stands for all messages of a topic whose chain was cut at the subscriber: how many, 0 for any other.
ALTER TABLE deliveries ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
-- Until here each had a letter of its own; the next one that is cut joins them.
UPDATE deliveries SET cut = 1 WHERE dead = 1 AND why LIKE 'the chain of events is cut%';
