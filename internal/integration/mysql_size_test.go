package integration

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestMySQL_AValueThatDoesNotFitIsAnErrorAndNotTruncated(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	c := serverClaim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
	var packet int
	if err := db.QueryRow("SELECT @@max_allowed_packet").Scan(&packet); err != nil {
		t.Fatal(err)
	}
	large := done("made")
	large.Result.Body = make([]byte, packet)
	if err := s.Settle(t.Context(), h, large); err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("settle with %d bytes got error %v", packet, err)
	}
	if was, err := s.Lookup(t.Context(), c.ID); err != nil || was.State != onlyonce.StateProcessing {
		t.Errorf("the record is %+v with error %v", was, err)
	}
	if err := s.Settle(t.Context(), h, done("made")); err != nil {
		t.Error(err)
	}
}

// largest returns how many bytes the server takes in one packet.
func largest(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT @@max_allowed_packet").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A lease of an hour, because a test must not wait for its end.
func TestMySQL_AResultThatDoesNotFitKeepsNobodyWaitingAndIsHeld(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	var told []onlyonce.Outcome
	g := onlyonce.New(s, onlyonce.Config{Lease: time.Hour, HoldUnknown: true, Observer: func(_ context.Context, e onlyonce.Event) { told = append(told, e.Outcome) }})
	for name, fn := range map[string]func(context.Context) (string, error){
		"value": func(context.Context) (string, error) { return strings.Repeat("x", largest(t, db)), nil },
		"reference": func(ctx context.Context) (string, error) {
			onlyonce.Current(ctx).SetRef(strings.Repeat("x", 1<<16))
			return "x", nil
		},
	} {
		told = nil
		req := onlyonce.Request{ID: onlyonce.ID{Key: name}, SkipFingerprint: true}
		if a, err := onlyonce.Do(t.Context(), g, req, fn); err != nil || a.Value == "" {
			t.Errorf("%s: the caller got %d bytes and error %v", name, len(a.Value), err)
		}
		if r, err := s.Lookup(t.Context(), req.ID); err != nil || r.State != onlyonce.StateUnknown || !strings.Contains(r.Error, "larger than the store accepts") {
			t.Errorf("%s: the record is in state %q, its error %q; lookup %v", name, r.State, r.Error, err)
		}
		if _, err := onlyonce.Do(t.Context(), g, req, fn); !errors.Is(err, onlyonce.ErrUnknown) {
			t.Errorf("%s: a repeat got %v", name, err)
		}
		if want := []onlyonce.Outcome{onlyonce.OutcomeUnrecorded, onlyonce.OutcomeHeld}; !slices.Equal(told, want) {
			t.Errorf("%s: the observer was told %v", name, told)
		}
	}
}

func TestMySQL_AStepThatDoesNotFitKeepsNobodyWaiting(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	g := onlyonce.New(s, onlyonce.Config{Lease: time.Hour})
	_, err := onlyonce.Do(t.Context(), g, onlyonce.Request{ID: onlyonce.ID{Key: "k"}, SkipFingerprint: true}, func(ctx context.Context) (string, error) {
		return onlyonce.Step(ctx, "step", func(context.Context) (string, error) { return strings.Repeat("x", largest(t, db)), nil })
	})
	if !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestMySQL_AResponseThatDoesNotFitIsReplayedWithoutItsBody(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	body := strings.Repeat("x", largest(t, db))
	runs := 0
	h := httponce.Wrap(onlyonce.New(s, onlyonce.Config{Lease: time.Hour}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, body)
	}), httponce.Config{MaxResponse: 2 * len(body), Tenant: httponce.SingleTenant})
	for n := range 2 {
		r := httptest.NewRequest("POST", "/charges", nil)
		r.Header.Set("Idempotency-Key", `"k"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if replayed := n > 0; w.Code != http.StatusCreated || w.Header().Get("Location") == "" || replayed != (w.Body.Len() == 0) || replayed != (w.Header().Get("Idempotency-Replayed") == "true") {
			t.Errorf("request %d got %d with %v and %d bytes", n+1, w.Code, w.Header(), w.Body.Len())
		}
	}
	if runs != 1 {
		t.Errorf("the handler ran %d times", runs)
	}
}

func TestMySQL_AnIDThatIsTooLongIsNotCalledAResultAndNothingRuns(t *testing.T) {
	d := newMySQLDatabase(t)
	s, db := d.open(t)
	for name, c := range map[string]struct {
		part    func(*onlyonce.ID) *string
		longest int
	}{
		"tenant":    {func(id *onlyonce.ID) *string { return &id.Tenant }, 1024},
		"operation": {func(id *onlyonce.ID) *string { return &id.Operation }, 1024},
		"key":       {func(id *onlyonce.ID) *string { return &id.Key }, 4096},
	} {
		claim := serverClaim("k")
		*c.part(&claim.ID) = strings.Repeat("x", c.longest)
		if r, err := s.Claim(t.Context(), claim); err != nil || r.ID != claim.ID {
			t.Errorf("claim with the longest %s: %v", name, err)
		}
		*c.part(&claim.ID) += "x"
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for call, f := range map[string]func() error{
			"claim":        func() error { _, err := s.Claim(t.Context(), claim); return err },
			"WithTx claim": func() error { _, err := s.WithTx(tx).Claim(t.Context(), claim); return err },
			"RunTx": func() error {
				_, err := s.RunTx(t.Context(), claim, func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
					t.Errorf("a function ran for a %s that is too long", name)
					return done("made"), nil
				})
				return err
			},
		} {
			if err := f(); err == nil || errors.Is(err, onlyonce.ErrTooLarge) || !strings.Contains(err.Error(), "the "+name+" has ") {
				t.Errorf("%s with a %s that is too long: %v", call, name, err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
