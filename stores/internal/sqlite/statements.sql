-- The statements of the SQLite store, in named blocks, and the parts that several of them share: the
-- name of a part in braces stands for its text. The package record fills in {expires}, {unexpired} and
-- {purgeable} (see its keep.go), and {filter} (see its list.go). The statements that are the same on
-- other databases are in common.sql and unnumbered.sql of the package engine. A time is bound as microseconds; NULL means
-- the current time of the store's clock.

-- part: now
(SELECT now FROM onlyonce_clock)

-- part: now once
-- SQLite reads the clock once for all rows.
{now}

-- part: here
-- There is nothing to tell apart: the store keeps the file open.
TRUE

-- part: only reads
-- A file that is only read has no relay.
FALSE

-- part: last
-- The newest record's created_at. A record that is a hundred years ahead is damaged and ignored. The bound
-- moves with the clock: a row just below a fixed bound would give all later records the same created_at.
coalesce((SELECT max(created_at) FROM onlyonce_records WHERE created_at < now + 3155760000000000), 0)

-- part: settled
state = ?, status_code = ?, final = ?, result_ref = ?, error = ?, response_header = ?, response_body = ?

-- part: due
FROM onlyonce_records WHERE expires_at <= ? AND {purgeable} ORDER BY expires_at, created_at LIMIT ?

-- part: running or unresolved
-- The condition of an index.
state <> 'completed' AND state <> 'failed' AND state <> 'released' AND state <> 'remembered'

-- part: result expires
-- When it is deleted. The expression is that of the index.
settled_at + CAST(substr(response_header, 12) AS INTEGER)

-- part: of unknown outcome
-- The outcome is unknown, and the record has not expired. A state that no store writes counts as an unknown outcome.
{running or unresolved} AND (state <> 'processing' OR lease_until <= {now})
  AND coalesce({expires} > {now}, 1)

-- name: sqlite version
SELECT sqlite_version();

-- name: tables
SELECT count(*) FROM sqlite_schema WHERE name = 'onlyonce_schema';

-- name: begin
BEGIN IMMEDIATE;

-- name: probe
BEGIN;

-- name: lock
UPDATE onlyonce_fence SET floor = floor WHERE 0;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: undo
ROLLBACK TO {name};

-- name: keep
RELEASE {name};

-- name: settings
SELECT sqlite_version(), (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous),
       (SELECT locking_mode FROM pragma_locking_mode), (SELECT file FROM pragma_database_list WHERE name = 'main'),
       (SELECT encoding FROM pragma_encoding);

-- name: busy timeout
PRAGMA busy_timeout;

-- name: set busy timeout
-- A pragma takes no parameters.
PRAGMA busy_timeout = {milliseconds};

-- name: journal mode
PRAGMA journal_mode;

-- name: set journal mode
PRAGMA journal_mode = WAL;

-- name: checkpoint
PRAGMA wal_autocheckpoint;

-- name: set checkpoint
PRAGMA wal_autocheckpoint = {pages};

-- name: synchronous
PRAGMA synchronous;

-- name: set synchronous
PRAGMA synchronous = FULL;

-- name: read uncommitted
PRAGMA read_uncommitted;

-- name: set read uncommitted
PRAGMA read_uncommitted = {on};

-- name: quick check
PRAGMA quick_check(1);

-- name: clock
SELECT now, {last}, floor FROM onlyonce_clock;

-- name: known
SELECT 1 FROM onlyonce_records WHERE id = ?;

-- name: list
SELECT {columns}
FROM onlyonce_records
WHERE created_at <= ?
  AND coalesce({expires} > {now}, 1)
  {filter}
ORDER BY created_at DESC
LIMIT ?;

-- name: count records
SELECT tenant, operation, {counted state}, state = 'processing' AND lease_until <= {now} AS lapsed, count(*), min(created_at), {now}
FROM onlyonce_records
WHERE coalesce({expires} > {now}, 1)
GROUP BY tenant, operation, counted, lapsed;

-- name: list unresolved
-- The planner would read all records in the order of the list.
SELECT {columns}
FROM onlyonce_records INDEXED BY onlyonce_records_unresolved
WHERE created_at <= ?
  AND {of unknown outcome}
  {filter}
ORDER BY created_at DESC
LIMIT ?;

-- name: list processing
SELECT {columns}
FROM onlyonce_records INDEXED BY onlyonce_records_unresolved
WHERE created_at <= ?
  AND {running or unresolved} AND state = 'processing'
  AND coalesce({expires} > {now}, 1)
  {filter}
ORDER BY created_at DESC
LIMIT ?;

-- name: list by id
SELECT {columns}
FROM onlyonce_records INDEXED BY onlyonce_records_id
WHERE created_at <= ? AND id BETWEEN ? AND ?
  AND coalesce({expires} > {now}, 1)
  {filter}
ORDER BY created_at DESC
LIMIT ?;

-- part: claimed columns
id, tenant, operation, idem_key, fingerprint, state, owner, attempt, lapsed_keep, created_at, fence, lease_until

-- name: claim
INSERT INTO onlyonce_records ({claimed columns})
SELECT ?, ?, ?, ?, ?, 'processing', ?, 1, ?, max(now, last + 1), max(now, last + 1, floor + 1), now + ?
FROM (SELECT now, {last} AS last, floor FROM onlyonce_clock)
WHERE true
ON CONFLICT (id) DO NOTHING
RETURNING created_at, fence;

-- name: insert
INSERT INTO onlyonce_records ({claimed columns})
VALUES (?, ?, ?, ?, ?, 'processing', ?, 1, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: take
UPDATE onlyonce_records
SET state = 'processing', owner = ?, attempt = ?, fence = ?, lease_until = ?, lapsed_keep = ?, fingerprint = ?, steps = ?,
    settled_at = NULL, expires_at = NULL, status_code = 0, final = 0, result_ref = NULL, response_header = NULL, response_body = NULL
WHERE id = ?;

-- name: renew
UPDATE onlyonce_records
SET lease_until = coalesce(?, {now}) + ?
WHERE {held};

-- name: step
UPDATE onlyonce_records SET steps = ? WHERE id = ?;

-- name: settle completed
-- The fence of a first attempt is its record's created_at, by which the row is found faster than by the id.
UPDATE onlyonce_records
SET state = 'completed', status_code = ?, result_ref = ?, response_header = ?, response_body = ?, settled_at = ?, expires_at = ?
WHERE created_at = ? AND id = ? AND owner = ? AND state = 'processing' AND {unexpired} AND fence = created_at;

-- name: settle
UPDATE onlyonce_records
SET {settled},
    settled_at = coalesce(?, {now}), expires_at = coalesce(?, ? + {now})
WHERE {held};

-- name: token
UPDATE onlyonce_records SET commit_token = ? WHERE id = ?;

-- name: lookup
SELECT {columns}
FROM onlyonce_records
WHERE id = ?;

-- name: trace
-- Reads the traces of a transaction in a record, to find out whether it committed.
SELECT coalesce(fence, 0), coalesce(settled_at, 0), commit_token, floor, 0, 0
FROM onlyonce_fence LEFT JOIN onlyonce_records ON id = ?;

-- name: resolve
-- What can't be read is cleared, so that the decision takes effect.
UPDATE onlyonce_records
SET {settled},
    settled_at = ?, expires_at = coalesce(?, ?), owner = ?, fence = ?,
    attempt = max(attempt, 1), fingerprint = CASE WHEN NOT ? THEN fingerprint END, steps = CASE WHEN NOT ? THEN steps END
WHERE id = ?;

-- name: record
INSERT INTO onlyonce_records (state, status_code, final, result_ref, error, response_header, response_body, settled_at, expires_at,
                              id, tenant, operation, idem_key, fingerprint, owner, attempt, fence, steps, lease_until, created_at, commit_token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, ?),
        ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)
ON CONFLICT DO NOTHING;

-- name: release
DELETE FROM onlyonce_records WHERE {held};

-- name: delete
DELETE FROM onlyonce_records WHERE id = ? AND fence = ?;

-- name: current floor
SELECT floor FROM onlyonce_fence;

-- name: raise floor by one
UPDATE onlyonce_fence SET floor = floor + 1;

-- name: floor
UPDATE onlyonce_fence SET floor = max(floor, ?);

-- name: lapsed
SELECT id, fence FROM onlyonce_records
WHERE {running or unresolved} AND state = 'processing' AND CASE WHEN lapsed_keep > 0 THEN lease_until <= ? - lapsed_keep END AND {purgeable}
LIMIT ?;

-- name: unresolved
-- Returns the number of records with an unknown outcome, and for how long the oldest has had it.
SELECT count(*), coalesce(max({now} - max(iif(state = 'processing', lease_until, settled_at), 0)), 0)
FROM onlyonce_records
WHERE {of unknown outcome};

-- name: highest due
SELECT max(fence) FROM (SELECT fence {due});

-- name: purge
DELETE FROM onlyonce_records
WHERE created_at IN (SELECT created_at {due});

-- name: forget
-- Deletes results that expire before their records. An assignment to its key, even of the same value, makes
-- SQLite delete the row and insert it again, and so join pages that are nearly empty. A row that is only made
-- shorter leaves its page as it is, and new rows, whose keys are higher, never use the space.
UPDATE onlyonce_records
SET created_at = created_at, {remembered}
WHERE created_at IN (SELECT created_at FROM onlyonce_records INDEXED BY onlyonce_records_result_expires
                     WHERE {result has keep} AND {result expires} <= ? ORDER BY {result expires} LIMIT ?);
