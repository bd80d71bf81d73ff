package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/conform"
)

// top is the top of the repository.
const top = "../../"

// read reads a file of the repository. If it is in a module that is not there, the test is skipped.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(top + file)
	if os.IsNotExist(err) {
		t.Skip("needs a checkout of the whole repository: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lastRun returns the results of the last run.
func lastRun(t *testing.T) (r results) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, resultsFile)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPage_IsThatOfTheLastRun(t *testing.T) {
	r := lastRun(t)
	text, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != read(t, resultsFile) {
		t.Errorf("%s is not in the form in which the program writes it: run make league", resultsFile)
	}
	want, got := strings.Split(r.page(), "\n"), strings.Split(read(t, pageFile), "\n")
	for n := range max(len(want), len(got)) {
		if n >= len(want) || n >= len(got) || want[n] != got[n] {
			t.Fatalf("%s differs from what the program writes, first in line %d: run make league", pageFile, n+1)
		}
	}
}

func TestPage_HasAllRulesOfAllImplementationsInTheirPinnedVersions(t *testing.T) {
	r := lastRun(t)
	var names, checked []string
	for _, i := range implementations {
		names = append(names, i.id)
		c := r.checked(i)
		if i.pkg == "" {
			continue
		}
		pins, pattern := read(t, "internal/league/node/package.json"), `"`+regexp.QuoteMeta(i.pkg)+`": "([^"]+)"`
		if i.language == golang {
			pins, pattern = read(t, "internal/league/servers/go.mod"), `(?m)^\s*`+regexp.QuoteMeta(i.pkg)+` v(\S+)`
		}
		pin := regexp.MustCompile(pattern).FindStringSubmatch(pins)
		if pin == nil || pin[1] != c.Version {
			t.Errorf("the page has version %s of %s, and the servers have %q: run make league", c.Version, i.pkg, pin)
		}
	}
	known := map[string]bool{}
	for _, row := range conform.Rows() {
		known[row.ID] = true
	}
	for _, c := range r.Checked {
		checked = append(checked, c.ID)
		if c.Error != "" {
			continue
		}
		for _, row := range c.Rows {
			if !known[row.ID] {
				t.Errorf("onlyonce check no longer has the rule %s: run make league", row.ID)
			}
		}
		if len(c.Rows) != len(known) {
			t.Errorf("%s: the page has %d rules, and onlyonce check has %d: run make league", c.ID, len(c.Rows), len(known))
		}
	}
	if !slices.Equal(names, checked) {
		t.Errorf("the page has %q, want %q: run make league", checked, names)
	}
}

func TestPage_OnlyonceFailsNoRule(t *testing.T) {
	r, ours := lastRun(t), 0
	for _, i := range implementations {
		if i.pkg != "" {
			continue
		}
		ours++
		for _, row := range r.checked(i).Rows {
			if row.Verdict == fail {
				t.Errorf("%s: %s: %s", i.id, row.ID, row.Detail)
			}
		}
	}
	if ours != 2 {
		t.Errorf("%d implementations are ours, want 2", ours)
	}
}

func TestImplementations_NameOnlyRulesOfTheCheck(t *testing.T) {
	known := map[string]bool{}
	for _, row := range conform.Rows() {
		known[row.ID] = true
		if drafted[row.ID] == "" {
			t.Errorf("drafted lacks %s", row.ID)
		}
	}
	wantKnown := func(rule string) {
		if !known[rule] {
			t.Errorf("there is no rule %q", rule)
		}
	}
	for rule := range drafted {
		wantKnown(rule)
	}
	for rule := range core {
		wantKnown(rule)
	}
	for _, i := range implementations {
		for rule := range i.promises {
			wantKnown(rule)
		}
		for rule := range i.notes {
			wantKnown(rule)
		}
	}
}

func TestSign_AFailureIsOneOnlyIfTheRuleIsPromised(t *testing.T) {
	silent := implementation{pkg: "example.com/silent"}
	follower := implementation{pkg: "example.com/follower", followsDraft: "[README](r)"}
	promising := implementation{pkg: "example.com/promising", promises: map[string]string{"tenants": "[README](t)"}}
	for _, c := range []struct {
		name    string
		i       implementation
		rule    string
		verdict verdict
		want    string
	}{
		{"a pass", silent, "mismatch", pass, signPass},
		{"not applicable", silent, "mismatch", notSupported, signNotApplicable},
		{"what the header is for", silent, "burst", fail, signFail},
		{"nothing is promised", silent, "mismatch", fail, signNotPromised},
		{"the draft has SHOULD", follower, "mismatch", fail, signFail},
		{"the draft has MUST", follower, "repeated", fail, signFail},
		{"the draft has an advice", follower, "tenants", fail, signNotPromised},
		{"the draft says nothing", follower, "cookie", fail, signNotPromised},
		{"the documentation says so", promising, "tenants", fail, signFail},
		{"it says nothing of another rule", promising, "cookie", fail, signNotPromised},
		{"Onlyonce", implementation{}, "cookie", fail, signFail},
	} {
		if got := c.i.sign(result{ID: c.rule, Verdict: c.verdict}); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEvidence_ShowsWhatIsPromisedFoundAndSent(t *testing.T) {
	i := implementation{pkg: "example.com/x", promises: map[string]string{"mismatch": "[README](r)"}, notes: map[string]string{"tenants": "With `Scope`, it passes."}}
	c := checked{Rows: []result{
		{ID: "replay", Verdict: pass},
		{ID: "mismatch", Title: "A different body is rejected", Verdict: fail, Detail: "It took effect.", Bytes: []string{"> POST /payments", "< 201 Created"}},
		{ID: "missing", Verdict: notSupported},
		{ID: "tenants", Title: "Tenants are separate", Verdict: fail, Detail: "They are not.", Bytes: []string{"# a command"}},
	}}
	const want = "1 of 4 rules pass. Not applicable: `missing`.\n" +
		"\n**✗ `mismatch`**: A different body is rejected. Promised: [README](r). Found: It took effect.\n\n```text\n> POST /payments\n< 201 Created\n```\n" +
		"\n**○ `tenants`**: Tenants are separate. Not promised. Found: They are not. With `Scope`, it passes.\n\n```text\n# a command\n```\n"
	if got := i.evidence(c); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDocument_KeepsTheBytesOfFailuresAndShortensThem(t *testing.T) {
	response := "HTTP/1.1 201 Created\nDate: today\nX-Powered-By: Express\nLocation: /payments/1\n\n" + strings.Repeat("ü", maxLine) + "\n2\n3\n4\n5"
	x := exchange{Note: "a command", Request: "POST /payments HTTP/1.1\nHost: 127.0.0.1:1\nX-Account: [redacted]\nContent-Type: application/json\nIdempotency-Key: k\n\n{}", Response: &response}
	lost := exchange{Note: "again", Request: "GET /payments HTTP/1.1\nHost: h\n\n"}
	var d document
	text, err := json.Marshal(map[string]any{"error": nil, "rows": []map[string]any{
		{"id": "replay", "verdict": "pass", "exchanges": []any{x}},
		{"id": "mismatch", "title": "T", "verdict": "fail", "detail": "D", "advisory": true, "exchanges": []any{
			map[string]any{"note": x.Note, "request": x.Request, "response": x.Response},
			map[string]any{"note": lost.Note, "request": lost.Request, "response": nil},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	got := d.checked("x", "1.0.0")
	if got.ID != "x" || got.Version != "1.0.0" || got.Error != "" || len(got.Rows) != 2 || got.Rows[0].Bytes != nil {
		t.Errorf("got %+v", got)
	}
	row := got.Rows[1]
	if row.ID != "mismatch" || row.Title != "T" || row.Verdict != fail || row.Detail != "D" || !row.Advisory {
		t.Errorf("got %+v", row)
	}
	want := []string{
		"# a command", "> POST /payments", "> Idempotency-Key: k", "> {}",
		"< 201 Created", "< Location: /payments/1", "< " + strings.Repeat("ü", maxLine/2) + "… (150 more bytes)", "< 2", "< 3", "< … (2 more lines)",
		"# again", "> GET /payments", "< (no response)",
	}
	if !slices.Equal(row.Bytes, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(row.Bytes, "\n"), strings.Join(want, "\n"))
	}
}

func TestTable_HasTheAdvisoryRulesLast(t *testing.T) {
	r := results{Checked: []checked{{ID: implementations[0].id, Rows: []result{
		{ID: "replay", Verdict: pass},
		{ID: "error", Verdict: fail, Advisory: true},
		{ID: "tenants", Verdict: fail},
	}}}}
	lines := strings.Split(r.table(), "\n")
	var first []string
	for _, line := range lines[2:] {
		if line != "" {
			first = append(first, strings.SplitN(line, " |", 4)[0]+strings.SplitN(line, " |", 4)[2])
		}
	}
	if want := []string{"| `replay` ✓", "| `tenants` ○", "| `error` ○"}; !slices.Equal(first, want) {
		t.Errorf("got %q, want %q", first, want)
	}
	if !strings.HasPrefix(lines[0], "| rule | draft | A | B |") {
		t.Errorf("the first line is %q", lines[0])
	}
}
