package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A clock that was set back leaves records of the future.
func TestFence_FencesGrowAlthoughTheServersClockWasSetBack(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := serverClaim("k")
		r, err := s.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		st := done("made")
		st.Keep = time.Millisecond
		if err := s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, st); err != nil {
			t.Fatal(err)
		}
		ahead := r.Fence + time.Hour.Microseconds()
		if _, err := db.Exec(fmt.Sprintf("UPDATE onlyonce_records SET fence = %d", ahead)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the record is purged", func() bool {
			n, err := s.Purge(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			return n == 1
		})
		var next onlyonce.Record
		c = serverClaim("k")
		if next, err = s.Claim(t.Context(), c); err != nil || next.Owner != c.Owner || next.Fence <= ahead {
			t.Errorf("after fence %d, claim got %+v and error %v", ahead, next, err)
		}
		if err := s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: next.Fence}, onlyonce.Settlement{}); err != nil {
			t.Fatal(err)
		}
		again := serverClaim("k")
		run, err := s.RunTx(t.Context(), again, func(_ context.Context, _ *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
			if r.Fence <= next.Fence {
				t.Errorf("after fence %d, the function got %d", next.Fence, r.Fence)
			}
			return done("made"), nil
		})
		if err != nil || run.Fence <= next.Fence || run.Attempt != 1 {
			t.Errorf("after fence %d, run got %+v and error %v", next.Fence, run, err)
		}
		var handed int64
		own := errors.New("no")
		if _, err := s.RunTx(t.Context(), serverClaim("other"), func(_ context.Context, _ *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
			handed = r.Fence
			return onlyonce.Settlement{}, own
		}); !errors.Is(err, own) {
			t.Errorf("run got error %v", err)
		}
		if r, err := s.Claim(t.Context(), serverClaim("other")); err != nil || r.Fence <= handed || handed <= ahead {
			t.Errorf("after fence %d was handed out in vain, claim got %+v and error %v", handed, r, err)
		}
	})
}
