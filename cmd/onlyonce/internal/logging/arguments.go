package logging

import (
	"log/slog"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
)

// WarnOfPasswords warns of every argument of a command line that contains a password.
func WarnOfPasswords(args []string, log *slog.Logger) {
	for _, arg := range args {
		if shown := plain.Mask(arg); shown != arg {
			log.Warn("every user of the machine can read the password on the command line: set the flag in the environment, such as --store in ONLYONCE_STORE, or write the URL of the store into a file and name that with --store-file", "argument", shown)
		}
	}
}
