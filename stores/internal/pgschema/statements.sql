-- Every statement of the PostgreSQL stores, in named blocks.
-- Those that write make their own commit wait for the disk where the pool says
-- synchronous_commit = off; a WHERE that looks at the clock is evaluated after
-- the wait for a row's lock.

-- name: tables
SELECT to_regclass('onlyonce_schema') IS NOT NULL;

-- name: version
SELECT coalesce(max(version), 0) FROM onlyonce_schema;

-- name: migrate alone
SELECT pg_advisory_xact_lock(7380959162154215792);

-- name: settings
SELECT current_setting('server_version_num')::bigint, current_setting('server_version'), current_setting('server_encoding'), pg_is_in_recovery(),
       current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), current_setting('transaction_read_only');

-- name: floor
SELECT floor FROM onlyonce_fence;

-- name: raise floor
UPDATE onlyonce_fence SET floor = $1 WHERE floor < $1;

-- name: lock
-- Takes the lock of a request, $1, and then that of its command, $2. $3 is the first of requests without a fingerprint.
SELECT CASE WHEN NOT pg_try_advisory_xact_lock($1) THEN 'busy'
            WHEN pg_try_advisory_xact_lock($2) THEN 'mine'
            WHEN $1 = $3::bigint OR NOT pg_try_advisory_xact_lock($3) THEN 'busy'
            ELSE 'other' END;

-- name: mark
-- Tells a transaction from the next one on the same connection.
SELECT (extract(epoch FROM now()) * 1000000)::bigint;

-- name: locked
-- Waits for the end of a transaction that changed the record.
SELECT 1 FROM onlyonce_records WHERE id = $1 FOR UPDATE;

-- name: look
SELECT r.created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, expires_at,
       status_code, final, result_ref, error, response_header, steps, response_body, onlyonce_now(),
       f.floor, (extract(epoch FROM now()) * 1000000)::bigint
FROM onlyonce_fence f LEFT JOIN onlyonce_records r ON r.id = $1;

-- name: lookup
SELECT created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, expires_at,
       status_code, final, result_ref, error, response_header, steps, response_body, onlyonce_now()
FROM onlyonce_records
WHERE id = $1;

-- name: lookups
SELECT created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, expires_at,
       status_code, final, result_ref, error, response_header, steps, response_body, onlyonce_now(),
       id
FROM onlyonce_records
WHERE id = ANY ($1::bytea[]);

-- name: list
SELECT created_at, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, expires_at,
       status_code, final, result_ref, error, response_header, steps, response_body, onlyonce_now()
FROM onlyonce_records
WHERE (created_at, id) < ($1::bigint, $2::bytea)
  AND state <> 'released'
  AND (expires_at IS NULL OR expires_at > (SELECT onlyonce_now()))
  AND ($3::text = '' OR tenant = $3)
  AND ($4::text = '' OR operation = $4)
  AND ($5::text = '' OR idem_key = $5)
  AND ($6::text = '' OR result_ref = $6)
ORDER BY created_at DESC, id DESC
LIMIT $7;

-- name: claim
-- A claim on a new command. Its created_at is its fence.
INSERT INTO onlyonce_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, created_at, fence, lease_until)
SELECT $1::bytea, $2::text, $3::text, $4::text, $5::bytea, 'processing', $6::bytea, 1, greatest(c.now, c.floor + 1), greatest(c.now, c.floor + 1), c.now + $7::bigint
FROM (SELECT onlyonce_now() AS now, floor,
             CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable
      FROM onlyonce_fence OFFSET 0) c
ON CONFLICT (id) DO NOTHING
RETURNING fence;

-- name: claims
-- The same for many; who has no row has not got the command by this.
INSERT INTO onlyonce_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, created_at, fence, lease_until)
SELECT v.id, v.tenant, v.operation, v.idem_key, v.fingerprint, 'processing', v.owner, 1, greatest(c.now, c.floor + 1), greatest(c.now, c.floor + 1), c.now + v.lease
FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::bigint[])
     AS v (id, tenant, operation, idem_key, fingerprint, owner, lease),
     (SELECT onlyonce_now() AS now, floor,
             CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable
      FROM onlyonce_fence OFFSET 0) c
ON CONFLICT (id) DO NOTHING
RETURNING owner, fence;

-- name: take
-- A claim on the record as it was seen: anew (for it has expired), or as the next attempt.
UPDATE onlyonce_records r
SET created_at = CASE WHEN $1::boolean THEN greatest(c.now, r.fence + 1, c.floor + 1) ELSE created_at END,
    fence = greatest(c.now, r.fence + 1, c.floor + 1), lease_until = c.now + $2::bigint,
    state = 'processing', owner = $3::bytea, attempt = $4::integer, fingerprint = $5::bytea, steps = $6::text, error = $7::text,
    settled_at = NULL, expires_at = NULL, status_code = 0, final = false, result_ref = NULL, response_header = NULL, response_body = NULL
FROM (SELECT onlyonce_now() AS now, floor,
             CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable
      FROM onlyonce_fence OFFSET 0) c
WHERE id = $8::bytea AND owner = $9::bytea AND r.fence = $10::bigint AND state = $11::text
  AND (state <> 'processing' OR lease_until <= onlyonce_now())
RETURNING r.fence;

-- name: raise
-- Makes the fence of a hold that was just given higher than those of deleted records.
UPDATE onlyonce_records r SET fence = greatest(onlyonce_now(), r.fence + 1, f.floor + 1)
FROM onlyonce_fence f
WHERE id = $1::bytea AND owner = $2::bytea AND r.fence = $3::bigint AND state = 'processing'
RETURNING r.fence;

-- name: renew
UPDATE onlyonce_records
SET lease_until = onlyonce_now() + $1::bigint
WHERE id = $2::bytea AND owner = $3::bytea AND fence = $4::bigint AND state = 'processing'
RETURNING CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: step
UPDATE onlyonce_records
SET lease_until = onlyonce_now() + $1::bigint, steps = $2::text
WHERE id = $3::bytea AND owner = $4::bytea AND fence = $5::bigint AND state = 'processing' AND steps IS NOT DISTINCT FROM $6::text
RETURNING CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: settle
UPDATE onlyonce_records
SET state = $1::text, status_code = $2::integer, final = $3::boolean, result_ref = $4::text, error = $5::text, response_header = $6::text, response_body = $7::bytea,
    settled_at = onlyonce_now(), expires_at = onlyonce_now() + $8::bigint
WHERE id = $9::bytea AND owner = $10::bytea AND fence = $11::bigint AND state = 'processing'
RETURNING CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: settles
-- The same for many; who has no row has settled nothing by this.
UPDATE onlyonce_records r
SET state = v.state, status_code = v.status_code, final = v.final, result_ref = v.result_ref, error = v.error, response_header = v.response_header,
    response_body = v.response_body, settled_at = onlyonce_now(), expires_at = onlyonce_now() + v.keep
FROM unnest($1::text[], $2::integer[], $3::boolean[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bigint[], $9::bytea[], $10::bytea[], $11::bigint[])
     AS v (state, status_code, final, result_ref, error, response_header, response_body, keep, id, owner, fence)
WHERE r.id = v.id AND r.owner = v.owner AND r.fence = v.fence AND r.state = 'processing'
RETURNING r.owner, CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: release
-- The row stays for a while, for its fence: a claim that was under way is to meet it.
UPDATE onlyonce_records
SET state = 'released', lease_until = 0, settled_at = onlyonce_now(), expires_at = onlyonce_now() + 3600000000,
    fingerprint = NULL, steps = NULL, error = NULL
WHERE id = $1::bytea AND owner = $2::bytea AND fence = $3::bigint AND state = 'processing'
RETURNING CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: resolve
UPDATE onlyonce_records
SET state = $1::text, status_code = $2::integer, final = $3::boolean, result_ref = $4::text, error = $5::text, response_header = $6::text, response_body = $7::bytea,
    settled_at = onlyonce_now(), expires_at = onlyonce_now() + $8::bigint, owner = ''
WHERE id = $9::bytea AND owner = $10::bytea AND fence = $11::bigint AND state = $12::text
  AND (state <> 'processing' OR lease_until <= onlyonce_now())
RETURNING CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: remove
UPDATE onlyonce_records
SET state = 'released', lease_until = 0, settled_at = onlyonce_now(), expires_at = onlyonce_now() + 3600000000, owner = '',
    fingerprint = NULL, steps = NULL, error = NULL, result_ref = NULL, response_header = NULL, response_body = NULL
WHERE id = $1::bytea AND owner = $2::bytea AND fence = $3::bigint AND state = $4::text
  AND (state <> 'processing' OR lease_until <= onlyonce_now())
RETURNING CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: record
-- Puts the settled record of a transaction in the place of the row that it saw, or of none,
-- if the transaction is still the one that the mark is of.
INSERT INTO onlyonce_records AS r (state, status_code, final, result_ref, error, response_header, response_body, settled_at, expires_at,
                                   id, tenant, operation, idem_key, fingerprint, owner, attempt, fence, steps, created_at, lease_until)
SELECT $1::text, $2::integer, $3::boolean, $4::text, $5::text, $6::text, $7::bytea, c.now, c.now + $8::bigint,
       $9::bytea, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::integer, $16::bigint, $17::text, $18::bigint, 0
FROM (SELECT onlyonce_now() AS now, floor,
             CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable
      FROM onlyonce_fence OFFSET 0) c
WHERE c.floor < $16 AND ($22::bigint IS NULL OR $22 = (extract(epoch FROM now()) * 1000000)::bigint)
ON CONFLICT (id) DO UPDATE
SET state = excluded.state, status_code = excluded.status_code, final = excluded.final, result_ref = excluded.result_ref, error = excluded.error,
    response_header = excluded.response_header, response_body = excluded.response_body, settled_at = excluded.settled_at, expires_at = excluded.expires_at,
    fingerprint = excluded.fingerprint, owner = excluded.owner, attempt = excluded.attempt, fence = excluded.fence, steps = excluded.steps,
    created_at = excluded.created_at, lease_until = 0
WHERE r.owner = $19::bytea AND r.fence = $20::bigint AND r.state = $21::text AND (r.state <> 'processing' OR r.lease_until <= onlyonce_now())
RETURNING settled_at;

-- name: purge
WITH due AS (
  SELECT id, fence FROM onlyonce_records
  WHERE expires_at <= (SELECT onlyonce_now())
  ORDER BY expires_at LIMIT $1::bigint
  FOR UPDATE SKIP LOCKED
), raised AS (
  UPDATE onlyonce_fence SET floor = (SELECT max(fence) FROM due) WHERE floor < (SELECT max(fence) FROM due)
), gone AS (
  DELETE FROM onlyonce_records r USING due WHERE r.id = due.id RETURNING r.state
)
SELECT count(*), count(*) FILTER (WHERE state <> 'released') FROM gone;
