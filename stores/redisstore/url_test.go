package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func TestParseURL_ReadsServersAndSettings(t *testing.T) {
	type read struct {
		user, password string
		addresses      []string
		db             int
		tls            bool
		masterSet      string
		sentinel       [2]string
		cfg            redisstore.Config
	}
	for raw, want := range map[string]read{
		"redis://h":                       {addresses: []string{"h:6379"}},
		"redis://h:6380/":                 {addresses: []string{"h:6380"}},
		"redis://ada:a%40b%2Fc@h:6380/2":  {user: "ada", password: "a@b/c", addresses: []string{"h:6380"}, db: 2},
		"rediss://:s3cret@[::1]:6380/0":   {password: "s3cret", addresses: []string{"[::1]:6380"}, tls: true},
		"redis://a:1,b,[::1]:3,[::2]":     {addresses: []string{"a:1", "b:6379", "[::1]:3", "[::2]:6379"}},
		"redis://a:1?addr=b:2&addr=[::1]": {addresses: []string{"a:1", "b:2", "[::1]:6379"}},
		"redis://u:p@a,b:2/1?master_set=shop&sentinel_user=s&sentinel_password=t%26": {
			user: "u", password: "p", addresses: []string{"a:26379", "b:2"}, db: 1, masterSet: "shop", sentinel: [2]string{"s", "t&"},
		},
		"redis://h?flushed=true": {addresses: []string{"h:6379"}, cfg: redisstore.Config{Flushed: true}},
		"redis://h?prefix=shop&replicas=2&replica_timeout=250ms&accept_risks=persistence,eviction": {
			addresses: []string{"h:6379"},
			cfg:       redisstore.Config{Prefix: "shop", Replicas: 2, ReplicaTimeout: 250 * time.Millisecond, AcceptRisks: []string{"persistence", "eviction"}},
		},
	} {
		o, cfg, err := redisstore.ParseURL(raw)
		if cfg.Client == nil || !reflect.DeepEqual(*cfg.Client, o) {
			t.Errorf("%s: Config.Client is %+v", raw, cfg.Client)
		}
		cfg.Client = nil
		got := read{
			user: o.Username, password: o.Password, addresses: o.InitAddress, db: o.SelectDB, tls: o.TLSConfig != nil,
			masterSet: o.Sentinel.MasterSet, sentinel: [2]string{o.Sentinel.Username, o.Sentinel.Password}, cfg: cfg,
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, %v\nwant %+v", raw, got, err, want)
		}
	}
}

func TestParseURL_WhatIsWrongIsSaidWithoutThePassword(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(notes, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, says := range map[string]string{
		"":                                             "write it as redis://",
		"s3cret@h":                                     "write it as redis://",
		"http://u:s3cret@h":                            "write it as redis://",
		"redis://u:s3cret@":                            "a server is missing",
		"redis://u:s3cret@h,":                          "a server is missing",
		"redis://u:s3cret@h:x":                         "a server is missing",
		"redis://u:s3cret@h h":                         "a server is missing",
		"redis://u:s3cret@h:0":                         "the port of a server",
		"redis://u:s3cret@h:70000":                     "the port of a server",
		"redis://u:s3cret%zz@h":                        "write it as redis://",
		"redis://u:p/s3cret@h":                         "not a database number",
		"redis://u:p@h/s3cret":                         "not a database number",
		"redis://u:s3cret@h/-1":                        "not a database number",
		"redis://u:s3cret@h/0/1":                       "not a database number",
		"redis://u:s3cret@h#x":                         "write it as redis://",
		"redis://u:p@h?s3cret":                         "an unknown parameter",
		"redis://u:s3cret@h?master_name=m":             "there is no parameter master_name: the parameters are accept_risks, addr, flushed, master_set",
		"redis://u:s3cret@h?prefix=a&prefix=b":         "prefix is given 2 times",
		"redis://u:s3cret@h?prefix=":                   "prefix is empty",
		"redis://u:s3cret@h?prefix={a}":                "brace",
		"redis://u:s3cret@h?replicas=-1":               `replicas is "-1"`,
		"redis://u:s3cret@h?replicas=one":              `replicas is "one"`,
		"redis://u:s3cret@h?flushed=always":            `flushed is "always": write true or false`,
		"redis://u:s3cret@h?replica_timeout=5":         `replica_timeout is "5": write a duration such as 500ms`,
		"redis://u:s3cret@h?replica_timeout=1us":       "whole milliseconds",
		"redis://u:s3cret@h?accept_risks=evictions":    `there is no risk "evictions" to accept: write one of eviction, persistence`,
		"redis://u:s3cret@h?addr=x:y":                  "address is malformed",
		"redis://u:s3cret@a,b/1":                       "a cluster has no database 1",
		"redis://u:p@h?sentinel_password=s3cret":       "need master_set",
		"redis://u:s3cret@h?tls_ca=ca.pem":             "need TLS: write rediss://",
		"rediss://u:s3cret@h?tls_ca=/not/there":        "no such file",
		"rediss://u:s3cret@h?tls_ca=" + notes:          "no certificate in PEM",
		"rediss://u:s3cret@h?tls_cert=" + notes:        "must be given together",
		"rediss://u:s3cret@h?tls_cert=/x&tls_key=/y":   "no such file",
		"redis://u:p@h?s3cret=1;2":                     "write it as redis://",
		"redis://u:s3cret@a?addr=redis://u:s3cret@b:1": "address is malformed",
	} {
		_, _, err := redisstore.ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, says)
		}
	}
}

// certificate makes a self-signed certificate for 127.0.0.1, and returns the files
// with it and with its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", pkcs8)
}

func TestParseURL_AServerWithTLSClientCertificatesAndAPasswordIsReached(t *testing.T) {
	cert, key := certificate(t)
	server := startRedis(t, "--requirepass", "s3c/ret", "--tls-port", redisserver.SecondPort, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	secure := net.JoinHostPort("127.0.0.1", server.Bus)
	reach := func(raw string) error {
		o, cfg, err := redisstore.ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rueidis.NewClient(o)
		if err != nil {
			return err
		}
		defer client.Close()
		if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
			return err
		}
		hazard.Run(t, open(t, client, cfg), "k")
		return nil
	}
	mutual := "?prefix=shop&tls_ca=" + cert + "&tls_cert=" + cert + "&tls_key=" + key
	if err := reach("rediss://:s3c%2Fret@" + secure + "/1" + mutual); err != nil {
		t.Error(err)
	}
	for what, raw := range map[string]string{
		"another password":         "rediss://:other@" + secure + mutual,
		"no certificate":           "rediss://:s3c%2Fret@" + secure + "?tls_ca=" + cert,
		"an authority not trusted": "rediss://:s3c%2Fret@" + secure,
		"no TLS":                   "redis://:s3c%2Fret@" + secure,
	} {
		if err := reach(raw); err == nil || strings.Contains(err.Error(), "s3c/ret") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOpen_ANilClientPanicsAndSaysWhatToPass(t *testing.T) {
	hazard.CheckPanics(t, "redisstore: there is no client: pass what rueidis.NewClient returned",
		func() { _, _ = redisstore.Open(t.Context(), nil, redisstore.Config{}) },
		func() { _, _ = redisstore.Migrate(t.Context(), nil, redisstore.Config{}) })
}
