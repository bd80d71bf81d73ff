package orders

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

// startNATS starts a server of the test's own on a port and a folder, waits
// until it answers and returns what kills it.
func startNATS(t *testing.T, program, port, dir string) (kill func()) {
	t.Helper()
	cmd := exec.Command(program, "-a", "127.0.0.1", "-p", port, "-js", "-sd", dir)
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
		conn, err := nats.Connect("nats://127.0.0.1:" + port)
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

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func TestABrokerThatIsKilledAgainAndAgainLosesAndDoublesNoShipment(t *testing.T) {
	program, err := exec.LookPath("nats-server")
	if err != nil {
		apitest.Missing(t, fmt.Sprintf("nats-server, to be killed: %v", err))
	}
	port, dir := freePort(t), t.TempDir()
	kill := startNATS(t, program, port, dir)
	w := newWorld(t, func(c *Config) { c.Broker, c.BrokerName = "nats://127.0.0.1:"+port, "kill" })
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
		kill = startNATS(t, program, port, dir)
	}
	eventually(t, "every order has its shipment", func() bool { return w.shipments() >= rounds*each })
	eventually(t, "nothing is left to publish", func() bool { return w.lag().Waiting == 0 })
	if n, m := w.shipments(), w.count("SELECT count(DISTINCT order_id) FROM orders_shipments"); n != rounds*each || m != n || w.orders() != n {
		t.Errorf("%d orders, %d shipments of %d", w.orders(), n, m)
	}
}
