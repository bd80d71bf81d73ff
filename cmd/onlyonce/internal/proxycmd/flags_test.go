package proxycmd

import (
	"cmp"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestFlags_EachIsASettingOfTheFileOrGoesWithOne(t *testing.T) {
	cmd := &cobra.Command{}
	new(config).addFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if settingOf[f.Name] == "" && !goesWithFile(f.Name) {
			t.Errorf("--%s is neither in settingOf nor allowed with --config: nobody is told where to write it", f.Name)
		}
	})
	for name := range settingOf {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("settingOf has --%s, which is no flag", name)
		}
	}
}

func TestFlags_ThoseThatGoWithAFileWinOverIt(t *testing.T) {
	values := map[string]string{"log-format": "text", "log-level": "debug", "log-keys": "raw", "shutdown-timeout": "77s", "accept-plaintext": "true", "no-migrate": "true"}
	for _, o := range overrides {
		cmd, c, f := &cobra.Command{}, new(config), proxyfile.New()
		c.addFlags(cmd)
		if err := cmd.Flags().Set(o.flag, cmp.Or(values[o.flag], "other")); err != nil {
			t.Error(err)
			continue
		}
		c.override(cmd, f)
		if reflect.DeepEqual(f, proxyfile.New()) {
			t.Errorf("--%s changes nothing in the file", o.flag)
		}
		if settingOf[o.flag] == "" {
			t.Errorf("--%s is not in settingOf", o.flag)
		}
	}
}

func TestFlags_AFileOfSettingsWithoutAnEndIsRejected(t *testing.T) {
	const endless = "/dev/zero"
	if _, err := os.Stat(endless); err != nil {
		t.Skip("needs an endless file: ", err)
	}
	if _, err := readFile(endless); err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Errorf("the error is %v", err)
	}
}
