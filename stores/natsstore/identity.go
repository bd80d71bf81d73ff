package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// ErrOtherCluster says that the connection has moved to a server that shows another stream than
// the one on which the store was opened. A response from it does not count. Otherwise, commands
// would run once in each stream. After a stream was replaced while the store was idle, open the
// store again.
var ErrOtherCluster = errors.New("the stream of that name on the NATS server is not the one on which the store was opened: name only servers of one cluster, and restart the program if the stream was replaced on purpose")

// errUnverified says that the connection is not the one on which the stream was
// verified, so nothing was sent.
var errUnverified = errors.New("the connection was lost, and the stream has not been verified on the next one")

// An identity tells the stream of a store from others of the same name by the time of its
// creation. A connection is to one server, so the stream is verified once on each connection.
type identity struct {
	mu         sync.Mutex
	created    time.Time // zero: Migrate's message was not seen yet
	forgotten  bool      // Migrate's message was missing, so the stream may be another once it is there
	verified   bool
	connection uint64 // the number of the connection on which the stream was verified
}

// on reports whether the stream was verified on a connection.
func (i *identity) on(connection uint64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.verified && !i.forgotten && i.connection == connection
}

// same reports whether the stream that was created at a time is the store's, or may be. If it is
// not, the stream has to be verified again.
func (i *identity) same(created time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	same := i.created.IsZero() || i.forgotten || i.created.Equal(created)
	i.verified = i.verified && same
	return same
}

// verify takes in that a connection shows a stream that was created at a time and has Migrate's
// message.
func (i *identity) verify(connection uint64, created time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.created.IsZero() && !i.forgotten && !i.created.Equal(created) {
		return fmt.Errorf("%w (it was created at %v, and the store's at %v)", ErrOtherCluster, created.UTC(), i.created.UTC())
	}
	i.created, i.forgotten, i.verified, i.connection = created, false, true, connection
	return nil
}

// forget takes in that Migrate's message is missing.
func (i *identity) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgotten = true
}

// connection returns the number of the connection to a server that the client has now.
func (s *stream) connection() uint64 { return s.conn.Stats().Reconnects }

// verify verifies the stream on the connection, and returns the number of that. Concurrent
// callers share the requests.
func (s *stream) verify(ctx context.Context) (uint64, error) {
	return s.verifications.Do(ctx, func() (connection uint64, err error) {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return within(try, s.places, func() (uint64, error) {
			connection := s.connection()
			created, made, err := s.lookAt(try, s.conn)
			switch {
			case err != nil:
				return 0, err
			case s.connection() != connection:
				return 0, errUnverified
			case !made:
				s.identity.forget()
				return connection, nil
			}
			return connection, s.identity.verify(connection, created)
		})
	})
}

// lookAt returns when the stream was created that a connection shows, zero if it shows none, and
// whether it has Migrate's message.
func (s *stream) lookAt(ctx context.Context, conn *nats.Conn) (created time.Time, made bool, err error) {
	var info struct {
		Error   *jetstream.APIError `json:"error"`
		Created time.Time           `json:"created"`
	}
	var message struct {
		Error *jetstream.APIError `json:"error"`
	}
	query, err := json.Marshal(map[string]string{"last_by_subj": s.subjects.made()})
	if err != nil {
		return created, false, err
	}
	err = together(
		func() error { return requestFrom(ctx, conn, s.api+"STREAM.INFO."+s.name, nil, &info) },
		func() error { return requestFrom(ctx, conn, s.api+"STREAM.MSG.GET."+s.name, query, &message) },
	)
	switch {
	case err != nil:
		return created, false, err
	case info.Error != nil && info.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return created, false, nil
	case info.Error != nil:
		return created, false, info.Error
	case message.Error != nil && message.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return info.Created, false, nil
	case message.Error != nil:
		return created, false, message.Error
	}
	return info.Created, true, nil
}

// requestFrom sends a request on a connection and reads its response.
func requestFrom(ctx context.Context, conn *nats.Conn, subject string, data []byte, response any) error {
	reply, err := conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, response)
}

// A view holds the identity of the stream that one of the client's servers shows.
type view struct {
	host    string
	conn    *nats.Conn
	created time.Time // zero: it has no stream
}

// mixed returns a finding if servers of the client that can be reached show different streams.
// If fresh, none of them may have one, and they must reach each other.
func (s *stream) mixed(ctx context.Context, fresh bool) (f *onlyonce.Finding, err error) {
	servers := s.conn.Opts.Servers
	if len(servers) < 2 || s.conn.Opts.InProcessServer != nil {
		return nil, nil
	}
	for range 2 { // Migrate may make the stream after one server was asked, and before another is
		views := s.views(ctx, servers)
		f = s.compare(views)
		if f == nil && fresh {
			f = s.apart(ctx, views)
		}
		for _, v := range views {
			v.conn.Close()
		}
		if f == nil || ctx.Err() != nil {
			break
		}
	}
	return f, ctx.Err()
}

// views connects to each of the servers, and returns the view of each that responds.
func (s *stream) views(ctx context.Context, servers []string) (views []view) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make([]*view, len(servers))
	var running sync.WaitGroup
	for i, server := range servers {
		running.Go(func() {
			o := s.conn.Opts
			o.Url, o.Servers, o.AllowReconnect, o.RetryOnFailedConnect, o.IgnoreDiscoveredServers = "", []string{server}, false, false, true
			o.Timeout = patience
			o.ConnectedCB, o.ReconnectedCB, o.ClosedCB, o.DisconnectedCB, o.DisconnectedErrCB = nil, nil, nil, nil, nil
			o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil
			o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // the calls fail, too
			conn, err := o.Connect()
			if err != nil {
				return
			}
			created, _, err := s.lookAt(limited, conn)
			if err != nil {
				conn.Close()
				return
			}
			host := server
			if u, err := url.Parse(server); err == nil && u.Host != "" {
				host = u.Host // without a password
			}
			found[i] = &view{host, conn, created}
		})
	}
	running.Wait()
	for _, v := range found {
		if v != nil {
			views = append(views, *v)
		}
	}
	return views
}

const (
	mixedProblem = "each stream keeps records of its own, so a command would run once in each"
	mixedFix     = "name only servers of one cluster"
)

// compare returns a finding if servers show different streams.
func (s *stream) compare(views []view) *onlyonce.Finding {
	for i := range views {
		a, b := &views[0], &views[i]
		if a.created.Equal(b.created) {
			continue
		}
		f := engine.NewFinding(engine.RiskMixed, fmt.Sprintf("the stream %s of %s %s, and that of %s %s: %s",
			s.name, a.host, a.stream(), b.host, b.stream(), mixedProblem), mixedFix)
		return &f
	}
	return nil
}

func (v *view) stream() string {
	if v.created.IsZero() {
		return "is missing"
	}
	return "was created at " + v.created.UTC().Format(time.RFC3339Nano)
}

// apart returns a finding if a message to one of the servers does not reach the others. None
// of them has a stream by which they differ.
func (s *stream) apart(ctx context.Context, views []view) *onlyonce.Finding {
	const again = 20 * time.Millisecond // a subscription reaches the other servers of a cluster after a moment
	for i := 1; i < len(views); i++ {
		a, b := &views[0], &views[i]
		subject := s.subjects.ended(0)
		text := nats.NewInbox()
		sub, err := b.conn.SubscribeSync(subject)
		if err != nil || b.conn.Flush() != nil {
			continue // the calls that follow find out why
		}
		met := false
		for end := time.Now().Add(patience); !met && time.Now().Before(end) && ctx.Err() == nil; {
			if a.conn.Publish(subject, []byte(text)) != nil {
				break
			}
			m, err := sub.NextMsg(again)
			met = err == nil && string(m.Data) == text
		}
		if !met && a.conn.LastError() == nil && b.conn.LastError() == nil {
			f := engine.NewFinding(engine.RiskMixed, fmt.Sprintf("a message to %s does not reach %s, so they belong to different clusters: %s", a.host, b.host, mixedProblem), mixedFix)
			return &f
		}
	}
	return nil
}
