package httponce_test

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// statusList matches the lists of the statuses that are not stored by default. A comment may
// break one.
var statusList = regexp.MustCompile(`401, 403,(?:[ \n\t/]+\d{3},?)+(?:[ \n\t/]+(?:and|or)[ \n\t/]+\d{3})`)

func TestStoreStatus_TheDocumentsListTheStatusesThatAreNotStored(t *testing.T) {
	var notStored []string
	for status := 400; status < 499; status++ { // after a 499, the command has failed
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.WriteHeader(status)
		}), single)
		post(h, "k", "x")
		if post(h, "k", "x"); runs.Load() == 2 {
			notStored = append(notStored, strconv.Itoa(status))
		}
	}
	digits := regexp.MustCompile(`\d{3}`)
	for _, file := range []string{"config.go", "../docs/proxy.md", "../docs/frameworks.md", "../cmd/onlyonce/internal/proxyfile/file.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lists := statusList.FindAllString(string(text), -1)
		if len(lists) == 0 {
			t.Errorf("%s has no list of the statuses that are not stored", file)
		}
		for _, list := range lists {
			if got := strings.Join(digits.FindAllString(list, -1), " "); got != strings.Join(notStored, " ") {
				t.Errorf("%s lists %s, want %s", file, got, strings.Join(notStored, " "))
			}
		}
	}
}
