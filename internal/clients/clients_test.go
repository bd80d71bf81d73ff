package clients_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

const (
	hour   = time.Hour
	decade = 10 * 365 * 24 * time.Hour
)

// A row says what happens to a payment, and which response its client must get.
type row struct {
	payment
	faults   []fault
	status   int
	requests int // that the client sends; if it retries: at least
	runs     int
}

// redirected is the note of a payment that is answered with a redirect, which makes a POST a GET. Go's
// http.Client follows it.
const redirected = "a gateway redirects to its login"

// rows are the payments of every client.
func rows() []row {
	pay := func(note string, amount, status, requests, runs int, faults ...fault) row {
		return row{payment{note, amount}, faults, status, requests, runs}
	}
	return []row{
		pay("two responses are lost", 5, 201, 3, 1, loses, loses),
		pay("the connection is closed before the request is read", 5, 201, 2, 1, closes),
		pay("the response is truncated", 5, 201, 2, 1, truncates),
		pay("a rejection is truncated", 0, 400, 2, 1, truncates),
		pay("the response stalls", 5, 201, 2, 1, stalls),
		pay("the first request is still running", 5, 201, 3, 1, leavesRunning, isRunning),
		pay("the payment conflicts with another", -1, 409, 1, 1),
		pay("the key was used for another request", 5, 422, 1, 0, reuses),
		pay("a gateway has no response", 5, 201, 2, 1, answers(502)),
		pay("there are too many requests", 5, 201, 2, 1, answers(429, "Retry-After", "1")),
		pay("the server is away for a second", 5, 201, 2, 1, answers(503, "Retry-After", fromNow(time.Second), "Date", fromNow(0))),
		pay("the server is away for a second of its own clock", 5, 201, 2, 1, answers(503, "Retry-After", fromNow(decade+time.Second), "Date", fromNow(decade))),
		pay("the server is away for an hour", 5, 503, 1, 0, answers(503, "Retry-After", "3600")),
		pay("the server is away until a date", 5, 503, 1, 0, answers(503, "Retry-After", fromNow(hour), "Date", fromNow(0))),
		pay("the server names a date that does not exist", 5, 201, 2, 1, answers(503, "Retry-After", "Fri, 99 Jan 10000 99:99:99 GMT")),
		pay("the server names a fraction of a second", 5, 201, 2, 1, answers(503, "Retry-After", "9999.5")), // which Date.parse takes for a year
		pay(redirected, 5, 302, 1, 0, answers(302, "Location", "/login")),
		pay("the failure is a replay", 5, 503, 1, 0, answers(503, "Idempotency-Replayed", "true")),
		pay("an informational response precedes the response", 5, 201, 0, 1, hints),
	}
}

// without returns rows() except for some notes.
func without(notes ...string) []row {
	return slices.DeleteFunc(rows(), func(r row) bool { return slices.Contains(notes, r.Note) })
}

// compressed is the payment of a client that is sent a compressed response although it has not asked
// for one, and decompresses it.
func compressed() row {
	return row{payment{"the response is compressed", 5}, []fault{compresses}, 201, 1, 1}
}

// openFor makes a bank for the payments of rows.
func openFor(t *testing.T, rows []row) *bank {
	t.Helper()
	faults := map[string][]fault{}
	for _, r := range rows {
		faults[r.Note] = r.faults
	}
	return newBank(t, faults)
}

// check fails unless a client has got the right response to a payment, and has sent it with one
// key and the same bytes.
func (b *bank) check(t *testing.T, r row, status int, body string) {
	t.Helper()
	c := b.call(r.Note)
	b.mu.Lock()
	defer b.mu.Unlock()
	want := fmt.Sprintf(`{"note":%q,"run":1}`, r.Note)
	switch {
	case status != r.status:
		t.Errorf("%s: the client got %d %s, want %d", r.Note, status, body, r.status)
	case r.runs > 0 && body != want:
		t.Errorf("%s: the client got %s, want %s", r.Note, body, want)
	case c.runs != r.runs:
		t.Errorf("%s: the payment was made %d times, want %d", r.Note, c.runs, r.runs)
	case len(c.keys) < r.requests || r.requests == 1 && len(c.keys) > 1:
		t.Errorf("%s: the client sent %d requests, want %d", r.Note, len(c.keys), r.requests)
	}
	if len(slices.Compact(slices.Clone(c.keys))) != 1 || len(slices.Compact(slices.Clone(c.bodies))) != 1 {
		t.Errorf("%s: the requests have the keys %v and the bodies %v", r.Note, c.keys, c.bodies)
	}
}

// checkKeys fails if two payments have the same key.
func (b *bank) checkKeys(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	owners := map[string]string{}
	for note, c := range b.calls {
		for _, key := range c.keys {
			if other := owners[key]; key == "" || other != "" && other != note {
				t.Errorf("%q and %q have the key %q", note, other, key)
			}
			owners[key] = note
		}
	}
}

// programs are the clients in other languages, in docs/examples.
var programs = []struct {
	name    string
	command []string
	needs   []string // more programs
	library []string // a command that fails if a library is missing
	rows    []row
}{
	{"Python", []string{"python3", "python/client.py"}, nil, nil, rows()},
	{"Python with requests", []string{"python3", "python/client_requests.py"}, nil, []string{"-c", "import requests"}, append(rows(), compressed())},
	{"Node", []string{"node", "node/client.mjs"}, nil, nil, rows()},
	{"TypeScript", []string{"node", typescript}, []string{"tsc"}, nil, rows()},
	{"Java", []string{"java", "java/Client.java"}, []string{"javac"}, nil, rows()},
	// curl reads a date by the clock of its own machine, gives up if the date has passed, ignores the
	// fraction of a second, and does not know of replays.
	{"curl", []string{"sh", "curl/client.sh"}, []string{"curl", "openssl"}, nil, without("the server is away for a second", "the server is away for a second of its own clock", "the server names a fraction of a second", "the failure is a replay")},
}

// typescript stands for the program that the compiler makes of node/client.mts.
const typescript = "node/client.mts"

// compileTypeScript compiles the client in TypeScript, and returns the program. Its types are
// checked. Node itself removes them instead, from version 22.18 on, and can do so only as long as
// the source has no syntax that means more than a type.
func compileTypeScript(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), needs.Program(t, "tsc"), "--strict", "--erasableSyntaxOnly", "--noUnusedLocals", "--noUnusedParameters",
		"--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext", "--outDir", dir, typescript)
	cmd.Dir = "../../docs/examples"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return filepath.Join(dir, "client.mjs")
}

func TestClients_APaymentIsMadeOnceInEveryLanguage(t *testing.T) {
	needs.Time(t)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			path := needs.Program(t, p.command[0])
			for _, program := range p.needs {
				needs.Program(t, program)
			}
			if p.library != nil {
				needs.Service(t, p.name, exec.Command(path, p.library...).Run())
			}
			b := openFor(t, p.rows)
			args := append(slices.Clone(p.command[1:]), b.url)
			if args[0] == typescript {
				args[0] = compileTypeScript(t)
			}
			for _, r := range p.rows {
				body, err := json.Marshal(r.payment)
				if err != nil {
					t.Fatal(err)
				}
				args = append(args, string(body))
			}
			cmd := exec.CommandContext(t.Context(), path, args...)
			cmd.Dir = "../../docs/examples"
			var diagnostics strings.Builder
			cmd.Stderr = &diagnostics
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, &diagnostics)
			}
			responses := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if len(responses) != len(p.rows) {
				t.Fatalf("%d responses to %d payments:\n%s", len(responses), len(p.rows), out)
			}
			for i, r := range p.rows {
				var status int
				if _, err := fmt.Sscan(responses[i], &status); err != nil {
					t.Errorf("%s: %q, %v", r.Note, responses[i], err)
				}
				_, body, _ := strings.Cut(responses[i], " ")
				b.check(t, r, status, body)
			}
			b.checkKeys(t)
		})
	}
}
