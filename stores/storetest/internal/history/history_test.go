package history

import (
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A line of a history, in milliseconds.
func line(kind string, fence int64, from, to int, more ...func(*Act)) Act {
	const ms = time.Millisecond
	a := Act{Kind: kind, Hold: onlyonce.Hold{Fence: fence}, Attempt: 1, Lease: 10 * ms, From: time.Duration(from) * ms, To: time.Duration(to) * ms}
	for _, m := range more {
		m(&a)
	}
	return a
}

func lost(a *Act)    { a.Lost = true }
func second(a *Act)  { a.Attempt = 2 }
func third(a *Act)   { a.Attempt = 3 }
func another(a *Act) { a.Hold.Owner = "another" }
func kept(a *Act)    { a.Lasts = true }

func TestHistory_AHistoryThatBreaksNoRuleIsFine(t *testing.T) {
	for name, history := range map[string][]Act{
		"one after another":        {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("claim", 2, 4, 5)},
		"taken over":               {line("claim", 1, 0, 1), line("claim", 2, 12, 13, second), line("settle", 1, 14, 15, lost)},
		"taken over in a race":     {line("claim", 1, 0, 4), line("claim", 2, 9, 13, second), line("settle", 1, 11, 15)},
		"renewed and settled late": {line("claim", 1, 0, 1), line("renew", 1, 8, 9), line("settle", 1, 30, 31), line("settle", 1, 40, 41)},
		"released":                 {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("settle", 1, 4, 5, lost)},
		"settled again after it expired and was claimed": {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("claim", 2, 4, 5), line("settle", 1, 6, 7)},
		"taken over twice, once unseen":                  {line("claim", 1, 0, 1), line("renew", 1, 12, 13, lost), line("claim", 2, 20, 21, third)},
		"failed, and then taken over twice, once unseen": {line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("claim", 2, 11, 13, third)},
		"released, and then taken over once, unseen":     {line("claim", 1, 0, 1, third), line("settle", 1, 2, 3), line("claim", 2, 11, 13, second)},
		"completed for long":                             {line("claim", 1, 0, 1), line("settle", 1, 2, 3, kept)},
	} {
		if broken := Check(history); broken != nil {
			t.Errorf("%s: %s", name, broken)
		}
	}
}

func TestHistory_AHistoryThatBreaksARuleIsFound(t *testing.T) {
	for _, c := range []struct {
		want    string
		history []Act
	}{
		{"was issued while", []Act{line("claim", 1, 0, 1), line("claim", 2, 5, 6, second)}},
		{"was issued while", []Act{line("claim", 1, 0, 1), line("renew", 1, 8, 9), line("claim", 2, 14, 15, second)}},
		{"was issued before", []Act{line("claim", 2, 0, 1), line("claim", 1, 20, 21)}},
		{"issued twice", []Act{line("claim", 1, 0, 1), line("claim", 1, 20, 21, another)}},
		{"follows attempt 1", []Act{line("claim", 1, 0, 1), line("claim", 2, 17, 18, third)}},
		{"follows attempt 1", []Act{line("claim", 1, 0, 1), line("settle", 1, 2, 3), line("claim", 2, 7, 8, third)}},
		{"follows attempt 2", []Act{line("claim", 1, 0, 1, second), line("claim", 2, 30, 31, second)}},
		{"follows attempt 3", []Act{line("claim", 1, 0, 1, third), line("claim", 2, 40, 41, second)}},
		{"follows attempt 3", []Act{line("claim", 1, 0, 1, third), line("settle", 1, 2, 3), line("claim", 2, 7, 8, second)}},
		{"follows attempt 3", []Act{line("claim", 1, 0, 1, third), line("settle", 1, 2, 3, kept), line("claim", 2, 40, 41, second)}},
		{"could settle after", []Act{line("claim", 1, 0, 1), line("claim", 2, 12, 13, second), line("settle", 1, 14, 15)}},
		{"could renew after", []Act{line("claim", 1, 0, 1), line("claim", 2, 12, 13, second), line("renew", 1, 14, 15)}},
		{"lost to nobody", []Act{line("claim", 1, 0, 1), line("settle", 1, 2, 3, lost)}},
		{"lost to nobody", []Act{line("claim", 1, 0, 1), line("renew", 1, 20, 21, lost)}},
		{"had completed", []Act{line("claim", 1, 0, 1), line("settle", 1, 2, 3, kept), line("claim", 2, 20, 21)}},
	} {
		if broken := strings.Join(Check(c.history), "; "); !strings.Contains(broken, c.want) {
			t.Errorf("the history of %+v: got %q, want %q", c.history, broken, c.want)
		}
	}
}
