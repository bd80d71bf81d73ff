package server

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestSecurity_AConsoleThatOtherMachinesReachOverHTTPIsLogged(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "console-tokens")
	cmdtest.WriteFile(t, tokens, fmt.Sprintf("ada writer %x\n", sha256.Sum256([]byte("the token of ada"))))
	for name, c := range map[string]struct {
		address, tokens string
		warns           bool
	}{
		"on, at every address":  {":0", tokens, true},
		"on, at this machine":   {"127.0.0.1:0", tokens, false},
		"off, at every address": {":0", "", false},
	} {
		var lines strings.Builder
		log := slog.New(slog.NewTextHandler(&lines, nil))
		operators, err := NewConsole(c.tokens, nil, console.Config{Store: memstore.New(memstore.Config{}), Log: log})
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAdmin(c.address, nil, &Health{}, metrics.New(), map[string]http.Handler{console.DefaultPath: operators}, log)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Listener.Close(); err != nil {
			t.Error(err)
		}
		if warns := strings.Contains(lines.String(), "level=WARN") && strings.Contains(lines.String(), "the console speaks HTTP"); warns != c.warns {
			t.Errorf("%s: the log has %q", name, lines.String())
		}
	}
}
