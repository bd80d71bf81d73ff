package proxyfile

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// Check returns all the mistakes in the settings, as Mistakes, that can be found without
// opening another file.
func (f *File) Check() error {
	c := checker{file: f}
	c.process()
	c.tls()
	c.store()
	c.tenant()
	c.server()
	c.upstreams()
	c.settings(&f.Defaults, "defaults")
	c.routes()
	return c.mistakes.orNil()
}

// A checker collects the mistakes in a file.
type checker struct {
	file     *File
	mistakes Mistakes
}

// wrong adds a mistake in the setting with the path at. See File.Mistake for places.
func (c *checker) wrong(at, text string, places ...string) {
	c.mistakes = append(c.mistakes, c.file.Mistake(at, text, places...))
}

// report adds a mistake in the setting with the path at, unless text is empty.
func (c *checker) report(at, text string) {
	if text != "" {
		c.wrong(at, text)
	}
}

func (c *checker) duration(d time.Duration, at string) {
	c.report(at, cli.DurationMistake(d, ""))
}

func (c *checker) process() {
	f := c.file
	c.address(f.Listen, "listen")
	if f.Admin != "" {
		c.address(f.Admin, "admin")
		if _, port, _ := net.SplitHostPort(f.Admin); f.Admin == f.Listen && port != "0" {
			c.wrong("admin", "clients connect to this address: write another one, such as 127.0.0.1:9090", "admin", "listen")
		}
	}
	if f.Console.Tokens != "" && f.Admin == "" {
		c.wrong("console.tokens", "the console is served at the admin address: set admin, too")
	}
	c.report("log_format", logging.Formats.Mistake(f.LogFormat))
	c.report("unmatched", unmatchedPolicies.Mistake(f.Unmatched))
	c.report("log_level", logging.Levels.Mistake(f.LogLevel))
	c.report("log_keys", logging.Keys.Mistake(f.LogKeys))
	c.duration(f.ShutdownTimeout, "shutdown_timeout")
}

func (c *checker) address(text, at string) {
	_, port, err := net.SplitHostPort(text)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n > 65535 {
		c.wrong(at, fmt.Sprintf("%q is not an address: write one such as 127.0.0.1:8080", text))
	}
}

func (c *checker) tls() {
	t := &c.file.TLS
	switch {
	case (t.Cert == "") != (t.Key == ""):
		c.wrong("tls", "cert and key go together: name both files, or neither", "tls.cert", "tls.key")
	case t.Cert == "" && t.ClientCA != "":
		c.wrong("tls.client_ca", "without cert and key there is no TLS, so no client presents a certificate: name them too")
	}
	c.report("tls.min_version", tlsVersions.Mistake(t.MinVersion))
}

func (c *checker) store() {
	s := &c.file.Store
	if s.URL == "" {
		c.wrong("store.url", "the URL is empty: write memory://, sqlite:PATH, postgres://…, mysql://…, redis://…, nats://…, etcd://… or dynamodb://…")
	}
	if s.URLFile != "" && c.file.Given("store.url") {
		c.wrong("store.url_file", "store.url is also set: leave one out", "store.url_file", "store.url")
	}
	c.duration(s.PurgeEvery, "store.purge_every")
	c.duration(s.CacheMaxAge, "store.cache_max_age")
	if s.Limit < 1 {
		c.wrong("store.limit", "write at least 1 byte, such as 64GiB")
	}
}

func (c *checker) tenant() {
	t := &c.file.Tenant
	j := &t.JWT
	c.report("tenant", OneSource(t.Sources(), "this is missing: set exactly one of header, jwt, authorization: true and single: true"))
	if t.NewPerAddress < 1 {
		c.wrong("tenant.new_per_address", "write at least 1")
	}
	c.duration(j.Refresh, "tenant.jwt.refresh")
	if t.Header != "" {
		text := headerName(t.Header)
		if text == "" {
			text = severalSpellings(t.Header)
		}
		if text != "" {
			c.wrong("tenant.header", text)
		}
	}
	if len(t.From) > 0 && t.Header == "" {
		c.wrong("tenant.from", "these are addresses from which tenant.header is trusted: set tenant.header too, or leave them out")
	}
	if j.given() {
		c.jwt(j)
	}
}

func (c *checker) jwt(j *JWT) {
	if j.Claim == "" {
		c.wrong("tenant.jwt.claim", "this is missing: name the claim whose text is the tenant, such as sub")
	}
	u, err := url.Parse(j.JWKS)
	switch {
	case j.JWKS == "":
		c.wrong("tenant.jwt.jwks", "this is missing: name the file or https URL of the public keys")
	case IsURL(j.JWKS) && (err != nil || u.Host == "" || u.User != nil || u.Fragment != ""):
		c.wrong("tenant.jwt.jwks", "this is not a URL of a document: write one such as https://id.example.com/jwks.json")
	case IsURL(j.JWKS) && u.Scheme == "http" && !loopback(u.Hostname()):
		c.wrong("tenant.jwt.jwks", "without TLS, the keys could be replaced on the way: write an https URL")
	case j.CA != "" && (!IsURL(j.JWKS) || u.Scheme != "https"):
		c.wrong("tenant.jwt.ca", "it is only for keys from an https URL: leave it out")
	}
}

// IsURL reports whether the setting jwks is a URL, and not the path of a file.
func IsURL(jwks string) bool {
	scheme, _, ok := strings.Cut(jwks, "://")
	return ok && (scheme == "http" || scheme == "https")
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (c *checker) server() {
	s := &c.file.Server
	if s.MaxHeader < 1<<10 || s.MaxHeader > 1<<20 {
		c.wrong("server.max_header", fmt.Sprintf("%v is out of bounds: write 1KiB to 1MiB", s.MaxHeader))
	}
	if s.Memory < 1<<20 {
		c.wrong("server.memory", "write at least 1MiB")
	}
	c.duration(s.HeaderTimeout, "server.header_timeout")
	c.duration(s.BodyTimeout, "server.body_timeout")
	c.duration(s.IdleTimeout, "server.idle_timeout")
}

func (c *checker) upstreams() {
	list := c.file.Upstreams
	if len(list) == 0 {
		c.wrong("upstreams", "this is missing: name a server, such as [{url: \"http://127.0.0.1:3000\"}]")
	}
	for i := range list {
		u, at := &list[i], fmt.Sprintf("upstreams[%d]", i)
		c.report(at+".name", cli.NameMistake(u.Name))
		if j := slices.IndexFunc(list[:i], func(o Upstream) bool { return o.Name == u.Name }); j >= 0 {
			c.wrong(at+".name", fmt.Sprintf("upstreams[%d] is also called %q: give each a name of its own", j, u.Name))
		}
		c.upstreamURL(u, at)
		if u.MaxConns < 4 {
			c.wrong(at+".max_connections", "write at least 4")
		}
		c.duration(u.Timeouts.Connect, at+".timeouts.connect")
		c.duration(u.Timeouts.Response, at+".timeouts.response")
		c.duration(u.Timeouts.Stall, at+".timeouts.stall")
		c.duration(u.Timeouts.Body, at+".timeouts.body")
		c.duration(u.Timeouts.Idle, at+".timeouts.idle")
	}
}

func (c *checker) upstreamURL(u *Upstream, at string) {
	parsed, err := storeurl.ParseServer(u.URL, "http://HOST:PORT or https://HOST", "http", "https")
	tls := u.TLS != ClientTLS{}
	switch {
	case u.URL == "":
		c.wrong(at+".url", "this is missing: write the URL of the server, such as http://127.0.0.1:3000")
	case err != nil:
		c.wrong(at+".url", err.Error())
	case parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		c.wrong(at+".url", "the URL of a server has no user, no query and no fragment: leave them out")
	case tls && parsed.Scheme != "https":
		c.wrong(at+".tls", "it is only for an https URL: leave it out, or write https")
	case (u.TLS.Cert == "") != (u.TLS.Key == ""):
		c.wrong(at+".tls", "cert and key go together: name both files, or neither", at+".tls.cert", at+".tls.key")
	default:
		u.server = *parsed
	}
}
