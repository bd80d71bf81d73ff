package kfaketest

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce/adapters/kafkaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// openDB opens the database of the consumer, which a process that was killed leaves behind.
func openDB(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestKill_ChildProcess is the main function of the consumer's process.
func TestKill_ChildProcess(t *testing.T) {
	brokers := os.Getenv("KAFKAONCE_BROKERS")
	if brokers == "" {
		t.Skip("TestKill_ starts it")
	}
	store, err := sqlstore.Open(t.Context(), openDB(t, os.Getenv("KAFKAONCE_FILE")), sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := kafkaonce.NewTx(inbox.NewTx(store, inbox.Config{Consumer: "shipping", Redelivery: time.Second}), func(ctx context.Context, tx *sql.Tx, r *kgo.Record) error {
		fmt.Println("child: begin", at(r))
		defer fmt.Println("child: end", at(r))
		_, err := tx.ExecContext(ctx, "INSERT INTO shipments (record) VALUES (?)", at(r))
		return err
	}, quick)
	t.Fatal(c.Run(t.Context(), kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"),
		kgo.SessionTimeout(time.Second), kgo.RebalanceTimeout(time.Second), kgo.HeartbeatInterval(100*time.Millisecond), kgo.AutoCommitInterval(100*time.Millisecond)))
}

// A process that is killed leaves records that are handled and not committed, and those whose handler
// was running. All are delivered again, and each has one effect.
func TestKill_EachRecordHasOneEffect(t *testing.T) {
	needs.Time(t)
	k, file := start(t, 3), filepath.Join(t.TempDir(), "shop.db")
	db := openDB(t, file)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE shipments (record TEXT)"); err != nil {
		t.Fatal(err)
	}
	const each = 60
	for i := range each {
		k.produce(record(0, fmt.Sprint(i)), record(1, fmt.Sprint(i)), record(2, fmt.Sprint(i)))
	}
	for life := range 4 {
		c, lines := k.child(file)
		for range 25 + 10*life { // the last line is the begin or the end of a record
			if !lines.Scan() {
				t.Fatalf("the consumer has ended: %v", c.Wait())
			}
		}
		kill(t, c)
	}
	c, lines := k.child(file)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
		}
	}()
	consumertest.Eventually(t, "all offsets are committed", func() bool {
		return k.committed(0) == each && k.committed(1) == each && k.committed(2) == each
	})
	kill(t, c)
	<-read
	var rows, records int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT record) FROM shipments").Scan(&rows, &records); err != nil {
		t.Fatal(err)
	}
	if rows != 3*each || records != 3*each {
		t.Errorf("%d rows for %d records, want %d", rows, records, 3*each)
	}
}

// child starts a consumer as a process, and returns its output.
func (k *kafka) child(file string) (*exec.Cmd, *bufio.Scanner) {
	k.t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestKill_ChildProcess$", "-test.timeout=10m")
	c.Env = append(os.Environ(), "KAFKAONCE_BROKERS="+strings.Join(k.cluster.ListenAddrs(), ","), "KAFKAONCE_FILE="+file)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = c.Process.Kill() }) // which fails if it was killed before
	return c, bufio.NewScanner(out)
}

// kill kills a process with SIGKILL.
func kill(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // whose error says that it was killed
}
