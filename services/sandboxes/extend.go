package sandboxes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// lastSecond is the last second that RFC 3339 can represent.
const lastSecond = 253402300799

const extendSQL = `UPDATE sandboxes_sandboxes SET expires_at = max(expires_at, unixepoch()) + ?3
WHERE id = ?1 AND owner = ?2 AND deleted_at IS NULL AND expires_at >= ` + now + ` AND expires_at <= ?4 - ?3
RETURNING ` + columns

// An extension is the parsed body of an extend_ttl.
type extension struct {
	Seconds int64 `json:"extend_by"`
}

func (a *API) extendTTL(c *call) (response, error) {
	id, err := c.id()
	if err != nil {
		return response{}, err
	}
	o, err := c.members("extend_by")
	if err != nil {
		return response{}, err
	}
	seconds, err := a.extendBy(o)
	if err != nil {
		return response{}, err
	}
	return a.runOnce(c, extension{seconds}, func(ctx context.Context, on querier) (response, error) {
		r, extended, err := one(ctx, on, extendSQL, id, c.owner, seconds, lastSecond)
		if err == nil && !extended {
			return response{}, notExtended(ctx, on, c.owner, id)
		}
		if err != nil {
			return response{}, fmt.Errorf("extend a sandbox: %w", err)
		}
		if attempt := onlyonce.Current(ctx); attempt != nil {
			attempt.SetRef(id)
		}
		return newResponse(http.StatusOK, a.view(r))
	})
}

func (a *API) extendBy(o jsonbody.Object) (int64, error) {
	seconds, err := o.Integer("extend_by")
	if err != nil {
		return 0, err
	}
	if seconds == nil || *seconds < 1 || *seconds > a.cfg.MaxExtend {
		return 0, errInvalid("extend_by", fmt.Sprintf("must be an integer from 1 to %d, in seconds", a.cfg.MaxExtend))
	}
	return *seconds, nil
}

// notExtended returns the reason why the statement did not change the sandbox.
func notExtended(ctx context.Context, on querier, owner, id string) error {
	r, err := find(ctx, on, owner, id)
	switch {
	case err != nil:
		return err
	case r.ExpiresAt == nil:
		return errInfinite(r.sandbox)
	case r.Status == statusExpired:
		return errExpired(r.sandbox)
	}
	return errInvalid("extend_by", "the sandbox would end after the year 9999")
}
