// Package storeflags has the flags and the environment variables with which commands are
// told their store.
package storeflags

import (
	"os"
	"regexp"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The help of the flags that several commands have for a store.
const (
	FileUsage   = "`file` with the URL of the store, for use instead of --store if the URL contains a password, because every user of the machine can read command lines"
	SecretUsage = "`file` with the secret that keys the fingerprints in the store, the same for all servers and proxies on it (default: PATH.secret, which is generated, for sqlite:; none for a server)"
	RiskUsage   = "`name` of a finding of onlyonce doctor that is accepted"
)

// The help of the flags of an Encryption.
const (
	KeysUsage      = "`file` with the keys by which responses, errors and steps in the store are encrypted, the same for all programs on it (default: they are not encrypted)"
	PlaintextUsage = "also read records that are not encrypted, because they are older than --encryption-keys-file; without this flag, they are an error"
)

// AddEncryption declares the flags of an Encryption.
func AddEncryption(f *pflag.FlagSet, e *storeurl.Encryption) {
	f.StringVar(&e.KeysFile, "encryption-keys-file", "", KeysUsage)
	f.BoolVar(&e.AcceptPlaintext, "accept-plaintext", false, PlaintextUsage)
}

// FromEnv makes a command whose first argument is the URL of a store, and its
// subcommands, take a missing URL from the environment.
func FromEnv(cmd *cobra.Command) *cobra.Command {
	for _, under := range cmd.Commands() {
		FromEnv(under)
	}
	if cmd.HasSubCommands() {
		return cmd
	}
	check, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		args, err := withStoreURL(args)
		if err != nil {
			return err
		}
		if err = check(cmd, args); err != nil && len(args) == 0 {
			err = cli.Usagef("%w, or set %s", err, cli.EnvName("store"))
		}
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args, err := withStoreURL(args)
		if err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// storeLike matches the beginning of an argument that is meant as the URL of a store,
// whether it is valid or not.
var storeLike = regexp.MustCompile(`^(sqlite:|[A-Za-z][A-Za-z0-9+.-]*://)`)

// withStoreURL prepends the environment's store URL, unless args begin with a URL.
func withStoreURL(args []string) ([]string, error) {
	if len(args) > 0 && storeLike.MatchString(args[0]) {
		return args, nil
	}
	url, file := os.Getenv(cli.EnvName("store")), os.Getenv(cli.EnvName("store-file"))
	switch {
	case url != "" && file != "":
		return nil, cli.Usagef("%s and %s are both set: leave one out", cli.EnvName("store"), cli.EnvName("store-file"))
	case file != "":
		var err error
		if url, err = storeurl.ReadFile(file, nil); err != nil {
			return nil, err
		}
	case url == "":
		return args, nil
	}
	return append([]string{url}, args...), nil
}

// ErrBoth is the error for a command line with both --store and --store-file.
var ErrBoth = cli.Usagef("--store (%s) and --store-file (%s) are both set: leave one out", cli.EnvName("store"), cli.EnvName("store-file"))
