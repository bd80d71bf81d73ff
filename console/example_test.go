package console_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func ExampleNew() {
	store := memstore.New(memstore.Config{})
	meter := console.NewMeter()
	onlyonce.New(store, onlyonce.Config{Observer: meter.Observe})

	// In a file, made by: echo "ada writer $(printf %s "$TOKEN" | sha256sum | cut -c 1-64)"
	file := strings.NewReader(fmt.Sprintf("ada writer %x\n", sha256.Sum256([]byte("the output of openssl rand -hex 32"))))
	tokens, err := console.ParseTokens(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	operators, err := console.New(console.Config{Store: store, Tokens: tokens, Meter: meter})
	if err != nil {
		fmt.Println(err)
		return
	}
	admin := http.NewServeMux() // on an address that callers do not reach
	admin.Handle(console.DefaultPath, operators)

	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/records", nil))
	fmt.Println(w.Code, w.Header().Get("Location"))
	// Output: 303 /console/login?next=%2Fconsole%2Frecords
}
