package deploytest

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// quoted matches an argument in quotes.
var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// The commands that an operator reads at night must exist as they are written.
func TestRunbook_ItsCommandsExist(t *testing.T) {
	checked := 0
	for _, document := range []string{"docs/runbook.md", "docs/production.md"} {
		for line := range strings.Lines(read(t, document)) {
			line, _, _ = strings.Cut(quoted.ReplaceAllString(line, "QUOTED"), " #")
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "onlyonce" {
				continue
			}
			command, arguments := words[1:2], words[2:]
			if slices.Contains([]string{"records", "outbox", "poison"}, words[1]) {
				command, arguments = words[1:3], words[3:]
			}
			help, err := exec.CommandContext(t.Context(), builtBinary(t), append(slices.Clone(command), "--help")...).Output()
			if err != nil || !strings.Contains(string(help), "Usage:\n  onlyonce "+strings.Join(command, " ")+" ") {
				t.Errorf("%s: %q is no command: %v", document, line, err)
				continue
			}
			checked++
			for _, argument := range arguments {
				name, isFlag := strings.CutPrefix(argument, "--")
				if isFlag && !regexp.MustCompile(`(?m)^ +(-., )?--`+regexp.QuoteMeta(name)+`\b`).Match(help) {
					t.Errorf("%s: %q: there is no flag %s", document, line, argument)
				}
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d commands were found: the pattern no longer fits them", checked)
	}
}
