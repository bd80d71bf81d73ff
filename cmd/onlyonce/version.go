package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the program, Go and SQLite",
		Args:  takes(),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), versions())
		},
	}
}

// versions is what version and --version print.
func versions() string {
	return fmt.Sprintf("onlyonce %s\n%s %s/%s\nSQLite %s\n",
		programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, sqlite3.SQLITE_VERSION)
}

// programVersion is the module's version, or (devel) for a build from a working
// copy.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
