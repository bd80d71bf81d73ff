package outboxcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestOutbox_AllParkedMessagesAreListedAndRequeuedHoweverManyAreReadAtATime(t *testing.T) {
	const n = 3*parkedPage + 5 // the second page is larger
	text := parked(t, n, nil)
	for _, c := range []struct {
		args   []string
		lines  int
		starts string
	}{
		{[]string{"ls", text, "--json", "--limit", "1"}, 1, "{"},
		{[]string{"ls", text, "--json", "--limit", fmt.Sprint(parkedPage)}, parkedPage, "{"},
		{[]string{"ls", text, "--json", "--limit", fmt.Sprint(parkedPage + 1)}, parkedPage + 1, "{"},
		{[]string{"ls", text}, 1 + n, "SEQ "},
		{[]string{"requeue", text, "--all", "--reason", "ticket 4711", "--as", "ada"}, 1, fmt.Sprint("requeued: ", n)},
		{[]string{"ls", text, "--json"}, 0, ""},
		{[]string{"audit", text}, 1 + n, "TIME "},
		{[]string{"audit", text, "--json", "--limit", "2"}, 2, `{"at":"`},
	} {
		var out strings.Builder
		cmd := Command()
		cmd.SetOut(&out)
		cmd.SetErr(new(strings.Builder))
		cmd.SetArgs(c.args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != c.lines || !strings.HasPrefix(out.String(), c.starts) {
			t.Errorf("%s printed %d lines, want %d:\n%s", c.args, lines, c.lines, &out)
		}
	}
}

func TestOutbox_ADecisionNeedsAReasonAndIsInTheAuditTrail(t *testing.T) {
	text := parked(t, 2, nil)
	run := func(args ...string) (string, error) {
		var out strings.Builder
		cmd := Command()
		cmd.SetOut(&out)
		cmd.SetErr(new(strings.Builder))
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, verb := range []string{"requeue", "discard"} {
		if _, err := run(verb, text, "1"); err == nil || !strings.Contains(err.Error(), "--reason is missing") {
			t.Errorf("%s without a reason: %v", verb, err)
		}
	}
	for verb, seq := range map[string]string{"requeue": "1", "discard": "2"} {
		if out, err := run(verb, text, seq, "--reason", "ticket \x1b[31m"+seq, "--as", "ada"); err != nil {
			t.Errorf("%s: %s, %v", verb, out, err)
		}
	}
	out, err := run("audit", text)
	for _, want := range []string{"ada", "requeue", "discard", "message-0", "message-1", "31m1", "31m2"} {
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("the audit trail has no %s, or has an escape: %v\n%s", want, err, out)
		}
	}
}

// parked returns the URL of a store in which n messages with a payload are parked.
func parked(t *testing.T, n int, payload []byte) string {
	t.Helper()
	text := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	u, err := storeurl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := store.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := store.Outbox().Append(t.Context(), tx, outbox.Message{ID: fmt.Sprint("message-", i), Topic: "t", Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.DB.Exec("UPDATE onlyonce_outbox SET state = 'parked'"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return text
}

// A countedQueue counts the reads of parked messages, and the most bytes that one of them read.
type countedQueue struct {
	outbox.Queue
	reads, most int
}

func (q *countedQueue) Parked(ctx context.Context, after int64, limit int) ([]outbox.Entry, error) {
	list, err := q.Queue.Parked(ctx, after, limit)
	size := 0
	for _, e := range list {
		size += len(e.Payload)
	}
	q.reads, q.most = q.reads+1, max(q.most, size)
	return list, err
}

func TestOutbox_VeryManyParkedMessagesAreReadInFewPagesThatFitIntoMemory(t *testing.T) {
	needs.Time(t)
	for _, c := range []struct{ messages, size, reads, most int }{
		{20_000, 1, 15, longestPage},
		{2000, 8 << 10, 25, pageBytes},
		{50, 1 << 20, 4, parkedPage << 20},
	} {
		err := storeurl.With(t.Context(), parked(t, c.messages, make([]byte, c.size)), func(store *storeurl.Store) error {
			queue := &countedQueue{Queue: store.Outbox()}
			seqs, err := allParked(t.Context(), queue)
			if len(seqs) != c.messages || queue.reads > c.reads || queue.most > c.most {
				t.Errorf("%d messages of %d bytes were read %d times, up to %d bytes at a time; want at most %d times and %d bytes", len(seqs), c.size, queue.reads, queue.most, c.reads, c.most)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
