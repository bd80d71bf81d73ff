package etcdstore_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseURL_ReadsMembersAndSettings(t *testing.T) {
	type read struct {
		endpoints      []string
		user, password string
		secure         bool
		dial           time.Duration
		cfg            etcdstore.Config
	}
	for raw, want := range map[string]read{
		"etcd://h":                         {endpoints: []string{"http://h:2379"}},
		"etcd://h:2380/":                   {endpoints: []string{"http://h:2380"}},
		"etcd://ada:a%40b%2Fc@h/shop-2":    {endpoints: []string{"http://h:2379"}, user: "ada", password: "a@b/c", cfg: etcdstore.Config{Prefix: "shop-2"}},
		"etcd://u:p@a:1,b,[::1]:3,[::2]/":  {endpoints: []string{"http://a:1", "http://b:2379", "http://[::1]:3", "http://[::2]:2379"}, user: "u", password: "p"},
		"etcd://h/eu/shop_1.b":             {endpoints: []string{"http://h:2379"}, cfg: etcdstore.Config{Prefix: "eu/shop_1.b"}},
		"etcds://h":                        {endpoints: []string{"https://h:2379"}, secure: true},
		"etcd://h?accept_risks=space":      {endpoints: []string{"http://h:2379"}, cfg: etcdstore.Config{AcceptRisks: []string{"space"}}},
		"etcds://u:p@h?timeout=1m":         {endpoints: []string{"https://h:2379"}, user: "u", password: "p", secure: true, dial: time.Minute, cfg: etcdstore.Config{Timeout: time.Minute}},
		"etcd://h?members=3&timeout=500ms": {endpoints: []string{"http://h:2379"}, dial: 500 * time.Millisecond, cfg: etcdstore.Config{Members: 3, Timeout: 500 * time.Millisecond}},
		"etcd://a,b,c/shop?members=3&accept_risks=members,corrupt": {
			endpoints: []string{"http://a:2379", "http://b:2379", "http://c:2379"}, cfg: etcdstore.Config{Prefix: "shop", Members: 3, AcceptRisks: []string{"members", "corrupt"}},
		},
	} {
		if want.dial == 0 {
			want.dial = etcdstore.DefaultTimeout
		}
		u, err := etcdstore.ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := read{u.Client.Endpoints, u.Client.Username, u.Client.Password, u.Client.TLS != nil, u.Client.DialTimeout, u.Config}
		if !reflect.DeepEqual(got, want) || u.Client.DialKeepAliveTime < 5*time.Second || len(u.Client.DialOptions) == 0 || len(u.SecretFiles) > 0 {
			t.Errorf("%s:\n%+v\nwant %+v", raw, got, want)
		}
	}
}

func TestParseURL_WhatIsWrongIsSaidWithoutThePassword(t *testing.T) {
	notes := writeFile(t, "no certificate")
	for raw, says := range map[string]string{
		"":                                        "write it as etcd://USER:PASSWORD@HOST:2379/onlyonce",
		"s3cret@h":                                "write it as etcd://",
		"http://u:s3cret@h":                       "write it as etcd://",
		"etcd://u:s3cret@":                        "a server is missing",
		"etcd://u:s3cret@h,":                      "a server is missing",
		"etcd://u:s3cret@h:x":                     "a server is missing",
		"etcd://u:s3cret@h h":                     "a server is missing",
		"etcd://u:s3cret@h:0":                     "the port of a server",
		"etcd://u:s3cret@h:70000":                 "the port of a server",
		"etcd://u:s3cret%zz@h":                    "write it as etcd://",
		"etcd://s3cret%zz@h":                      "write it as etcd://",
		"etcd://u:p/s3cret@h":                     "is not a prefix",
		"etcd://u:p/x/s3cret@h":                   "is not a prefix",
		"etcd://u:s3cret@h/a/":                    "is not a prefix",
		"etcd://u:s3cret@h//a":                    "is not a prefix",
		"etcd://u:s3cret@h/a b":                   "is not a prefix",
		"etcd://u:s3cret@h#x":                     "write it as etcd://",
		"etcd://s3cret@h":                         "the user or the password is missing: give both, or neither: write it as etcd://USER",
		"etcd://:s3cret@h":                        "the user or the password is missing",
		"etcd://u:@h":                             "the user or the password is missing",
		"etcd://u:p@h?s3cret":                     "an unknown parameter",
		"etcd://u:s3cret@h?prefix=m":              "there is no parameter prefix: the parameters are accept_risks, members, timeout, tls_ca",
		"etcd://u:s3cret@h?members=1&members=3":   "members is given 2 times",
		"etcd://u:s3cret@h?members=":              "members is empty",
		"etcd://u:s3cret@h?members=one":           `members is "one"`,
		"etcd://u:s3cret@h?members=0":             `members is "0": write how many voting members the cluster must have, 1 or more`,
		"etcd://u:s3cret@h?members=00":            `members is "00": write how many`,
		"etcd://u:s3cret@h?timeout=5":             `timeout is "5": write a duration such as 500ms`,
		"etcd://u:s3cret@h?accept_risks=member":   `there is no risk "member" to accept: write one of corrupt, forgotten`,
		"etcd://u:s3cret@h?tls_ca=ca.pem":         "need TLS: write etcds://",
		"etcds://u:s3cret@h?tls_ca=/not/there":    "no such file",
		"etcds://u:s3cret@h?tls_ca=" + notes:      "no certificate in PEM",
		"etcds://u:s3cret@h?tls_cert=" + notes:    "must be given together",
		"etcds://u:s3cret@h?tls_key=/etc/s3cretx": "must be given together",
	} {
		_, err := etcdstore.ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, says)
		}
	}
}
