-- The statements and the parts of statements that are the same on SQLite, MySQL and MariaDB, whose
-- parameters need no numbers. The package record fills in {unexpired} (see its keep.go). Each engine
-- has a part {here}: the database has the store.

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

-- part: oldest
-- The message is among the oldest waiting ones. Behind these there may be very many that wait for others of
-- their keys, until they are blocked. The parameter is how many come before the last one.
seq <= coalesce((SELECT seq FROM onlyonce_outbox WHERE state = 'waiting' ORDER BY due_at, seq LIMIT 1 OFFSET ?), 9223372036854775807)

-- part: firsts
-- The oldest blocked messages of keys, in the order of the index, behind one of them. Each engine has a part
-- {by state}, the index by which they are read.
FROM onlyonce_outbox {by state}
WHERE state = 'first' AND due_at >= ? AND (due_at > ? OR seq > ?)
ORDER BY due_at, seq

-- name: outbox line
-- Returns the oldest messages of a key that are blocked behind the first one.
SELECT seq FROM onlyonce_outbox
WHERE state = 'blocked' AND due_at = ? AND ordering_key = ? AND {here}
ORDER BY seq
LIMIT ?;

-- name: outbox purgeable
-- Returns the published messages whose time has ended.
SELECT seq FROM onlyonce_outbox
WHERE state = 'published' AND due_at <= {now once} AND {here}
ORDER BY due_at, seq LIMIT ?;

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
