// Package pipe sends batches over a connection of pgx as pgx does, but with statements
// that are prepared once and arrays whose encoding is known: pgx spends a third of the
// caller's share of a batch on finding it out.
package pipe

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Conn is a connection that keeps its prepared statements. One batch at a time uses it.
type Conn struct {
	*pgx.Conn
	prepared   map[string]*pgconn.StatementDescription // by text
	values     []byte                                  // of the arguments of one statement
	endOffsets []int                                   // of each in values; negative: NULL
	params     [][]byte
}

// New returns a Conn that sends batches over the connection.
func New(conn *pgx.Conn) *Conn {
	return &Conn{Conn: conn, prepared: make(map[string]*pgconn.StatementDescription)}
}

// binaryFormat is the format of every argument and every result.
var binaryFormat = []int16{pgx.BinaryFormatCode}

// SendBatch sends the statements in one round trip.
func (p *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if p.prepared[q.SQL] != nil {
			continue
		}
		st, err := p.Prepare(ctx, q.SQL, q.SQL)
		if err != nil {
			return &results{err: err}
		}
		p.prepared[q.SQL] = st
	}
	pipeline := p.PgConn().StartPipeline(ctx)
	for _, q := range b.QueuedQueries {
		st := p.prepared[q.SQL]
		if err := p.encode(st, q.Arguments); err != nil {
			return &results{err: errors.Join(err, pipeline.Close())} // which closes the connection: it is between two statements
		}
		pipeline.SendQueryStatement(st, p.params, binaryFormat, binaryFormat)
	}
	return &results{types: p.TypeMap(), pipeline: pipeline, err: pipeline.Sync()}
}

// encode encodes the arguments of a statement into p.params.
func (p *Conn) encode(st *pgconn.StatementDescription, args []any) error {
	p.values, p.endOffsets, p.params = p.values[:0], p.endOffsets[:0], p.params[:0]
	if len(args) != len(st.ParamOIDs) {
		return errors.New("a statement does not have as many arguments as parameters")
	}
	for i, arg := range args {
		all, null, err := p.append(p.values, st.ParamOIDs[i], arg)
		if err != nil {
			return err
		}
		p.values = all
		if null {
			p.endOffsets = append(p.endOffsets, -1)
		} else {
			p.endOffsets = append(p.endOffsets, len(all))
		}
	}
	begin := 0
	for _, end := range p.endOffsets {
		if end < 0 {
			p.params = append(p.params, nil)
			continue
		}
		p.params = append(p.params, p.values[begin:end:end])
		begin = end
	}
	if cap(p.values) > largestKept {
		p.values = nil
	}
	return nil
}

// largestKept is how much memory a connection keeps for the next batch.
const largestKept = 1 << 20

// append appends the binary form of an argument.
func (p *Conn) append(to []byte, oid uint32, arg any) (all []byte, null bool, err error) {
	switch list := arg.(type) {
	case [][]byte:
		return array(to, pgtype.ByteaOID, list, func(to, v []byte) ([]byte, bool) { return append(to, v...), v == nil }), false, nil
	case []string:
		return array(to, pgtype.TextOID, list, func(to []byte, v string) ([]byte, bool) { return append(to, v...), false }), false, nil
	case []*string:
		return array(to, pgtype.TextOID, list, func(to []byte, v *string) ([]byte, bool) {
			if v == nil {
				return to, true
			}
			return append(to, *v...), false
		}), false, nil
	case []int32:
		return array(to, pgtype.Int4OID, list, func(to []byte, v int32) ([]byte, bool) { return binary.BigEndian.AppendUint32(to, uint32(v)), false }), false, nil
	case []int64:
		return array(to, pgtype.Int8OID, list, func(to []byte, v int64) ([]byte, bool) { return binary.BigEndian.AppendUint64(to, uint64(v)), false }), false, nil
	case []*int64:
		return array(to, pgtype.Int8OID, list, func(to []byte, v *int64) ([]byte, bool) {
			if v == nil {
				return to, true
			}
			return binary.BigEndian.AppendUint64(to, uint64(*v)), false
		}), false, nil
	case []bool:
		return array(to, pgtype.BoolOID, list, func(to []byte, v bool) ([]byte, bool) {
			if v {
				return append(to, 1), false
			}
			return append(to, 0), false
		}), false, nil
	}
	all, err = p.TypeMap().Encode(oid, pgx.BinaryFormatCode, arg, slices.Grow(to, 1))
	if all == nil && err == nil {
		return to, true, nil
	}
	return all, false, err
}

// array appends a one-dimensional array as PostgreSQL's array_recv reads it. An
// element that is NULL has no bytes.
func array[T any](to []byte, oid uint32, list []T, element func([]byte, T) (all []byte, null bool)) []byte {
	head := len(to)
	to = binary.BigEndian.AppendUint32(to, 1) // dimensions
	to = binary.BigEndian.AppendUint32(to, 0) // whether there are NULLs
	to = binary.BigEndian.AppendUint32(to, oid)
	to = binary.BigEndian.AppendUint32(to, uint32(len(list)))
	to = binary.BigEndian.AppendUint32(to, 1) // the index of the first
	for _, v := range list {
		size := len(to)
		to = binary.BigEndian.AppendUint32(to, 0)
		all, null := element(to, v)
		n := uint32(len(all) - len(to))
		if null {
			n = ^uint32(0)
			all[head+7] = 1
		}
		binary.BigEndian.PutUint32(all[size:], n)
		to = all
	}
	return to
}
