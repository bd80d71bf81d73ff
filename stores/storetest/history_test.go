package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A line of a history, in milliseconds.
func line(kind string, fence int64, from, to int, more ...func(*act)) act {
	const ms = time.Millisecond
	a := act{kind: kind, hold: onlyonce.Hold{Fence: fence}, attempt: 1, lease: 10 * ms, from: time.Duration(from) * ms, to: time.Duration(to) * ms}
	for _, m := range more {
		m(&a)
	}
	return a
}

func lost(a *act)    { a.lost = true }
func second(a *act)  { a.attempt = 2 }
func third(a *act)   { a.attempt = 3 }
func another(a *act) { a.hold.Owner = "another" }
func kept(a *act)    { a.end = completed("made") }

func TestHistory_AHistoryThatBreaksNoRuleIsFine(t *testing.T) {
	for name, history := range map[string][]act{
		"one after another":        {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("claim", 2, 4, 5)},
		"taken over":               {line("claim", 1, 0, 1), line("claim", 2, 12, 13, second), line("settle", 1, 14, 15, lost)},
		"taken over in a race":     {line("claim", 1, 0, 4), line("claim", 2, 9, 13, second), line("settle", 1, 11, 15)},
		"renewed and settled late": {line("claim", 1, 0, 1), line("renew", 1, 8, 9), line("settle", 1, 30, 31), line("settle", 1, 40, 41)},
		"released":                 {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("settle", 1, 4, 5, lost)},
		"settled again after it expired and was claimed": {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("claim", 2, 4, 5), line("settle", 1, 6, 7)},
		"completed for long":                             {line("claim", 1, 0, 1), line("settle", 1, 2, 3, kept)},
	} {
		if broken := verdicts(history); broken != nil {
			t.Errorf("%s: %s", name, broken)
		}
	}
}

func TestHistory_AHistoryThatBreaksARuleIsFound(t *testing.T) {
	for _, c := range []struct {
		want    string
		history []act
	}{
		{"was given while", []act{line("claim", 1, 0, 1), line("claim", 2, 5, 6, second)}},
		{"was given while", []act{line("claim", 1, 0, 1), line("renew", 1, 8, 9), line("claim", 2, 14, 15, second)}},
		{"was given before", []act{line("claim", 2, 0, 1), line("claim", 1, 20, 21)}},
		{"given twice", []act{line("claim", 1, 0, 1), line("claim", 1, 20, 21, another)}},
		{"follows attempt 1", []act{line("claim", 1, 0, 1), line("claim", 2, 20, 21, third)}},
		{"could settle after", []act{line("claim", 1, 0, 1), line("claim", 2, 12, 13, second), line("settle", 1, 14, 15)}},
		{"could renew after", []act{line("claim", 1, 0, 1), line("claim", 2, 12, 13, second), line("renew", 1, 14, 15)}},
		{"lost to nobody", []act{line("claim", 1, 0, 1), line("settle", 1, 2, 3, lost)}},
		{"lost to nobody", []act{line("claim", 1, 0, 1), line("renew", 1, 20, 21, lost)}},
		{"had completed", []act{line("claim", 1, 0, 1), line("settle", 1, 2, 3, kept), line("claim", 2, 20, 21)}},
	} {
		if broken := strings.Join(verdicts(c.history), "; "); !strings.Contains(broken, c.want) {
			t.Errorf("the history of %+v: got %q, want %q", c.history, broken, c.want)
		}
	}
}
