package page

import (
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"testing"
)

func TestParse_RefusesWhatIsNoPage(t *testing.T) {
	for query, want := range map[string]string{
		"":                   "",
		"limit=1":            "",
		"limit=200&cursor=x": "",
		"limit=0":            "limit: must be an integer from 1 to 200",
		"limit=201":          "limit: must be an integer from 1 to 200",
		"limit=ten":          "limit: must be an integer from 1 to 200",
		"limit=%zz":          "query: must be well-formed",
		"a;b=1":              "query: must be well-formed",
	} {
		_, err := Parse(httptest.NewRequest("GET", "/?"+query, nil))
		if got := ""; err != nil && err.Error() != want || err == nil && want != got {
			t.Errorf("%q: %v, want %q", query, err, want)
		}
	}
}

func TestCut_TellsOfTheNextPageOnlyIfThereIsOne(t *testing.T) {
	for want, found := range map[string][]int{
		`{"items":[],"next_cursor":null}`:      nil,
		`{"items":[1,2],"next_cursor":null}`:   {1, 2},
		`{"items":[10,20],"next_cursor":"20"}`: {10, 20, 30},
	} {
		got, err := json.Marshal(Cut(found, Query{Limit: 2}, strconv.Itoa))
		if err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", found, got, err, want)
		}
	}
}
