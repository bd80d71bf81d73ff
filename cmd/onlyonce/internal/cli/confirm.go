package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// A WritePermission is what a command needs before it sends requests that
// change something to an address.
type WritePermission struct{ given bool }

// AddFlag declares --yes-it-may-write, which gives the permission.
func (p *WritePermission) AddFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.given, "yes-it-may-write", false, "send requests that change something to the address, without asking")
}

// Ask returns an error unless the flag is given, or a person says yes to what
// is about to be sent. It asks on standard error, for the output may be read
// by a script.
func (p *WritePermission) Ask(cmd *cobra.Command, to, what string) error {
	if p.given {
		return nil
	}
	if u, err := url.Parse(to); err == nil {
		to = u.Redacted()
	}
	if !Confirm(cmd, cmd.ErrOrStderr(), fmt.Sprintf("This sends %s to %s, where they take effect.", what, to)) {
		return Usagef("nothing was sent to %s: answer yes, or say --yes-it-may-write if it is yours to write to", to)
	}
	return nil
}

// Confirm asks the person at the terminal a question, which it writes to out, and
// reports whether the answer is yes.
func Confirm(cmd *cobra.Command, out io.Writer, question string) bool {
	fmt.Fprint(out, question, " Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	fmt.Fprintln(out)
	return strings.TrimSpace(answer) == "yes"
}
