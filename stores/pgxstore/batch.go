package pgxstore

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
)

// runWrites runs a batch of a queue as one transaction in one round trip. The order keeps
// two batches from waiting for each other.
func (s *Store) runWrites(q *group.Queue[*statement], sc *storeConn, batch []*group.Ticket[*statement]) {
	slices.SortFunc(batch, func(a, b *group.Ticket[*statement]) int {
		return bytes.Compare(a.Job.key.Hash[:], b.Job.key.Hash[:])
	})
	list := make([]*statement, len(batch))
	for i, t := range batch {
		list[i] = t.Job
	}
	err := s.writeBatch(q, sc, batch, list)
	if sc.broken() { // repeatable statements are sent once more, on another connection
		if tickets, statements := repeatable(batch, list); len(statements) > 0 {
			for _, st := range statements {
				st.repeated = true
			}
			again := s.writeBatch(q, sc, tickets, statements)
			for _, t := range tickets {
				q.Finish(t, again)
			}
		}
	}
	for _, t := range batch {
		q.Finish(t, err) // unless it is finished
	}
}

func (s *Store) writeBatch(q *group.Queue[*statement], sc *storeConn, batch []*group.Ticket[*statement], list []*statement) error {
	return sc.use(func(ctx context.Context, conn *pgx.Conn) error {
		err := s.send(ctx, sc.sender, sc.sessionSetup(), list, "")
		if len(list) == 1 || postgres.Code(err) == "" || isStalePlan(err) || conn.IsClosed() {
			return err
		}
		for i, t := range batch { // one of them failed: each goes alone
			if err = s.send(ctx, sc.sender, sc.sessionSetup(), list[i:i+1], ""); conn.IsClosed() {
				return err
			}
			q.Finish(t, err)
		}
		return nil
	})
}

// repeatable returns the statements whose callers still wait for them and that have no effect
// if they are executed a second time.
func repeatable(batch []*group.Ticket[*statement], list []*statement) ([]*group.Ticket[*statement], []*statement) {
	var tickets []*group.Ticket[*statement]
	var statements []*statement
	for i, st := range list {
		if !batch[i].Finished() && !st.query.has(sentOnce) {
			tickets, statements = append(tickets, batch[i]), append(statements, st)
		}
	}
	return tickets, statements
}

func (s *Store) runReads(lane int, batch []*group.Ticket[*lookupJob]) (then func()) {
	err := s.readBatch(lane, batch)
	if s.readConns[lane].broken() {
		err = s.readBatch(lane, batch)
	}
	for _, t := range batch {
		s.reads.Finish(t, err) // unless it is finished
	}
	return nil
}

func (s *Store) readBatch(lane int, batch []*group.Ticket[*lookupJob]) error {
	return s.readConns[lane].use(func(ctx context.Context, conn *pgx.Conn) (err error) {
		if len(batch) == 1 {
			batch[0].Job.found, err = s.lookOn(ctx, conn, batch[0].Job.key)
			return err
		}
		return s.lookAll(ctx, conn, batch)
	})
}

// lookAll looks many records up at once. Callers that want the same record share it,
// because callers never modify what a store returns.
func (s *Store) lookAll(ctx context.Context, conn *pgx.Conn, batch []*group.Ticket[*lookupJob]) error {
	wanted := byRecord(batch)
	hashes := make([][]byte, 0, len(wanted))
	for hash := range wanted {
		hashes = append(hashes, bytes.Clone(hash[:]))
	}
	rows, err := conn.Query(ctx, s.text["lookups"], hashes, group.LongestShared)
	if err != nil {
		return err
	}
	defer rows.Close()
	var hash []byte
	for rows.Next() {
		var r row
		var long bool
		if err := rows.Scan(r.into(&r.server, &hash, &long)...); err != nil {
			return err
		}
		found := r.stored()
		for _, t := range wanted[[32]byte(hash)] {
			if long {
				t.Job.long = true
			} else if t.Job.found = found; found.Check(t.Job.key.ID) != nil {
				t.Job.found = nil
				s.reads.Finish(t, found.Check(t.Job.key.ID))
			}
		}
	}
	return rows.Err()
}

// runLongReads looks records up one by one, so that no more than one is on its way at a time.
// Callers that want the same record share it.
func (s *Store) runLongReads(_ int, batch []*group.Ticket[*lookupJob]) (then func()) {
	sc := &s.readConns[lanes]
	wanted := byRecord(batch)
	for _, first := range batch {
		k := first.Job.key
		same := wanted[k.Hash]
		if same == nil {
			continue // it was read for an earlier caller
		}
		delete(wanted, k.Hash)
		var found *stored
		read := func(ctx context.Context, conn *pgx.Conn) (err error) {
			found, err = s.lookOn(ctx, conn, k)
			return err
		}
		err := sc.use(read)
		if sc.broken() {
			err = sc.use(read)
		}
		for _, t := range same {
			t.Job.found = found
			s.longReads.Finish(t, err)
		}
	}
	return nil
}

// byRecord returns the tickets of each record by its hash.
func byRecord(batch []*group.Ticket[*lookupJob]) map[[32]byte][]*group.Ticket[*lookupJob] {
	wanted := make(map[[32]byte][]*group.Ticket[*lookupJob], len(batch))
	for _, t := range batch {
		wanted[t.Job.key.Hash] = append(wanted[t.Job.key.Hash], t)
	}
	return wanted
}
