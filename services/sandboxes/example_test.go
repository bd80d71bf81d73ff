package sandboxes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
)

func ExampleNew() {
	ctx := context.Background()
	dir, db, store, done := apitest.Example()
	defer done()
	api, err := sandboxes.New(ctx, db, store, sandboxes.Config{
		Dir:            filepath.Join(dir, "workspaces"),
		AllowAnonymous: true,
	})
	if err != nil {
		panic(err)
	}
	defer api.Close(ctx)
	create := func(owner string) string {
		r := httptest.NewRequest(http.MethodPost, "/v1/sandboxes", nil)
		r.Header.Set("X-Owner", owner)
		r.Header.Set("Idempotency-Key", "first")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Body.String()
	}
	ada := create("ada")
	fmt.Println("a repeat gets the same sandbox:", create("ada") == ada)
	fmt.Println("another owner does too:", create("bob") == ada)
	// Output:
	// a repeat gets the same sandbox: true
	// another owner does too: false
}

func ExampleParseTokens() {
	tokens, err := sandboxes.ParseTokens(strings.NewReader(`
# owner, and what "printf %s TOKEN | sha256sum" prints
ada 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
`))
	if err != nil {
		panic(err)
	}
	_ = sandboxes.Config{Dir: "workspaces", Tokens: tokens}

	_, err = sandboxes.ParseTokens(strings.NewReader("ada a-plain-token"))
	fmt.Println(err)
	// Output:
	// sandboxes: parse tokens: line 1: the hash must have 64 hexadecimal digits, as sha256sum prints them
}
