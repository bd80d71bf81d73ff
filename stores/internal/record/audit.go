package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// An auditedRecord holds the parts of a record or a settlement that an entry of the audit trail keeps.
type auditedRecord struct {
	State   onlyonce.State `json:"state"`
	Attempt int            `json:"attempt,omitempty"`
	Fence   int64          `json:"fence,omitempty"`
	Status  int            `json:"status_code,omitempty"`
	Final   bool           `json:"final,omitempty"`
	Corrupt bool           `json:"corrupt,omitempty"`
	Ref     string         `json:"result_ref,omitempty"`
	Error   string         `json:"error,omitempty"`
	Keep    int64          `json:"keep_microseconds,omitempty"`
}

func (a auditedRecord) encode() string {
	a.Ref, a.Error = escape(a.Ref), escape(a.Error)
	text, _ := json.Marshal(a) // has no error
	return string(text)
}

func decodeAudited(text string) (a auditedRecord, err error) {
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, err
	}
	var refErr, errorErr error
	a.Ref, refErr = unescape(a.Ref)
	a.Error, errorErr = unescape(a.Error)
	return a, errors.Join(refErr, errorErr)
}

// EncodeBefore returns the text of the column record_before.
func EncodeBefore(r *onlyonce.Record) string {
	return auditedRecord{
		State: r.State, Attempt: r.Attempt, Fence: r.Fence, Status: r.Result.Status, Final: r.Final, Corrupt: r.Corrupt, Ref: r.Result.Ref, Error: r.Error,
	}.encode()
}

// EncodeAfter returns the text of the column record_after, or nil if the decision deletes the
// record.
func EncodeAfter(st *onlyonce.Settlement) any {
	if st.State == "" {
		return nil
	}
	return auditedRecord{
		State: st.State, Status: st.Result.Status, Final: st.Final, Ref: st.Result.Ref, Error: st.Error, Keep: max(st.Keep, 0).Microseconds(),
	}.encode()
}

// ReadAudit reads a row of the statement "audit trail" about a command. decode undoes what the
// store did to the texts of the table.
func ReadAudit(r *Reader, id onlyonce.ID, decode func(string) string) (onlyonce.AuditEntry, error) {
	e := onlyonce.AuditEntry{ID: id, At: Instant(r.Int("decided_at"))}
	e.Actor, e.Reason = decode(r.Text("actor")), decode(r.Text("reason"))
	before, after := r.Text("record_before"), r.Text("record_after")
	if r.Err != nil {
		return e, r.Err
	}
	was, err := decodeAudited(before)
	if err != nil {
		return e, fmt.Errorf("record_before: %w", err)
	}
	e.Before = onlyonce.Record{
		ID: id, State: was.State, Attempt: was.Attempt, Fence: was.Fence, Final: was.Final, Corrupt: was.Corrupt, Error: was.Error,
		Result: onlyonce.Result{Status: was.Status, Ref: was.Ref},
	}
	if after == "" {
		return e, nil
	}
	became, err := decodeAudited(after)
	if err != nil {
		return e, fmt.Errorf("record_after: %w", err)
	}
	e.After = onlyonce.Settlement{
		State: became.State, Error: became.Error, Final: became.Final, Result: onlyonce.Result{Status: became.Status, Ref: became.Ref},
		Keep: time.Duration(became.Keep) * time.Microsecond,
	}
	if became.Keep == 0 {
		e.After.Keep = onlyonce.KeepForever
	}
	return e, nil
}
