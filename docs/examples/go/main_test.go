package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram is set for the processes that a test starts.
const asProgram = "TEST_RUNS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A process is the program, which runs in a directory.
type process struct {
	*exec.Cmd
	url string
}

func start(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Dir = dir
	p.Env = append(os.Environ(), asProgram+"=1", "LISTEN=127.0.0.1:0")
	log, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	lines := bufio.NewScanner(log)
	for p.url == "" && lines.Scan() {
		if found := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			p.url = "http://" + found[1]
		}
	}
	if p.url == "" {
		t.Fatalf("the program does not listen: %v", lines.Err())
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return p
}

func (p *process) order(t *testing.T, token, key, body string) (status int, replayed bool, response string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	client := http.Client{Timeout: time.Minute}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Idempotency-Replayed") == "true", string(b)
}

func TestOrders_AnOrderThatIsSentManyTimesIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	const alice, bob, lamp, chair = "alices-token", "bobs-token", `{"item":"lamp"}`, `{"item":"chair"}`
	want := func(what, token, key, body string, wantStatus int, wantReplay bool, wantBody string) {
		t.Helper()
		if status, replayed, got := p.order(t, token, key, body); status != wantStatus || replayed != wantReplay || !strings.Contains(got, wantBody) {
			t.Errorf("%s: %d, replayed %v, %s", what, status, replayed, got)
		}
	}
	want("a stranger's", "none", "k", lamp, 401, false, "")
	want("without a key", alice, "", lamp, 400, false, "")
	want("a malformed one", alice, "k", "lamp", 400, false, "NAME")
	want("the first", alice, "k", lamp, 201, false, `{"id":1,"item":"lamp"}`)
	want("its repeat", alice, "k", lamp, 201, true, `{"id":1,"item":"lamp"}`)
	want("another with its key", alice, "k", chair, 422, false, "")

	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p = start(t, dir)
	want("its repeat after a crash", alice, "k", lamp, 201, true, `{"id":1,"item":"lamp"}`)
	want("another account's", bob, "k", lamp, 201, false, `{"id":2,"item":"lamp"}`)

	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestGuides_ShowCodeThatIsTested(t *testing.T) {
	for guide, file := range map[string]string{"first-service.md": "main.go", "testing.md": "service_test.go"} {
		text, err := os.ReadFile("../../" + guide)
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		example, _, _ := strings.Cut(strings.SplitAfterN(string(text), "```go\n", 2)[1], "```")
		if example != string(code) {
			t.Errorf("docs/%s does not show %s as it is", guide, file)
		}
	}
}
