package deploytest

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// An instruction is one of a Dockerfile's.
type instruction struct{ name, arguments string }

// instructions returns those of the Dockerfile in the root.
func instructions(t *testing.T) []instruction {
	t.Helper()
	return instructionsOf(t, "Dockerfile")
}

// instructionsOf returns those of a Dockerfile, in order, with continued lines joined.
func instructionsOf(t *testing.T, name string) (list []instruction) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(read(t, name)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " "), "\n") {
		name, arguments, _ := strings.Cut(line, " ")
		list = append(list, instruction{name, strings.TrimSpace(arguments)})
	}
	return list
}

// last returns the arguments of the last instruction with a name, which is that of the
// image itself and not of the stage that builds.
func last(t *testing.T, name string) string {
	t.Helper()
	for _, in := range slices.Backward(instructions(t)) {
		if in.name == name {
			return in.arguments
		}
	}
	t.Fatalf("the Dockerfile has no %s", name)
	return ""
}

// mountFlag matches a flag of RUN, which only Docker knows.
var mountFlag = regexp.MustCompile(`--mount=\S+ *`)

// buildLine returns the command of the Dockerfile that builds the binary.
func buildLine(t *testing.T) string {
	t.Helper()
	for _, in := range instructions(t) {
		if in.name == "RUN" && strings.Contains(in.arguments, "go build") {
			return mountFlag.ReplaceAllString(in.arguments, "")
		}
	}
	t.Fatal("no RUN of the Dockerfile runs go build")
	return ""
}

// buildContext copies the committed files that .dockerignore does not leave out.
func buildContext(t *testing.T, to string) {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, ".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	git := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	git.Dir = repository
	files, err := git.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		skip, err := ignored.MatchesOrParentMatches(name)
		if err != nil {
			t.Fatal(err)
		}
		if skip || strings.HasSuffix(name, "_test.go") { // no build reads a test
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var built struct {
	once   sync.Once
	dir    string
	binary string
}

// builtBinary builds onlyonce as the Dockerfile does, once, from the files that Docker
// would copy, and returns the path of the file that the Dockerfile copies into the image.
func builtBinary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "onlyonce-image-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir = dir
		if err := os.Chmod(dir, 0o755); err != nil { // the image's user runs the files in it
			t.Fatal(err)
		}
		buildContext(t, dir)
		build := exec.CommandContext(t.Context(), "sh", "-ec", buildLine(t))
		build.Dir = dir
		// GOFLAGS and GOWORK are empty in the image that builds, too.
		build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=", "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "VERSION=v9.8.7")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", buildLine(t), err, out)
		}
		for _, in := range instructions(t) {
			source, target, _ := strings.Cut(strings.TrimPrefix(in.arguments, "--from=build /src/"), " ")
			if in.name == "COPY" && target == entrypoint(t) {
				built.binary = filepath.Join(dir, source)
			}
		}
	})
	if built.binary == "" {
		t.Fatal("the build failed, or the Dockerfile does not copy its result to the ENTRYPOINT")
	}
	return built.binary
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// entrypoint returns the program that the image starts.
func entrypoint(t *testing.T) string {
	t.Helper()
	var program []string
	if err := json.Unmarshal([]byte(last(t, "ENTRYPOINT")), &program); err != nil || len(program) != 1 {
		t.Fatalf("ENTRYPOINT %s is not a list of one program: %v", last(t, "ENTRYPOINT"), err)
	}
	return program[0]
}

func TestDockerfile_TheBinaryIsStatic(t *testing.T) {
	binary, err := elf.Open(builtBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a segment %v: it needs a loader, which the image does not have", program.Type)
		}
	}
}

func TestDockerfile_TheImageHasNoShellAndNoRoot(t *testing.T) {
	if base := last(t, "FROM"); !strings.HasPrefix(base, "gcr.io/distroless/static-") || !strings.HasSuffix(base, ":nonroot") {
		t.Errorf("the image is made from %s", base)
	}
	if user := last(t, "USER"); user != "65532:65532" {
		t.Errorf("the image runs as %s; Kubernetes' runAsNonRoot needs a number", user)
	}
	if data := last(t, "WORKDIR"); last(t, "VOLUME") != `["`+data+`"]` {
		t.Errorf("the working directory %s is not the volume %s", data, last(t, "VOLUME"))
	}
	for _, in := range instructions(t) {
		if image, _, _ := strings.Cut(strings.TrimPrefix(in.arguments, "--platform=$BUILDPLATFORM "), " "); in.name == "FROM" && !strings.Contains(image, ":") {
			t.Errorf("FROM %s names no version", in.arguments)
		}
	}
	if strings.Contains(read(t, "go.work"), "deploy/") {
		t.Error(".dockerignore leaves out deploy, which go.work uses")
	}
}

// command returns a command that runs in the directory data as the image's user if the
// test may change users, with the image's environment and nowhere else to write.
func command(t *testing.T, data string, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(builtBinary(t), arguments...) // started ends it: the test's context would kill it
	cmd.Dir = data
	cmd.Env = []string{"HOME=/nonexistent", "TMPDIR=/nonexistent"}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	return cmd
}

// readOnlyRoot makes a directory in which only the directory data can be written to.
func readOnlyRoot(t *testing.T) (root, data string) {
	t.Helper()
	root, err := os.MkdirTemp("", "onlyonce-root-")
	if err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(root, "data")
	t.Cleanup(func() {
		if err := os.Chmod(root, 0o755); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(data, 65532, 65532); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o555); err != nil {
		t.Fatal(err)
	}
	return root, data
}

func TestDockerfile_TheBinaryRunsAsItsUser(t *testing.T) {
	root, data := readOnlyRoot(t)
	for _, arguments := range [][]string{{"version"}, {"--help"}, {"proxy", "--help"}} {
		cmd := command(t, data, arguments...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("onlyonce %v: %v\n%s", arguments, err, out)
		}
		if arguments[0] == "version" && !strings.HasPrefix(string(out), "onlyonce v9.8.7\n") {
			t.Errorf("version does not print the VERSION of the build:\n%s", out)
		}
	}
	cmd := command(t, data, "proxy", "--single-tenant", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("the proxy ran in a directory in which it can't write:\n%s", out)
	}
}

// started starts a command and returns the addresses at which it listens.
func started(t *testing.T, cmd *exec.Cmd) (listen, admin string) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for range lines { // until it ends
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v ended with %v", cmd.Args[1:], err)
		}
	})
	var log []string
	for line := range lines {
		log = append(log, line)
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(entry.Address); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if strings.HasPrefix(entry.Msg, "admin") {
			admin = entry.Address
		} else {
			listen = entry.Address
		}
		if listen != "" && admin != "" {
			go func() {
				for range lines { // the process never waits for its log
				}
			}()
			return listen, admin
		}
	}
	t.Fatalf("%v did not start:\n%s", cmd.Args[1:], strings.Join(log, "\n"))
	return "", ""
}

// post sends a command with a key and returns its response.
func post(t *testing.T, url, body string) (status int, replayed bool, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "k-1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Idempotency-Replayed") == "true", string(content)
}

func TestDockerfile_ServersNeedOnlyTheirDataDirectory(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "created")
	}))
	defer upstream.Close()
	addresses := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	for _, test := range []struct {
		path, body string
		arguments  []string
	}{
		{"/orders", "{}", []string{"proxy", "--upstream", upstream.URL, "--single-tenant"}},
		{"/api/v1/items", `{"sku":"LAMP-1","title":"Lamp","status":"active"}`, []string{"serve"}},
	} {
		t.Run(test.arguments[0], func(t *testing.T) {
			root, data := readOnlyRoot(t)
			listen, admin := started(t, command(t, data, append(test.arguments, addresses...)...))
			until(t, "/readyz is 200", func() bool { return get(t.Context(), "http://"+admin+"/readyz") == http.StatusOK })
			status, replayed, first := post(t, "http://"+listen+test.path, test.body)
			if status != http.StatusCreated || replayed {
				t.Fatalf("the first request got %d, replayed %t: %s", status, replayed, first)
			}
			status, replayed, second := post(t, "http://"+listen+test.path, test.body)
			if status != http.StatusCreated || !replayed || second != first {
				t.Errorf("the repeat got %d, replayed %t: %s", status, replayed, second)
			}
			entries, err := os.ReadDir(root)
			if err != nil || len(entries) != 1 {
				t.Errorf("the root has %v, %v besides the data directory", entries, err)
			}
		})
	}
}
