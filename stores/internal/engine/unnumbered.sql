-- The statements and the parts of statements that are the same on SQLite, MySQL and MariaDB, whose
-- parameters need no numbers. The package record fills in {unexpired} (see its keep.go). Each engine
-- has a part {here}: the database has the store.

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
WHERE record_id = ? AND {here}
ORDER BY seq;

-- name: outbox damaged
-- Returns the damaged messages that "outbox due" has detected. It reads the whole queue.
SELECT seq FROM onlyonce_outbox WHERE {damaged} AND {here} ORDER BY seq LIMIT ?;

-- name: outbox line
-- Returns the oldest messages of a key that are blocked behind the first one.
SELECT seq FROM onlyonce_outbox
WHERE state = 'blocked' AND due_at = ? AND ordering_key = ? AND {here}
ORDER BY seq
LIMIT ?;

-- name: outbox parked
{entries}
WHERE state = 'parked' AND {here} AND seq > ?
ORDER BY seq
LIMIT ?;

-- name: outbox audit trail
{outbox audit entries}
WHERE {here} AND seq < ?
ORDER BY seq DESC
LIMIT ?;
