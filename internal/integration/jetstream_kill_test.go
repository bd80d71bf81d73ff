package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/jetstreamonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// shippedWithin is the AckWait of the consumer.
const shippedWithin = time.Second

// openStream returns a consumer of the stream, which it creates if there is none.
func openStream(t *testing.T, name string) (jetstream.JetStream, jetstream.Consumer) {
	t.Helper()
	conn, err := nats.Connect(address("ONLYONCE_NATS", "nats://127.0.0.1:4222"), nats.Timeout(answerLimit))
	needs.Service(t, "NATS", err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(answerLimit))
	if err == nil {
		_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}})
	}
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), name, jetstream.ConsumerConfig{Durable: "shipping", AckWait: shippedWithin})
	if err != nil {
		t.Fatal(err)
	}
	return js, consumer
}

// consumeStream is a child that consumes the stream JETSTREAM_NAME until it is killed.
func consumeStream(t *testing.T, file string) {
	s, _ := openSQLite(t, file)
	_, from := openStream(t, os.Getenv("JETSTREAM_NAME"))
	c := jetstreamonce.NewTx(inbox.NewTx(s, inbox.Config{Consumer: "shipping", Redelivery: shippedWithin}), func(ctx context.Context, tx *sql.Tx, m jetstream.Msg) error {
		say("begin")
		defer say("end")
		_, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES (?)", string(m.Data()))
		return err
	}, jetstreamonce.Config{Handlers: 3, Backoff: time.Millisecond, MaxBackoff: 100 * time.Millisecond, Failed: func(context.Context, jetstream.Msg, error) {}})
	t.Fatal(c.Run(t.Context(), from))
}

// A process that is killed leaves messages that are handled and not acknowledged, and those whose handler
// was running. All are delivered again, and each has one effect.
func TestJetStream_AConsumerThatIsKilledHasNoSecondEffect(t *testing.T) {
	needs.Time(t)
	name, file := "onlyonce_"+strings.ToLower(rand.Text()), filepath.Join(t.TempDir(), "records.db")
	js, consumer := openStream(t, name)
	t.Cleanup(func() {
		if err := js.DeleteStream(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("JETSTREAM_NAME", name)
	_, db := newSQLiteTx(t, file)
	const messages = 200
	for i := range messages {
		if _, err := js.Publish(t.Context(), name, []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for life := range 4 {
		c := startChild(t, "jetstream", file)
		for range 25 + 10*life { // the last is the begin or the end of a message
			if _, ok := c.hear(); !ok {
				t.Fatalf("the consumer has ended\n%s", &c.noise)
			}
		}
		c.kill()
	}
	c := startChild(t, "jetstream", file)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for ok := true; ok; {
			_, ok = c.hear()
		}
	}()
	eventually(t, "all messages are acknowledged", func() bool {
		info, err := consumer.Info(t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	})
	_ = c.cmd.Process.Kill()
	<-heard
	var rows, different int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT name) FROM own").Scan(&rows, &different); err != nil {
		t.Fatal(err)
	}
	if rows != messages || different != messages {
		t.Errorf("%d rows for %d messages, want %d", rows, different, messages)
	}
}
