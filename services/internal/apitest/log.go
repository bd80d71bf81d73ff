package apitest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
)

// A Log collects log messages.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is for slog.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Logger returns a logger whose lines, of any level, the Log keeps as JSON.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines whose attribute event is the event.
func (l *Log) Lines(t *testing.T, event string) (found []map[string]any) {
	t.Helper()
	for line := range bytes.Lines([]byte(l.String())) {
		var v map[string]any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Errorf("the log has the line %q: %v", line, err)
		}
		if v["event"] == event {
			found = append(found, v)
		}
	}
	return found
}
