package proxycmd

import (
	"slices"
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
