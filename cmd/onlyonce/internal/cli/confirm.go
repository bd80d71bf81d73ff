package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// A WritePermission is the permission that a command needs before it sends requests
// that take effect.
type WritePermission struct{ given bool }

// AddFlag declares --yes-it-may-write, which grants the permission.
func (p *WritePermission) AddFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.given, "yes-it-may-write", false, "send requests that take effect, without a prompt")
}

// Ask returns an error unless the flag is set, or a person confirms what is about to
// be sent. The prompt goes to standard error, because a script may read the output.
func (p *WritePermission) Ask(cmd *cobra.Command, to, what string) error {
	if p.given {
		return nil
	}
	if u, err := url.Parse(to); err == nil {
		to = u.Redacted()
	}
	if !Confirm(cmd, cmd.ErrOrStderr(), fmt.Sprintf("This sends %s to %s, where they take effect.", what, to)) {
		return Usagef("nothing was sent to %s: answer yes, or pass --yes-it-may-write if you may write to it", to)
	}
	return nil
}

// Confirm writes a question to out, reads a line from the command's input, and
// reports whether it is yes.
func Confirm(cmd *cobra.Command, out io.Writer, question string) bool {
	fmt.Fprint(out, question, " Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	fmt.Fprintln(out)
	return strings.TrimSpace(answer) == "yes"
}

// OnTerminal reports whether a person can answer a question: whether the command's input is
// a terminal.
func OnTerminal(cmd *cobra.Command) bool {
	return isTerminal(cmd.InOrStdin())
}

// PrintsToTerminal reports whether text written to out, an output of a command, appears on a
// terminal.
func PrintsToTerminal(out io.Writer) bool {
	if o, ok := out.(*output); ok {
		out = o.to
	}
	return isTerminal(out)
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
