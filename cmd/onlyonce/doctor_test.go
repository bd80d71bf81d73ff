package main

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestDoctorPrintsFindingsAndFails(t *testing.T) {
	var out strings.Builder
	err := diagnosis(&out, []onlyonce.Finding{{Name: "a", Problem: "b", Mend: "c"}, {Name: "d", Problem: "e", Mend: "f"}})
	if err == nil || err.Error() != "findings: 2" {
		t.Errorf("error %v", err)
	}
	if want := "a: b; c\nd: e; f\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
