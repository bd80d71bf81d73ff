package sandboxes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// maxTTL is the largest TTL in seconds, a hundred years.
const maxTTL = 100 * 365 * 24 * 3600

// A plan is the parsed body of a create, with its defaults. Two requests are the same
// if their plans have the same JSON.
type plan struct {
	Profile   string  `json:"profile"`
	Workspace *string `json:"workspace_id"` // one to share; nil: a new one
	TTL       *int64  `json:"ttl"`          // seconds; nil: it never expires
}

func (a *API) plan(o jsonbody.Object) (p plan, err error) {
	name, err := o.String("profile")
	if err != nil {
		return p, err
	}
	p.Profile = defaultProfile
	if name != nil {
		p.Profile = *name
	}
	if _, ok := a.cfg.Profiles[p.Profile]; !ok {
		return p, errInvalid("profile", "there is no such profile")
	}
	if p.Workspace, err = o.String("workspace_id"); err != nil {
		return p, err
	}
	if p.Workspace != nil && !isID(workspaceIDs, *p.Workspace) {
		return p, errWorkspace()
	}
	p.TTL, err = ttl(o)
	return p, err
}

func ttl(o jsonbody.Object) (*int64, error) {
	seconds, err := o.Integer("ttl")
	switch {
	case err != nil:
		return nil, err
	case seconds == nil || *seconds == 0:
		return nil, nil
	case *seconds < 0 || *seconds > maxTTL:
		return nil, errInvalid("ttl", fmt.Sprintf("must be 1 to %d seconds, or null or 0 for a sandbox that never expires", maxTTL))
	}
	return seconds, nil
}

func errWorkspace() *problem {
	return errInvalid("workspace_id", "must be null, or the workspace of one of your sandboxes")
}

const createSQL = `INSERT INTO sandboxes_sandboxes (id, owner, profile, workspace_id, created_at, expires_at)
SELECT ?1, ?2, ?3, ?4, unixepoch(), unixepoch() + ?5
WHERE ?6 OR EXISTS (SELECT 1 FROM sandboxes_sandboxes WHERE workspace_id = ?4 AND owner = ?2 AND deleted_at IS NULL)
RETURNING ` + columns

func (a *API) create(c *call) (response, error) {
	o, err := c.members("profile", "workspace_id", "ttl")
	if err != nil {
		return response{}, err
	}
	p, err := a.plan(o)
	if err != nil {
		return response{}, err
	}
	id, workspace := newID(sandboxIDs), newID(workspaceIDs)
	if p.Workspace != nil {
		workspace = *p.Workspace
	}
	return a.runOnce(c, p, func(ctx context.Context, on querier) (response, error) {
		r, made, err := one(ctx, on, createSQL, id, c.owner, p.Profile, workspace, p.TTL, p.Workspace == nil)
		switch {
		case err != nil:
			return response{}, fmt.Errorf("create a sandbox: %w", err)
		case !made:
			return response{}, errWorkspace()
		}
		if attempt := onlyonce.Current(ctx); attempt != nil {
			attempt.SetRef(id)
		}
		return newResponse(http.StatusCreated, a.view(r))
	})
}
