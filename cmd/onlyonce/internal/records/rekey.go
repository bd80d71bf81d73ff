package records

import (
	"fmt"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/cryptstore"
	"github.com/spf13/cobra"
)

func rekeyCommand() *cobra.Command {
	var e storeurl.Encryption
	cmd := &cobra.Command{
		Use:   "rekey URL --encryption-keys-file FILE",
		Short: "Encrypt the settled records again with the current key",
		Long: `Encrypts the responses and errors of settled records again with the current key of the
file, while programs use the store, so that an older key can be deleted. With
--accept-plaintext, it also encrypts what was not encrypted.

Run it 10 minutes after you have made the new key the current one. Until then, programs
may still encrypt with the former one, and what they store later still needs it.

It leaves the records of running commands, and those with steps that a retry needs:
they still need their old keys. When it prints "left: 0" after these 10 minutes, only the
errors in the audit trail and the summaries of requests still need an old key. You can
run it again at any time.`,
		Example: `  onlyonce records rekey sqlite:onlyonce-data/onlyonce.db --encryption-keys-file /run/secrets/onlyonce-keys`,
		Args:    cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cipher, err := e.Cipher()
			if err != nil {
				return err
			}
			if cipher == nil {
				return cli.Usagef("--encryption-keys-file is missing: name the file with the keys")
			}
			return storeurl.WithRecords(cmd.Context(), args[0], func(store storeurl.Records) error {
				n, err := cipher.Rekey(cmd.Context(), store, progress(cmd))
				out := cmd.OutOrStdout()
				fmt.Fprintf(out, "encrypted: %d\nalready with the current key: %d\nleft: %d\n", n.Encrypted, n.Current, n.Left)
				if n.Left > 0 {
					fmt.Fprintln(out, "The records that are left still need their old keys: their commands are running, a retry needs their steps, or they are corrupt. Run this again later.")
				}
				return err
			})
		},
	}
	storeflags.AddEncryption(cmd.Flags(), &e)
	return cmd
}

// progress returns a function that shows the progress of a command on a terminal, and nil elsewhere.
func progress(cmd *cobra.Command) func(cryptstore.Rekeyed) {
	if !cli.PrintsToTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	return func(n cryptstore.Rekeyed) {
		fmt.Fprintf(cmd.ErrOrStderr(), "\r%d records", n.Encrypted+n.Current+n.Left)
	}
}
