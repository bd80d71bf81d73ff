-- The statements and the parts of statements that are the same on every database. The package record
-- fills in {expires} (see its expiry.go). Each engine has a part {now}, its clock.

-- part: columns
-- The columns of a record, in the order in which they are read, with the clock.
created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, {expires},
       status_code, final, result_ref, error, response_header, steps, response_body, {now}

-- name: version
SELECT coalesce(max(version), 0) FROM onlyonce_schema;

-- part: entries
SELECT seq, id, topic, ordering_key, tenant, headers, payload, created_at, attempts, error
FROM onlyonce_outbox

-- part: damaged
-- The message is in a state that no store writes.
state NOT IN ('held', 'parked', 'published', 'waiting')

-- part: longest hold
-- 30 hours in microseconds. No message is held for more than outbox.MaxHeld (one day) plus a tenth.
108000000000
