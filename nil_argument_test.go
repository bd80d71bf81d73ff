package onlyonce_test

import (
	"context"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestNilArgument_ANilArgumentPanicsBeforeAnythingIsClaimedAndSaysWhatToPass(t *testing.T) {
	type fn = func(context.Context) (int, error)
	type txFn = func(context.Context, entry) (int, error)
	type settleFn = func(context.Context, entry) (onlyonce.Settlement, error)
	ctx, some := t.Context(), newLedger()
	g := onlyonce.NewTx(some, onlyonce.Config{})
	given := &onlyonce.Attempt{}
	one := func(context.Context) (int, error) { return 1, nil }
	oneTx := func(context.Context, entry) (int, error) { return 1, nil }
	settle := func(context.Context, entry) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil }
	for name, c := range map[string]struct {
		call func()
		says string
	}{
		"Do without a Guard":         {func() { _, _ = onlyonce.Do(ctx, nil, request("k"), one) }, "onlyonce: Do without a Guard: pass what New returns"},
		"Do without a function":      {func() { _, _ = onlyonce.Do(ctx, g.Guard, request("k"), fn(nil)) }, "onlyonce: Do without a function: pass the one that does the work"},
		"DoTx without a Guard":       {func() { _, _ = onlyonce.DoTx(ctx, nil, request("k"), oneTx) }, "onlyonce: DoTx without a TxGuard: pass what NewTx returns"},
		"DoTx without a function":    {func() { _, _ = onlyonce.DoTx(ctx, g, request("k"), txFn(nil)) }, "onlyonce: DoTx without a function"},
		"BeginTx without a function": {func() { _, _ = g.BeginTx(ctx, request("k"), settleFn(nil)) }, "onlyonce: BeginTx without a function"},
		"SettleTx without an Attempt": {
			func() { _ = g.SettleTx(ctx, nil, settle) },
			"onlyonce: SettleTx without an Attempt: pass what Guard.Begin returned, or Current",
		},
		"SettleTx without a function": {func() { _ = g.SettleTx(ctx, given, settleFn(nil)) }, "onlyonce: SettleTx without a function"},
		"Step without a function":     {func() { _, _ = onlyonce.Step(ctx, "s", fn(nil)) }, "onlyonce: Step without a function"},
		"Transact without a function": {func() { _ = g.Transact(ctx, nil) }, "onlyonce: Transact without a function"},
		"New without a store":         {func() { onlyonce.New(nil, onlyonce.Config{}) }, "onlyonce: New without a store"},
		"NewTx without a store":       {func() { onlyonce.NewTx[entry](nil, onlyonce.Config{}) }, "onlyonce: NewTx without a store: pass what sqlstore.Open"},
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
