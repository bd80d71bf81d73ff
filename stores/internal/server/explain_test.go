package server

import (
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestExplain_SaysOnceWhatAnErrorMeans(t *testing.T) {
	own := errors.New("deadlock")
	once := Explain(ClassConflict, own)
	if !errors.Is(once, onlyonce.ErrUnavailable) || !errors.Is(once, own) {
		t.Errorf("the error is %v", once)
	}
	if twice := Explain(ClassConflict, once); twice.Error() != once.Error() {
		t.Errorf("an error that is explained twice is %q, want %q", twice, once)
	}
	if other := Explain(ClassOther, own); other != own {
		t.Errorf("an error of no class is %v", other)
	}
}
