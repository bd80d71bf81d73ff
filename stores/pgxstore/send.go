package pgxstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
)

// send sends the statements in one round trip, between the statements before and after,
// which may be empty. Without an open transaction they are one implicit transaction. The
// waiters of the commands that end are notified.
//
// If ctx has ended, nothing is confirmed, whatever the server says: pgx can be set to have the
// server cancel the statements then, and PostgreSQL confirms a commit whose wait for the
// synchronous standbys was canceled.
func (s *Store) send(ctx context.Context, on querier, before string, list []*statement, after string) (err error) {
	var b pgx.Batch
	if before != "" {
		b.Queue(before)
	}
	parts := mergeBulk(list)
	if ended := channels(list); ended != "" {
		parts = append(parts, s.listener.notify(ended))
	}
	for _, p := range parts {
		p.queue(&b, s.text)
	}
	if after != "" {
		b.Queue(after)
	}
	results := on.SendBatch(ctx, &b)
	defer func() {
		if err = errors.Join(err, results.Close()); err == nil {
			err = ctx.Err()
		}
	}()
	if before != "" {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := p.read(results); err != nil {
			return err
		}
	}
	return nil
}

// A part of a pipeline is one statement to the server.
type part interface {
	queue(b *pgx.Batch, text map[string]string)
	read(results pgx.BatchResults) error
}

// channels returns the channel names of the commands that the statements may end.
func channels(list []*statement) string {
	var all strings.Builder
	for _, s := range list {
		if s.query.has(endsCommand) {
			all.WriteString(channel(s.key))
		}
	}
	return all.String()
}

// minBulk is the number of statements of one kind from which a single merged statement
// is faster.
const minBulk = 24

// mergeBulk merges the statements of one kind into one if there are at least minBulk.
func mergeBulk(list []*statement) []part {
	parts := make([]part, 0, len(list))
	mergeClaims, mergeSettles := count(list, claimQuery) >= minBulk, count(list, settleQuery) >= minBulk
	var claims, settles bulk
	for _, s := range list {
		switch {
		case mergeClaims && s.query == claimQuery:
			claims.members = append(claims.members, s)
		case mergeSettles && s.query == settleQuery:
			settles.members = append(settles.members, s)
		default:
			parts = append(parts, s)
		}
	}
	if mergeClaims {
		parts = append(parts, &claims)
	}
	if mergeSettles {
		parts = append(parts, &settles)
	}
	return parts
}

func count(list []*statement, q *query) (n int) {
	for _, s := range list {
		if s.query == q {
			n++
		}
	}
	return n
}

// A bulk is many claims, or many settlements, in one statement.
type bulk struct{ members []*statement }

func (l *bulk) isClaims() bool { return l.members[0].claim != nil }

func (l *bulk) queue(b *pgx.Batch, text map[string]string) {
	if l.isClaims() {
		b.Queue(text["claims"], postgres.ClaimColumns(l.members, (*statement).claimArgs)...)
	} else {
		b.Queue(text["settles"], postgres.SettleColumns(l.members, (*statement).settlementArgs)...)
	}
}

func (s *statement) claimArgs() (*[32]byte, *onlyonce.Claim) { return &s.key.Hash, s.claim }

func (s *statement) settlementArgs() (*[32]byte, *onlyonce.Hold, *onlyonce.Settlement) {
	return &s.key.Hash, s.hold, s.settlement
}

// read marks the members that wrote. Each has an owner of its own, unless a call was
// repeated while it ran. The server returns the owners mostly in the members' order.
func (l *bulk) read(results pgx.BatchResults) error {
	for _, s := range l.members {
		s.wrote = false
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	var owner pgtype.DriverBytes
	var fence int64
	into := []any{&owner, nil}
	if l.isClaims() {
		into[1] = &fence
	}
	for at := 0; rows.Next(); {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for range l.members {
			s := l.members[at]
			at = (at + 1) % len(l.members)
			if s.owner() == string(owner) && !s.wrote {
				s.wrote, s.fence = true, fence
				break
			}
		}
	}
	rows.Close()
	return rows.Err()
}

// owner returns the owner of the claim or of the settlement.
func (s *statement) owner() string {
	if s.claim != nil {
		return s.claim.Owner
	}
	return s.hold.Owner
}
