-- The statements and the parts of statements that are the same on SQLite and PostgreSQL, where a condition
-- names the messages whose numbers are in a list. Each engine has a part {listed} for that.

-- name: outbox park
UPDATE onlyonce_outbox SET error = 'there is no state "' || state || '"', state = 'parked', owner = NULL, due_at = {now once}
WHERE {damaged} AND {listed};

-- part: result has keep
-- The result is deleted before its record. The second condition is that of an index.
state IN ('completed', 'failed') AND {header has keep}

-- part: of key
-- The messages of the key of the message o, other than those that wait. The index has this condition.
SELECT 1 FROM onlyonce_outbox h WHERE h.ordering_key = o.ordering_key AND h.ordering_key <> '' AND h.state IN ('first', 'held', 'parked')

-- part: busy
-- The limit keeps PostgreSQL from joining the messages with all of these.
(({of key} AND h.state <> 'first' LIMIT 1) IS NOT NULL)

-- part: followed
(({of key} LIMIT 1) IS NOT NULL)

-- name: outbox purge
-- Nothing else changes a published message.
DELETE FROM onlyonce_outbox
WHERE {listed};

-- name: outbox requeue
UPDATE onlyonce_outbox SET state = 'waiting', due_at = 0, attempts = 0, error = NULL
WHERE state = 'parked' AND {listed};

-- name: outbox discard
DELETE FROM onlyonce_outbox
WHERE state = 'parked' AND {listed};
