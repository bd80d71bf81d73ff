package frameworks_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/guide"
)

func TestDoc_TheGuidesExamplesAreTheCodeThatIsTested(t *testing.T) {
	blocks := guide.Check(t, "../../docs/frameworks.md", map[string]string{"go": "*_test.go"})
	if blocks["go"] < 10 {
		t.Errorf("the guide has %d examples", blocks["go"])
	}
}
