// Package check is the command "onlyonce check": it tests an HTTP API's idempotency
// from the outside and reports what it found.
package check

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce check".
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "check URL",
		Short: "Test the idempotency of an HTTP API from the outside",
		Long: `Sends real requests to an API, whatever its language and idempotency layer, and
reports a verdict for each promise: pass, fail, or not supported, with the
requests and responses behind it and advice on how to fix a failure. The promises
follow draft-ietf-httpapi-idempotency-key-header-07 where it covers them; it is an
expired Internet-Draft, not a standard.

The requests take effect, each under a new random key, so check runs only with
--yes-it-may-write or after you confirm. It needs a body that the API accepts,
and a way to vary it: --fresh names a field, or the body contains {{fresh}}. With
--count-url it also detects effects that no response shows.

A header given as @FILE is read from a file with one header per line, which keeps
credentials off the command line. Credentials are not shown in any output.

The rows are ` + wrapped(rowIDs(), 78) + `.

A row that fails is critical (FAIL) if a command can be lost or run twice, or if a
caller can get the response or the credentials of another. Otherwise, it is advisory
(fail).

The exit code is 1 if a row failed, and 2 if the API could not be checked.`,
		Example: `  onlyonce check http://127.0.0.1:8080/orders --yes-it-may-write --fresh /external_ref \
    --body '{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}],"external_ref":"PO"}'
  onlyonce check https://api.example.com --path /v1/orders --body @order.json --fresh /note \
    --header @credentials --other-header @others --count-url /v1/orders --count /items
  onlyonce check http://127.0.0.1:3000/orders --body @order.json --only replay,burst --format junit > report.xml`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, err := f.writer()
			if err != nil {
				return err
			}
			target, err := f.target(args[0])
			if err != nil {
				return err
			}
			what := fmt.Sprintf("up to %d %s requests", f.cfg.MaxRequests(), cmp.Or(target.Method, "POST"))
			if err := f.may.Ask(cmd, target.URL, what); err != nil {
				return err
			}
			return report(cmd, target, f.cfg, write)
		},
	}
	f.addFlags(cmd)
	return cmd
}

// wrapped joins words with commas, and breaks the text into lines.
func wrapped(words []string, width int) string {
	var b strings.Builder
	column := len("The rows are ")
	for i, word := range words {
		if i > 0 {
			b.WriteString(",")
			column++
			if column+1+len(word) > width {
				b.WriteString("\n")
				column = 0
			} else {
				b.WriteString(" ")
				column++
			}
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// report runs the checks and writes the report.
func report(cmd *cobra.Command, target conform.Target, cfg conform.Config, write reportWriter) error {
	cfg.Progress = showProgress(cmd.ErrOrStderr(), cli.PrintsToTerminal(cmd.ErrOrStderr()))
	found, err := conform.Run(cmd.Context(), target, cfg)
	if cfg.Progress != nil {
		fmt.Fprint(cmd.ErrOrStderr(), clearLine)
	}
	if bad := write(cmd.OutOrStdout(), found, err); bad != nil {
		return fmt.Errorf("write: %w", bad)
	}
	if err != nil {
		return cli.Inconclusive(err)
	}
	if n := found.Count(conform.Fail); n > 0 {
		return fmt.Errorf("%d of %d rows failed, %d of them critical", n, len(found.Rows), found.Critical())
	}
	return nil
}

// clearLine returns to the beginning of the terminal's line, and clears it.
const clearLine = "\r\x1b[K"

// showProgress returns a conform.Config.Progress that keeps a line of a terminal up to
// date, or nil if nobody would see it.
func showProgress(out io.Writer, terminal bool) func(row conform.Row, n, of int) {
	if !terminal {
		return nil
	}
	return func(row conform.Row, n, of int) { fmt.Fprintf(out, clearLine+"%d of %d: %s", n, of, row.ID) }
}
