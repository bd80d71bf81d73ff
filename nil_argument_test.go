package onlyonce_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestNilArgument_ANilArgumentPanicsBeforeAnythingIsClaimedAndSaysWhatToPass(t *testing.T) {
	type fn = func(context.Context) (int, error)
	type txFn = func(context.Context, entry) (int, error)
	type settleFn = func(context.Context, entry) (onlyonce.Settlement, error)
	ctx, some := t.Context(), newLedger()
	var none context.Context
	g := onlyonce.NewTx(some, onlyonce.Config{})
	var nilGuard *onlyonce.Guard
	var nilTxGuard *onlyonce.TxGuard[entry]
	zeroGuard, zeroTxGuard := &onlyonce.Guard{}, &onlyonce.TxGuard[entry]{}
	given := &onlyonce.Attempt{}
	one := func(context.Context) (int, error) { return 1, nil }
	oneTx := func(context.Context, entry) (int, error) { return 1, nil }
	settle := func(context.Context, entry) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil }
	for name, c := range map[string]struct {
		call func()
		says string
	}{
		"Do without a Guard":         {func() { _, _ = onlyonce.Do(ctx, nil, request("k"), one) }, "onlyonce: Do without a Guard: use what New returns"},
		"Do without a function":      {func() { _, _ = onlyonce.Do(ctx, g.Guard, request("k"), fn(nil)) }, "onlyonce: Do without a function: pass the one that does the work"},
		"DoTx without a Guard":       {func() { _, _ = onlyonce.DoTx(ctx, nil, request("k"), oneTx) }, "onlyonce: DoTx without a TxGuard: use what NewTx returns"},
		"DoTx without a function":    {func() { _, _ = onlyonce.DoTx(ctx, g, request("k"), txFn(nil)) }, "onlyonce: DoTx without a function"},
		"BeginTx without a function": {func() { _, _ = g.BeginTx(ctx, request("k"), settleFn(nil)) }, "onlyonce: BeginTx without a function"},
		"SettleTx without an Attempt": {
			func() { _ = g.SettleTx(ctx, nil, settle) },
			"onlyonce: SettleTx without an Attempt: use what Guard.Begin returned, or Current",
		},
		"SettleTx without a function": {func() { _ = g.SettleTx(ctx, given, settleFn(nil)) }, "onlyonce: SettleTx without a function"},
		"Step without a function":     {func() { _, _ = onlyonce.Step(ctx, "s", fn(nil)) }, "onlyonce: Step without a function"},
		"Transact without a function": {func() { _ = g.Transact(ctx, nil) }, "onlyonce: Transact without a function"},
		"New without a store":         {func() { onlyonce.New(nil, onlyonce.Config{}) }, "onlyonce: New without a store"},
		"NewTx without a store":       {func() { onlyonce.NewTx[entry](nil, onlyonce.Config{}) }, "onlyonce: NewTx without a store: pass what sqlstore.Open"},

		"Do with a zero Guard":       {func() { _, _ = onlyonce.Do(ctx, zeroGuard, request("k"), one) }, "onlyonce: Do without a Guard: use what New returns, not a nil or zero Guard"},
		"Begin of a nil Guard":       {func() { _, _ = nilGuard.Begin(ctx, request("k")) }, "onlyonce: Begin without a Guard"},
		"Begin of a zero Guard":      {func() { _, _ = zeroGuard.Begin(ctx, request("k")) }, "onlyonce: Begin without a Guard"},
		"Purge of a zero Guard":      {func() { _, _ = zeroGuard.Purge(ctx) }, "onlyonce: Purge without a Guard"},
		"DoTx with a zero Guard":     {func() { _, _ = onlyonce.DoTx(ctx, zeroTxGuard, request("k"), oneTx) }, "onlyonce: DoTx without a TxGuard: use what NewTx returns, not a nil or zero TxGuard"},
		"DoTx with a Guard of New":   {func() { _, _ = onlyonce.DoTx(ctx, &onlyonce.TxGuard[entry]{Guard: g.Guard}, request("k"), oneTx) }, "onlyonce: DoTx without a TxGuard"},
		"BeginTx of a nil TxGuard":   {func() { _, _ = nilTxGuard.BeginTx(ctx, request("k"), settle) }, "onlyonce: BeginTx without a TxGuard"},
		"SettleTx of a zero TxGuard": {func() { _ = zeroTxGuard.SettleTx(ctx, given, settle) }, "onlyonce: SettleTx without a TxGuard"},
		"Transact of a zero TxGuard": {func() { _ = zeroTxGuard.Transact(ctx, func(context.Context, entry) error { return nil }) }, "onlyonce: Transact without a TxGuard"},
		"Do without a context":       {func() { _, _ = onlyonce.Do(none, g.Guard, request("k"), one) }, "onlyonce: Do without a context: pass the caller's, or context.Background()"},
		"Begin without a context":    {func() { _, _ = g.Begin(none, request("k")) }, "onlyonce: Begin without a context"},
		"Purge without a context":    {func() { _, _ = g.Purge(none) }, "onlyonce: Purge without a context"},
		"DoTx without a context":     {func() { _, _ = onlyonce.DoTx(none, g, request("k"), oneTx) }, "onlyonce: DoTx without a context"},
		"BeginTx without a context":  {func() { _, _ = g.BeginTx(none, request("k"), settle) }, "onlyonce: BeginTx without a context"},
		"SettleTx without a context": {func() { _ = g.SettleTx(none, given, settle) }, "onlyonce: SettleTx without a context"},
		"Transact without a context": {func() { _ = g.Transact(none, func(context.Context, entry) error { return nil }) }, "onlyonce: Transact without a context"},
		"Step without a context":     {func() { _, _ = onlyonce.Step(none, "s", one) }, "onlyonce: Step without a context"},
		"Current without a context":  {func() { onlyonce.Current(none) }, "onlyonce: Current without a context"},
		"Context without a context":  {func() { given.Context(none) }, "onlyonce: Context without a context"},
		"Settle without a context":   {func() { _ = given.Settle(none, onlyonce.Settlement{}) }, "onlyonce: Settle without a context"},
		"Failure without an error":   {func() { onlyonce.Failure(nil) }, "onlyonce: Failure without an error: pass the one that the function returned"},
		"Tee of a nil Observer":      {func() { onlyonce.Tee(onlyonce.DiscardEvents, nil) }, "onlyonce: Tee without Observers: leave out those that you do not have"},
		"SlogObserver without a log": {func() { onlyonce.SlogObserver(nil, nil) }, "onlyonce: SlogObserver without a Logger: pass slog.Default() or another"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, c.says) {
					t.Errorf("the panic says %q, want %q", text, c.says)
				}
			}()
			c.call()
		})
	}
	if _, err := some.Lookup(ctx, request("k").ID); err == nil {
		t.Error("there is a record")
	}
}

func TestNilArgument_AMethodOfANilAttemptPanicsAndSaysWhereOneComesFrom(t *testing.T) {
	ctx := t.Context()
	a := onlyonce.Current(ctx)
	for name, call := range map[string]func(){
		"Context":   func() { a.Context(ctx) },
		"Err":       func() { _ = a.Err() },
		"Fence":     func() { a.Fence() },
		"Key":       func() { a.Key("step") },
		"Number":    func() { a.Number() },
		"Record":    func() { a.Record() },
		"Replayed":  func() { a.Replayed() },
		"Result":    func() { a.Result() },
		"SetRef":    func() { a.SetRef("ref") },
		"SetStatus": func() { a.SetStatus(200) },
		"Settle":    func() { _ = a.Settle(ctx, onlyonce.Settlement{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				want := "onlyonce: " + name + " without an Attempt: use what Guard.Begin returned, or Current, which returns nil unless its context comes from that of a command's function"
				if text, _ := recover().(string); text != want {
					t.Errorf("the panic says %q, want %q", text, want)
				}
			}()
			call()
		})
	}
	if n := reflect.TypeFor[*onlyonce.Attempt]().NumMethod(); n != 11 {
		t.Errorf("an Attempt has %d methods: the test knows 11", n)
	}
}
