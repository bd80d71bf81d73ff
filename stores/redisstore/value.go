package redisstore

import (
	"encoding/binary"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// A record is stored as one string: a head of fixed size, which the scripts read and
// write, and then its identity, its steps and its outcome, which they only copy.
// Numbers are big-endian; instants and durations are in microseconds. The fields of
// the head stand in head.lua, too.
const (
	headVersion = '1'
	headSize    = 79
)

// decode makes a record of a value that was read at the time now.
func decode(text string, now int64) record.Stored {
	if len(text) < headSize || text[0] != headVersion {
		return value.NoRecord(now)
	}
	row := record.Row{State: value.StateOf(text[1]), Final: text[2] == '1', Owner: text[3:19], Now: now}
	at := 19
	long := func() int64 {
		n := int64(binary.BigEndian.Uint64([]byte(text[at : at+8])))
		at += 8
		return n
	}
	short := func() int {
		n := int(binary.BigEndian.Uint32([]byte(text[at : at+4])))
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
	if len(text)-headSize < identity+steps {
		row.Err = value.ErrCut
		return row.Record()
	}
	rest := text[headSize:]
	return value.Decode(&row, rest[:identity], rest[identity:identity+steps], rest[identity+steps:])
}

// encodeNew returns the parts of a new command's value before its fence and after its
// lease.
func encodeNew(c *onlyonce.Claim, lapsedKeep int64) (head, rest string) {
	identity := value.Identity(c.Fingerprint, c.Summary, c.ID)
	b := make([]byte, 0, 36+len(identity))
	b = binary.BigEndian.AppendUint64(b, uint64(lapsedKeep))
	b = binary.BigEndian.AppendUint64(b, 0) // settled_at
	b = binary.BigEndian.AppendUint64(b, 0) // expires_at
	b = binary.BigEndian.AppendUint32(b, 1) // attempt
	b = binary.BigEndian.AppendUint32(b, uint32(len(identity)))
	b = binary.BigEndian.AppendUint32(b, 0) // steps
	return string([]byte{headVersion, value.Processing, '0'}) + c.Owner, string(append(b, identity...))
}

// encodeHold returns the owner and the fence of a hold as they stand in a head.
func encodeHold(h *onlyonce.Hold) string {
	return string(binary.BigEndian.AppendUint64([]byte(h.Owner), uint64(h.Fence)))
}
