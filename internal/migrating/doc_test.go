package migrating_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/guide"
)

func TestDoc_TheGuidesExamplesAreTheCodeThatIsTested(t *testing.T) {
	blocks := guide.Check(t, "../../docs/migrating.md", map[string]string{"go": "*_test.go"})
	if blocks["go"] < 15 {
		t.Errorf("the guide has %d examples", blocks["go"])
	}
}
