package onlyonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

type receipt struct {
	Charge string
	Cents  int
}

// charger counts how often its command ran.
type charger struct{ runs int }

func (c *charger) charge(ctx context.Context) (receipt, error) {
	c.runs++
	onlyonce.Current(ctx).SetRef("ch_1")
	onlyonce.Current(ctx).SetStatus(201)
	return receipt{Charge: "ch_1", Cents: 1990}, nil
}

func TestDo_ARepeatGetsTheFirstResponseAndRunsNothing(t *testing.T) {
	var log eventLog
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: log.observe})
	var c charger
	first, err := onlyonce.Do(t.Context(), g, request("k"), c.charge)
	if err != nil {
		t.Fatal(err)
	}
	again, err := onlyonce.Do(t.Context(), g, request("k"), c.charge)
	if err != nil {
		t.Fatal(err)
	}
	if c.runs != 1 || again.Value != first.Value || first.Replayed || !again.Replayed {
		t.Fatalf("ran %d times; first %+v, again %+v", c.runs, first, again)
	}
	if first.Ref != "ch_1" || again.Ref != "ch_1" || again.Attempt != 1 {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	if status := log.events[1].Record.Result.Status; status != 201 {
		t.Fatalf("status %d", status)
	}
	log.expect(t, "executed", "replayed")
}

func TestDo_ARepeatGetsEveryDigitOfANumber(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	for name, value := range map[string]map[string]any{
		"integer":  {"id": int64(1234567890123456789), "cents": 1990},
		"unsigned": {"id": uint64(math.MaxUint64)},
		"nested":   {"lines": []any{map[string]any{"id": int64(9007199254740993)}}},
		"decimal":  {"amount": json.Number("10.50")},
		"huge":     {"amount": json.Number("1e400")},
	} {
		run := func() string {
			a, err := onlyonce.Do(t.Context(), g, request(name), func(context.Context) (map[string]any, error) { return value, nil })
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			body, err := json.Marshal(a.Value)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		if first, again := run(), run(); again != first {
			t.Errorf("%s: the first caller got %s, a repeat %s", name, first, again)
		}
	}
}

func TestDo_ARepeatGetsEveryDigitOfANumberWhereverAnInterfaceHoldsIt(t *testing.T) {
	type line struct {
		ID   any
		Next *line
	}
	type order struct {
		Placed time.Time
		Lines  map[string][1][]*line
	}
	g := onlyonce.New(newStore(), onlyonce.Config{})
	for range 2 {
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (order, error) {
			return order{Lines: map[string][1][]*line{"first": {{{Next: &line{ID: int64(math.MaxInt64)}}}}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if id := fmt.Sprint(a.Value.Lines["first"][0][0].Next.ID); id != "9223372036854775807" {
			t.Errorf("replayed %v: the ID is %s", a.Replayed, id)
		}
	}
}

func TestDo_ARepeatGetsAValueWhoseTypeIsEncodedByItsPointer(t *testing.T) {
	type invoice struct{ Wei big.Int }
	g := onlyonce.New(newStore(), onlyonce.Config{})
	const wei = "1234567890123456789012345678901234567890"
	var owed invoice
	owed.Wei.SetString(wei, 10)
	for _, broken := range []error{errors.New("the mail server is down"), nil, nil} {
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (invoice, error) {
			step, err := onlyonce.Step(ctx, "charge", func(context.Context) (invoice, error) { return owed, nil })
			return step, errors.Join(err, broken)
		})
		if broken == nil && (err != nil || a.Value.Wei.String() != wei) {
			t.Errorf("replayed %v: %s, error %v", a.Replayed, &a.Value.Wei, err)
		}
	}
}

func TestDo_ANumberThatAFloatHoldsIsAFloatInARepeat(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	for range 2 {
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (any, error) {
			return map[string]any{"rate": 0.1 + 0.2, "cents": float64(1990)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		value := a.Value.(map[string]any)
		if _, ok := value["rate"].(float64); !ok || value["cents"] != float64(1990) {
			t.Fatalf("value %#v", value)
		}
	}
}

func TestDo_ANumberIsAFloatThoughTheTypeHasANewField(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	type before struct{ Bank any }
	type after struct {
		Bank any
		Note string
	}
	_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (before, error) { return before{1990}, nil })
	if err != nil {
		t.Fatal(err)
	}
	a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (after, error) { return after{}, nil })
	if err != nil || a.Value.Bank != float64(1990) {
		t.Fatalf("value %#v, error %v", a.Value, err)
	}
}

func TestDo_AResponseExpiresWhenKeepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onlyonce.New(newStore(), onlyonce.Config{Keep: time.Hour})
		var c charger
		for range 2 {
			if _, err := onlyonce.Do(t.Context(), g, request("k"), c.charge); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour + time.Millisecond)
		a, err := onlyonce.Do(t.Context(), g, request("k"), c.charge)
		if err != nil || c.runs != 2 || a.Replayed {
			t.Fatalf("ran %d times, answer %+v, error %v", c.runs, a, err)
		}
	})
}

func TestDo_ADifferentRequestUnderTheSameKeyIsRejected(t *testing.T) {
	var log eventLog
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: log.observe})
	var c charger
	if _, err := onlyonce.Do(t.Context(), g, request("k"), c.charge); err != nil {
		t.Fatal(err)
	}
	other := request("k")
	other.Fingerprint = onlyonce.Fingerprint([]byte("another body"))
	if _, err := onlyonce.Do(t.Context(), g, other, c.charge); !errors.Is(err, onlyonce.ErrMismatch) || c.runs != 1 {
		t.Fatalf("ran %d times, error %v", c.runs, err)
	}
	log.expect(t, "executed", "mismatch")
}

func TestDo_AnErrorIsPassedOnAndTheNextCallerRunsAgain(t *testing.T) {
	var log eventLog
	store := newStore()
	g := onlyonce.New(store, onlyonce.Config{Observer: log.observe})
	broken := errors.New("no funds " + strings.Repeat("é", 2000))
	_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, broken })
	if err != broken {
		t.Fatalf("error %v, want fn's own", err)
	}
	rec := lookup(t, store, request("k"))
	if rec.State != onlyonce.StateFailed || rec.Final || len(rec.Error) > 2<<10 || !strings.HasPrefix(broken.Error(), rec.Error) {
		t.Fatalf("record %+v", rec)
	}
	a, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
		return onlyonce.Current(ctx).Number(), nil
	})
	if err != nil || a.Value != 2 || a.Attempt != 2 {
		t.Fatalf("response %+v, error %v", a, err)
	}
	log.expect(t, "failed", "executed")
}

func TestDo_AFailureThatIsKeptIsReplayed(t *testing.T) {
	broken := errors.New("card rejected")
	for name, test := range map[string]struct {
		cfg onlyonce.Config
		err error
	}{
		"by setting":  {onlyonce.Config{KeepFailures: true}, broken},
		"by Final":    {onlyonce.Config{}, onlyonce.Final(broken)},
		"Final again": {onlyonce.Config{HoldUnknown: true}, onlyonce.Final(broken)},
	} {
		t.Run(name, func(t *testing.T) {
			g := onlyonce.New(newStore(), test.cfg)
			runs := 0
			fn := func(context.Context) (int, error) { runs++; return 0, test.err }
			if _, err := onlyonce.Do(t.Context(), g, request("k"), fn); !errors.Is(err, broken) || errors.Is(err, onlyonce.ErrFailed) {
				t.Fatalf("first error %v", err)
			}
			a, err := onlyonce.Do(t.Context(), g, request("k"), fn)
			if !errors.Is(err, onlyonce.ErrFailed) || !strings.Contains(err.Error(), "card rejected") || runs != 1 || !a.Replayed {
				t.Fatalf("ran %d times, answer %+v, error %v", runs, a, err)
			}
		})
	}
}

func TestDo_APanicIsRaisedAgainAndLeavesTheOutcomeUnknown(t *testing.T) {
	store := newStore()
	g := onlyonce.New(store, onlyonce.Config{})
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { panic("boom") })
	}()
	if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown || rec.Error != "panic: boom" {
		t.Fatalf("record %+v", rec)
	}
}

func TestDo_AGoroutineThatEndsLeavesTheOutcomeUnknown(t *testing.T) {
	store := newStore()
	g := onlyonce.New(store, onlyonce.Config{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
	}()
	<-done
	if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown {
		t.Fatalf("record %+v", rec)
	}
}

func TestDo_AnUnknownOutcomeIsRunAgainOrHeld(t *testing.T) {
	lost := errors.New("connection reset")
	for _, hold := range []bool{false, true} {
		var log eventLog
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{HoldUnknown: hold, Observer: log.observe})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, onlyonce.Unknown(lost) })
		if !errors.Is(err, lost) {
			t.Fatal(err)
		}
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 7, nil })
		if hold {
			if !errors.Is(err, onlyonce.ErrUnknown) {
				t.Fatalf("held: answer %+v, error %v", a, err)
			}
			if rec := lookup(t, store, request("k")); rec.KeepLeft != 0 {
				t.Fatalf("a held record would expire in %v", rec.KeepLeft)
			}
			log.expect(t, "unknown", "held")
			continue
		}
		if err != nil || a.Value != 7 || a.Attempt != 2 {
			t.Fatalf("response %+v, error %v", a, err)
		}
		log.expect(t, "unknown", "taken_over", "executed")
	}
}

func TestDo_AValueThatJSONCannotCarryIsAnErrorAndUnknown(t *testing.T) {
	store := newStore()
	g := onlyonce.New(store, onlyonce.Config{})
	_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (chan int, error) { return make(chan int), nil })
	if err == nil || lookup(t, store, request("k")).State != onlyonce.StateUnknown {
		t.Fatalf("error %v", err)
	}
	if s := onlyonce.Failure(err); s.State != onlyonce.StateUnknown {
		t.Errorf("the error %v says that the command is %s", err, s.State)
	}
}

func TestDo_AStoredValueThatDoesNotFitIsCorrupt(t *testing.T) {
	var log eventLog
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: log.observe})
	if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (string, error) { return "text", nil }); err != nil {
		t.Fatal(err)
	}
	_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, nil })
	if !errors.Is(err, onlyonce.ErrCorrupt) || log.count("corrupt") != 1 {
		t.Fatalf("error %v", err)
	}
}

func TestDo_TheCallerGoingAwayDoesNotStopTheCommand(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
	a, err := onlyonce.Do(ctx, g, request("k"), func(ctx context.Context) (string, error) {
		cancel()
		if ctx.Err() != nil {
			t.Error("the command's context ended with its caller's")
		}
		return ctx.Value(valueKey{}).(string), nil
	})
	if err != nil || a.Value != "kept" {
		t.Fatalf("response %+v, error %v", a, err)
	}
}

// doLarge runs a command whose value is too large for a smallStore, and counts its runs.
func doLarge(t *testing.T, g *onlyonce.Guard, runs *int) (onlyonce.Answer[string], error) {
	return onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (string, error) {
		*runs++
		return "large", nil
	})
}

func TestDo_AValueThatIsTooLargeForTheStoreIsNotStoredAndTheCommandDoesNotRunAgain(t *testing.T) {
	store := smallStore{newStore()}
	var events []onlyonce.Event
	g := onlyonce.New(store, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { events = append(events, e) }})
	runs := 0
	if a, err := doLarge(t, g, &runs); err != nil || a.Value != "large" {
		t.Errorf("got %+v and error %v", a, err)
	}
	if e := events[len(events)-1]; !errors.Is(e.Err, onlyonce.ErrTooLarge) {
		t.Errorf("event %+v does not say that the value was too large", e)
	}
	if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateCompleted {
		t.Errorf("record %+v", rec)
	}
	for range 2 {
		if a, err := doLarge(t, g, &runs); !errors.Is(err, onlyonce.ErrCorrupt) || !strings.Contains(err.Error(), onlyonce.ErrTooLarge.Error()) || runs != 1 {
			t.Errorf("a repeat got %+v and error %v after %d runs", a, err, runs)
		}
	}
}

func TestDo_AValueThatIsTooLargeForTheStoreIsHeldOrReconciledWhereThatIsConfigured(t *testing.T) {
	for name, cfg := range map[string]onlyonce.Config{
		"held": {HoldUnknown: true},
		"reconciled": {Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{State: onlyonce.StateUnknown}, nil
		}},
	} {
		g := onlyonce.New(smallStore{newStore()}, cfg)
		runs := 0
		if a, err := doLarge(t, g, &runs); err != nil || a.Value != "large" {
			t.Errorf("%s: got %+v and error %v", name, a, err)
		}
		if a, err := doLarge(t, g, &runs); !errors.Is(err, onlyonce.ErrUnknown) || runs != 1 {
			t.Errorf("%s: a repeat got %+v and error %v after %d runs", name, a, err, runs)
		}
	}
}

type valueKey struct{}

func TestDo_NonsenseIsRejectedWithWhatToDoInstead(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	for _, id := range []onlyonce.ID{
		{Tenant: "acme"},
		{Key: strings.Repeat("k", 1025)},
		{Key: "k", Tenant: strings.Repeat("t", 1025)},
	} {
		if _, err := g.Begin(t.Context(), onlyonce.Request{ID: id, SkipFingerprint: true}); err == nil {
			t.Errorf("ID %.40v was taken", id)
		}
	}
	for _, cfg := range []onlyonce.Config{
		{Lease: -1}, {Lease: time.Millisecond}, {Keep: -2}, {Wait: -time.Second}, {MaxWaiters: -1}, {MaxWaitersPerID: -1},
	} {
		expectPanic(t, "write", func() { onlyonce.New(newStore(), cfg) })
	}
	expectPanic(t, "memstore", func() { onlyonce.New(nil, onlyonce.Config{}) })
}

func expectPanic(t *testing.T, hint string, f func()) {
	t.Helper()
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, hint) {
			t.Errorf("panic %q, want one that says %q", p, hint)
		}
	}()
	f()
}

// asOnly is an error that has no Unwrap, as those of some libraries that collect errors.
type asOnly struct{ error }

func (e asOnly) As(target any) bool { return errors.As(e.error, target) }

func TestDo_AnUnknownErrorCountsInWhateverOrderItIsJoinedWithAFinalOne(t *testing.T) {
	final, unknown := onlyonce.Final(errors.New("declined")), onlyonce.Unknown(errors.New("no response"))
	for name, test := range map[string]struct {
		err  error
		want onlyonce.State
	}{
		"Final first":        {errors.Join(final, unknown), onlyonce.StateUnknown},
		"Unknown first":      {errors.Join(unknown, final), onlyonce.StateUnknown},
		"deeper":             {fmt.Errorf("pay: %w", errors.Join(final, fmt.Errorf("%w, %w", final, unknown))), onlyonce.StateUnknown},
		"by its own As":      {errors.Join(final, asOnly{unknown}), onlyonce.StateUnknown},
		"with a plain error": {errors.Join(errors.New("x"), final), onlyonce.StateFailed},
		"Final around it":    {onlyonce.Final(errors.Join(final, unknown)), onlyonce.StateFailed},
		"Unknown around it":  {onlyonce.Unknown(errors.Join(final, unknown)), onlyonce.StateUnknown},
	} {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents, HoldUnknown: true})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, test.err })
		if rec := lookup(t, store, request("k")); !errors.Is(err, test.err) || rec.State != test.want || rec.Final != (test.want == onlyonce.StateFailed) {
			t.Errorf("%s: error %v, record %+v", name, err, rec)
		}
	}
}

func TestDo_AStoredValueThatTextFollowsIsCorrupt(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.DiscardEvents})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`{"id":1} x`)}}); err != nil {
		t.Fatal(err)
	}
	if again, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (map[string]any, error) { return nil, nil }); !errors.Is(err, onlyonce.ErrCorrupt) {
		t.Errorf("answer %+v, error %v", again, err)
	}
}

// A priced value cannot be encoded without its unexported part, which a repeat does not get.
type priced struct {
	Items    []any
	currency *string
}

func (p priced) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"Items": p.Items, "Currency": *p.currency})
}

func TestDo_ARepeatGetsAValueThatCannotBeEncodedAgain(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	euro := "EUR"
	for range 2 {
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (priced, error) { return priced{[]any{"lamp", 1.5}, &euro}, nil })
		if err != nil || len(a.Value.Items) != 2 || a.Value.Items[0] != "lamp" || fmt.Sprint(a.Value.Items[1]) != "1.5" {
			t.Errorf("answer %+v, error %v", a, err)
		}
	}
}
