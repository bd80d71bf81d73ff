package outboxcmd

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestOutbox_AllParkedMessagesAreListedAndRequeuedHoweverManyAreReadAtATime(t *testing.T) {
	text := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	u, err := storeurl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 2*parkedPage + 5
	tx, err := store.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := store.Outbox().Append(t.Context(), tx, outbox.Message{ID: fmt.Sprint("message-", i), Topic: "t"}); err != nil {
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
	for _, c := range []struct {
		args   []string
		lines  int
		starts string
	}{
		{[]string{"ls", text, "--json", "--limit", "1"}, 1, "{"},
		{[]string{"ls", text, "--json", "--limit", fmt.Sprint(parkedPage)}, parkedPage, "{"},
		{[]string{"ls", text, "--json", "--limit", fmt.Sprint(parkedPage + 1)}, parkedPage + 1, "{"},
		{[]string{"ls", text}, 1 + n, "SEQ "},
		{[]string{"requeue", text, "--all"}, 1, fmt.Sprint("requeued: ", n)},
		{[]string{"ls", text, "--json"}, 0, ""},
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
