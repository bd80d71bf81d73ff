package page

import (
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestParse_RejectsWhatIsNoPage(t *testing.T) {
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

func TestBuilder_ReturnsACursorOnlyIfThereIsANextPage(t *testing.T) {
	for want, found := range map[string][]int{
		`{"items":[],"next_cursor":null}`:      nil,
		`{"items":[1,2],"next_cursor":null}`:   {1, 2},
		`{"items":[10,20],"next_cursor":"20"}`: {10, 20, 30},
	} {
		b := Builder[int]{Query: Query{Limit: 2}, Cursor: strconv.Itoa}
		if got := build(t, &b, found); got != want {
			t.Errorf("%v: %s, want %s", found, got, want)
		}
	}
}

func TestBuilder_APageEndsBeforeItsElementsAreTooLong(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n-len(`""`)) }
	for _, test := range []struct {
		found []string
		page  int // how many are on it
	}{
		{[]string{long(maxBytes)}, 1},
		{[]string{long(maxBytes / 2), long(maxBytes / 2)}, 2},
		{[]string{long(maxBytes / 2), long(maxBytes/2 + 1)}, 1},
		{[]string{long(2 * maxBytes)}, 1},
		{[]string{long(2 * maxBytes), long(3)}, 1},
		{[]string{strings.Repeat("<", maxBytes/6), long(3)}, 1}, // written as \u003c
	} {
		b := Builder[string]{Query: Query{Limit: 200}, Cursor: func(last string) string { return strconv.Itoa(len(last)) }}
		build(t, &b, test.found)
		p := b.Page()
		if len(p.Items) != test.page {
			t.Errorf("%d of %d elements are on a page, want %d", len(p.Items), len(test.found), test.page)
		}
		switch more := test.page < len(test.found); {
		case (p.NextCursor != nil) != more:
			t.Errorf("%d of %d elements: the cursor is %v", test.page, len(test.found), p.NextCursor)
		case more && *p.NextCursor != strconv.Itoa(len(test.found[test.page-1])):
			t.Errorf("the next page begins after %s", *p.NextCursor)
		}
	}
}

// build adds elements as a list does, and returns the page.
func build[T any](t *testing.T, b *Builder[T], found []T) string {
	t.Helper()
	for _, element := range found[:min(len(found), b.Rows())] {
		if takesMore, err := b.Add(element); err != nil {
			t.Fatal(err)
		} else if !takesMore {
			break
		}
	}
	got, err := json.Marshal(b.Page())
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}
