package proxycmd

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestFlags_EachIsASettingOfTheFileOrGoesWithOne(t *testing.T) {
	cmd := &cobra.Command{}
	new(config).addFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if settingOf[f.Name] == "" && !slices.Contains(besideFile, f.Name) {
			t.Errorf("--%s is in neither settingOf nor besideFile: with --config, nobody is told where to write it", f.Name)
		}
	})
	for name := range settingOf {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("settingOf has --%s, which is no flag", name)
		}
	}
}

func TestFlags_AFileOfSettingsWithoutAnEndIsRejected(t *testing.T) {
	const endless = "/dev/zero"
	if _, err := os.Stat(endless); err != nil {
		t.Skip(err)
	}
	if _, err := readFile(endless); err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Errorf("the error is %v", err)
	}
}
