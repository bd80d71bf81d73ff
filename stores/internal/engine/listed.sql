-- The statements that are the same on SQLite and PostgreSQL, where a condition names the messages whose
-- numbers are in a list. Each engine has a part {listed} for that.

-- name: outbox park
UPDATE onlyonce_outbox SET error = 'there is no state "' || state || '"', state = 'parked', owner = NULL, due_at = {now once}
WHERE {damaged} AND {listed};

-- name: outbox lapse
-- A relay whose lease has lapsed may still settle the messages, unless another relay has leased them.
UPDATE onlyonce_outbox SET state = 'waiting', due_at = 0
WHERE state = 'held' AND (due_at <= {now once} OR due_at > {far ahead});

-- name: outbox requeue
UPDATE onlyonce_outbox SET state = 'waiting', due_at = 0, attempts = 0, error = NULL
WHERE state = 'parked' AND {listed};

-- name: outbox discard
DELETE FROM onlyonce_outbox
WHERE state = 'parked' AND {listed};
