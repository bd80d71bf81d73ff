-- The statements and the parts of statements that are the same on every database. The package record
-- fills in {expires} (see its expiry.go). Each engine has a part {now}, its clock.

-- part: columns
-- The columns of a record, in the order in which they are read, with the clock.
{columns but the body}, response_body, {now}

-- part: columns but the body
created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, {expires},
       status_code, final, result_ref, error, response_header, steps

-- name: version
SELECT coalesce(max(version), 0) FROM onlyonce_schema;

-- part: audit columns
decided_at, record_id, tenant, operation, idem_key, actor, reason, record_before, record_after

-- part: audit entry
SELECT decided_at, actor, reason, record_before, record_after
FROM onlyonce_audit

-- part: entries
SELECT seq, id, topic, ordering_key, tenant, headers, payload, created_at, attempts, error
FROM onlyonce_outbox

-- part: damaged
-- The message is in a state that no store writes.
state NOT IN ('held', 'parked', 'published', 'waiting')

-- part: longest hold
-- 30 hours in microseconds. No message is held for more than outbox.MaxHeld (one day) plus a tenth.
108000000000

-- part: far ahead
-- If a message appears to be held beyond this time, the clock was set back.
{now once} + {longest hold}

-- name: outbox due
SELECT EXISTS (SELECT 1 FROM onlyonce_outbox WHERE state = 'waiting')
    OR EXISTS (SELECT 1 FROM onlyonce_outbox WHERE state = 'held' AND due_at <= {now once})
    OR EXISTS (SELECT 1 FROM onlyonce_outbox WHERE state = 'held' AND due_at > {far ahead}),
       -- whether there is a state that no store writes, from one index entry per range
       coalesce((SELECT min(state) FROM onlyonce_outbox WHERE state < 'held'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'held' AND state < 'parked'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'parked' AND state < 'published'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'published' AND state < 'waiting'),
                (SELECT min(state) FROM onlyonce_outbox WHERE state > 'waiting')) IS NOT NULL;

-- name: outbox lag
SELECT (SELECT count(*) FROM onlyonce_outbox WHERE state = 'waiting') + (SELECT count(*) FROM onlyonce_outbox WHERE state = 'held'),
       (SELECT count(*) FROM onlyonce_outbox WHERE state = 'parked'),
       {now},
       (SELECT created_at FROM onlyonce_outbox WHERE state = 'waiting' ORDER BY due_at, seq LIMIT 1),
       (SELECT min(created_at) FROM onlyonce_outbox WHERE state = 'held');
