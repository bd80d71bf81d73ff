package natsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/coalesce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// ErrForgotten says that the server has no records although Migrate was called: it
// has lost its data, or somebody deleted its stream. No new command is run until
// Migrate is called again.
var ErrForgotten = errors.New("the NATS server has forgotten the records of its commands, or has never had any: find out why, then call Migrate once")

// errTooLarge is the error for a message that the server does not accept.
var errTooLarge = fmt.Errorf("%w: the record is larger than the server's max_payload or the stream's max_msg_size, and nothing was written: store less, or raise the limit", onlyonce.ErrTooLarge)

// errClosed says that nothing was sent, because the client does not connect again.
var errClosed = fmt.Errorf("the client has closed its connection for good: restart the program, and connect with nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort(): %w", nats.ErrConnectionClosed)

// errConflict says that a message was not stored, because the subject's last message is
// another than expected, or one is being stored.
var errConflict = errors.New("the record has changed meanwhile")

// patience is how long one request to the server may take. A call makes further ones.
const patience = 2 * time.Second

// The headers of a message.
const (
	headerCreated  = "Onlyonce-Created" // when the command was created, in microseconds, unless with the message
	headerOpen     = "Onlyonce-Open"    // unless the command has ended with a known outcome: see head.open
	headerTTL      = "Nats-TTL"
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
	headerSubject  = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerStream   = "Nats-Expected-Stream"
	headerMarker   = "Nats-Marker-Reason"
)

// A stream is the JetStream stream with the records of a store.
type stream struct {
	js       jetstream.JetStream
	conn     *nats.Conn
	api      string // prefix of the subjects of requests
	name     string
	subjects subjects
	places   chan struct{} // one for each request that is under way
	large    chan struct{} // one for each response that may be large
	checks   coalesce.Requests[struct{}]

	identity      identity
	verifications coalesce.Requests[uint64]

	domain atomic.Pointer[string] // the JetStream domain of the stream, once it is known
}

// requests is how many requests are under way at a time.
const requests = 1024

// A server closes the connection of a client for which 64 MiB are waiting (max_pending). The
// responses that may have an outcome, which are longer than their messages by a third, may take
// most of it.
const (
	largeBytes = 48 << 20
	mostLarge  = 8
)

// largeResponses returns how many such responses may be under way at a time.
func largeResponses(maxPayload int64) int {
	return int(min(max(largeBytes/(max(maxPayload, 1)/3*4+1), 1), mostLarge))
}

func newStream(ctx context.Context, js jetstream.JetStream, name string) (*stream, error) {
	o := js.Options()
	api := cmp.Or(o.APIPrefix, jetstream.DefaultAPIPrefix)
	if o.Domain != "" {
		api = "$JS." + o.Domain + ".API"
	}
	api = strings.TrimSuffix(api, ".") + "."
	places := make(chan struct{}, requests)
	maxPayload, err := within(ctx, places, func() (int64, error) { return js.Conn().MaxPayload(), nil })
	if err != nil {
		return nil, err
	}
	return &stream{
		js: js, conn: js.Conn(), api: api, name: name, subjects: subjects{name}, places: places,
		large: make(chan struct{}, largeResponses(maxPayload)),
	}, nil
}

// An unreachable error says that the stream could not be asked. Asking again may help.
type unreachable struct{ error }

func (e unreachable) Unwrap() error { return e.error }

// request sends a request to the stream's leader and reads its response, which may be an
// error of JetStream. It sends nothing on a connection on which the stream is another than the
// store's, and takes no response from one on which it was not verified.
func (s *stream) request(ctx context.Context, m *nats.Msg, response any) error {
	try, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	send := func(on func(connection uint64) bool) (*nats.Msg, error) {
		return within(try, s.places, func() (*nats.Msg, error) {
			connection := s.connection()
			switch {
			case s.conn.IsClosed():
				return nil, errClosed
			case !on(connection):
				return nil, errUnverified
			case !s.conn.IsConnected(): // the client would send it to the next server before that is verified
				return nil, nats.ErrConnectionReconnecting
			}
			reply, err := s.conn.RequestMsgWithContext(try, m)
			if err == nil && s.connection() != connection {
				return nil, errors.New("the connection was lost before the response came")
			}
			return reply, err
		})
	}
	reply, err := send(s.identity.on)
	if errors.Is(err, errUnverified) {
		var verified uint64
		if verified, err = s.verify(try); err == nil {
			reply, err = send(func(connection uint64) bool { return connection == verified })
		}
	}
	switch {
	case err == nil:
		err = json.Unmarshal(reply.Data, response)
	case errors.Is(err, nats.ErrMaxPayload):
		return errTooLarge
	case errors.Is(err, errClosed):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if err != nil {
		return unreachable{err}
	}
	return nil
}

// denied returns an error that ends the tries of a call if the stream could not be reached
// and the last error of the connection says that its user lacks a permission. The server does
// not respond to what the user may not send. Any other error is returned as it is.
func (s *stream) denied(ctx context.Context, err error) error {
	var away unreachable
	if !errors.As(err, &away) {
		return err
	}
	last, lastErr := within(ctx, s.places, func() (error, error) { return s.conn.LastError(), nil })
	if lastErr != nil || !errors.Is(last, nats.ErrPermissionViolation) {
		return err
	}
	return fmt.Errorf("the server has not responded, and the user lacks a permission that the documentation of natsstore lists: %w", last)
}

// within calls a function that uses the connection, and returns when it has returned or ctx
// has ended. While the server reads nothing, what writes to the connection returns only
// after up to a minute, whatever its context. Places limit how many functions are left
// behind.
func within[T any](ctx context.Context, places chan struct{}, call func() (T, error)) (result T, err error) {
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return result, ctx.Err()
	}
	type outcome struct {
		result T
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-places }()
		result, err := call()
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// inTurn calls a function that may read much, once few others do so.
func (s *stream) inTurn(ctx context.Context, read func() error) error {
	select {
	case s.large <- struct{}{}:
		defer func() { <-s.large }()
		return read()
	case <-ctx.Done():
		return fmt.Errorf("%d other records were being read: %w", cap(s.large), ctx.Err())
	}
}

// publish publishes a message that no stream takes. Nobody learns whether it has arrived.
func (s *stream) publish(ctx context.Context, subject string, data []byte) {
	_, _ = within(ctx, s.places, func() (struct{}, error) { return struct{}{}, s.conn.Publish(subject, data) })
}

// The codes of errors after which the same request may succeed.
const (
	codeNoLeader   jetstream.ErrorCode = 10008
	codeNotLeader  jetstream.ErrorCode = 10009
	codeOffline    jetstream.ErrorCode = 10118
	codeNotApplied jetstream.ErrorCode = 10163
)

// classify returns the store's error for an error of JetStream.
func (s *stream) classify(e *jetstream.APIError) error {
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamNotFound:
		s.identity.forget()
		return ErrForgotten
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return errConflict
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return errTooLarge
	case codeNoLeader, codeNotLeader, codeOffline, codeNotApplied:
		return unreachable{e}
	}
	return e
}

// ask sends several requests, which together may take as long as one.
func (s *stream) ask(ctx context.Context, do func(ctx context.Context) error) error {
	try, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := do(try)
	var failed *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &failed):
		return cmp.Or(s.classify(failed), err)
	}
	return unreachable{err}
}

// get reads the message of a sequence, or the last one of a subject if the sequence is 0.
// There may be none: then its sequence is 0.
func (s *stream) get(ctx context.Context, subject string, seq uint64) (m message, err error) {
	query, err := json.Marshal(struct {
		Seq  uint64 `json:"seq,omitempty"`
		Last string `json:"last_by_subj,omitempty"`
	}{seq, subject})
	if err != nil {
		return m, err
	}
	var r struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq    uint64    `json:"seq"`
			Header []byte    `json:"hdrs"`
			Data   []byte    `json:"data"`
			Time   time.Time `json:"time"`
		} `json:"message"`
	}
	if err := s.request(ctx, &nats.Msg{Subject: s.api + "STREAM.MSG.GET." + s.name, Data: query}, &r); err != nil {
		return m, err
	}
	switch {
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return m, nil
	case r.Error != nil:
		return m, s.classify(r.Error)
	case r.Message == nil:
		return m, unreachable{errors.New("the response has no message")}
	}
	header, _ := nats.DecodeHeadersMsg(r.Message.Header)
	m = message{seq: r.Message.Seq, time: r.Message.Time.UnixMicro(), marker: header.Get(headerMarker) != "", data: r.Message.Data}
	m.created = created(header, m.time)
	return m, nil
}

// created returns when the command of a message was created that has a header and a time.
func created(h nats.Header, at int64) int64 {
	if n, err := strconv.ParseInt(h.Get(headerCreated), 10, 64); err == nil {
		return n
	}
	return at
}

// info returns the stream's state from its leader.
func (s *stream) info(ctx context.Context) (*streamInfo, error) {
	var r struct {
		Error *jetstream.APIError `json:"error"`
		streamInfo
	}
	err := s.request(ctx, &nats.Msg{Subject: s.api + "STREAM.INFO." + s.name}, &r)
	if err == nil && r.Error != nil {
		err = s.classify(r.Error)
	}
	if err == nil && !s.identity.same(r.Created) {
		err = unreachable{errUnverified}
	}
	if err == nil {
		s.domain.Store(&r.Domain)
	}
	return &r.streamInfo, err
}

// A streamInfo is the part of a response that a store uses.
type streamInfo struct {
	Config  json.RawMessage `json:"config"`
	Cluster struct {
		Name     string     `json:"name"` // empty: a server without a cluster
		Leader   string     `json:"leader"`
		Since    *time.Time `json:"leader_since"`
		Replicas []struct {
			Name string `json:"name"`
		} `json:"replicas"`
	} `json:"cluster"`
	State struct {
		Last uint64 `json:"last_seq"`
	} `json:"state"`
	Domain  string    `json:"domain"`
	Created time.Time `json:"created"`
	Time    time.Time `json:"ts"`
}

// put stores a record's message if the last one of its subject has the sequence expected;
// 0: there is none. It returns the message's sequence.
func (s *stream) put(ctx context.Context, subject string, expected uint64, header nats.Header, data []byte, ttl time.Duration) (uint64, error) {
	header[headerExpected] = []string{strconv.FormatUint(expected, 10)}
	return s.send(ctx, subject, header, data, ttl)
}

// confirm returns nil if the last message of a record's subject has the sequence expected,
// and errConflict if it has not. What has been read may be old, but a message is stored
// only if most of the stream's servers agree.
func (s *stream) confirm(ctx context.Context, subject string, expected uint64) error {
	_, err := s.tick(ctx, nats.Header{headerExpected: {strconv.FormatUint(expected, 10)}, headerSubject: {subject}})
	return err
}

// tick stores a message that is later than all that were stored before.
func (s *stream) tick(ctx context.Context, header nats.Header) (uint64, error) {
	return s.send(ctx, s.subjects.tick(), header, nil, record.FenceKeep)
}

// send stores a message for a time, in whole seconds; 0: for good. An unreachable error
// leaves in doubt whether it is stored.
func (s *stream) send(ctx context.Context, subject string, header nats.Header, data []byte, ttl time.Duration) (uint64, error) {
	var r confirmation
	err := s.request(ctx, &nats.Msg{Subject: subject, Header: s.header(header, ttl), Data: data}, &r)
	switch {
	case err != nil:
		return 0, err
	case r.Error != nil:
		return 0, s.classify(r.Error)
	case r.Seq == 0:
		return 0, unreachable{errors.New("the response has no sequence")}
	}
	// Through a leafnode, a stream of another domain gets the message, too, if it takes the same
	// subjects. What that one says means nothing for this one.
	if domain := s.domain.Load(); domain != nil && r.Domain != *domain {
		return 0, unreachable{fmt.Errorf("a stream of the JetStream domain %q has stored the message, too, and the store's stream is in the domain %q: no other stream may take the same subjects", r.Domain, *domain)}
	}
	return r.Seq, nil
}

// A confirmation is the response of a stream to a message.
type confirmation struct {
	Error  *jetstream.APIError `json:"error"`
	Seq    uint64              `json:"seq"` // 0: the message was not stored
	Domain string              `json:"domain"`
}

// header completes the header of a message that the stream is to keep for a time.
func (s *stream) header(h nats.Header, ttl time.Duration) nats.Header {
	h[headerStream] = []string{s.name}
	h[headerTTL] = []string{"never"}
	if ttl > 0 {
		h[headerTTL] = []string{strconv.FormatInt(int64(ttl/time.Second), 10) + "s"}
	}
	return h
}

// made returns ErrForgotten if the message is missing that Migrate has made. Concurrent
// callers share the request.
func (s *stream) made(ctx context.Context) error {
	_, err := s.checks.Do(ctx, func() (none struct{}, err error) {
		m, err := s.get(context.WithoutCancel(ctx), s.subjects.made(), 0)
		if err == nil && m.seq == 0 {
			s.identity.forget()
			err = ErrForgotten
		}
		return none, err
	})
	return err
}

// look reads the last message of a subject, and the time. Its sequence is 0 if
// there is none.
func (s *stream) look(ctx context.Context, subject string, skew time.Duration) (m message, now int64, err error) {
	var r reading
	err = together(
		func() (err error) { m, err = s.get(ctx, subject, 0); return err },
		func() (err error) { r, err = s.clock(ctx); return err },
	)
	return m, r.at(&m, skew), err
}

// clock reads the clock of the stream's leader.
func (s *stream) clock(ctx context.Context) (reading, error) {
	info, err := s.info(ctx)
	r := reading{now: info.Time.UnixMicro(), last: info.State.Last}
	switch {
	case info.Cluster.Since != nil:
		r.since = info.Cluster.Since.UnixMicro()
	case info.Cluster.Name != "":
		r.since = r.now // the only server of a cluster that has the stream does not say it
	}
	return r, err
}

// together runs two functions at once, and returns their errors.
func together(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- a() }()
	err := b()
	return cmp.Or(<-done, err)
}

// A reading holds the times that the clock of the stream's leader has shown.
type reading struct {
	now   int64
	since int64  // when it became the leader, by its own clock
	last  uint64 // the last message that it had stored
}

// at returns the time for a message: by the clock that has given the message its
// time if that is known, or else skew earlier.
func (r *reading) at(m *message, skew time.Duration) int64 {
	now := max(r.now, m.time)
	if m.seq > r.last {
		now = m.time // the reading is older than the message
	}
	if m.time < r.since {
		now -= skew.Microseconds()
	}
	return now
}
