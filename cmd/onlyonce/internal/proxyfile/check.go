package proxyfile

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Check returns, as Mistakes, everything that can be told to be wrong without
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

// A checker collects what is wrong.
type checker struct {
	file     *File
	mistakes Mistakes
}

// wrong says that the setting at is wrong, as File.Mistake does.
func (c *checker) wrong(at, text string, places ...string) {
	c.mistakes = append(c.mistakes, c.file.Mistake(at, text, places...))
}

// What any duration may be but a wait of 0.
const (
	shortest = 10 * time.Millisecond
	longest  = 10000 * time.Hour
)

func (c *checker) duration(d time.Duration, at string, zero bool) {
	switch {
	case zero && d == 0:
	case (d < shortest || d > longest) && zero:
		c.wrong(at, fmt.Sprintf("%v is out of bounds: write %v to %v, or 0s for not at all", d, shortest, longest))
	case d < shortest || d > longest:
		c.wrong(at, fmt.Sprintf("%v is out of bounds: write %v to %v", d, shortest, longest))
	}
}

func (c *checker) oneOf(text, at string, values ...string) {
	if !slices.Contains(values, text) {
		c.wrong(at, fmt.Sprintf("%q is not known: write %s", text, either(values)))
	}
}

// either writes "a, b or c".
func either(values []string) string {
	last := len(values) - 1
	if last == 0 {
		return values[0]
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

func (c *checker) process() {
	f := c.file
	c.address(f.Listen, "listen")
	if f.Admin != "" {
		c.address(f.Admin, "admin")
		if _, port, _ := net.SplitHostPort(f.Admin); f.Admin == f.Listen && port != "0" {
			c.wrong("admin", "this is where clients connect: write another address, such as 127.0.0.1:9090", "admin", "listen")
		}
	}
	c.oneOf(f.LogFormat, "log_format", "json", "text")
	c.oneOf(f.Unmatched, "unmatched", "pass", "reject")
	c.oneOf(f.LogLevel, "log_level", "debug", "info", "warn", "error")
	c.oneOf(f.LogKeys, "log_keys", "hash", "raw")
	c.duration(f.ShutdownTimeout, "shutdown_timeout", false)
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
		c.wrong("tls.client_ca", "without cert and key there is no TLS, and no client shows a certificate: name them too")
	}
	c.oneOf(t.MinVersion, "tls.min_version", "1.2", "1.3")
}

func (c *checker) store() {
	s := &c.file.Store
	if s.URL == "" {
		c.wrong("store.url", "this is empty: write memory://, sqlite:PATH, postgres://…, mysql://… or redis://…")
	}
	if s.URLFile != "" && c.file.Given("store.url") {
		c.wrong("store.url_file", "store.url is given too: leave one out", "store.url_file", "store.url")
	}
	c.duration(s.PurgeEvery, "store.purge_every", false)
	if s.Limit < 1 {
		c.wrong("store.limit", "write at least 1 byte, such as 64GiB")
	}
}

func (c *checker) tenant() {
	t := &c.file.Tenant
	j := &t.JWT
	jwt := j.Claim != "" || j.JWKS != "" || j.CA != "" || j.Issuer != "" || j.Audience != ""
	given := 0
	for _, is := range []bool{t.Header != "", jwt, t.Authorization, t.Single} {
		if is {
			given++
		}
	}
	switch given {
	case 0:
		c.wrong("tenant", "this is missing: write exactly one of header, jwt, authorization: true and single: true")
	case 1:
	default:
		c.wrong("tenant", "more than one of header, jwt, authorization and single is given: leave one", "tenant", "tenant.header", "tenant.jwt", "tenant.authorization", "tenant.single")
	}
	if t.NewPerAddress < 1 {
		c.wrong("tenant.new_per_address", "write at least 1")
	}
	c.duration(j.Refresh, "tenant.jwt.refresh", false)
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
		c.wrong("tenant.from", "this says who may set tenant.header: name the header too, or leave it out")
	}
	if jwt {
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
		c.wrong("tenant.jwt.jwks", "keys that come without TLS can be replaced on their way: write an https URL")
	case j.CA != "" && (!IsURL(j.JWKS) || u.Scheme != "https"):
		c.wrong("tenant.jwt.ca", "this is for keys that come from an https URL: leave it out")
	}
}

// IsURL reports whether a place of public keys is a URL, rather than a file.
func IsURL(place string) bool {
	scheme, _, ok := strings.Cut(place, "://")
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
	c.duration(s.HeaderTimeout, "server.header_timeout", false)
	c.duration(s.BodyTimeout, "server.body_timeout", false)
	c.duration(s.IdleTimeout, "server.idle_timeout", false)
}

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c *checker) upstreams() {
	list := c.file.Upstreams
	if len(list) == 0 {
		c.wrong("upstreams", "this is missing: name a server, such as [{url: \"http://127.0.0.1:3000\"}]")
	}
	for i := range list {
		u, at := &list[i], fmt.Sprintf("upstreams[%d]", i)
		if !upstreamName.MatchString(u.Name) {
			c.wrong(at+".name", fmt.Sprintf("%q is not a valid name: write 1 to 64 characters from a-z A-Z 0-9 _ -", u.Name))
		}
		if j := slices.IndexFunc(list[:i], func(o Upstream) bool { return o.Name == u.Name }); j >= 0 {
			c.wrong(at+".name", fmt.Sprintf("upstreams[%d] is called %q too: give each a name of its own", j, u.Name))
		}
		c.upstreamURL(u, at)
		if u.MaxConns < 4 {
			c.wrong(at+".max_connections", "write at least 4")
		}
		c.duration(u.Timeouts.Connect, at+".timeouts.connect", false)
		c.duration(u.Timeouts.Response, at+".timeouts.response", false)
		c.duration(u.Timeouts.Stall, at+".timeouts.stall", false)
		c.duration(u.Timeouts.Body, at+".timeouts.body", false)
		c.duration(u.Timeouts.Idle, at+".timeouts.idle", false)
	}
}

func (c *checker) upstreamURL(u *Upstream, at string) {
	parsed, err := url.Parse(u.URL)
	tls := u.TLS != ClientTLS{}
	switch {
	case u.URL == "":
		c.wrong(at+".url", "this is missing: write where the server is, such as http://127.0.0.1:3000")
	case err != nil || parsed.Hostname() == "" || !slices.Contains([]string{"http", "https"}, parsed.Scheme):
		c.wrong(at+".url", "this is not a URL of a server: write http://HOST:PORT or https://HOST")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		c.wrong(at+".url", "the URL of a server has no user, no query and no fragment: leave them out")
	case tls && parsed.Scheme != "https":
		c.wrong(at+".tls", "this is for an https URL: leave it out, or write https")
	case (u.TLS.Cert == "") != (u.TLS.Key == ""):
		c.wrong(at+".tls", "cert and key go together: name both files, or neither", at+".tls.cert", at+".tls.key")
	default:
		u.server = *parsed
	}
}
