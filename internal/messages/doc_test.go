package messages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoc_TheGuidesExamplesAreTheCodeThatIsTested(t *testing.T) {
	guide, err := os.ReadFile("../../docs/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	blocks := strings.Split(string(guide), "```go\n")[1:]
	if len(blocks) < 9 {
		t.Errorf("the guide has %d examples", len(blocks))
	}
	for _, block := range blocks {
		example, _, ended := strings.Cut(block, "```")
		if !ended || !strings.Contains(code.String(), "\n"+example) {
			t.Errorf("this is not the code of a test:\n%s", example)
		}
	}
}
