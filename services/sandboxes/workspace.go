package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// makeWorkspace returns the directory of a workspace, which it creates if necessary.
func (a *API) makeWorkspace(id string) (dir string, err error) {
	if err := a.root.Mkdir(id, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create a workspace: %w", err)
	}
	return filepath.Join(a.root.Name(), id), nil
}

const usedSQL = `SELECT ` + columns + ` FROM sandboxes_sandboxes WHERE workspace_id = ? AND deleted_at IS NULL LIMIT 1`

// removeWorkspace removes a workspace that no sandbox uses any longer.
func (a *API) removeWorkspace(ctx context.Context, id string) error {
	_, used, err := one(ctx, a.db, usedSQL, id)
	if err != nil || used {
		return err
	}
	if err := a.root.RemoveAll(id); err != nil {
		return fmt.Errorf("remove a workspace: %w", err)
	}
	return nil
}
