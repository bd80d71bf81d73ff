package natsstore_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseURL_ReadsServersAndSettings(t *testing.T) {
	creds := writeFile(t, "")
	type login struct {
		user, password, token string
		jwt                   bool
	}
	type read struct {
		servers []string
		login   login
		system  *login
		secure  bool
		cfg     natsstore.Config
		secrets []string
	}
	loginOf := func(o *nats.Options) login { return login{o.User, o.Password, o.Token, o.UserJWT != nil} }
	for raw, want := range map[string]read{
		"nats://h":                           {servers: []string{"nats://h:4222"}},
		"nats://h:4223/":                     {servers: []string{"nats://h:4223"}},
		"nats://ada:a%40b%2Fc@h/shop-2":      {servers: []string{"nats://h:4222"}, login: login{user: "ada", password: "a@b/c"}, cfg: natsstore.Config{Stream: "shop-2"}},
		"nats://ada:@h":                      {servers: []string{"nats://h:4222"}, login: login{user: "ada"}},
		"nats://t%3Ak@h":                     {servers: []string{"nats://h:4222"}, login: login{token: "t:k"}},
		"nats://u:p@a:1,b,[::1]:3,[::2]/":    {servers: []string{"nats://a:1", "nats://b:4222", "nats://[::1]:3", "nats://[::2]:4222"}, login: login{user: "u", password: "p"}},
		"tls://h":                            {servers: []string{"tls://h:4222"}, secure: true},
		"nats://h?creds=" + creds:            {servers: []string{"nats://h:4222"}, login: login{jwt: true}, secrets: []string{creds}},
		"nats://t@h?system_creds=" + creds:   {servers: []string{"nats://h:4222"}, login: login{token: "t"}, system: &login{jwt: true}, secrets: []string{creds}},
		"nats://h?system_user=s":             {servers: []string{"nats://h:4222"}, system: &login{user: "s"}},
		"nats://t@h?accept_risks=eviction":   {servers: []string{"nats://h:4222"}, login: login{token: "t"}, cfg: natsstore.Config{AcceptRisks: []string{"eviction"}}},
		"nats://h?timeout=1m&clock_skew=1ms": {servers: []string{"nats://h:4222"}, cfg: natsstore.Config{Timeout: time.Minute, ClockSkew: time.Millisecond}},
		"nats://u:p@h/shop?replicas=3&accept_risks=sync-interval,replicas&system_user=s&system_password=t%26": {
			servers: []string{"nats://h:4222"}, login: login{user: "u", password: "p"}, system: &login{user: "s", password: "t&"},
			cfg: natsstore.Config{Stream: "shop", Replicas: 3, AcceptRisks: []string{"sync-interval", "replicas"}},
		},
	} {
		u, err := natsstore.ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := read{servers: u.Client.Servers, login: loginOf(&u.Client), secure: u.Client.Secure, cfg: u.Config, secrets: u.SecretFiles}
		if u.System != nil {
			system := loginOf(u.System)
			got.system = &system
			if !slices.Equal(u.System.Servers, u.Client.Servers) || u.System.MaxReconnect != -1 {
				t.Errorf("%s: the system account is sought at %v", raw, u.System.Servers)
			}
		}
		if !reflect.DeepEqual(got, want) || u.Client.MaxReconnect != -1 {
			t.Errorf("%s:\n%+v\nwant %+v", raw, got, want)
		}
	}
}

func TestParseURL_WhatIsWrongIsSaidWithoutThePassword(t *testing.T) {
	notes := writeFile(t, "no certificate")
	for raw, says := range map[string]string{
		"":                                        "write it as nats://USER:PASSWORD@HOST:4222/onlyonce",
		"s3cret@h":                                "write it as nats://",
		"http://u:s3cret@h":                       "write it as nats://",
		"nats://u:s3cret@":                        "a server is missing",
		"nats://u:s3cret@h,":                      "a server is missing",
		"nats://u:s3cret@h:x":                     "a server is missing",
		"nats://u:s3cret@h h":                     "a server is missing",
		"nats://u:s3cret@h:0":                     "the port of a server",
		"nats://u:s3cret@h:70000":                 "the port of a server",
		"nats://u:s3cret%zz@h":                    "write it as nats://",
		"nats://s3cret%zz@h":                      "write it as nats://",
		"nats://u:p/s3cret@h":                     "not the name of a stream",
		"nats://u:s3cret@h/a.b":                   "not the name of a stream",
		"nats://u:s3cret@h/a/b":                   "not the name of a stream",
		"nats://u:s3cret@h#x":                     "write it as nats://",
		"nats://u:p@h?s3cret":                     "an unknown parameter",
		"nats://tok?s3cret@h":                     "an unknown parameter",
		"nats://u:s3cret@h?stream=m":              "there is no parameter stream: the parameters are accept_risks, clock_skew, creds, replicas, system_creds",
		"nats://u:s3cret@h?replicas=1&replicas=3": "replicas is given 2 times",
		"nats://u:s3cret@h?creds=":                "creds is empty",
		"nats://u:s3cret@h?replicas=6":            "6 Replicas",
		"nats://u:s3cret@h?replicas=one":          `replicas is "one"`,
		"nats://u:s3cret@h?timeout=5":             `timeout is "5": write a duration such as 500ms`,
		"nats://u:s3cret@h?clock_skew=-1s":        `clock_skew is "-1s": write a duration`,
		"nats://u:s3cret@h?accept_risks=evicts":   `there is no risk "evicts" to accept: write one of eviction, forgotten`,
		"nats://h?system_password=s3cret":         "needs system_user",
		"nats://h?system_user=s&system_password=s3cret&system_creds=" + notes: "system_creds and system_user are both given",
		"nats://s3cret@h?creds=" + notes:                                      "creds and a user or a token before the @ are both given",
		"nats://h?creds=/not/there":                                           "creds: stat /not/there: no such file",
		"nats://u:s3cret@h?tls_ca=ca.pem":                                     "need TLS: write tls://",
		"tls://u:s3cret@h?tls_ca=/not/there":                                  "no such file",
		"tls://u:s3cret@h?tls_ca=" + notes:                                    "no certificate in PEM",
		"tls://u:s3cret@h?tls_cert=" + notes:                                  "must be given together",
	} {
		_, err := natsstore.ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, says)
		}
	}
}

func TestOpen_ANilJetStreamPanicsAndSaysWhatToPass(t *testing.T) {
	hazard.CheckPanics(t, "natsstore: there is no JetStream: pass what jetstream.New returned",
		func() { _, _ = natsstore.Open(t.Context(), nil, natsstore.Config{}) },
		func() { _, _ = natsstore.Migrate(t.Context(), nil, natsstore.Config{}) })
}
