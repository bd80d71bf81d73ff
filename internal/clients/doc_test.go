package clients_test

import (
	"os"
	"strings"
	"testing"
)

func TestDoc_TheGuidesExamplesAreTheCodeThatIsTested(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const examples = "../../docs/examples/"
	code := map[string]string{
		"go":         read("go_test.go"),
		"python":     read(examples+"python/client.py") + read(examples+"python/client_requests.py"),
		"javascript": read(examples + "node/client.mjs"),
		"java":       read(examples + "java/Client.java"),
		"sh":         read(examples + "curl/client.sh"),
	}
	shown := map[string]int{}
	blocks := strings.Split(read("../../docs/client.md"), "\n```")
	for i := 1; i < len(blocks); i += 2 { // every other one ends a block
		language, example, _ := strings.Cut(blocks[i], "\n")
		if shown[language]++; !strings.Contains(code[language], "\n"+example+"\n") {
			t.Errorf("this is not the code of a test:\n%s", blocks[i])
		}
	}
	for language := range code {
		if shown[language] == 0 {
			t.Errorf("the guide has no example in %s", language)
		}
	}
}
