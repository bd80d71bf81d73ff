package engine

import "database/sql/driver"

// The arguments of the statements of the outbox. A struct names those of a statement or
// of a family, and its methods list them in the order of the statements. Durations are
// microseconds; a list of messages is their numbers as JSON.

// OutboxMessage are the arguments of "outbox append".
type OutboxMessage struct {
	ID, Topic, Key, Tenant string
	Headers                string // JSON
	Payload                []byte
}

// Append lists the arguments of "outbox append".
func (m *OutboxMessage) Append() []driver.NamedValue {
	return Args(m.ID, m.Topic, m.Key, m.Tenant, m.Headers, m.Payload)
}

// OutboxLease are the arguments of statements about the messages of an owner.
type OutboxLease struct {
	Seqs  string
	Owner []byte
	For   int64 // how long the lease lasts, or published messages are kept
}

// Hold lists the arguments of "outbox hold".
func (l *OutboxLease) Hold() []driver.NamedValue { return Args(l.Seqs, l.Owner, l.For) }

// Renew lists the arguments of "outbox renew".
func (l *OutboxLease) Renew() []driver.NamedValue { return Args(l.Seqs, l.For, l.Owner) }

// Delete lists the arguments of "outbox delete".
func (l *OutboxLease) Delete() []driver.NamedValue { return Args(l.Seqs, l.Owner) }

// Keep lists the arguments of "outbox keep".
func (l *OutboxLease) Keep() []driver.NamedValue { return Args(l.Seqs, l.For, l.Owner) }

// OutboxFailure are the arguments of statements about messages that were not published.
type OutboxFailure struct {
	Seqs     string
	State    string // of "outbox put off"
	After    int64  // of "outbox put off"
	Attempts int64
	Error    any // NULL if nil
	Owner    []byte
}

// PutBack lists the arguments of "outbox put back".
func (f *OutboxFailure) PutBack() []driver.NamedValue {
	return Args(f.Seqs, f.Attempts, f.Error, f.Owner)
}

// PutOff lists the arguments of "outbox put off".
func (f *OutboxFailure) PutOff() []driver.NamedValue {
	return Args(f.Seqs, f.State, f.After, f.Attempts, f.Error, f.Owner)
}

// OutboxSeqs are the arguments of "outbox lapse", "outbox purge", "outbox park", "outbox requeue",
// "outbox discard" and, with hashes of keys in place of numbers, "outbox firsts".
type OutboxSeqs struct{ Seqs string }

// List lists the arguments.
func (s *OutboxSeqs) List() []driver.NamedValue { return Args(s.Seqs) }

// OutboxAudit are the arguments of "outbox audit". The messages come first on PostgreSQL and
// SQLite, where arguments are numbered, and on MySQL, where a decision joins them.
type OutboxAudit struct{ Seqs, Action, Actor, Reason string }

// List lists the arguments.
func (a *OutboxAudit) List() []driver.NamedValue { return Args(a.Seqs, a.Action, a.Actor, a.Reason) }

// OutboxNext are the arguments of "outbox next".
type OutboxNext struct {
	Oldest int64 // it looks at so many of the oldest waiting messages, and one more
	Limit  int64
}

// List lists the arguments.
func (n *OutboxNext) List() []driver.NamedValue { return Args(n.Oldest, n.Limit) }

// OutboxLimit are the arguments of "outbox damaged", "outbox purgeable", "outbox
// parked" and "outbox audit trail".
type OutboxLimit struct {
	After int64 // the number of the last message, or the last entry, that was listed
	Limit int64
}

// List lists the arguments.
func (l *OutboxLimit) List() []driver.NamedValue { return Args(l.Limit) }

// Listed lists the arguments of "outbox parked" and "outbox audit trail".
func (l *OutboxLimit) Listed() []driver.NamedValue { return Args(l.After, l.Limit) }

// OutboxOthers are the arguments of "outbox next of others".
type OutboxOthers struct {
	Topics string // JSON, each in hexadecimal
	Limit  int64
}

// List lists the arguments.
func (o *OutboxOthers) List() []driver.NamedValue { return Args(o.Topics, o.Topics, o.Limit) }

// OutboxLine are the arguments of "outbox line".
type OutboxLine struct {
	Line  int64 // the hash of the key
	Key   string
	Limit int64
}

// List lists the arguments.
func (l *OutboxLine) List() []driver.NamedValue { return Args(l.Line, l.Key, l.Limit) }

// OutboxPlace is the place in the index of the last of the messages in the state "first" that was looked
// at. It is the argument of "outbox unblocked" and "outbox looked at".
type OutboxPlace struct {
	Line int64 // the hash of its key
	Seq  int64
}

// List lists the arguments.
func (p *OutboxPlace) List() []driver.NamedValue { return Args(p.Line, p.Line, p.Seq) }

// OutboxMoves are the arguments of "outbox move".
type OutboxMoves struct{ Moves string } // JSON: of each message an array of its number, its new state and its new due_at

// List lists the arguments.
func (m *OutboxMoves) List() []driver.NamedValue { return Args(m.Moves) }
