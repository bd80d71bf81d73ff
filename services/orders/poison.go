package orders

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A Poisoned is a message from the broker that the consumer could not handle, with its
// last error. It is kept until someone retries or discards it. An ID or tenant that
// not every database can store is replaced by a hash, and the error contains the
// original. A message without an ID, with the ID of another message, with a stored
// result that is damaged, or with a payload of more than 1 MiB, is kept under a hash of
// its payload, so that it replaces no other and is not handled. Of a longer payload, only
// the first MiB is kept.
type Poisoned struct {
	ID, Tenant string
	Error      string
	At         time.Time // when the consumer gave the message up
}

const (
	unpoisonSQL = `DELETE FROM orders_poison WHERE id = ? AND tenant = ?`
	repoisonSQL = `UPDATE orders_poison SET error = ?, created_at = ? WHERE id = ? AND tenant = ?`
	poisonSQL   = `INSERT INTO orders_poison (id, tenant, payload, error, created_at) VALUES (?, ?, ?, ?, ?)`
	poisonsSQL  = `SELECT count(*) FROM orders_poison`
	payloadSQL  = `SELECT payload FROM orders_poison WHERE id = ? AND tenant = ?`
	poisonedSQL = `SELECT id, tenant, error, created_at FROM orders_poison
WHERE (created_at, id, tenant) > (?, ?, ?) ORDER BY created_at, id, tenant LIMIT ?`
)

// hashedName is the prefix of an ID or a tenant that is kept as a hash, and longestName
// is the largest length of one that is kept unchanged, in bytes.
const (
	hashedName  = "sha256:"
	longestName = 255
)

// keptName returns the text under which an ID or a tenant is kept: itself, or a hash if
// not every database can store it. Different names never have the same text.
func keptName(s string) string {
	if len(s) <= longestName && utf8.ValidString(s) && !strings.Contains(s, "\x00") && !strings.HasPrefix(s, hashedName) {
		return s
	}
	return hashed([]byte(s))
}

func hashed(parts ...[]byte) string {
	return hashedName + hex.EncodeToString(onlyonce.Fingerprint(parts...))
}

// longestPayload is the largest length of a payload that is kept whole, in bytes. Brokers
// deliver longer ones than some databases store.
const longestPayload = 1 << 20

// maxPoisonError bounds the length of the error of a Poisoned, in characters.
const maxPoisonError = 2000

// poison stores a message that was given up. If it is stored already, only its error and
// its time change.
func (a *API) poison(ctx context.Context, m inbox.Message, cause error) error {
	a.cfg.Log.ErrorContext(ctx, "orders: gave up on an event", "event", "inbox_poisoned", "message_id", m.ID, "error", cause)
	id, tenant := keptName(m.ID), keptName(m.Tenant)
	payload := append([]byte{}, m.Payload[:min(len(m.Payload), longestPayload)]...)
	switch {
	case m.ID == "":
		id = hashed(m.Payload)
	case len(payload) < len(m.Payload), errors.Is(cause, onlyonce.ErrMismatch), errors.Is(cause, onlyonce.ErrCorrupt):
		id = hashed([]byte(m.ID), m.Payload)
	}
	kept, err := a.kept(ctx, id, tenant)
	if err == nil && kept != nil && !bytes.Equal(kept, payload) { // by another message with its ID
		id = hashed([]byte(m.ID), m.Payload)
		kept, err = a.kept(ctx, id, tenant)
	}
	if err != nil {
		return err
	}
	message := cause.Error()
	if id != m.ID || tenant != m.Tenant {
		message = fmt.Sprintf("the message's ID is %.100q, and its tenant %.100q: %s", m.ID, m.Tenant, message)
	}
	if len(payload) < len(m.Payload) {
		message = fmt.Sprintf("the beginning of a payload of %d bytes is kept: %s", len(m.Payload), message)
	}
	text := []rune(strings.ReplaceAll(message, "\x00", "")) // PostgreSQL cannot store a NUL
	message, now := string(text[:min(len(text), maxPoisonError)]), time.Now().UnixMilli()
	if kept != nil {
		_, err = a.db.ExecContext(ctx, a.engine.Bind(repoisonSQL), message, now, id, tenant)
		return err
	}
	_, err = a.db.ExecContext(ctx, a.engine.Bind(poisonSQL), id, tenant, payload, message, now)
	return err
}

// kept returns the payload of a message that is kept, or nil if none is.
func (a *API) kept(ctx context.Context, id, tenant string) ([]byte, error) {
	payload := []byte{}
	err := a.db.QueryRowContext(ctx, a.engine.Bind(payloadSQL), id, tenant).Scan(&payload)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if payload == nil {
		payload = []byte{}
	}
	return payload, err
}

// Poisoned returns at most limit messages that were given up, oldest first: those that
// come after the given one or, if that is the zero value, the oldest. It does not read
// their payloads, which may be large.
func (a *API) Poisoned(ctx context.Context, after Poisoned, limit int) (list []Poisoned, err error) {
	rows, err := a.db.QueryContext(ctx, a.engine.Bind(poisonedSQL), after.At.UnixMilli(), after.ID, after.Tenant, limit)
	if err != nil {
		return nil, fmt.Errorf("orders: list poisoned messages: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p Poisoned
		var at int64
		if err := rows.Scan(&p.ID, &p.Tenant, &p.Error, &at); err != nil {
			return nil, fmt.Errorf("orders: list poisoned messages: %w", err)
		}
		p.At = instant(at)
		list = append(list, p)
	}
	return list, rows.Err()
}

// PoisonedCount returns how many messages Poisoned can return.
func (a *API) PoisonedCount(ctx context.Context) (n int64, err error) {
	if err := a.db.QueryRowContext(ctx, poisonsSQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("orders: count poisoned messages: %w", err)
	}
	return n, nil
}

var errHashedName = errors.New("it is kept under a hash, for the reason that onlyonce poison ls shows, and under a hash it might be handled twice: discard it")

// Retry handles a message that was given up once more, in this call: its effect and its
// deletion here are one transaction. If that fails, the message stays. If it is no longer
// kept, because someone else has retried or discarded it, nothing happens. A message
// whose ID or tenant is kept as a hash can only be discarded.
func (a *API) Retry(ctx context.Context, p Poisoned) error {
	if strings.HasPrefix(p.ID, hashedName) || strings.HasPrefix(p.Tenant, hashedName) {
		return fmt.Errorf("orders: retry a poisoned message: %w", errHashedName)
	}
	payload, err := a.kept(ctx, p.ID, p.Tenant)
	if err != nil {
		return fmt.Errorf("orders: retry a poisoned message: %w", err)
	}
	if payload == nil {
		return nil
	}
	id := onlyonce.ID{Tenant: p.Tenant, Operation: consumer, Key: p.ID}
	rec, err := a.store.Lookup(ctx, id)
	if err == nil && rec.State == onlyonce.StateFailed { // its failure is final, or was about to be
		err = a.store.Resolve(ctx, rec, onlyonce.Settlement{})
	}
	if err != nil && !errors.Is(err, onlyonce.ErrNotFound) {
		return fmt.Errorf("orders: retry a poisoned message: %w", err)
	}
	m := outbox.Message{ID: p.ID, Topic: TopicCreated, Tenant: p.Tenant, Payload: payload}
	result, err := inbox.HandleTx(ctx, a.retries, received(m), func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
		if err := a.unpoison(ctx, tx, p); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, a.ship(ctx, tx, m)
	})
	if err = errors.Join(err, result.Poisoned); err != nil {
		if kept, lost := a.kept(ctx, p.ID, p.Tenant); lost == nil && kept == nil { // it was discarded meanwhile
			return nil
		}
		return fmt.Errorf("orders: retry a poisoned message: %w", err)
	}
	if result.Replayed { // an earlier delivery was handled
		return a.Discard(ctx, p)
	}
	return nil
}

// errDiscarded is the failure of a message that was discarded, also during its retry.
var errDiscarded = onlyonce.Final(errors.New("the message was discarded"))

// unpoison deletes a message in the transaction of its retry.
func (a *API) unpoison(ctx context.Context, tx *sql.Tx, p Poisoned) error {
	deleted, err := tx.ExecContext(ctx, a.engine.Bind(unpoisonSQL), p.ID, p.Tenant)
	if err != nil {
		return err
	}
	n, err := deleted.RowsAffected()
	if err == nil && n == 0 {
		return errDiscarded
	}
	return err
}

var errStays = errors.New("the message stays")

// afterRetry is the Poison of retries: a message that can't be handled is still kept, and
// one that was discarded must not be kept again.
func afterRetry(_ context.Context, _ inbox.Message, cause error) error {
	if errors.Is(cause, errDiscarded) {
		return nil
	}
	return errStays
}

// Discard deletes a message that was given up. It is never handled: a repeat is recognized for
// Config.KeepMessages, and given up after that. If it is being handled at the same time, Discard
// returns an error and the message stays.
func (a *API) Discard(ctx context.Context, p Poisoned) error {
	err := a.bury(ctx, p)
	if err == nil {
		_, err = a.db.ExecContext(ctx, a.engine.Bind(unpoisonSQL), p.ID, p.Tenant)
	}
	if err != nil {
		return fmt.Errorf("orders: discard a poisoned message: %w", err)
	}
	return nil
}

// bury makes the failure of a message final, which a retry that failed as well has undone.
func (a *API) bury(ctx context.Context, p Poisoned) error {
	if strings.HasPrefix(p.ID, hashedName) || strings.HasPrefix(p.Tenant, hashedName) {
		return nil
	}
	payload, err := a.kept(ctx, p.ID, p.Tenant)
	if err != nil || payload == nil {
		return err
	}
	m := inbox.Message{ID: p.ID, Tenant: p.Tenant, Payload: payload}
	_, err = inbox.HandleTx(ctx, a.retries, m, func(context.Context, *sql.Tx) (struct{}, error) { return struct{}{}, errDiscarded })
	if errors.Is(err, errStays) { // the ID's record is that of another message, or damaged
		return nil
	}
	return err
}
