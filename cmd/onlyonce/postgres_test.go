package main

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestPostgreSQL_TheCommandsForOperatorsTakeAPostgresURL(t *testing.T) {
	u := cmdtest.NewPostgresURL(t)
	for _, step := range []struct {
		args  []string
		fails string
		says  string
	}{
		{[]string{"doctor", u}, "findings: 1", "schema: the database does not have onlyonce's tables; run onlyonce migrate with the same URL\n"},
		{[]string{"migrate", u}, "", ": created, at version 10\n"},
		{[]string{"migrate", u}, "", ": up to date, at version 10\n"},
		{[]string{"doctor", u}, "", "no findings\nPostgreSQL "},
		{[]string{"records", "ls", u}, "", "ID  STATE"},
		{[]string{"doctor", u + "&default_transaction_read_only=on"}, "findings: 1", "replica: "},
	} {
		var out strings.Builder
		cmd := rootCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(step.args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil && step.fails != "" || err != nil && err.Error() != step.fails || !strings.Contains(out.String(), step.says) {
			t.Errorf("%s: %v, and printed\n%s", step.args[0], err, &out)
		}
	}
}

func TestPostgreSQL_AProxyThatMayNotMigrateMakesNoTables(t *testing.T) {
	u := cmdtest.NewPostgresURL(t)
	out := onlyonceWith(nil, "proxy", "--no-migrate", "--single-tenant", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--store", u)
	if !strings.Contains(out, "onlyonce migrate") {
		t.Errorf("the proxy prints\n%s", out)
	}
	if out = onlyonceWith(nil, "doctor", u); !strings.Contains(out, "does not have onlyonce's tables") {
		t.Errorf("the doctor prints\n%s", out)
	}
}
