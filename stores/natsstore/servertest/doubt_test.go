package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func TestStore_ACallWhoseConfirmationIsLostTakesEffectOnce(t *testing.T) {
	server, direct, observer := migrated(t)
	hazard.CheckLostResponses(t, hazard.Server{
		Address: "127.0.0.1:" + server.port,
		Open: func(t *testing.T, address string) hazard.Store {
			return open(t, connect(t, behind(address)), natsstore.Config{Timeout: 5 * time.Minute})
		},
		Version: func(t *testing.T, id onlyonce.ID) string { return fmt.Sprint(stored(t, direct, id).Sequence) },
		Sends: func(_, _, version string) string {
			return "Nats-Expected-Last-Subject-Sequence: " + version + "\r\n"
		},
	}, observer)
}

// behind is where clients find a server at the end of a way that begins at an address.
func behind(address string) *natsServer {
	_, port, _ := net.SplitHostPort(address)
	return &natsServer{port: port}
}

// A client's writes to a server that reads nothing block as soon as the buffers between
// them are full.
func TestStore_ACallEndsWithItsContextAlthoughTheServerReadsNothing(t *testing.T) {
	server, _, _ := migrated(t)
	w := hazard.NewWay(t, "127.0.0.1:"+server.port)
	js := connectWith(t, []*natsServer{behind(w.Address())}, nats.FlusherTimeout(time.Hour))
	s := open(t, js, natsstore.Config{})
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	calls := map[string]func() error{
		"settle": func() error { return s.Settle(ctx, hazard.Hold(r), hazard.Completed) },
		"lookup": func() error { _, err := s.Lookup(ctx, r.ID); return err },
		"open":   func() error { _, err := natsstore.Open(ctx, js, natsstore.Config{}); return err },
		"migrate": func() error {
			_, err := natsstore.Migrate(ctx, js, natsstore.Config{})
			return err
		},
	}
	for i := range 32 { // more than the buffers hold
		c := hazard.Claim("large")
		c.ID.Tenant = fmt.Sprintf("%d%1048576d", i, 0)
		calls[fmt.Sprint("claim ", i)] = func() error { _, err := s.Claim(ctx, c); return err }
	}
	type result struct {
		call string
		err  error
	}
	ended := make(chan result, len(calls))
	for name, call := range calls {
		go func() { ended <- result{name, call()} }()
	}
	limit := time.After(time.Minute)
	for range calls {
		select {
		case r := <-ended:
			if !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", r.call, r.err)
			}
		case <-limit:
			t.Fatal("calls go on although their context has ended")
		}
	}
}

// By default, the client of NATS gives up for good after two minutes without a server.
func TestStore_ACallOnAConnectionThatIsClosedForGoodSaysSo(t *testing.T) {
	server, _, _ := migrated(t)
	closed := make(chan struct{})
	s := open(t, connectWith(t, []*natsServer{server}, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) })),
		natsstore.Config{Timeout: time.Second})
	server.kill()
	<-closed
	server.restart()
	_, err := s.Claim(t.Context(), hazard.Claim("k"))
	if !errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim returned error %v", err)
	}
}
