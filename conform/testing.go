package conform

import (
	"context"
	"strings"
)

// TB is what Test needs of a *testing.T.
type TB interface {
	Helper()
	Context() context.Context
	Log(args ...any)
	Errorf(format string, args ...any)
}

// Test runs all that cfg says and fails t for each row that does, with what
// shows it and what to do about it.
func Test(t TB, target Target, cfg Config) {
	t.Helper()
	report, err := Run(t.Context(), target, cfg)
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, row := range report.Rows {
		switch row.Verdict {
		case Fail:
			t.Errorf("%s: %s\n%s\n%s\n%s", row.ID, row.Title, row.Detail, row.Advice, transcript(row.Exchanges))
		case NotSupported:
			t.Log(row.ID + ": not supported: " + row.Detail)
		}
	}
}

func transcript(exchanges []Exchange) string {
	var b strings.Builder
	for _, e := range exchanges {
		b.WriteString("\n" + e.Note + "\n" + string(e.Request) + "\n\n" + string(e.Answer) + "\n")
	}
	return b.String()
}
