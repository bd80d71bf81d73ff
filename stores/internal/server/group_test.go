package server

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
)

func TestGroups_AResultWhoseHeaderIsLongIsWrittenAlone(t *testing.T) {
	half := string(make([]byte, group.LongestShared/2))
	for name, c := range map[string]struct {
		header map[string][]string
		goes   bool
	}{
		"no header":           {nil, true},
		"half of the longest": {map[string][]string{"A": {half}}, true},
		"many values":         {map[string][]string{"A": {half, half}}, false},
		"many names":          {map[string][]string{"A": {half}, "B": {half}}, false},
		"a long name":         {map[string][]string{half + half + "A": {""}}, false},
	} {
		st := &onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Header: c.header}}
		if goes := groupable(st); goes != c.goes {
			t.Errorf("%s: goes with others is %v", name, goes)
		}
	}
}
