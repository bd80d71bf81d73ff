-- The statements and the parts of statements that are the same on every database. The package record
-- fills in {expires} (see its keep.go). Each engine has a part {now}, its clock, a part {here}: the
-- database has the store, and the parts {result has keep} and {result expires}.

-- part: columns
-- The columns of a record, in the order in which they are read, with the clock.
{columns but the body}, response_body, {now}

-- part: columns but the body
created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, {expires},
       status_code, final, result_ref, error, response_header, steps

-- part: remembered
-- Only the ID is left. The token stays, so that a transaction whose response was lost is still found.
state = 'remembered', fingerprint = NULL, status_code = 0, final = FALSE, result_ref = NULL, error = NULL, response_header = NULL, steps = NULL, response_body = NULL

-- part: header has keep
-- The header begins with the time for which the result stays, see record.EncodeHeader. It is a condition of
-- indexes.
substr(response_header, 2, 10) = '":keep":["'

-- part: counted state
-- The state as it is read: the result may have expired, and not be deleted yet.
CASE WHEN {result has keep} AND {result expires} <= {now once} THEN 'remembered' ELSE state END AS counted

-- name: version
SELECT coalesce(max(version), 0) FROM onlyonce_schema;

-- part: audit columns
decided_at, record_id, tenant, operation, idem_key, actor, reason, record_before, record_after

-- part: audit entry
SELECT decided_at, actor, reason, record_before, record_after
FROM onlyonce_audit

-- part: entry
seq, id, topic, ordering_key, tenant, headers, payload, created_at, attempts, error

-- part: entries
SELECT {entry}
FROM onlyonce_outbox

-- part: any blocked
-- Whether messages are blocked, from one index entry. With EXISTS, PostgreSQL may read all messages.
(SELECT min(due_at) FROM onlyonce_outbox WHERE state = 'first') IS NOT NULL

-- part: oldest waiting
(SELECT seq FROM onlyonce_outbox WHERE state = 'waiting' ORDER BY due_at, seq LIMIT 1)

-- part: next
-- With whether messages are blocked.
SELECT {entry}, {any blocked}
FROM onlyonce_outbox o

-- part: leasable
-- The message waits, and none of its key is held or parked. Each engine has a part {busy}, which says whether
-- a message of the key of the message o is, and a part {followed}, which says whether one is held, parked or
-- first. They search an index for one key. A list of all such keys would take longer, the more there are.
state = 'waiting' AND (ordering_key = '' OR NOT {busy})

-- part: damaged
-- The message is in a state that no store writes.
state NOT IN ('blocked', 'first', 'held', 'parked', 'published', 'waiting')

-- part: longest hold
-- 30 hours in microseconds. No message is held for more than outbox.MaxHeld (one day) plus a tenth.
108000000000

-- part: far ahead
-- If a message appears to be held beyond this time, the clock was set back.
{now once} + {longest hold}

-- name: outbox due
-- A server that can only read may lead to a lease, which it rejects: a relay that has nothing to do would
-- otherwise not notice that it is still connected to a former primary.
-- Each part of the answer is from one index entry, in an order that only the index has. With EXISTS, PostgreSQL
-- may read all messages, once it has statistics of them.
SELECT {here} AND ({only reads} OR {oldest waiting} IS NOT NULL
    OR {any blocked}
    OR (SELECT seq FROM onlyonce_outbox WHERE state = 'held' AND due_at <= {now once} ORDER BY due_at, seq LIMIT 1) IS NOT NULL
    OR (SELECT seq FROM onlyonce_outbox WHERE state = 'held' AND due_at > {far ahead} ORDER BY due_at, seq LIMIT 1) IS NOT NULL),
       -- whether there is a state that no store writes, from one index entry per range
       coalesce((SELECT min(state) FROM onlyonce_outbox WHERE state < 'blocked'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'blocked' AND state < 'first'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'first' AND state < 'held'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'held' AND state < 'parked'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'parked' AND state < 'published'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'published' AND state < 'waiting'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'waiting')) IS NOT NULL,
       coalesce({oldest waiting}, 0),
       {any blocked};

-- name: outbox past
-- Returns the held messages whose time has ended, and those of a time before the clock was set back. However
-- many they are, no call takes longer than a relay waits.
SELECT seq FROM (SELECT seq FROM onlyonce_outbox WHERE state = 'held' AND due_at <= {now once} AND {here} ORDER BY due_at, seq LIMIT 10000) lapsed
UNION ALL SELECT seq FROM (SELECT seq FROM onlyonce_outbox WHERE state = 'held' AND due_at > {far ahead} AND {here} ORDER BY due_at, seq LIMIT 10000) ahead;

-- part: held back
-- The message waits for others of its key.
ordering_key <> '' AND {followed}

-- part: unowned
-- The message waits, and no relay can settle it: a lease that lapsed leaves its owner.
state = 'waiting' AND owner IS NULL

-- name: outbox crowd
-- Counts the messages among the oldest waiting ones that wait for others of their keys.
SELECT count(*)
FROM (SELECT seq, ordering_key FROM onlyonce_outbox WHERE {unowned} ORDER BY due_at, seq LIMIT 1000) o
WHERE {held back};

-- name: outbox held back
SELECT seq, ordering_key
FROM (SELECT seq, ordering_key FROM onlyonce_outbox WHERE {unowned} ORDER BY due_at, seq LIMIT 10000) o
WHERE {held back}
ORDER BY seq;

-- name: outbox lag
SELECT (SELECT count(*) FROM onlyonce_outbox WHERE state IN ('waiting', 'held', 'blocked', 'first') AND {here}),
       (SELECT count(*) FROM onlyonce_outbox WHERE state = 'parked'),
       {now},
       (SELECT created_at FROM onlyonce_outbox WHERE state = 'waiting' ORDER BY due_at, seq LIMIT 1),
       (SELECT min(created_at) FROM onlyonce_outbox WHERE state IN ('held', 'first'));

-- part: outbox audit columns
decided_at, action, actor, reason, message_seq, id, topic, ordering_key, tenant, attempts, error

-- part: outbox audit entries
SELECT seq, {outbox audit columns}
FROM onlyonce_outbox_audit

-- name: outbox unblocked
-- Returns the oldest blocked messages of keys of which no message is held or parked any more. It looks at no
-- more than 5,000 keys. Each engine has a part {firsts}: the oldest blocked messages of keys, in the order of the
-- index, behind one of them.
SELECT seq, ordering_key FROM (SELECT seq, ordering_key {firsts} LIMIT 5000) o
WHERE NOT {busy} AND {here}
ORDER BY seq
LIMIT 32;

-- name: outbox looked at
-- Returns the place of the last key at which "outbox unblocked" has looked, unless there are fewer than 5,000.
SELECT seq, due_at {firsts} LIMIT 1 OFFSET 4999;
