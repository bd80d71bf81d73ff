-- The statements and the parts of statements that are the same on SQLite, MySQL and MariaDB, whose
-- parameters need no numbers. The package record fills in {unexpired} (see its expiry.go).

-- part: now once
-- The clock, where only PostgreSQL must be told to read it once.
{now}

-- part: held
-- The record is held by the attempt.
id = ? AND owner = ? AND fence = ? AND state = 'processing' AND {unexpired}

-- name: savepoint
-- Every store has its own name for its savepoints, one that no function uses by chance.
SAVEPOINT {name};

-- name: audit
INSERT INTO onlyonce_audit ({audit columns})
VALUES ({now}, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: audit trail
{audit entry}
WHERE record_id = ?
ORDER BY seq;

-- name: outbox append
INSERT INTO onlyonce_outbox (id, topic, ordering_key, tenant, headers, payload, created_at)
VALUES (?, ?, ?, ?, ?, ?, {now});

-- name: outbox damaged
-- Returns the damaged messages that "outbox due" has detected. It reads the whole queue.
SELECT seq FROM onlyonce_outbox WHERE {damaged} ORDER BY seq LIMIT ?;

-- name: outbox line
-- Returns the oldest messages of a key that are blocked behind the first one.
SELECT seq FROM onlyonce_outbox
WHERE state = 'blocked' AND due_at = ? AND ordering_key = ?
ORDER BY seq
LIMIT ?;

-- name: outbox parked
{entries}
WHERE state = 'parked' AND seq > ?
ORDER BY seq
LIMIT ?;
