// Package serverurl parses the parts that the URLs of stores on servers have in common: several
// servers, parameters, and the files of TLS. Its errors do not repeat a password.
package serverurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A URL is a parsed URL, SCHEME://USER@HOST,HOST/PATH?PARAMETERS.
type URL struct {
	Scheme string
	User   *url.Userinfo // nil: there is none
	Hosts  []string      // as written, at least one, which may be empty
	Path   string        // without the leading slash
	Params Params
}

// Parse splits a URL. It reports whether it has one of the schemes, no fragment, and no
// part that is escaped in a wrong way.
func Parse(raw string, schemes ...string) (u URL, ok bool) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if !slices.Contains(schemes, scheme) {
		return u, false
	}
	// The hosts are cut out, because url.Parse takes only one.
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	rest = rest[len(authority):]
	at := strings.LastIndexByte(authority, '@') + 1
	parsed, err := url.Parse(scheme + "://" + authority[:at] + "host" + rest)
	if err != nil || parsed.Fragment != "" {
		return u, false
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return u, false
	}
	return URL{
		Scheme: scheme, User: parsed.User, Hosts: strings.Split(authority[at:], ","),
		Path: strings.TrimPrefix(parsed.Path, "/"), Params: Params{query},
	}, true
}

// Address returns HOST:PORT for a host as it is written in a URL, whose port may be missing.
// form says how the whole URL is written.
func Address(host, port string, form error) (string, error) {
	u, err := url.Parse("server://" + host)
	if err != nil || u.Hostname() == "" || u.Host != host {
		return "", fmt.Errorf("a server is missing, or its address is malformed: %w", form)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("the port of a server is not a number from 1 to 65535: %w", form)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// Params are the parameters of a URL.
type Params struct{ url.Values }

// nameForm matches names of parameters that an error may repeat. Other text may be part of
// a password.
var nameForm = regexp.MustCompile(`^[a-z_]{1,32}$`)

// Check returns an error if there is a parameter that is not among the names, is empty, or
// is given twice although it is not repeatable.
func (p Params) Check(names []string, repeatable string) error {
	for name, values := range p.Values {
		switch {
		case !slices.Contains(names, name) && nameForm.MatchString(name):
			return fmt.Errorf("there is no parameter %s: the parameters are %s", name, strings.Join(names, ", "))
		case !slices.Contains(names, name):
			return fmt.Errorf("there is an unknown parameter: the parameters are %s", strings.Join(names, ", "))
		case len(values) > 1 && name != repeatable:
			return fmt.Errorf("the parameter %s is given %d times: give it once", name, len(values))
		case slices.Contains(values, ""):
			return fmt.Errorf("the parameter %s is empty: give it a value or leave it out", name)
		}
	}
	return nil
}

// Number returns the value of a parameter that is a number, or 0 if it is missing.
func (p Params) Number(name string) (int, error) {
	text := p.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: write a number, 0 or more", name, text)
	}
	return int(n), nil
}

// Duration returns the value of a parameter that is a duration, or 0 if it is missing.
func (p Params) Duration(name string) (time.Duration, error) {
	text := p.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s is %q: write a duration such as 500ms or 2s", name, text)
	}
	return d, nil
}

// List returns the values of a parameter that are separated by commas.
func (p Params) List(name string) []string {
	if text := p.Get(name); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// TLS returns the configuration that the parameters tls_ca, tls_cert and tls_key describe.
// It returns nil for a URL whose scheme is not secure, the one for TLS.
func (u *URL) TLS(secure string) (*tls.Config, error) {
	ca, cert, key := u.Params.Get("tls_ca"), u.Params.Get("tls_cert"), u.Params.Get("tls_key")
	if u.Scheme != secure {
		if ca+cert+key != "" {
			return nil, fmt.Errorf("tls_ca, tls_cert and tls_key need TLS: write %s://, or leave them out", secure)
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls_ca: %s contains no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("tls_cert and tls_key must be given together: give both, or neither")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
