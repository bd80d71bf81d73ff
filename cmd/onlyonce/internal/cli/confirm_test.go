package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestConfirm_NothingIsSentToAnAddressWithoutAYes(t *testing.T) {
	for _, c := range []struct {
		args   []string
		answer string
		may    bool
	}{
		{nil, "", false},
		{nil, "y\n", false},
		{nil, "no\n", false},
		{nil, "yes\n", true},
		{[]string{"--yes-it-may-write"}, "", true},
		{[]string{"--yes-it-may-write=false"}, "", false},
	} {
		var p WritePermission
		cmd := &cobra.Command{}
		p.AddFlag(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		var asked, out bytes.Buffer
		cmd.SetIn(strings.NewReader(c.answer))
		cmd.SetErr(&asked)
		cmd.SetOut(&out)
		err := p.Ask(cmd, "http://u:secret@shop.example", "100 POST requests")
		if (err == nil) != c.may {
			t.Errorf("%q, responded with %q: %v", c.args, c.answer, err)
		}
		if strings.Contains(asked.String(), "secret") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Error("the password was shown")
		}
		if len(c.args) == 0 && !strings.Contains(asked.String(), "100 POST requests to http://u:xxxxx@shop.example") || out.Len() > 0 {
			t.Errorf("asked %q, and printed %q", &asked, &out)
		}
	}
}
