package statuses_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/statuses"
)

func TestParse_ReadsAStatusAClassAndARange(t *testing.T) {
	for text, want := range map[string]statuses.Range{
		"201": {201, 201}, "599": {599, 599}, "5xx": {500, 599}, "2xx": {200, 299}, "520-529": {520, 529}, "200-599": {200, 599},
	} {
		r, err := statuses.Parse(text)
		if err != nil || r != want || r.String() != text {
			t.Errorf("%s is %+v (%s), %v", text, r, r, err)
		}
	}
	for _, text := range []string{"", "-", "xx", "1xx", "6xx", "x", "99", "199", "600", "0201", "+201", "-201", "201-", "-299", "520-510", "200-600", "2xx-3xx", "20xx", " 201"} {
		if r, err := statuses.Parse(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

func TestSet_HasTheStatusesOfItsRanges(t *testing.T) {
	s := statuses.Set{{200, 299}, {404, 404}}
	for status, has := range map[int]bool{199: false, 200: true, 299: true, 300: false, 403: false, 404: true, 405: false} {
		if s.Has(status) != has {
			t.Errorf("it has %d: %v", status, !has)
		}
	}
}

func TestSet_SaysAfterWhichStatusesTheOutcomeIsUnknown(t *testing.T) {
	for status, want := range map[int]struct{ byDefault, named bool }{
		201: {false, false}, 404: {false, false}, 499: {true, true}, 500: {false, false}, 502: {true, false}, 503: {false, true},
		504: {true, false}, 519: {false, false}, 520: {true, false}, 529: {true, false}, 530: {false, false},
	} {
		if got := statuses.Set(nil).Unknown(status); got != want.byDefault {
			t.Errorf("by default, %d is unknown: %v", status, got)
		}
		if got := (statuses.Set{{503, 503}, {404, 404}}).Unknown(status); got != want.named {
			t.Errorf("with 503, %d is unknown: %v", status, got)
		}
	}
	if (statuses.Set{}).Unknown(502) {
		t.Error("an empty set has 502")
	}
}
