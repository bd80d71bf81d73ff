package conform

import (
	"context"
	"strings"
)

// TB is the part of *testing.T that Test needs.
type TB interface {
	Helper()
	Context() context.Context
	Log(args ...any)
	Errorf(format string, args ...any)
}

// Test runs the checks that cfg selects. For each row that fails, it fails t
// with the evidence and the advice.
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
		b.WriteString("\n" + e.Note + "\n" + string(e.Request) + "\n\n" + string(e.Response) + "\n")
	}
	return b.String()
}
