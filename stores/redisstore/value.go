package redisstore

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A record is stored as one string: a head of fixed size, which the scripts read and
// write, and then its identity, its steps and its outcome, which they only copy.
// Numbers are big-endian; instants and durations are in microseconds. The fields of
// the head stand in head.lua, too.
const (
	headVersion = '1'
	headSize    = 79
	ownerSize   = 16
)

// The letters of the states in a head.
const (
	letterProcessing = 'P'
	letterCompleted  = 'C'
	letterFailed     = 'F'
	letterUnknown    = 'U'
	letterReleased   = 'R'
)

var states = map[byte]string{
	letterProcessing: string(onlyonce.StateProcessing),
	letterCompleted:  string(onlyonce.StateCompleted),
	letterFailed:     string(onlyonce.StateFailed),
	letterUnknown:    string(onlyonce.StateUnknown),
	letterReleased:   record.StateReleased,
}

// letter returns the letter of a state. The empty state has the letter of a release.
func letter(s onlyonce.State) string {
	switch s {
	case onlyonce.StateProcessing:
		return string(letterProcessing)
	case onlyonce.StateCompleted:
		return string(letterCompleted)
	case onlyonce.StateFailed:
		return string(letterFailed)
	case onlyonce.StateUnknown:
		return string(letterUnknown)
	}
	return string(letterReleased)
}

// errCut says that a value is shorter than what its parts say.
var errCut = errors.New("the value is cut off")

// decode makes a record of a value that was read at the time now.
func decode(value string, now int64) record.Stored {
	if len(value) < headSize || value[0] != headVersion {
		row := record.Row{State: string(onlyonce.StateUnknown), Now: now, Err: errors.New("the value is not a record of this version")}
		return row.Record()
	}
	row := record.Row{State: states[value[1]], Final: value[2] == '1', Owner: value[3:19], Now: now}
	at := 19
	long := func() int64 {
		n := int64(binary.BigEndian.Uint64([]byte(value[at : at+8])))
		at += 8
		return n
	}
	short := func() int {
		n := int(binary.BigEndian.Uint32([]byte(value[at : at+4])))
		at += 4
		return n
	}
	row.Fence, row.CreatedAt = long(), long()
	row.LeaseUntil = long()
	lapsedKeep := long()
	row.SettledAt, row.ExpiresAt = long(), long()
	if row.State == string(onlyonce.StateProcessing) && lapsedKeep > 0 {
		row.ExpiresAt = row.LeaseUntil + lapsedKeep
	}
	row.Attempt = int64(short())
	identity, steps := short(), short()
	if len(value)-headSize < identity+steps {
		row.Err = errCut
		return row.Record()
	}
	rest := value[headSize:]
	i := reader{rest: rest[:identity]}
	row.Fingerprint = i.bytes()
	row.Tenant, row.Operation, row.Key = i.text(), i.text(), i.text()
	if outcome := rest[identity+steps:]; outcome != "" {
		o := reader{rest: outcome}
		row.Status = o.number()
		row.Ref, row.Error, row.Header = o.text(), o.text(), o.text()
		row.Body = o.bytes()
		row.Err = o.err
	}
	done, err := decodeSteps(rest[identity : identity+steps])
	row.Err = errors.Join(row.Err, i.err, err)
	stored := row.Record()
	stored.Steps = done
	return stored
}

// A reader reads the parts of a value one after another. What can't be read is zero.
type reader struct {
	rest string
	err  error
}

func (r *reader) number() int64 {
	n, size := binary.Varint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.rest, r.err = "", errCut
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n < 0 || n > int64(len(r.rest)) {
		r.rest, r.err = "", errCut
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

// absent is what stands for nil bytes: the length -1.
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

// encodeNew returns the parts of a new command's value before its fence and after its
// lease.
func encodeNew(c *onlyonce.Claim, lapsedKeep int64) (head, rest string) {
	identity := encodeIdentity(c.Fingerprint, c.ID)
	b := make([]byte, 0, 36+len(identity))
	b = binary.BigEndian.AppendUint64(b, uint64(lapsedKeep))
	b = binary.BigEndian.AppendUint64(b, 0) // settled_at
	b = binary.BigEndian.AppendUint64(b, 0) // expires_at
	b = binary.BigEndian.AppendUint32(b, 1) // attempt
	b = binary.BigEndian.AppendUint32(b, uint32(len(identity)))
	b = binary.BigEndian.AppendUint32(b, 0) // steps
	return string([]byte{headVersion, letterProcessing, '0'}) + c.Owner, string(append(b, identity...))
}

// encodeHold returns the owner and the fence of a hold as they stand in a head.
func encodeHold(h *onlyonce.Hold) string {
	return string(binary.BigEndian.AppendUint64([]byte(h.Owner), uint64(h.Fence)))
}

func encodeIdentity(fingerprint []byte, id onlyonce.ID) []byte {
	b := make([]byte, 0, 8+len(fingerprint)+len(id.Tenant)+len(id.Operation)+len(id.Key))
	return appendText(appendText(appendText(appendBytes(b, fingerprint), id.Tenant), id.Operation), id.Key)
}

func encodeOutcome(r *onlyonce.Result, failure string) []byte {
	header, _ := record.EncodeHeader(r.Header).(string)
	b := make([]byte, 0, 32+len(r.Ref)+len(failure)+len(header)+len(r.Body))
	b = binary.AppendVarint(b, int64(r.Status))
	return appendBytes(appendText(appendText(appendText(b, r.Ref), failure), header), r.Body)
}

// encodeSteps returns the steps such that those of a later renewal can be appended:
// of two with the same name, the later one counts.
func encodeSteps(steps map[string][]byte) (b []byte) {
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
