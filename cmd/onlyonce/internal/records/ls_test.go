package records

import (
	"context"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestRecordsLs_WatchShowsWhatHasChangedUntilItIsInterrupted(t *testing.T) {
	store, u := openSQLite(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var out cmdtest.Buffer
	cmd := Command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"ls", u.String(), "--state", "unknown", "--watch=10ms"})
	ended := make(chan error)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	cmdtest.Until(t, "the empty list is there twice", func() bool { return strings.Count(out.String(), "ID  STATE") > 1 })
	if strings.Contains(out.String(), "POST /items") {
		t.Errorf("an empty store has %s", &out)
	}
	h := doubtful(t, store)
	cmdtest.Until(t, "the record is listed", func() bool { return strings.Contains(out.String(), "unknown") })
	if err := store.Resolve(t.Context(), onlyonce.Record{ID: h.ID, Fence: h.Fence, State: onlyonce.StateUnknown}, onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the record is gone", func() bool {
		lists := strings.Split(out.String(), "ID  STATE")
		return !strings.Contains(lists[len(lists)-1], "unknown") && strings.Count(lists[len(lists)-1], "\n") > 1
	})
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
