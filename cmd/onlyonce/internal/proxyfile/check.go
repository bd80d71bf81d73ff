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

// wrong says that the setting at is wrong. The line is that of the first of
// fields that the file gives.
func (c *checker) wrong(at, text string, fields ...any) {
	c.mistakes = append(c.mistakes, c.file.Mistake(nil, at, text, fields...))
}

// What any duration may be but a wait of 0.
const (
	shortest = 10 * time.Millisecond
	longest  = 10000 * time.Hour
)

func (c *checker) duration(field *time.Duration, at string, zero bool) {
	switch {
	case zero && *field == 0:
	case (*field < shortest || *field > longest) && zero:
		c.wrong(at, fmt.Sprintf("%v is out of bounds: write %v to %v, or 0s for not at all", *field, shortest, longest), field)
	case *field < shortest || *field > longest:
		c.wrong(at, fmt.Sprintf("%v is out of bounds: write %v to %v", *field, shortest, longest), field)
	}
}

func (c *checker) oneOf(field *string, at string, values ...string) {
	if !slices.Contains(values, *field) {
		c.wrong(at, fmt.Sprintf("%q is not known: write %s", *field, either(values)), field)
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
	c.address(&f.Listen, "listen")
	if f.Admin != "" {
		c.address(&f.Admin, "admin")
		if _, port, _ := net.SplitHostPort(f.Admin); f.Admin == f.Listen && port != "0" {
			c.wrong("admin", "this is where clients connect: write another address, such as 127.0.0.1:9090", &f.Admin, &f.Listen)
		}
	}
	c.oneOf(&f.LogFormat, "log_format", "json", "text")
	c.oneOf(&f.Unmatched, "unmatched", "pass", "refuse")
	c.oneOf(&f.LogLevel, "log_level", "debug", "info", "warn", "error")
	c.oneOf(&f.LogKeys, "log_keys", "hash", "raw")
	c.duration(&f.ShutdownTimeout, "shutdown_timeout", false)
}

func (c *checker) address(field *string, at string) {
	_, port, err := net.SplitHostPort(*field)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n > 65535 {
		c.wrong(at, fmt.Sprintf("%q is no address: write one such as 127.0.0.1:8080", *field), field)
	}
}

func (c *checker) tls() {
	t := &c.file.TLS
	switch {
	case (t.Cert == "") != (t.Key == ""):
		c.wrong("tls", "cert and key go together: name both files, or neither", &t.Cert, &t.Key)
	case t.Cert == "" && t.ClientCA != "":
		c.wrong("tls.client_ca", "without cert and key there is no TLS, and no client shows a certificate: name them too", &t.ClientCA)
	}
	c.oneOf(&t.MinVersion, "tls.min_version", "1.2", "1.3")
}

func (c *checker) store() {
	s := &c.file.Store
	if s.URL == "" {
		c.wrong("store.url", "this is empty: write memory://, sqlite:PATH, postgres://… or mysql://…", &s.URL, s)
	}
	if s.URLFile != "" && c.file.Given(&s.URL) {
		c.wrong("store.url_file", "store.url is given too: leave one out", &s.URLFile, &s.URL)
	}
	c.duration(&s.PurgeEvery, "store.purge_every", false)
	if s.Limit < 1 {
		c.wrong("store.limit", "write at least 1 byte, such as 64GiB", &s.Limit)
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
		c.wrong("tenant", "this is missing: write exactly one of header, jwt, authorization: true and single: true", t)
	case 1:
	default:
		c.wrong("tenant", "more than one of header, jwt, authorization and single is given: leave one", t, &t.Header, j, &t.Authorization, &t.Single)
	}
	if t.NewPerAddress < 1 {
		c.wrong("tenant.new_per_address", "write at least 1", &t.NewPerAddress)
	}
	c.duration(&j.Refresh, "tenant.jwt.refresh", false)
	if t.Header != "" {
		text := headerName(t.Header)
		if text == "" {
			text = severalSpellings(t.Header)
		}
		if text != "" {
			c.wrong("tenant.header", text, &t.Header)
		}
	}
	if len(t.From) > 0 && t.Header == "" {
		c.wrong("tenant.from", "this says who may set tenant.header: name the header too, or leave it out", &t.From)
	}
	c.prefixes(t.From, "tenant.from", &t.From)
	if jwt {
		c.jwt(j)
	}
}

func (c *checker) jwt(j *JWT) {
	if j.Claim == "" {
		c.wrong("tenant.jwt.claim", "this is missing: name the claim whose text is the tenant, such as sub", &j.Claim, j)
	}
	u, err := url.Parse(j.JWKS)
	switch {
	case j.JWKS == "":
		c.wrong("tenant.jwt.jwks", "this is missing: name the file or https URL of the public keys", &j.JWKS, j)
	case IsURL(j.JWKS) && (err != nil || u.Host == "" || u.User != nil || u.Fragment != ""):
		c.wrong("tenant.jwt.jwks", "this is no URL of a document: write one such as https://id.example.com/jwks.json", &j.JWKS)
	case IsURL(j.JWKS) && u.Scheme == "http" && !loopback(u.Hostname()):
		c.wrong("tenant.jwt.jwks", "keys that come without TLS can be replaced on their way: write an https URL", &j.JWKS)
	case j.CA != "" && (!IsURL(j.JWKS) || u.Scheme != "https"):
		c.wrong("tenant.jwt.ca", "this is for keys that come from an https URL: leave it out", &j.CA)
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

func (c *checker) prefixes(list []string, at string, field any) {
	for i, text := range list {
		if _, err := ParsePrefix(text); err != nil {
			c.wrong(fmt.Sprintf("%s[%d]", at, i), fmt.Sprintf("%q is no range of addresses: write one such as 10.0.0.0/8, or one address", text), &list[i], field)
		}
	}
}

// ParsePrefix reads a range of addresses, or one address.
func ParsePrefix(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

func (c *checker) server() {
	s := &c.file.Server
	if s.MaxHeader < 1<<10 || s.MaxHeader > 1<<20 {
		c.wrong("server.max_header", fmt.Sprintf("%v is out of bounds: write 1KiB to 1MiB", s.MaxHeader), &s.MaxHeader)
	}
	if s.Memory < 1<<20 {
		c.wrong("server.memory", "write at least 1MiB", &s.Memory)
	}
	c.duration(&s.HeaderTimeout, "server.header_timeout", false)
	c.duration(&s.BodyTimeout, "server.body_timeout", false)
	c.duration(&s.IdleTimeout, "server.idle_timeout", false)
	c.prefixes(c.file.Forwarded.Trust, "forwarded.trust", &c.file.Forwarded.Trust)
}

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c *checker) upstreams() {
	list := c.file.Upstreams
	if len(list) == 0 {
		c.wrong("upstreams", "this is missing: name a server, such as [{url: \"http://127.0.0.1:3000\"}]", &c.file.Upstreams)
	}
	for i := range list {
		u, at := &list[i], fmt.Sprintf("upstreams[%d]", i)
		if !upstreamName.MatchString(u.Name) {
			c.wrong(at+".name", fmt.Sprintf("%q is no name: write 1 to 64 characters out of a-z A-Z 0-9 _ -", u.Name), &u.Name, u)
		}
		if j := slices.IndexFunc(list[:i], func(o Upstream) bool { return o.Name == u.Name }); j >= 0 {
			c.wrong(at+".name", fmt.Sprintf("upstreams[%d] is called %q too: give each a name of its own", j, u.Name), &u.Name, u)
		}
		c.upstreamURL(u, at)
		if u.MaxConns < 4 {
			c.wrong(at+".max_connections", "write at least 4", &u.MaxConns)
		}
		c.duration(&u.Timeouts.Connect, at+".timeouts.connect", false)
		c.duration(&u.Timeouts.Answer, at+".timeouts.answer", false)
		c.duration(&u.Timeouts.Stall, at+".timeouts.stall", false)
		c.duration(&u.Timeouts.Body, at+".timeouts.body", false)
		c.duration(&u.Timeouts.Idle, at+".timeouts.idle", false)
	}
}

func (c *checker) upstreamURL(u *Upstream, at string) {
	parsed, err := url.Parse(u.URL)
	tls := u.TLS != ClientTLS{}
	switch {
	case u.URL == "":
		c.wrong(at+".url", "this is missing: write where the server is, such as http://127.0.0.1:3000", &u.URL, u)
	case err != nil || parsed.Hostname() == "" || !slices.Contains([]string{"http", "https"}, parsed.Scheme):
		c.wrong(at+".url", "this is no URL of a server: write http://HOST:PORT or https://HOST", &u.URL, u)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		c.wrong(at+".url", "the URL of a server has no user, no query and no fragment: leave them out", &u.URL, u)
	case tls && parsed.Scheme != "https":
		c.wrong(at+".tls", "this is for an https URL: leave it out, or write https", &u.TLS, u)
	case (u.TLS.Cert == "") != (u.TLS.Key == ""):
		c.wrong(at+".tls", "cert and key go together: name both files, or neither", &u.TLS.Cert, &u.TLS.Key, u)
	}
}
