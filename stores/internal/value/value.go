// Package value writes and reads the parts of a record for stores that keep it as one
// value of bytes: its identity, its steps and its outcome.
package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// OwnerSize is how many bytes the owner of a claim has.
const OwnerSize = 16

// CheckOwner returns an error for a claim whose owner has another size.
func CheckOwner(c *onlyonce.Claim) error {
	if len(c.Owner) != OwnerSize {
		return fmt.Errorf("the claim's Owner has %d bytes: make it %d random ones", len(c.Owner), OwnerSize)
	}
	return nil
}

// LongestIdentity is how many bytes an ID and its fingerprint may have together, so that the
// size of a page of heads is limited.
const LongestIdentity = 64 << 10

// Longest bounds the durations of a record, so that an instant plus several of them fits
// into the 53 bits of a number in Lua.
const Longest = 100 * 365 * 24 * time.Hour

// Micros returns a duration in microseconds.
func Micros(d time.Duration) int64 { return min(d, Longest).Microseconds() }

// LapsedKeep returns for how many microseconds a record stays after the lease of the claim
// has lapsed; 0: forever.
func LapsedKeep(c *onlyonce.Claim) int64 { return min(record.LapsedKeep(c), Longest.Microseconds()) }

// Keep returns for how many microseconds a settled record stays; 0: forever.
func Keep(st *onlyonce.Settlement) int64 {
	if k := record.Keep(st); k != nil {
		return min(*k, Longest.Microseconds())
	}
	return 0
}

// The letters of the states.
const (
	Processing = 'P'
	Completed  = 'C'
	Failed     = 'F'
	Unknown    = 'U'
	Released   = 'R'
)

var states = [...]struct {
	letter byte
	state  string
}{
	{Processing, string(onlyonce.StateProcessing)},
	{Completed, string(onlyonce.StateCompleted)},
	{Failed, string(onlyonce.StateFailed)},
	{Unknown, string(onlyonce.StateUnknown)},
	{Released, record.StateReleased},
}

// StateOf returns the state with a letter, or "".
func StateOf(letter byte) string {
	for _, s := range states {
		if s.letter == letter {
			return s.state
		}
	}
	return ""
}

// Letter returns the letter of a state. The empty state has the letter of a release.
func Letter(state onlyonce.State) byte {
	for _, s := range states {
		if s.state == string(state) {
			return s.letter
		}
	}
	return Released
}

// ErrCut means that a value is shorter than its parts together.
var ErrCut = errors.New("the value is cut off")

// NoRecord returns the record of a value that no store of this version has written.
func NoRecord(now int64) record.Stored {
	row := record.Row{State: string(onlyonce.StateUnknown), Now: now, Err: errors.New("the value is not a record of this version")}
	return row.Record()
}

// Decode completes a row with the parts of a value, and makes it a record.
func Decode(row *record.Row, identity, steps, outcome string) record.Stored {
	i := reader{rest: identity}
	row.Fingerprint = i.bytes()
	row.Tenant, row.Operation, row.Key = i.text(), i.text(), i.text()
	if outcome != "" {
		o := reader{rest: outcome}
		row.Status = o.number()
		row.Ref, row.Error, row.Header = o.text(), o.text(), o.text()
		row.Body = o.bytes()
		row.Err = o.err
	}
	done, err := decodeSteps(steps)
	row.Err = errors.Join(row.Err, i.err, err)
	stored := row.Record()
	if stored.State != onlyonce.StateRemembered {
		stored.Steps = done
	}
	return stored
}

// Check returns an error if the value that was read must not be used for the ID.
func Check(v *record.Stored, id onlyonce.ID) error {
	if v.Damage != nil || v.As == record.StateReleased {
		v.ID = id
	}
	return v.Check(id)
}

// Settled returns the state of a value that was settled, whether it is final, and for how
// many microseconds it stays (0: forever). A release keeps nothing of the value.
func Settled(st *onlyonce.Settlement) (state byte, final bool, keep int64) {
	if st.State == "" {
		return Released, false, 0
	}
	return Letter(st.State), st.Final, Keep(st)
}

// Decide returns the record that a person's decision, with a new owner, makes of what was
// read; nil: nothing, because a repeated decision has taken effect before.
func Decide(v *record.Stored, seen *onlyonce.Record, owner string, st *onlyonce.Settlement, repeated bool) (*onlyonce.Record, error) {
	if repeated && v != nil && v.Owner == owner {
		return nil, nil
	}
	err := v.Resolvable(*seen, *st)
	switch {
	case err == nil:
		r := Decided(v, *st)
		return &r, nil
	case repeated && !errors.Is(err, onlyonce.ErrInFlight):
		return nil, record.ErrRepeated
	}
	return nil, err
}

// Decided returns the record that was read, changed by a person's decision. A damaged record
// may have no attempt, with which it could not be read, so it gets attempt 1.
func Decided(v *record.Stored, st onlyonce.Settlement) onlyonce.Record {
	r := v.Settled(st, time.Time{})
	r.Attempt = max(r.Attempt, 1)
	return r
}

// A reader reads the parts of a value one after another. A part that cannot be read is zero.
type reader struct {
	rest string
	err  error
}

func (r *reader) number() int64 {
	n, size := binary.Varint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.rest, r.err = "", ErrCut
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n < 0 || n > int64(len(r.rest)) {
		r.rest, r.err = "", ErrCut
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// bytes reads bytes, which may be nil.
func (r *reader) bytes() []byte {
	if r.rest != "" && r.rest[0] == absent {
		r.rest = r.rest[1:]
		return nil
	}
	return []byte(r.text())
}

// absent is the length that is written for nil bytes.
const absent = 1

func appendText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

func appendBytes(b, value []byte) []byte {
	if value == nil {
		return append(b, absent)
	}
	return append(binary.AppendVarint(b, int64(len(value))), value...)
}

// Identity returns the part of a value that says whose it is.
func Identity(fingerprint []byte, summary string, id onlyonce.ID) []byte {
	fingerprint = record.EncodePrint(fingerprint, summary)
	b := make([]byte, 0, 8+len(fingerprint)+len(id.Tenant)+len(id.Operation)+len(id.Key))
	return appendText(appendText(appendText(appendBytes(b, fingerprint), id.Tenant), id.Operation), id.Key)
}

// Outcome returns the part of a value that a settlement makes.
func Outcome(r *onlyonce.Result, failure string) []byte {
	header, _ := record.EncodeHeader(r).(string)
	b := make([]byte, 0, 32+len(r.Ref)+len(failure)+len(header)+len(r.Body))
	b = binary.AppendVarint(b, int64(r.Status))
	return appendBytes(appendText(appendText(appendText(b, r.Ref), failure), header), r.Body)
}

// Steps returns the steps such that those of a later renewal can be appended:
// of two with the same name, the later one counts.
func Steps(steps map[string][]byte) (b []byte) {
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		value := steps[name]
		if value == nil {
			value = []byte{}
		}
		b = appendBytes(appendText(b, name), value)
	}
	return b
}

func decodeSteps(text string) (map[string][]byte, error) {
	if text == "" {
		return nil, nil
	}
	steps := make(map[string][]byte)
	r := reader{rest: text}
	for r.rest != "" {
		name := r.text()
		value := r.bytes()
		if r.err != nil {
			return nil, r.err
		}
		steps[name] = value
	}
	return steps, nil
}
