package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestExample_ARepeatGetsTheFirstResult(t *testing.T) {
	server := httptest.NewServer(newHandler(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})))
	defer server.Close()
	for _, c := range []struct{ user, key, amount, want string }{
		{"alice", `"k"`, "5", `"structuredContent":{"amount":5,"charge":1}`},
		{"alice", `"k"`, "5", `"io.github.onlyonce-go/idempotency-replayed":true`},
		{"alice", `"k"`, "5", `"structuredContent":{"amount":5,"charge":1}`},
		{"alice", `"k"`, "6", `"code":"idempotency_key_reused"`},
		{"alice", `null`, "5", `"code":"idempotency_key_invalid"`},
		{"bob", `"k"`, "5", `"structuredContent":{"amount":5,"charge":2}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(
			`{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "charge", "arguments": {"amount": `+c.amount+`},
			"_meta": {"io.github.onlyonce-go/idempotency-key": `+c.key+`}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + c.user}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%+v got %s, %v", c, text, err)
		}
	}
}
