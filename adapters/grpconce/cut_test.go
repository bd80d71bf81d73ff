package grpconce_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/grpconce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A cutter is a proxy for TCP that cuts connections.
type cutter struct {
	net.Listener
	server string
	budget atomic.Int64                // bytes that may still go to the client before its connection is cut; negative: any number
	client atomic.Pointer[net.TCPConn] // the last one
}

// cut cuts the last connection.
func (p *cutter) cut() { _ = p.client.Load().Close() }

// newCutter starts a cutter in front of a server, until the end of the test.
func newCutter(t *testing.T, server string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{Listener: l, server: server}
	p.budget.Store(-1)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.client.Store(client.(*net.TCPConn))
			serving.Go(func() { p.forward(client.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return p
}

// forward forwards a connection until one end closes it, or it is cut.
func (p *cutter) forward(client *net.TCPConn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	defer sending.Wait()
	defer client.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		left := p.budget.Load()
		if left >= 0 && int64(n) > left {
			p.budget.Store(-1)
			_, _ = client.Write(buffer[:left])
			_ = client.CloseWrite() // so that these bytes arrive
			return
		}
		if left >= 0 {
			p.budget.Add(-int64(n))
		}
		if _, failed := client.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// newCutShop returns a shop whose client connects through a cutter and retries. The handler of the
// shop may use the cutter.
func newCutShop(t *testing.T, h func(p *cutter) handler, before ...grpc.UnaryServerInterceptor) *shop {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newCutter(t, l.Addr().String())
	s := &shop{t: t, store: memstore.New(memstore.Config{}), handle: h(p)}
	guard := onlyonce.New(s.store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	s.serve(l, append(before, grpconce.UnaryServerInterceptor(guard, grpconce.Config{Tenant: accountOf}))...)
	s.dial(p.Addr().String(), grpc.WithUnaryInterceptor(grpconce.UnaryClientInterceptor(grpconce.ClientConfig{Wait: time.Millisecond, Attempts: 20})))
	return s
}

func TestClient_AConnectionThatIsCutAnywhereInTheResponseHasOneEffectAndOneResponse(t *testing.T) {
	var position int64
	var attempts atomic.Int32
	s := newCutShop(t, func(p *cutter) handler {
		return func(ctx context.Context, run int32, note string) (*text, error) {
			p.budget.Store(position)
			return charged(ctx, run, note)
		}
	}, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		attempts.Add(1)
		return next(ctx, req)
	})
	calls := int32(0)
	for {
		calls++
		attempts.Store(0)
		note := fmt.Sprint("call ", calls)
		answer, replayed, err := s.call("7", "", note)
		s.want(fmt.Sprint(note, " ", calls), attempts.Load() > 1, answer, replayed, err)
		if s.wantRuns(calls); t.Failed() {
			t.Fatalf("after a cut at byte %d", position)
		}
		if attempts.Load() == 1 {
			break
		}
		position++
	}
	if position < 30 { // the frames of a response alone have 27 bytes
		t.Errorf("the whole response had %d bytes", position)
	}
}

func TestClient_AConnectionThatIsCutWhileTheHandlerRunsHasOneEffectAndOneResponse(t *testing.T) {
	goOn := make(chan struct{})
	var rejected sync.Once
	s := newCutShop(t, func(p *cutter) handler {
		return func(ctx context.Context, run int32, note string) (*text, error) {
			p.cut()
			<-goOn
			return charged(ctx, run, note)
		}
	}, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		made, err := next(ctx, req)
		if status.Code(err) == codes.Aborted { // the first call is still running
			rejected.Do(func() { close(goOn) })
		}
		return made, err
	})
	answer, replayed, err := s.call("7", "", "a")
	s.want("a 1", true, answer, replayed, err)
	s.wantRuns(1)
}
