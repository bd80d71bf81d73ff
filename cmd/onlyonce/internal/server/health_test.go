package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

func TestHealth_AServerIsReadyWhileItsStoreRespondsAndItIsNotStopping(t *testing.T) {
	u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &Health{Checks: []func(context.Context) error{func(ctx context.Context) error {
		return NewStoreWatch("main", store, metrics.New().Store("main"), slog.New(slog.DiscardHandler)).Check(ctx)
	}}}
	ready := func(want int) {
		t.Helper()
		cmdtest.Until(t, fmt.Sprint("the response is ", want), func() bool { // a slow disk may not take the first probe in time
			w := httptest.NewRecorder()
			h.Ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code == want
		})
	}
	ready(200)
	h.stopping.Store(true)
	ready(503)
	h.stopping.Store(false)
	ready(200)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	ready(503)
}
