// Package importfile reads the files of onlyonce records import: CSV with a heading, or a JSON object
// per line, as onlyonce records export writes it.
package importfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
)

const byteOrderMark = "\ufeff"

// longestKeep is the longest time for which an import keeps a record that expires. A later
// instant is a mistake more often than not.
const longestKeep = 10 * 365 * 24 * time.Hour

// A Line is a line of a file to import. Its names are those that export writes.
type Line struct {
	Tenant      *string             `json:"tenant"`
	Operation   *string             `json:"operation"`
	Key         string              `json:"key"`
	Fingerprint string              `json:"fingerprint"` // hexadecimal
	State       onlyonce.State      `json:"state"`
	StatusCode  *int                `json:"status_code"`
	Header      map[string][]string `json:"header"`
	Body        *string             `json:"body"`
	BodyEncoded *string             `json:"body_base64"`
	ExpiresAt   *instant            `json:"expires_at"`
	CreatedAt   *instant            `json:"created_at"`
	KeepLeft    keepLeft            `json:"keep_left_seconds"`
	ResultLeft  keepLeft            `json:"result_keep_left_seconds"`
	Ref         string              `json:"ref"`
	Summary     string              `json:"summary"`
	Error       string              `json:"error"`
	Steps       []string            `json:"steps"`
	Final       bool                `json:"final"`
	Corrupt     bool                `json:"corrupt"`
	exportedOnly

	number int
	err    error // of a line that can't be read
}

// exportedOnly are the fields that export writes and import ignores: they describe the
// record in the store that it came from.
type exportedOnly struct {
	ID          json.RawMessage `json:"id"`
	Attempt     json.RawMessage `json:"attempt"`
	Fence       json.RawMessage `json:"fence"`
	SettledAt   json.RawMessage `json:"settled_at"`
	LeaseLeft   json.RawMessage `json:"lease_left_seconds"`
	Traceparent json.RawMessage `json:"traceparent"`
	BodySize    json.RawMessage `json:"body_size"`
	Owner       json.RawMessage `json:"owner"`
	StepResults json.RawMessage `json:"step_results_base64"`
}

// fields are the names of a line's fields, for messages, with the types that they
// must have.
var fields = []struct{ name, kind string }{
	{"tenant", "a string"},
	{"operation", "a string"},
	{"key", "a string"},
	{"fingerprint", "a string of hexadecimal digits"},
	{"state", "completed or unknown"},
	{"status_code", "a number"},
	{"header", `an object of lists of strings, such as {"Content-Type": ["application/json"]}`},
	{"body", "a string"},
	{"body_base64", "a string"},
	{"expires_at", "a string such as 2026-01-02T15:04:05Z"},
	{"created_at", "a string such as 2026-01-02T15:04:05Z"},
	{"keep_left_seconds", "a number, or null for a record that stays until someone resolves it"},
	{"result_keep_left_seconds", "a number, if the response is deleted before the record"},
	{"ref", "a string"},
	{"summary", "a string"},
	{"error", "a string"},
}

// Number returns the number of the line in its file, from 1.
func (l *Line) Number() int { return l.number }

func errUnknownField(what, name string) error {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return fmt.Errorf("the %s %q is not known: write %v", what, name, cli.Choice(names))
}

// An instant is an instant in RFC 3339.
type instant struct{ time.Time }

// UnmarshalText parses the time. It hides the method of time.Time, whose error does not
// say what to write.
func (t *instant) UnmarshalText(text []byte) (err error) {
	if t.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%q is not a time: write one such as 2026-01-02T15:04:05Z", text)
	}
	return nil
}

// UnmarshalJSON hides the method of time.Time.
func (t *instant) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s is not a time: write a string such as \"2026-01-02T15:04:05Z\"", text)
	}
	return t.UnmarshalText([]byte(s))
}

// keepLeft is how long an exported record was still kept.
type keepLeft struct {
	given bool
	keep  time.Duration // or onlyonce.KeepForever
}

// UnmarshalJSON parses a number of seconds, or null.
func (k *keepLeft) UnmarshalJSON(text []byte) error {
	k.given = true
	if string(text) == "null" {
		k.keep = onlyonce.KeepForever
		return nil
	}
	seconds, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(seconds > 0 && seconds <= longestKeep.Seconds()) {
		return fmt.Errorf("keep_left_seconds is %s: write a number of more than 0, or null for a record that stays until someone resolves it", text)
	}
	k.keep = max(time.Duration(seconds*float64(time.Second)), 1)
	return nil
}

var errNotUTF8 = errors.New("the line is not UTF-8: convert the file, and write bodies that are not text as body_base64")
