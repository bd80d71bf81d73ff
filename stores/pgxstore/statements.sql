-- The statements that only pgxstore sends. A name in braces stands for a statement, or a part of
-- one, that it shares with sqlstore.

-- The next four end a transaction and are sent together with its COMMIT. Other statements may affect no
-- row, but these must fail, so that the COMMIT is not executed: the first violates the primary key if there
-- is a row, and the others divide by zero if the record has changed. In the last two, the mark is the
-- parameter after those of the statement in braces. Each returns the time at which the command was settled,
-- or 0.

-- part: zero or fail
-- Takes the root of a negative number if the transaction is no longer the one with the mark. A mark of NULL
-- is not compared.
sqrt(CASE WHEN $n::bigint IS NULL OR $n = {transaction mark} THEN 0 ELSE -1 END)::bigint

-- name: record new or fail
INSERT INTO onlyonce_records ({recorded columns})
VALUES ({settled values}, onlyonce_now(), onlyonce_now() + $8::bigint,
        $9::bytea, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::integer,
        $16::bigint + {zero or fail $19},
        $17::text, $18::bigint, 0, $20::bytea)
RETURNING settled_at, {durable};

-- name: record or fail
WITH put AS ({record})
SELECT {zero or fail $23}
       + (SELECT settled_at FROM put), 1 / (SELECT count(*) FROM put);

-- name: settle or fail
WITH put AS ({settle with rows})
SELECT {zero or fail $13}
       + (SELECT 0::bigint FROM put), 1 / (SELECT count(*) FROM put);

-- name: release or fail
WITH put AS ({release with rows})
SELECT {zero or fail $5}
       + (SELECT 0::bigint FROM put), 1 / (SELECT count(*) FROM put);

-- name: backend
-- The number of the server's process that executes the statement. Behind a pooler, this is not the process
-- whose number the server gave when the connection was opened.
SELECT pg_backend_pid();

-- name: connection settings
-- The settings of the store's own connections. Their statements are at READ COMMITTED, so that at SERIALIZABLE
-- they conflict neither with each other nor with a transaction of the caller's.
SET default_transaction_isolation = 'read committed'; {group settings SESSION};

-- name: transaction settings
-- The one of these settings that a batch needs behind a pooler, which keeps no settings for a connection.
SELECT set_config('lock_timeout', {row wait}, true);

-- name: forget plans
DISCARD PLANS;

-- name: notify
SELECT pg_notify($1, $2);

-- name: is listening
-- Reports whether a process holds the listeners' lock.
SELECT CASE WHEN pg_try_advisory_lock($1) THEN NOT pg_advisory_unlock($1) ELSE true END;

-- name: listen
-- The name of a channel cannot be a parameter.
LISTEN {channel};

-- name: listening
-- Takes the listeners' lock, which is released when the connection ends.
SELECT pg_advisory_lock_shared($1);
