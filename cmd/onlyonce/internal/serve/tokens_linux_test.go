package serve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/modetest"
)

func TestTokens_ATokenFileThatOtherUsersCanChangeIsRejected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	cmdtest.WriteFile(t, path, "")
	modetest.Check(t, path, map[os.FileMode]bool{0o600: false, 0o644: false, 0o664: true, 0o666: true}, func(accept []string) error {
		_, err := readTokens(path, accept)
		return err
	})
}
