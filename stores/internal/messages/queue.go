// Package messages is the queue of the outbox in a SQL database. The stores append messages
// to it and wake the relays.
package messages

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Queue leases, settles and lists the messages of one database. Its errors do not name
// the operation.
type Queue struct {
	on     engine.Outbox
	oldest atomic.Int64                       // the number of the oldest waiting message when messages were last leased; 0: none
	from   atomic.Pointer[engine.OutboxPlace] // from where the next lease looks for keys whose messages can wait again
}

// New returns the queue of an engine's database.
func New(on engine.Outbox) *Queue {
	q := &Queue{on: on}
	q.from.Store(new(engine.OutboxPlace))
	return q
}

// Prepare returns the arguments of the statement that appends a message, which it
// completes and checks.
func Prepare(ctx context.Context, m outbox.Message) (*engine.OutboxMessage, error) {
	m, err := outbox.Prepare(ctx, m)
	if err != nil {
		return nil, err
	}
	headers, _ := json.Marshal(m.Headers) // texts have no error
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	return &engine.OutboxMessage{ID: m.ID, Topic: m.Topic, Key: m.Key, Tenant: m.Tenant, Headers: string(headers), Payload: payload}, nil
}

// Lease leases the oldest waiting messages to owner, except those of some topics and of their
// keys. It parks messages that are in a state which no store writes.
func (q *Queue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except []string) (list []outbox.Entry, err error) {
	there, err := q.look(ctx)
	all := false
	if there.oldest == q.oldest.Swap(there.oldest) && there.oldest != 0 && err == nil { // the last lease passed over it
		var blocked bool
		blocked, err = q.clear(ctx)
		all = !blocked
	}
	if err == nil && (there.due || there.damaged) {
		var from engine.OutboxPlace
		err = q.on.OutboxWrite(ctx, true, func(s engine.Runner) (err error) {
			list, from = nil, engine.OutboxPlace{}
			if there.damaged {
				if n, err := parkDamaged(s); n == maxParked || err != nil {
					return err // the others may share keys with messages that wait
				}
			}
			if there.blocked {
				if from, err = unblock(s, *q.from.Load(), limit); err != nil {
					return err
				}
			}
			list, err = leaseNext(s, owner, lease, limit, all, except)
			return err
		})
		if err == nil {
			q.from.Store(&from)
		}
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// An outlook says which messages may be in the queue. It costs less than trying.
type outlook struct {
	due     bool  // there may be messages to lease
	damaged bool  // there are messages in a state that no store writes
	oldest  int64 // the number of the oldest waiting message; 0: none
	blocked bool  // there are blocked messages
}

func (q *Queue) look(ctx context.Context) (there outlook, err error) {
	err = q.on.OutboxRead(ctx).Query("outbox due", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		there = outlook{due: r.Int("due") != 0, damaged: r.Int("damaged") != 0, oldest: r.Int("oldest"), blocked: r.Int("blocked") != 0}
		return r.Err
	})
	return there, err
}

// maxParked is how many damaged messages are parked in one transaction.
const maxParked = 10_000

// parkDamaged parks messages that are in a state which no store writes, and returns how
// many it found. Left alone they would never be published, and messages with their
// keys would overtake them.
func parkDamaged(s engine.Runner) (n int, err error) {
	list, err := seqs(s, "outbox damaged", (&engine.OutboxLimit{Limit: maxParked}).List())
	if len(list) > 0 && err == nil {
		_, err = s.Exec("outbox park", (&engine.OutboxSeqs{Seqs: numbers(list)}).List())
	}
	return len(list), err
}

// changeListed carries out a statement for the messages that a query returns, and returns how many it
// has changed. On MySQL, one statement that searches by state and changes messages would either read all
// of the state, or wait for rows of transactions that have not committed.
func changeListed(s engine.Runner, query string, args []driver.NamedValue, statement string) (int64, error) {
	list, err := seqs(s, query, args)
	if len(list) == 0 || err != nil {
		return 0, err
	}
	return s.Exec(statement, (&engine.OutboxSeqs{Seqs: numbers(list)}).List())
}

// minOldest is how many of the oldest waiting messages a lease looks at, if it may lease fewer than half
// as many: a thousand of them show whether messages are to be blocked.
const minOldest = 2000

// leaseNext leases messages. It looks at all waiting ones only if all is set and it finds none among the
// oldest.
func leaseNext(s engine.Runner, owner string, lease time.Duration, limit int, all bool, except []string) ([]outbox.Entry, error) {
	if _, err := changeListed(s, "outbox past", nil, "outbox lapse"); err != nil {
		return nil, err
	}
	var list []outbox.Entry
	var err error
	if len(except) > 0 {
		list, err = leasable(s, "outbox next of others", (&engine.OutboxOthers{Topics: hexadecimal(except), Limit: int64(limit)}).List())
	} else {
		next := engine.OutboxNext{Oldest: max(minOldest, 2*int64(limit)), Limit: int64(limit)}
		list, err = leasable(s, "outbox next", next.List())
		if len(list) == 0 && err == nil && all {
			next.Oldest = math.MaxInt64
			list, err = leasable(s, "outbox next", next.List())
		}
	}
	if err != nil || len(list) == 0 {
		return nil, err
	}
	seqs := make([]int64, len(list))
	for i := range list {
		seqs[i] = list[i].Seq
	}
	held := engine.OutboxLease{Seqs: numbers(seqs), Owner: []byte(owner), For: record.MicrosCeil(lease)}
	_, err = s.Exec("outbox hold", held.Hold())
	return list, err
}

// Renew makes owner's lease on messages end one full lease from now.
func (q *Queue) Renew(ctx context.Context, owner string, lease time.Duration, list []int64) error {
	var n int64
	err := q.on.OutboxWrite(ctx, true, func(s engine.Runner) (err error) {
		n, err = s.Exec("outbox renew", (&engine.OutboxLease{Seqs: numbers(list), Owner: []byte(owner), For: record.MicrosCeil(lease)}).Renew())
		return err
	})
	if n == 0 && err == nil {
		err = outbox.ErrLost
	}
	return err
}

// Settle records the outcome of messages leased to owner.
func (q *Queue) Settle(ctx context.Context, owner string, verdicts []outbox.Verdict) error {
	var n int64
	err := q.on.OutboxWrite(ctx, false, func(s engine.Runner) (err error) {
		n, err = settleAll(s, owner, verdicts)
		return err
	})
	if err == nil && n < int64(len(verdicts)) {
		err = outbox.ErrLost
	}
	return err
}

// settleAll returns how many verdicts were carried out. It needs one statement for all messages
// with the same verdict: a batch with one for each would take longer than Config.Timeout of its
// relay where the database is far away.
func settleAll(s engine.Runner, owner string, verdicts []outbox.Verdict) (done int64, err error) {
	var alike []outbox.Verdict // in the order in which they come first
	seqs := make(map[outbox.Verdict][]int64)
	for _, v := range verdicts {
		seq := v.Seq
		if v.Seq = 0; v.State == outbox.StatePublished {
			v.Attempts, v.Error = 0, ""
		}
		if seqs[v] == nil {
			alike = append(alike, v)
		}
		seqs[v] = append(seqs[v], seq)
	}
	for _, v := range alike {
		n, err := settle(s, owner, v, numbers(seqs[v]))
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// settle records one verdict on messages.
func settle(s engine.Runner, owner string, v outbox.Verdict, seqs string) (int64, error) {
	lease := engine.OutboxLease{Seqs: seqs, Owner: []byte(owner), For: record.MicrosCeil(v.After)}
	failure := engine.OutboxFailure{Seqs: seqs, Attempts: int64(v.Attempts), Error: record.NullText(v.Error), Owner: []byte(owner)}
	switch {
	case v.State == outbox.StatePublished && v.After <= 0:
		return s.Exec("outbox delete", lease.Delete())
	case v.State == outbox.StatePublished:
		return s.Exec("outbox keep", lease.Keep())
	case v.State == outbox.StateWaiting && v.After <= 0:
		return s.Exec("outbox put back", failure.PutBack())
	case v.State == outbox.StateWaiting:
		failure.State, failure.After = "held", record.MicrosCeil(v.After)
		return s.Exec("outbox put off", failure.PutOff())
	case v.State == outbox.StateParked:
		failure.State = "parked"
		return s.Exec("outbox put off", failure.PutOff())
	}
	return 0, fmt.Errorf("there is no verdict %q", v.State)
}

// Lag returns how many messages wait to be published, and for how long.
func (q *Queue) Lag(ctx context.Context) (lag outbox.Lag, err error) {
	err = q.on.OutboxRead(ctx).Query("outbox lag", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		lag.Waiting, lag.Parked = int(r.Int("waiting")), int(r.Int("parked"))
		now, waiting, held := r.Int("now"), r.Int("waiting since"), r.Int("held since")
		for _, since := range []int64{waiting, held} {
			if since != 0 {
				lag.Oldest = max(lag.Oldest, record.Between(since, now))
			}
		}
		return r.Err
	})
	if err != nil {
		return outbox.Lag{}, err
	}
	return lag, nil
}

// Parked returns parked messages, for an operator.
func (q *Queue) Parked(ctx context.Context, after int64, limit int) ([]outbox.Entry, error) {
	return entries(q.on.OutboxRead(ctx), "outbox parked", (&engine.OutboxLimit{After: after, Limit: int64(limit)}).Listed())
}

// Decide requeues or discards parked messages and, unless d is nil, adds entries to the audit
// trail in the same transaction.
func (q *Queue) Decide(ctx context.Context, action string, seqs []int64, d *outbox.Decision) (int, error) {
	of := engine.OutboxSeqs{Seqs: numbers(slices.Compact(slices.Sorted(slices.Values(seqs))))}
	if d == nil {
		return q.change(ctx, func(s engine.Runner) (int64, error) { return s.Exec("outbox "+action, of.List()) })
	}
	if err := onlyonce.Decision(*d).Check(); err != nil {
		return 0, err
	}
	var n int64
	err := q.on.OutboxWrite(ctx, false, func(s engine.Runner) error {
		recorded, err := s.Exec("outbox audit", (&engine.OutboxAudit{Seqs: of.Seqs, Action: action, Actor: d.Actor, Reason: d.Reason}).List())
		if err != nil {
			return err
		}
		if n, err = s.Exec("outbox "+action, of.List()); err == nil && n != recorded {
			err = errChangedMeanwhile
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

var errChangedMeanwhile = errors.New("one of the messages was parked, requeued or discarded at the same time: nothing was changed; look at the messages again")

// AuditTrail returns entries of the audit trail, newest first.
func (q *Queue) AuditTrail(ctx context.Context, before int64, limit int) (list []outbox.AuditEntry, err error) {
	args := engine.OutboxLimit{After: cmp.Or(before, math.MaxInt64), Limit: int64(limit)}
	err = q.on.OutboxRead(ctx).Query("outbox audit trail", args.Listed(), func(v []driver.Value) error {
		r := record.Reader{Values: v}
		e := outbox.AuditEntry{Seq: r.Int("seq"), At: record.Instant(r.Int("decided_at")), Action: r.Text("action")}
		e.Actor, e.Reason = r.Text("actor"), r.Text("reason")
		m := &e.Message
		m.Seq, m.ID, m.Topic, m.Key, m.Tenant = r.Int("message_seq"), r.Text("id"), r.Text("topic"), r.Text("ordering_key"), r.Text("tenant")
		m.Attempts, m.Error = int(r.Int("attempts")), r.Text("error")
		list = append(list, e)
		return r.Err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Purge deletes at most limit published messages whose keep time has ended.
func (q *Queue) Purge(ctx context.Context, limit int) (int, error) {
	return q.change(ctx, func(s engine.Runner) (int64, error) {
		return changeListed(s, "outbox purgeable", (&engine.OutboxLimit{Limit: int64(limit)}).List(), "outbox purge")
	})
}

func (q *Queue) change(ctx context.Context, f func(engine.Runner) (int64, error)) (int, error) {
	var n int64
	err := q.on.OutboxWrite(ctx, false, func(s engine.Runner) (err error) {
		n, err = f(s)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
