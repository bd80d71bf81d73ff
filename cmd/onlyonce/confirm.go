package main

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// A writePermission is what a command needs before it sends requests that
// change something to an address.
type writePermission struct{ given bool }

func (p *writePermission) addFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.given, "yes-it-may-write", false, "do not ask whether requests that change something may be sent to the address")
}

// ask returns an error unless the flag is given, or a person says yes to what
// is about to be sent. It asks on standard error, for the output may be read
// by a script.
func (p *writePermission) ask(cmd *cobra.Command, to, what string) error {
	if p.given {
		return nil
	}
	if u, err := url.Parse(to); err == nil {
		to = u.Redacted()
	}
	if !confirmed(cmd, cmd.ErrOrStderr(), fmt.Sprintf("This sends %s to %s, where they take effect.", what, to)) {
		return usagef("nothing was sent to %s: answer yes, or say --yes-it-may-write if it is yours to write to", to)
	}
	return nil
}

// confirmed asks the person at the terminal, and says whether the answer is yes.
func confirmed(cmd *cobra.Command, out io.Writer, question string) bool {
	fmt.Fprint(out, question, " Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	fmt.Fprintln(out)
	return strings.TrimSpace(answer) == "yes"
}
