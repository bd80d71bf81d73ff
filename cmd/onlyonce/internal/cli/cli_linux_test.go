package cli

import (
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

func TestRun_ACommandWhoseOutputCannotBeWrittenHasFailed(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full: ", err)
	}
	defer full.Close()
	defer func(out *os.File) { os.Stdout = out }(os.Stdout)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, args := range [][]string{{"--help"}, {"help"}, {"help", "print"}, {"print"}, {"print", "--help"}, {}} {
		for out, want := range map[*os.File]int{full: ExitFailed, null: ExitOK} {
			root := Group(&cobra.Command{Use: "program", SilenceErrors: true, SilenceUsage: true}, &cobra.Command{
				Use: "print", Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "text") },
			})
			AddHelp(root)
			os.Stdout = out
			if got := Run(root, args); got != want {
				t.Errorf("%q to %s: exit code %d, want %d", args, out.Name(), got, want)
			}
		}
	}
}
