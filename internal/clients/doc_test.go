package clients_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/guide"
)

func TestDoc_TheGuidesExamplesAreTheCodeThatIsTested(t *testing.T) {
	const examples = "../../docs/examples/"
	code := map[string]string{
		"go":         "go_test.go",
		"python":     examples + "python/client*.py",
		"javascript": examples + "node/client.mjs",
		"typescript": examples + "node/client.mts",
		"java":       examples + "java/Client.java",
		"sh":         examples + "curl/client.sh",
	}
	blocks := guide.Check(t, "../../docs/client.md", code)
	for language := range code {
		if blocks[language] == 0 {
			t.Errorf("the guide has no example in %s", language)
		}
	}
	for language, n := range blocks {
		if code[language] == "" {
			t.Errorf("the guide has %d examples in %q, which nothing compares", n, language)
		}
	}
}
