// Package version is the command "onlyonce version", and tells the other commands
// which version they are.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"
)

// Command returns the command "onlyonce version".
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the program, Go and SQLite",
		Args:  cli.ExactArgs(),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), All())
		},
	}
}

// release is the version of a released binary or image, such as v1.2.0. The linker sets
// it (-X); it is empty in every other build.
var release string

// Program returns the version of a release, otherwise the module's version, or (devel)
// for a build from a working copy.
func Program() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// All returns the output of version and --version.
func All() string {
	return fmt.Sprintf("onlyonce %s\n%s %s/%s\nSQLite %s\n",
		Program(), runtime.Version(), runtime.GOOS, runtime.GOARCH, sqlite3.SQLITE_VERSION)
}
