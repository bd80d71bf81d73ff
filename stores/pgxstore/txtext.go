package pgxstore

import (
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// The statements that a transaction ends with are sent together with its COMMIT,
// so they have to fail where others write nothing: by dividing by zero when the
// record is not as it was, and by the root of a negative number when the
// transaction is not the one of the mark any more. Each returns the time of the
// settlement, if it knows it.
const (
	textRecord  = "record new or fail"
	textReplace = "record or fail"
	textSettle  = "settle or fail"
	textRelease = "release or fail"
)

var texts = map[string]string{
	textReplace: failing("record", "settled_at", "$22"),
	textSettle:  failing("settle with rows", "0::bigint", "$13"),
	textRelease: failing("release with rows", "0::bigint", "$5"),
	textRecord: `
INSERT INTO onlyonce_records (state, status_code, final, result_ref, error, response_header, response_body, settled_at, expires_at,
                              id, tenant, operation, idem_key, fingerprint, owner, attempt, fence, steps, created_at, lease_until, commit_token)
VALUES ($1::text, $2::integer, $3::boolean, $4::text, $5::text, $6::text, $7::bytea, onlyonce_now(), onlyonce_now() + $8::bigint,
        $9::bytea, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::integer,
        $16::bigint + ` + sameOrFail("$19") + `, $17::text, $18::bigint, 0, $20::bytea)
RETURNING settled_at, CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END`,
}

func failing(name, settled, mark string) string {
	return "WITH put AS (" + pgschema.Text[name] + ") SELECT " + sameOrFail(mark) + " + (SELECT " + settled + " FROM put), 1 / (SELECT count(*) FROM put)"
}

// sameOrFail is 0 if the transaction is the one of the mark, or there is none.
func sameOrFail(mark string) string {
	return "sqrt(CASE WHEN " + mark + "::bigint IS NULL OR " + mark + " = (extract(epoch FROM now()) * 1000000)::bigint THEN 0 ELSE -1 END)::bigint"
}

// opening looks a record up in one row, with the store's clock, the highest fence
// of what was deleted, what tells this transaction from the next on the
// connection, and the token of the transaction that settled the record last. It
// takes the lock by which others know that this transaction has not ended. Without a
// record, the owner is NULL.
const opening = `
SELECT coalesce(r.created_at, 0), coalesce(tenant, ''), coalesce(operation, ''), coalesce(idem_key, ''), fingerprint, coalesce(state, ''), owner,
       coalesce(attempt, 0), coalesce(fence, 0), coalesce(lease_until, 0), settled_at, ` + record.Expires + `, coalesce(status_code, 0), coalesce(final, false),
       result_ref, error, response_header, steps, response_body, onlyonce_now(), f.floor, (extract(epoch FROM now()) * 1000000)::bigint,
       commit_token, pg_advisory_xact_lock($2::bigint) IS NULL
FROM onlyonce_fence f LEFT JOIN onlyonce_records r ON r.id = $1`
