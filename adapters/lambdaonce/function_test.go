package lambdaonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
	Sent   string `json:"sent"`
}

type receipt struct {
	Charge int32 `json:"charge"`
	Amount int   `json:"amount"`
}

// charging returns a function that counts its runs.
func charging(runs *atomic.Int32) func(context.Context, order) (receipt, error) {
	return func(_ context.Context, o order) (receipt, error) { return receipt{runs.Add(1), o.Amount}, nil }
}

func orderID(o order) string { return o.ID }

// byID are the settings of the functions here.
var byID = lambdaonce.Config[order]{Operation: "charge", Key: orderID}

// wantResult fails unless an invocation returns this result or, if it is empty, an error that
// Lambda reports with this type and this text.
func wantResult(t *testing.T, h lambda.Handler, event, result, errorType, text string) {
	t.Helper()
	got, err := h.Invoke(t.Context(), []byte(event))
	name := ""
	var failed messages.InvokeResponse_Error
	if errors.As(err, &failed) {
		name = failed.Type
	}
	if string(got) != result || (err == nil) != (result != "") || name != errorType || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%s: got %.200s, %v, want %s, %s %s", event, got, err, result, errorType, text)
	}
}

func wantRuns(t *testing.T, runs *atomic.Int32, want int32) {
	t.Helper()
	if got := runs.Load(); got != want {
		t.Errorf("%d runs, want %d", got, want)
	}
}

func TestHandler_ARepeatGetsTheFirstResult(t *testing.T) {
	for name, cfg := range map[string]lambdaonce.Config[order]{
		"Key":       byID,
		"KeyFields": {Operation: "charge", KeyFields: []string{"/id"}},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int32
			h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), charging(&runs), cfg)
			for _, event := range []string{`{"id":"a","amount":5}`, `{"id":"a","amount":5}`, ` { "amount" : 5, "id" : "\u0061" } `} {
				wantResult(t, h, event, `{"charge":1,"amount":5}`, "", "")
			}
			wantResult(t, h, `{"id":"a","amount":6}`, "", "ErrMismatch", "different request")
			wantResult(t, h, `{"id":"b","amount":5}`, `{"charge":2,"amount":5}`, "", "")
			wantResult(t, h, `{"amount":5}`, "", "", "the event has no key")
			wantResult(t, h, `{"id":null,"amount":5}`, "", "", "the event has no key")
			wantResult(t, h, `{"id":7}`, "", "", "lambdaonce: decode the event")
			wantRuns(t, &runs, 2)
		})
	}
}

func TestHandler_AKeyIsMadeOfAllItsFields(t *testing.T) {
	var runs atomic.Int32
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), func(context.Context, json.RawMessage) (int32, error) {
		return runs.Add(1), nil
	}, lambdaonce.Config[json.RawMessage]{Operation: "charge", KeyFields: []string{"/lines/1/a~1b", "/~0"}, Fields: []string{"/lines"}})
	const event = `{"lines":[{},{"a/b":0}],"~":"x","sent":1}`
	wantResult(t, h, event, "1", "", "")
	wantResult(t, h, strings.ReplaceAll(event, `"sent":1`, `"sent":2`), "1", "", "")
	wantResult(t, h, strings.ReplaceAll(event, `"~":"x"`, `"~":"y"`), "2", "", "")
	wantResult(t, h, strings.ReplaceAll(event, `"a/b":0`, `"a/b":1`), "3", "", "")
	wantResult(t, h, strings.ReplaceAll(event, `[{}`, `[{"a":1}`), "", "ErrMismatch", "")
	for _, lacking := range []string{`{}`, `[]`, `"x"`, `{"lines":[{"a/b":0}],"~":"x"}`, `{"lines":{"01":{"a/b":0}},"~":"x"}`, `{"lines":[{},7],"~":"x"}`} {
		wantResult(t, h, lacking, "", "", "there is nothing at /lines/1/a~1b")
	}
	wantResult(t, h, `{"lines":[{},{"a/b":0}],"~":"x","~":"x"}`, "", "", "lambdaonce: read the key of the event")
	wantRuns(t, &runs, 3)
}

// encoding/json ignores the case of names and uses the last of several, so that the handler could
// charge an order that is not the one in the key.
func TestSecurity_TheKeyIsWhatTheHandlerFindsInTheEvent(t *testing.T) {
	var runs atomic.Int32
	var charged []string
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), func(_ context.Context, o order) (int32, error) {
		charged = append(charged, o.ID)
		return runs.Add(1), nil
	}, lambdaonce.Config[order]{Operation: "charge", KeyFields: []string{"/id"}, Fields: []string{"/id", "/amount"}})
	wantResult(t, h, `{"id":"a","amount":5}`, "1", "", "")
	for _, event := range []string{`{"id":"b","ID":"a","amount":5}`, `{"id":"a","Id":"c","amount":5}`, `{"\u0049d":"d","id":"a","amount":5}`} {
		wantResult(t, h, event, "", "", "can be read in two ways")
	}
	wantResult(t, h, `{"id":"a","amount":5,"AMOUNT":6}`, "", "ErrMismatch", "")
	wantResult(t, h, `{"id":"a","amount":5,"sent":"x","SENT":"y"}`, "1", "", "")
	if !slices.Equal(charged, []string{"a"}) {
		t.Errorf("charged %q", charged)
	}
}

// Without Fields, all of an event counts.
func TestSecurity_EventsThatTheHandlerReadsDifferentlyAreDifferent(t *testing.T) {
	var runs atomic.Int32
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), charging(&runs), byID)
	wantResult(t, h, `{"id":"a","amount":5,"Amount":6}`, `{"charge":1,"amount":6}`, "", "")
	wantResult(t, h, `{"id":"a","Amount":6,"amount":5}`, "", "ErrMismatch", "")
	wantRuns(t, &runs, 1)
}

func TestHandler_AnIndexWithALeadingZeroLeadsNowhere(t *testing.T) {
	var runs atomic.Int32
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), func(context.Context, json.RawMessage) (int32, error) {
		return runs.Add(1), nil
	}, lambdaonce.Config[json.RawMessage]{Operation: "charge", KeyFields: []string{"/lines/01"}})
	wantResult(t, h, `{"lines":["a","b"]}`, "", "", "there is nothing at /lines/01")
	wantResult(t, h, `{"lines":{"01":"b"}}`, "1", "", "")
}

func TestHandler_OnlyTheFieldsHaveToBeTheSame(t *testing.T) {
	var runs atomic.Int32
	cfg := byID
	cfg.Fields = []string{"/amount"}
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), charging(&runs), cfg)
	wantResult(t, h, `{"id":"a","amount":5,"sent":"12:00"}`, `{"charge":1,"amount":5}`, "", "")
	wantResult(t, h, `{"id":"a","amount":5,"sent":"12:01"}`, `{"charge":1,"amount":5}`, "", "")
	wantResult(t, h, `{"id":"a","amount":6,"sent":"12:00"}`, "", "ErrMismatch", "")
}

func TestHandler_TenantsAreApart(t *testing.T) {
	var runs atomic.Int32
	cfg := byID
	cfg.Tenant = func(_ context.Context, o order) string { return o.Sent }
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), charging(&runs), cfg)
	wantResult(t, h, `{"id":"a","sent":"x"}`, `{"charge":1,"amount":0}`, "", "")
	wantResult(t, h, `{"id":"a","sent":"y"}`, `{"charge":2,"amount":0}`, "", "")
	wantResult(t, h, `{"id":"a"}`, "", "", "the event has no tenant")
}

func TestHandler_AnErrorIsAFailureAndARepeatRunsAgain(t *testing.T) {
	var runs atomic.Int32
	broken := errors.New("the bank is closed")
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), func(ctx context.Context, o order) (receipt, error) {
		if o.ID == "final" {
			return receipt{}, onlyonce.Final(broken)
		}
		if runs.Load() == 0 {
			runs.Add(1)
			return receipt{}, broken
		}
		return charging(&runs)(ctx, o)
	}, byID)
	if _, err := h.Invoke(t.Context(), []byte(`{"id":"a"}`)); err != broken {
		t.Errorf("got %v", err)
	}
	wantResult(t, h, `{"id":"a"}`, `{"charge":2,"amount":0}`, "", "")
	wantResult(t, h, `{"id":"final"}`, "", "", "the bank is closed")
	wantResult(t, h, `{"id":"final"}`, "", "ErrFailed", "the bank is closed")
}

func TestHandler_WhileItRunsARepeatIsRejected(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), func(context.Context, order) (receipt, error) {
		close(began)
		<-goOn
		return receipt{1, 0}, nil
	}, byID)
	ended := make(chan error)
	go func() {
		_, err := h.Invoke(context.Background(), []byte(`{"id":"a"}`))
		ended <- err
	}()
	<-began
	wantResult(t, h, `{"id":"a"}`, "", "ErrInFlight", "retry after")
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantResult(t, h, `{"id":"a"}`, `{"charge":1,"amount":0}`, "", "")
}

func TestHandler_APanicContinuesAndLeavesTheOutcomeUnknown(t *testing.T) {
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true}), func(context.Context, order) (receipt, error) {
		panic("half done")
	}, byID)
	wantPanic(t, "half done", func() { _, _ = h.Invoke(t.Context(), []byte(`{"id":"a"}`)) })
	wantResult(t, h, `{"id":"a"}`, "", "ErrUnknown", "")
}

func TestHandler_ItsContextEndsBeforeTheInvocationIsKilled(t *testing.T) {
	broken := errors.New("gave up")
	for name, c := range map[string]struct {
		err   error
		state onlyonce.State
	}{
		"a result":      {nil, onlyonce.StateCompleted},
		"an error":      {broken, onlyonce.StateUnknown},
		"a final error": {onlyonce.Final(broken), onlyonce.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Config{})
				invocation, kill := context.WithTimeout(t.Context(), 30*time.Second)
				defer kill()
				h := lambdaonce.Handler(quietGuard(store, onlyonce.Config{}), func(ctx context.Context, _ order) (receipt, error) {
					began := time.Now()
					if <-ctx.Done(); time.Since(began) != 29*time.Second || invocation.Err() != nil {
						t.Errorf("the context ended after %v", time.Since(began))
					}
					return receipt{}, c.err
				}, byID)
				if _, err := h.Invoke(invocation, []byte(`{"id":"a"}`)); !errors.Is(err, c.err) {
					t.Errorf("got %v", err)
				}
				wantRecord(t, store, onlyonce.ID{Operation: "charge", Key: "a"}, c.state)
			})
		})
	}
}

func TestHandler_ARepeatThatWaitsGetsAnErrorInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{Wait: time.Hour}), func(context.Context, order) (int, error) {
			<-goOn
			return 1, nil
		}, byID)
		ended := make(chan error)
		go func() {
			_, err := h.Invoke(context.Background(), []byte(`{"id":"a"}`))
			ended <- err
		}()
		synctest.Wait()
		invocation, kill := context.WithTimeout(t.Context(), 10*time.Second)
		defer kill()
		var failed messages.InvokeResponse_Error
		if _, err := h.Invoke(invocation, []byte(`{"id":"a"}`)); !errors.As(err, &failed) || failed.Type != "ErrInFlight" || invocation.Err() != nil {
			t.Errorf("got %v, and that of the invocation is %v", err, invocation.Err())
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestHandler_AResultThatIsTooLargeIsAnErrorAndDoesNotRunAgain(t *testing.T) {
	var runs atomic.Int32
	h := lambdaonce.Handler(quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{}), func(context.Context, order) (string, error) {
		runs.Add(1)
		return strings.Repeat("x", 7<<20), nil
	}, byID)
	for range 2 {
		wantResult(t, h, `{"id":"a"}`, "", "", "the command has completed and does not run again")
	}
	wantRuns(t, &runs, 1)
}

func TestHandlerTx_RowsAndResultAreCommittedTogether(t *testing.T) {
	store := adaptertest.NewStore()
	guard := onlyonce.NewTx(store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	runs := 0
	h := lambdaonce.HandlerTx(guard, func(_ context.Context, tx adaptertest.Tx, o order) (int, error) {
		tx["order"] = o.ID
		if runs++; runs == 1 {
			return 0, errors.New("the bank is closed")
		}
		return runs, nil
	}, byID)
	wantResult(t, h, `{"id":"a"}`, "", "", "the bank is closed")
	if row := store.Row("order"); row != "" {
		t.Errorf("the row is %q", row)
	}
	for range 2 {
		wantResult(t, h, `{"id":"a"}`, "2", "", "")
	}
	if row := store.Row("order"); row != "a" {
		t.Errorf("the row is %q", row)
	}
}

func TestHandlerTx_AnErrorOfTheCommitIsNamedByWhatARetryWouldDo(t *testing.T) {
	for name, c := range map[string]struct {
		commit    error
		errorType string
	}{
		"got no response":              {onlyonce.ErrInDoubt, "ErrInDoubt"},
		"could not be sent":            {errors.New("connection reset"), "ErrUnavailable"},
		"was rejected by the database": {&rejectedtx.Error{Cause: errors.New("a deferred constraint")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := adaptertest.NewStore()
			store.Commit = c.commit
			h := lambdaonce.HandlerTx(onlyonce.NewTx(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), func(context.Context, adaptertest.Tx, order) (int, error) {
				return 1, nil
			}, byID)
			wantResult(t, h, `{"id":"a"}`, "", c.errorType, c.commit.Error())
		})
	}
}

func TestHandlerTx_ALateErrorIsRolledBackAndThereforeAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := adaptertest.NewStore()
		h := lambdaonce.HandlerTx(onlyonce.NewTx(store, onlyonce.Config{Observer: onlyonce.DiscardEvents, Lease: time.Hour}), func(ctx context.Context, tx adaptertest.Tx, _ order) (int, error) {
			tx["order"] = "a"
			<-ctx.Done()
			return 0, ctx.Err()
		}, byID)
		invocation, kill := context.WithTimeout(t.Context(), 30*time.Second)
		defer kill()
		if _, err := h.Invoke(invocation, []byte(`{"id":"a"}`)); !errors.Is(err, context.DeadlineExceeded) || invocation.Err() != nil {
			t.Errorf("got %v", err)
		}
		wantRecord(t, store, onlyonce.ID{Operation: "charge", Key: "a"}, onlyonce.StateFailed)
		if row := store.Row("order"); row != "" {
			t.Errorf("the row is %q", row)
		}
	})
}

func TestHandler_AnInvalidConfigPanics(t *testing.T) {
	guard := quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{})
	h := charging(new(atomic.Int32))
	for part, cfg := range map[string]lambdaonce.Config[order]{
		"Config.Operation is empty":                  {Key: orderID},
		"set either Config.Key or Config.KeyFields":  {Operation: "charge"},
		"set either Config.Key or Config.KeyFields,": {Operation: "charge", Key: orderID, KeyFields: []string{"/id"}},
		`JSON Pointer "id": write "/id"`:             {Operation: "charge", KeyFields: []string{"id"}},
		`JSON Pointer "#/id": write "/id"`:           {Operation: "charge", Key: orderID, Fields: []string{"#/id"}},
	} {
		wantPanic(t, part, func() { lambdaonce.Handler(guard, h, cfg) })
	}
	wantPanic(t, "lambdaonce: Handler: the Guard or the handler is nil", func() { lambdaonce.Handler(nil, h, byID) })
	wantPanic(t, "lambdaonce: Handler: the Guard or the handler is nil", func() { lambdaonce.Handler[order, receipt](guard, nil, byID) })
	wantPanic(t, "lambdaonce: HandlerTx: the Guard or the handler is nil", func() {
		lambdaonce.HandlerTx[order, receipt, adaptertest.Tx](nil, nil, byID)
	})
}
