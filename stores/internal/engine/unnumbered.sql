-- The statements and the parts of statements that are the same on SQLite, MySQL and MariaDB, whose
-- parameters need no numbers. The package record fills in {unexpired} (see its expiry.go).

-- part: held
-- The record is held by the attempt.
id = ? AND owner = ? AND fence = ? AND state = 'processing' AND {unexpired}

-- name: savepoint
-- Every store has its own name for its savepoints, one that no function uses by chance.
SAVEPOINT {name};

-- part: far ahead
-- If a message appears to be held beyond this time, the clock was set back.
{now} + {longest hold}

-- name: outbox append
INSERT INTO onlyonce_outbox (id, topic, ordering_key, tenant, headers, payload, created_at)
VALUES (?, ?, ?, ?, ?, ?, {now});

-- name: outbox due
SELECT EXISTS (SELECT 1 FROM onlyonce_outbox WHERE state = 'waiting')
    OR EXISTS (SELECT 1 FROM onlyonce_outbox WHERE state = 'held' AND due_at <= {now})
    OR EXISTS (SELECT 1 FROM onlyonce_outbox WHERE state = 'held' AND due_at > {far ahead}),
       -- whether there is a state that no store writes, from one index entry per range
       coalesce((SELECT min(state) FROM onlyonce_outbox WHERE state < 'held'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'held' AND state < 'parked'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'parked' AND state < 'published'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'published' AND state < 'waiting'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'waiting')) IS NOT NULL;

-- name: outbox damaged
-- Returns the damaged messages that "outbox due" has detected. It reads the whole queue.
SELECT seq FROM onlyonce_outbox WHERE {damaged} ORDER BY seq LIMIT ?;

-- name: outbox put back
UPDATE onlyonce_outbox SET state = 'waiting', owner = NULL, due_at = 0, attempts = ?, error = ?
WHERE owner = ? AND seq = ?;

-- name: outbox put off
UPDATE onlyonce_outbox SET state = ?, owner = NULL, due_at = {now} + ?, attempts = ?, error = ?
WHERE owner = ? AND seq = ?;

-- name: outbox lag
SELECT (SELECT count(*) FROM onlyonce_outbox WHERE state = 'waiting') + (SELECT count(*) FROM onlyonce_outbox WHERE state = 'held'),
       (SELECT count(*) FROM onlyonce_outbox WHERE state = 'parked'),
       {now},
       (SELECT created_at FROM onlyonce_outbox WHERE state = 'waiting' ORDER BY due_at, seq LIMIT 1),
       (SELECT min(created_at) FROM onlyonce_outbox WHERE state = 'held');

-- name: outbox parked
{entries}
WHERE state = 'parked' AND seq > ?
ORDER BY seq
LIMIT ?;
