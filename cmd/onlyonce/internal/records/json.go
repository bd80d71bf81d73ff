package records

import (
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// A recordJSON is a record in the form that --json prints.
type recordJSON struct {
	ID          string              `json:"id"`
	Tenant      string              `json:"tenant"`
	Operation   string              `json:"operation"`
	Key         string              `json:"key"`
	State       onlyonce.State      `json:"state"`
	Attempt     int                 `json:"attempt"`
	Fence       int64               `json:"fence"`
	CreatedAt   time.Time           `json:"created_at"`
	SettledAt   *time.Time          `json:"settled_at"`
	LeaseLeft   *float64            `json:"lease_left_seconds"`                 // null unless processing
	KeepLeft    *float64            `json:"keep_left_seconds"`                  // null: until resolved
	ResultLeft  *float64            `json:"result_keep_left_seconds,omitempty"` // if the result is deleted before the record
	StatusCode  int                 `json:"status_code"`
	Ref         string              `json:"ref"`
	Traceparent string              `json:"traceparent,omitempty"` // of the attempt that settled it
	Summary     string              `json:"summary,omitempty"`     // of the request
	Error       string              `json:"error"`
	Final       bool                `json:"final"`
	Corrupt     bool                `json:"corrupt"`
	Steps       []string            `json:"steps"`
	BodySize    int                 `json:"body_size"`
	Header      map[string][]string `json:"header,omitempty"`
	Body        *string             `json:"body,omitempty"` // if it is UTF-8
	BodyEncoded []byte              `json:"body_base64,omitempty"`
	Audit       []auditJSON         `json:"audit,omitempty"` // oldest first
}

// newRecordJSON returns a record without its response, which withResponse adds.
func newRecordJSON(r onlyonce.Record) recordJSON {
	j := recordJSON{
		ID: r.ID.HexHash(), Tenant: r.ID.Tenant, Operation: r.ID.Operation, Key: r.ID.Key,
		State: r.State, Attempt: r.Attempt, Fence: r.Fence, CreatedAt: r.CreatedAt.UTC(),
		StatusCode: r.Result.Status, Ref: r.Result.Ref, Traceparent: r.Result.Traceparent, Summary: r.Summary, Error: r.Error, Final: r.Final, Corrupt: r.Corrupt,
		Steps: slices.Sorted(maps.Keys(r.Steps)), BodySize: len(r.Result.Body),
	}
	if r.State == onlyonce.StateProcessing {
		j.LeaseLeft = seconds(r.LeaseLeft)
		return j
	}
	settled := r.SettledAt.UTC()
	j.SettledAt = &settled
	if r.KeepLeft > 0 {
		j.KeepLeft = seconds(r.KeepLeft)
	}
	if r.Result.Keep > 0 {
		j.ResultLeft = seconds(r.Result.Keep)
	}
	return j
}

func (j recordJSON) withResponse(r onlyonce.Record) recordJSON {
	j.Header = r.Result.Header
	if body := string(r.Result.Body); utf8.ValidString(body) {
		j.Body = &body
	} else {
		j.BodyEncoded = r.Result.Body
	}
	return j
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
