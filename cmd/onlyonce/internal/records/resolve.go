package records

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
)

// A resolution is the outcome that a person decides on.
type resolution struct {
	completed, failed, rerun bool
	status                   int
	header                   []string
	body, ref                string
	keep                     time.Duration
}

func resolveCommand() *cobra.Command {
	c := change{done: "resolved"}
	var r resolution
	cmd := &cobra.Command{
		Use:   selectionUse("resolve"),
		Short: "Decide the outcome of commands whose outcome is unknown",
		Long: `Records your decision about commands whose outcome is unknown, once you have found out
what happened, for example by asking the bank. Pass one of:

  --completed  the command took effect: repeats get the response of --status, --header
               and --body, and the command never runs again
  --failed     the command did not take effect and must not run again: repeats get the
               response of --status, --header and --body or, without them, an error
  --rerun      the command did not take effect: the next repeat runs it as its next
               attempt; steps that have finished are not repeated. A command that has
               completed is left as it is. If the program sets KeepFailures, a repeat
               gets an error instead: use onlyonce records rm, but only if no steps
               have finished, because it runs them again

The records are shown first, and each is read again before it is resolved: it stays as
it is if an attempt has begun or ended in between, if someone else has resolved it, or
while an attempt holds the command.

A store in a SQL database records who decided, when and why, and the record before and
after, in its audit trail, which onlyonce records show prints. Without a terminal, --yes
is required.`,
		Example: `  onlyonce records resolve sqlite:onlyonce-data/onlyonce.db 3f1c7a50 --completed --status 201 \
    --header 'Content-Type: application/json' --body @response.json --ref payment-9 --reason "ticket 4711: the bank has it"
  onlyonce records resolve sqlite:onlyonce-data/onlyonce.db --key order-17 --rerun --reason "ticket 4711: the bank has no such payment"
  onlyonce records resolve sqlite:onlyonce-data/onlyonce.db --state unknown --operation "POST /mails" --failed --reason "too late to send" --yes`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if err := c.args(cmd, args); err != nil {
				return err
			}
			c.settlement, c.question, err = r.settlement(c.decision.Reason)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&r.completed, "completed", false, "it took effect: repeats get the response")
	cmd.Flags().BoolVar(&r.failed, "failed", false, "it did not take effect, and never runs again")
	cmd.Flags().BoolVar(&r.rerun, "rerun", false, "it did not take effect: the next repeat runs it")
	cmd.Flags().IntVar(&r.status, "status", 0, "HTTP `status` of the response; 0 if the command is not an HTTP request")
	cmd.Flags().StringArrayVar(&r.header, "header", nil, "`header` of the response, such as 'Name: value', or @FILE with one per line")
	cmd.Flags().StringVar(&r.body, "body", "", "`body` of the response, or @FILE")
	cmd.Flags().StringVar(&r.ref, "ref", "", "`ref` to store, which identifies what the command created")
	cmd.Flags().DurationVar(&r.keep, "keep", onlyonce.DefaultKeep, "`duration` for which the record stays; 0: until someone resolves it again")
	return cmd
}

// settlement returns the settlement for the flags, and the question to confirm it. The reason
// becomes the error of a command that failed.
func (r *resolution) settlement(reason string) (s onlyonce.Settlement, question string, err error) {
	s.Keep = r.keep
	chosen := 0
	for _, given := range []bool{r.completed, r.failed, r.rerun} {
		if given {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return s, "", cli.Usagef("pass one of --completed, --failed and --rerun")
	case r.rerun && (r.status != 0 || len(r.header) > 0 || r.body != "" || r.ref != ""):
		return s, "", cli.Usagef("--rerun stores no response: leave out --status, --header, --body and --ref")
	case r.status != 0 && (r.status < 200 || r.status > 599):
		return s, "", cli.Usagef("--status is %d: write 200 to 599, or 0 if the command is not an HTTP request", r.status)
	}
	if mistake := cli.DurationMistake(r.keep, "0s for a record that stays until someone resolves it again"); mistake != "" {
		return s, "", cli.Usagef("--keep: %s", mistake)
	}
	if s.Result.Header, err = cli.ParseHeader(r.header); err != nil {
		return s, "", err
	}
	if s.Result.Body, err = cli.TextOrFile(r.body); err != nil {
		return s, "", err
	}
	s.Result.Status, s.Result.Ref = r.status, r.ref
	if r.completed {
		s.State = onlyonce.StateCompleted
		return s, "Resolve %s as completed? Repeats get the response.", nil
	}
	s.State, s.Final, s.Error = onlyonce.StateFailed, r.failed, reason
	if r.failed {
		return s, "Resolve %s as failed? The command never runs again.", nil
	}
	return s, "Resolve %s so that the next repeat runs the command?", nil
}
