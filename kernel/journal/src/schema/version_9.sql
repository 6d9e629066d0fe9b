-- What a turn that goes on needs of its log up to a row: it leaves with the turn's end.
CREATE TABLE checkpoints (
    turn INTEGER PRIMARY KEY,
    upto INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- What a client brings along with a message: the conversation that it keeps itself, and parameters of the model.
ALTER TABLE turns ADD COLUMN carried TEXT;
