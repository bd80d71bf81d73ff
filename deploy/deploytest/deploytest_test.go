package deploytest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// soon bounds every wait for a condition; nothing takes as long, even on a busy machine.
const soon = 3 * time.Minute

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", soon, what)
		}
	}
}

// repository is the folder of the repository.
const repository = "../.."

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decode decodes YAML as Kubernetes does. It rejects keys that occur twice, that differ in
// case from those of into, or that into has no field for.
func decode(t *testing.T, name, text string, into any) {
	t.Helper()
	document, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	unknown, err := json.UnmarshalStrict(document, into)
	if err = errors.Join(append(unknown, err)...); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// decodeLoose decodes a YAML file of which the test needs only a part.
func decodeLoose(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, name)), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// get returns the status of a GET, or 0 if there is no response.
func get(ctx context.Context, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// flagLine matches a flag in the help of a command.
var flagLine = regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z0-9-]+)(?: ([^\[\n]*?))?  +.*?(?:\[(ONLYONCE_[A-Z_]+)\])?(?: \(default .*)?$`)

// settings returns the flags and environment variables in the help of a command.
func settings(t *testing.T, command ...string) (flags, variables []string) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), builtBinary(t), append(command, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v --help: %v\n%s", command, err, help)
	}
	for _, match := range flagLine.FindAllStringSubmatch(string(help), -1) {
		flags = append(flags, match[1])
		if match[3] != "" {
			variables = append(variables, match[3])
		}
	}
	if len(flags) < 2 {
		t.Fatalf("the help of %v shows only the flags %v:\n%s", command, flags, help)
	}
	return flags, variables
}

// checkCommand checks the arguments and the environment of a command that a deployment
// runs: onlyonce has the command, and the command has the flags and variables.
func checkCommand(t *testing.T, where string, arguments []string, environment []string) {
	t.Helper()
	if len(arguments) == 0 || !slices.Contains([]string{"proxy", "serve", "relay", "migrate"}, arguments[0]) {
		t.Errorf("%s runs onlyonce with %q", where, arguments)
		return
	}
	flags, variables := settings(t, arguments[0])
	for _, argument := range arguments[1:] {
		name, isFlag := strings.CutPrefix(argument, "--")
		if name, _, _ = strings.Cut(name, "="); isFlag && !slices.Contains(flags, name) {
			t.Errorf("%s: onlyonce %s has no flag --%s", where, arguments[0], name)
		}
	}
	for _, name := range environment {
		if strings.HasPrefix(name, "ONLYONCE_") && !slices.Contains(variables, name) && arguments[0] != "migrate" {
			t.Errorf("%s: onlyonce %s has no variable %s", where, arguments[0], name)
		}
	}
}
