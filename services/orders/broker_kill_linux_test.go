package orders

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

// startNATS starts a server of the test's own on an address and a folder, waits
// until it answers and returns what kills it.
func startNATS(t *testing.T, program string, at *net.TCPAddr, dir string) (kill func()) {
	t.Helper()
	cmd := exec.Command(program, "-a", at.IP.String(), "-p", strconv.Itoa(at.Port), "-js", "-sd", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill() // SIGKILL
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	eventually(t, "the broker answers", func() bool {
		conn, err := nats.Connect("nats://" + at.String())
		if err != nil {
			return false
		}
		defer conn.Close()
		js, err := conn.JetStream()
		if err != nil {
			return false
		}
		_, err = js.AccountInfo()
		return err == nil
	})
	return kill
}

// freeAddress returns one that stays free while nobody listens there: nobody else
// has that address of this machine, from which no connection is made either.
func freeAddress(t *testing.T) *net.TCPAddr {
	t.Helper()
	own := net.IPv4(127, byte(1+rand.N(254)), byte(rand.N(256)), byte(1+rand.N(254)))
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: own})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr)
}

func TestBroker_ABrokerThatIsKilledAgainAndAgainLosesAndDoublesNoShipment(t *testing.T) {
	program, err := exec.LookPath("nats-server")
	if err != nil {
		apitest.Missing(t, fmt.Sprintf("nats-server, to be killed: %v", err))
	}
	at, dir := freeAddress(t), t.TempDir()
	kill := startNATS(t, program, at, dir)
	w := newWorld(t, func(c *Config) { c.Broker, c.BrokerName = "nats://"+at.String(), "kill" })
	w.run(w.api)
	const rounds, each = 5, 12
	for round := range rounds {
		shipped := w.shipments()
		var placing sync.WaitGroup
		placing.Go(func() {
			for n := range each {
				w.place(fmt.Sprint("k", round, "-", n))
			}
		})
		eventually(t, "some are shipped", func() bool { return w.shipments() > shipped })
		kill()
		placing.Wait() // orders are taken meanwhile
		kill = startNATS(t, program, at, dir)
	}
	eventually(t, "every order has its shipment", func() bool { return w.shipments() >= rounds*each })
	eventually(t, "nothing is left to publish", func() bool { return w.lag().Waiting == 0 })
	if n, m := w.shipments(), w.count("SELECT count(DISTINCT order_id) FROM orders_shipments"); n != rounds*each || m != n || w.orders() != n {
		t.Errorf("%d orders, %d shipments of %d", w.orders(), n, m)
	}
}
