package caddyonce

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestCaddyfile_ASettingThatIsWrongIsRejectedWithTheSentenceThatMendsIt(t *testing.T) {
	s := newSite(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte("a secret that everybody can read"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil { // whatever the umask
		t.Fatal(err)
	}
	for settings, want := range map[string]string{
		"single_tenant":            "store is missing: write sqlite:PATH",
		"store STORE":              "nothing identifies the tenant: write tenant",
		"store STORE\ntenant shop": `tenant "shop" has no placeholder`,
		"store STORE\ntenant {http.auth.user.id}\nsingle_tenant":             "leave one out",
		"store oracle://h/d\nsingle_tenant":                                  `stores of the scheme "oracle" are not supported: write sqlite:PATH`,
		"store sqlite:/none/keys.db\nsingle_tenant":                          "there is no directory /none: create it first",
		"store {env.NOT_SET}\nsingle_tenant":                                 "store: evaluated placeholder {env.NOT_SET} is empty",
		"store STORE\nsingle_tenant\nfingerprint_secret_file " + open:        "or accept it with accept_risks file-mode",
		"store STORE\nsingle_tenant\naccept_plaintext":                       "accept_plaintext has no effect without encryption_keys_file",
		"store STORE\nsingle_tenant\nunknown keep":                           `unknown: "keep" is not known: write rerun or hold`,
		"store STORE\nsingle_tenant\nunknown_statuses 404":                   `unknown_statuses has "404": write a status from 500 to 599`,
		"store STORE\nsingle_tenant\nmethods GET":                            `methods has "GET": write methods that change something`,
		"store STORE\nsingle_tenant\nmethods post":                           "in upper case",
		"store STORE\nsingle_tenant\nheader X_Key":                           `"X_Key" is not the name of a header`,
		"store STORE\nsingle_tenant\nfingerprint xml":                        "write bytes, json or none",
		"store STORE\nsingle_tenant\nfingerprint_fields /a":                  "fingerprint_fields needs fingerprint json",
		"store STORE\nsingle_tenant\nfingerprint json\nfingerprint_fields a": "JSON Pointer",
		"store STORE\nsingle_tenant\nlease 1ms":                              "lease is too short: write at least 10ms",
		"store STORE\nsingle_tenant\nkeep -1h":                               "keep is negative",
		"store STORE\nsingle_tenant\nremember 1h":                            "remember is 1h0m0s, which is shorter than keep, 24h0m0s: raise it, or leave it out for the same time as keep",
		"store STORE\nsingle_tenant\nwait soon":                              "wait has a wrong value: write wait and a duration such as 30s",
		"store STORE\nsingle_tenant\nmax_body big":                           "a size such as 2MiB",
		"store STORE\nsingle_tenant\nmax_in_flight many":                     "write max_in_flight and a number",
		"store STORE\nsingle_tenant\nrequired yes":                           "write required without a value",
		"store STORE\nsingle_tenant\noperation":                              "write operation and one value",
		"store STORE\nsingle_tenant\nmethods":                                "one or more values",
		"store STORE\nsingle_tenant\nkeys 5":                                 "keys is not a setting of onlyonce",
		"store STORE\nsingle_tenant\nwait 1s\nwait 2s":                       "or is set twice",
	} {
		err := load(t, s.caddyfile("onlyonce {\n"+strings.ReplaceAll(settings, "STORE", s.store)+"\n}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", settings, err, want)
		}
	}
	if err := load(t, s.caddyfile("onlyonce sqlite:a sqlite:b")); err == nil {
		t.Error("two stores were accepted")
	}
	stores.Range(func(key, _ any) bool {
		t.Errorf("%v was left open", key)
		return true
	})
}

// handlers returns the handlers of this module in a configuration, and all handlers in their order.
func handlers(t *testing.T, directives string) (ours []map[string]any, order []string) {
	t.Helper()
	cfg, err := adapt(t, "http://localhost {\n"+directives+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	var config any
	if err := json.Unmarshal(cfg, &config); err != nil {
		t.Fatal(err)
	}
	var find func(any)
	find = func(in any) {
		switch in := in.(type) {
		case []any:
			for _, part := range in {
				find(part)
			}
		case map[string]any:
			if name, ok := in["handler"].(string); ok && name != "subroute" {
				if order = append(order, name); name == "onlyonce" {
					ours = append(ours, in)
				}
			}
			for _, name := range []string{"apps", "http", "servers", "srv0", "routes", "handle"} {
				find(in[name])
			}
		}
	}
	find(config)
	return ours, order
}

func TestCaddyfile_EverySettingReachesTheHandler(t *testing.T) {
	got, _ := handlers(t, `onlyonce /orders/* sqlite:keys.db {
		no_migrate
		accept_risks file-mode other
		fingerprint_secret_file a
		encryption_keys_file b
		accept_plaintext
		tenant {header.X-Account}
		methods POST DELETE
		header X-Key
		required
		unknown hold
		unknown_statuses 503 520-529
		keep_errors
		lease 10s
		keep 2d
		wait 1s
		prefer_wait 2s
		fingerprint json
		fingerprint_fields /amount /currency
		fingerprint_headers X-Account
		summary path /amount
		max_body 2MiB
		max_response 1kB
		max_in_flight 5
		max_new_keys 6
		docs_url https://example.com/
	}
	onlyonce @named {
		store {env.STORE}
		single_tenant
		operation "charge {http.request.host}"
	}
	@named path /charges
	onlyonce sqlite:other.db`)
	want := `[
	{"handler":"onlyonce","store":"{env.STORE}","single_tenant":true,"operation":"charge {http.request.host}"},
	{"handler":"onlyonce","store":"sqlite:keys.db","no_migrate":true,"accept_risks":["file-mode","other"],"fingerprint_secret_file":"a","encryption_keys_file":"b","accept_plaintext":true,
	"tenant":"{http.request.header.X-Account}","operation":"{http.request.method} /orders/*","methods":["POST","DELETE"],"header":"X-Key","required":true,"unknown":"hold","unknown_statuses":["503","520-529"],"keep_errors":true,
	"lease":10000000000,"keep":172800000000000,"wait":1000000000,"prefer_wait":2000000000,"fingerprint":"json","fingerprint_fields":["/amount","/currency"],"fingerprint_headers":["X-Account"],"summary":["path","/amount"],
	"max_body":2097152,"max_response":1000,"max_in_flight":5,"max_new_keys":6,"docs_url":"https://example.com/"},
	{"handler":"onlyonce","store":"sqlite:other.db"}
	]`
	var wanted []map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(wanted)
	if string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestCaddyfile_TheDirectiveComesAfterThoseThatAuthenticateAndBeforeThoseThatRespond(t *testing.T) {
	_, order := handlers(t, `
		reverse_proxy 127.0.0.1:1
		handle /v1/* {
			respond b
		}
		onlyonce sqlite:keys.db
		encode gzip
		request_header X-A b
		basic_auth {
			ada $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
		}`)
	if got, want := strings.Join(order, " "), "authentication headers encode onlyonce static_response reverse_proxy"; got != want {
		t.Errorf("the handlers are %s, want %s", got, want)
	}
}

func TestCaddyfile_TheGuidesExamplesAreValid(t *testing.T) {
	guide, err := os.ReadFile("../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```caddyfile\n")[1:]
	if len(blocks) == 0 {
		t.Error("the guide has no Caddyfile")
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		if _, err := adapt(t, text); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
}

func TestTenant_IsThatOfAPlaceholderAndNeverEmptyOrAList(t *testing.T) {
	s := newSite(t)
	s.serve(`onlyonce {
		store ` + s.store + `
		tenant "{http.request.header.X-Shop}/{http.request.header.X-Account}"
	}
	respond "made" 201`)
	s.want(s.post("k", "a", "X-Shop", "1", "X-Account", "7"), 201, "made", false)
	s.want(s.post("k", "a", "X-Shop", "1", "X-Account", "8"), 201, "made", false)
	s.want(s.post("k", "a", "X-Shop", "1", "X-Account", "7"), 201, "made", true)
	s.want(s.post("k", "a", "X-Shop", "1/7", "X-Account", "9"), 201, "made", false)
	s.want(s.post("k", "a", "X-Shop", "1", "X-Account", "7/9"), 201, "made", false)
	s.want(s.post("k", "a", "X-Shop", "1"), 401, "tenant_missing", false)
	s.want(s.post("k", "a", "X-Shop", "1", "X-Account", "7", "X-Account", "8"), 401, "tenant_missing", false)
}

func TestOperation_IsTheMethodAndThePathUnlessItIsNamed(t *testing.T) {
	s := newSite(t)
	s.serve(s.once() + "respond made 201")
	s.post("k", "a")
	if _, err := s.send(http.MethodPost, "//orders/", "a", "Idempotency-Key", "k"); err != nil {
		t.Fatal(err)
	}
	if list := records(t); len(list) != 1 || list[0].ID != (onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"}) {
		t.Errorf("the records are %+v", list)
	}
	s.serve(s.once(`operation "{http.request.method} {http.request.host}"`) + "respond made 201")
	s.post("k2", "a")
	if list := records(t); len(list) != 2 || list[0].ID.Operation != "POST shop.example" && list[1].ID.Operation != "POST shop.example" {
		t.Errorf("the records are %+v", list)
	}
}

func TestFingerprint_HasTheHost(t *testing.T) {
	s := newSite(t)
	s.serve(s.once() + "respond made 201")
	s.want(s.post("k", "a"), 201, "made", false)
	s.host = "other.example"
	s.want(s.post("k", "a"), 422, "idempotency_key_reused", false)
}

func TestOperation_IsThatOfThePathBeforeItIsRewritten(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct{ settings, body string }{{"", "/index.php"}, {"operation all", "idempotency_key_reused"}} {
		s.serve("rewrite /index.php\n" + s.once(c.settings) + "respond {uri} 201")
		s.want(s.post(strings.ReplaceAll("k"+c.settings, " ", ""), "a"), 201, "/index.php", false)
		got, err := s.send(http.MethodPost, "/returns", "a", "Idempotency-Key", strings.ReplaceAll("k"+c.settings, " ", ""))
		if err != nil || got.replayed() || !strings.Contains(got.body, c.body) {
			t.Errorf("%q: got %d %q, %v, want %q", c.settings, got.status, got.body, err, c.body)
		}
	}
}
