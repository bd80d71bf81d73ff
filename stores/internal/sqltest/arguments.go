// Package sqltest checks the statements of an engine, for tests.
package sqltest

import (
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// CheckArguments compares the parameters of every block with the number of arguments that
// are sent for it. A block that sent lacks has none.
func CheckArguments(t *testing.T, blocks map[string]string, sent map[string]int) {
	t.Helper()
	for name, text := range blocks {
		if n := Parameters(t, name, text); n != sent[name] {
			t.Errorf("%q has %d parameters, and is sent %d arguments", name, n, sent[name])
		}
	}
	for name := range sent {
		if _, ok := blocks[name]; !ok {
			t.Errorf("there is no statement %q", name)
		}
	}
}

var (
	comment   = regexp.MustCompile(`(?m)--.*$`)
	quoted    = regexp.MustCompile(`'[^']*'`)
	parameter = regexp.MustCompile(`[?](\d*)|[$](\d+)`)
)

// Parameters counts the parameters of a statement. Those with numbers must be numbered
// without a gap.
func Parameters(t *testing.T, name, text string) (n int) {
	t.Helper()
	text = quoted.ReplaceAllString(comment.ReplaceAllString(text, ""), "")
	var numbers []int
	for _, found := range parameter.FindAllStringSubmatch(text, -1) {
		if found[1]+found[2] == "" {
			n++
			continue
		}
		number, err := strconv.Atoi(found[1] + found[2])
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	if len(numbers) == 0 {
		return n
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if highest := numbers[len(numbers)-1]; n > 0 || highest != len(numbers) {
		t.Errorf("the parameters of %q are %v, and %d without a number", name, numbers, n)
	}
	return len(numbers)
}

// Server returns how many arguments are sent for the statements that every server has
// alike.
func Server() map[string]int {
	var (
		claim   server.ClaimArgs
		take    server.TakeArgs
		hold    server.HoldArgs
		settled server.SettledArgs
		fence   server.KeepFenceArgs
	)
	return map[string]int{
		"claim in":          len(claim.List()),
		"take":              len(take.List()),
		"raise":             len(hold.List()),
		"renew":             len(hold.Renew(0)),
		"step":              len(hold.Step(0, nil, nil)),
		"settle":            len(settled.Settle(hold)),
		"settle with rows":  len(settled.SettleWithRows(nil, hold)),
		"release":           len(hold.List()),
		"release with rows": len(hold.ReleaseWithRows(nil)),
		"keep fence":        len(fence.List()),
		"raise floor":       1, // the fence
		"lookup":            1, // the hash of the ID, here and below
		"trace":             1,
		"audit trail":       1,
	}
}

// Outbox returns how many arguments are sent for the statements of the outbox.
func Outbox() map[string]int {
	var (
		message engine.OutboxMessage
		lease   engine.OutboxLease
		failure engine.OutboxFailure
		seqs    engine.OutboxSeqs
		next    engine.OutboxNext
		limit   engine.OutboxLimit
		others  engine.OutboxOthers
		line    engine.OutboxLine
		last    engine.OutboxPlace
		moves   engine.OutboxMoves
		audit   engine.OutboxAudit
	)
	return map[string]int{
		"outbox append":         len(message.Append()),
		"outbox hold":           len(lease.Hold()),
		"outbox renew":          len(lease.Renew()),
		"outbox delete":         len(lease.Delete()),
		"outbox keep":           len(lease.Keep()),
		"outbox put back":       len(failure.PutBack()),
		"outbox put off":        len(failure.PutOff()),
		"outbox park":           len(seqs.List()),
		"outbox requeue":        len(seqs.List()),
		"outbox discard":        len(seqs.List()),
		"outbox next":           len(next.List()),
		"outbox damaged":        len(limit.List()),
		"outbox purgeable":      len(limit.List()),
		"outbox purge":          len(seqs.List()),
		"outbox lapse":          len(seqs.List()),
		"outbox parked":         len(limit.Listed()),
		"outbox audit trail":    len(limit.Listed()),
		"outbox audit":          len(audit.List()),
		"outbox next of others": len(others.List()),
		"outbox firsts":         len(seqs.List()),
		"outbox line":           len(line.List()),
		"outbox unblocked":      len(last.List()),
		"outbox looked at":      len(last.List()),
		"outbox move":           len(moves.List()),
	}
}
