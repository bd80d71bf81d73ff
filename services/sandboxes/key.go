package sandboxes

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"regexp"

	"github.com/onlyonce-go/onlyonce"
)

const keyHeader = "Idempotency-Key"

// operation is the same for all paths, so that a key that was used on another
// path is a conflict.
const operation = "sandboxes"

var keyForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// key returns the call's key; ok is false if it has none.
func (c *call) key() (key string, ok bool, err error) {
	given := c.Header.Values(keyHeader)
	switch {
	case len(given) == 0:
		return "", false, nil
	case len(given) > 1 || !keyForm.MatchString(given[0]):
		return "", false, errInvalid(keyHeader, "must be there once, with 1 to 128 characters out of a-z A-Z 0-9 _ -")
	}
	return given[0], true, nil
}

// request says what the call asks for.
func (c *call) request(key string, body []byte) onlyonce.Request {
	sum := sha256.Sum256(body)
	return onlyonce.Request{
		ID:          onlyonce.ID{Tenant: c.owner, Operation: operation, Key: key},
		Fingerprint: onlyonce.Fingerprint([]byte(key), []byte(c.URL.Path), []byte(c.Method), sum[:]),
	}
}

// once runs fn, for a call with a key only the first time: what fn writes and
// what it answers, a fault included, are one commit.
func (a *API) once(c *call, body []byte, fn func(context.Context, querier) (answer, error)) (answer, error) {
	key, keyed, err := c.key()
	if err != nil {
		return answer{}, err
	}
	if !keyed {
		var ans answer
		err := a.alone(c.Context(), func(ctx context.Context, on querier) (err error) {
			ans, err = fn(ctx, on)
			return err
		})
		return ans, err
	}
	got, err := onlyonce.DoTx(c.Context(), a.guard, a.store, c.request(key, body), func(ctx context.Context, tx *sql.Tx) (answer, error) {
		ans, err := fn(ctx, tx)
		var decided *fault
		if errors.As(err, &decided) {
			ans, err = decided.answer(c.requestID), nil
		}
		onlyonce.Current(ctx).SetStatus(ans.Status)
		return ans, err
	})
	got.Value.replayed = got.Replayed
	return got.Value, err
}
