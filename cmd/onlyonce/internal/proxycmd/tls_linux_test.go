package proxycmd

import (
	"os"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestTLS_ACertificatesKeyThatOtherUsersCanUseIsRejected(t *testing.T) {
	t.Parallel()
	ca := cmdtest.NewAuthority(t)
	ca.Sign("a", false)
	cmdtest.CheckModes(t, ca.Path("a.key"), map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o660: true, 0o602: true}, func(accept []string) error {
		_, err := readKeyPair(ca.Path("a.crt"), ca.Path("a.key"), accept)
		return err
	})
}
