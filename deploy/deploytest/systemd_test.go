package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A unit has the settings of a unit file, by key; a key can occur several times.
type unit map[string][]string

func parseUnit(text string) unit {
	parsed := make(unit)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			parsed[key] = append(parsed[key], value)
		}
	}
	return parsed
}

// only returns the value of a key that is set once.
func (u unit) only(t *testing.T, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Errorf("%s is set to %q", key, u[key])
		return ""
	}
	return u[key][0]
}

// eachUnit runs a test with each service's file.
func eachUnit(t *testing.T, test func(t *testing.T, file, text string)) {
	files, err := filepath.Glob(filepath.Join(repository, "deploy/systemd/*.service"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the services are %v, %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) { test(t, name, read(t, "deploy/systemd/"+name)) })
	}
}

func TestSystemd_ServicesRunWhatOnlyonceKnows(t *testing.T) {
	users := read(t, "deploy/systemd/onlyonce.sysusers.conf")
	eachUnit(t, func(t *testing.T, _, text string) {
		u := parseUnit(text)
		start := strings.Fields(u.only(t, "ExecStart"))
		var variables []string
		for _, setting := range u["Environment"] {
			name, _, _ := strings.Cut(setting, "=")
			variables = append(variables, name)
			if name == "ONLYONCE_STORE" {
				t.Errorf("%s: every user can read the environment of a unit", setting)
			}
		}
		checkCommand(t, "the service", start[1:], variables)
		if start[0] != entrypoint(t) {
			t.Errorf("the program is %s, that of the image is %s", start[0], entrypoint(t))
		}
		if user := u.only(t, "User"); !strings.Contains(users, "\nu "+user+" ") {
			t.Errorf("onlyonce.sysusers.conf does not make the user %s", user)
		}
		// systemd kills a process that is still running then, and its commands stay unknown.
		if within, err := time.ParseDuration(u.only(t, "TimeoutStopSec")); err != nil || within <= 30*time.Second {
			t.Errorf("a stop may take %v, %v: no longer than --shutdown-timeout", within, err)
		}
		// A process ends if it starts while its store cannot be reached, however long that takes.
		if limit := u.only(t, "StartLimitIntervalSec"); limit != "0" || u["StartLimitBurst"] != nil || u.only(t, "Restart") != "always" {
			t.Errorf("after some starts in %s, systemd does not restart the service any more", limit)
		}
		help, err := exec.CommandContext(t.Context(), builtBinary(t), start[1], "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		// SIGHUP ends a process that does not handle it.
		if reloads := strings.Contains(string(help), "SIGHUP"); reloads != slices.Contains(u["ExecReload"], "/bin/kill -HUP $MAINPID") || !reloads && u["ExecReload"] != nil {
			t.Errorf("onlyonce %s reloads on SIGHUP: %t; the service reloads by %q", start[1], reloads, u["ExecReload"])
		}
	})
}

func TestSystemd_ServicesAreValidAndConfined(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("ONLYONCE_REQUIRE_SERVICES") != "" {
			t.Fatal(err)
		}
		t.Skip("install systemd-analyze: it is part of systemd")
	}
	eachUnit(t, func(t *testing.T, name, text string) {
		// It checks that the program exists, which is not installed here.
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, entrypoint(t), builtBinary(t))), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("verify: %v\n%s", err, out)
		}
		// The exposure is 0 to 10, times 10; systemd calls 2 and less OK.
		if out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=15", "--no-pager", file).CombinedOutput(); err != nil {
			t.Errorf("security: %v\n%s", err, out)
		}
	})
}
