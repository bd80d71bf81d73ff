package redisstore

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

	"github.com/redis/rueidis"
)

// parameters are the names of a URL's parameters. Each may be given once, except addr.
var parameters = []string{
	"accept_risks", "addr", "flushed", "master_set", "prefix", "replica_timeout", "replicas",
	"sentinel_password", "sentinel_user", "tls_ca", "tls_cert", "tls_key",
}

// ParseURL reads the URL of a store: how a client reaches the servers, and the Config
// of the store. The errors do not repeat a password.
//
//	redis://user:password@host:6379/0                  one server; the database defaults to 0
//	redis://user:password@host1:6379,host2:6379        some nodes of a cluster
//	redis://user:password@host1,host2?master_set=name  the Sentinels that watch a set of servers; their port defaults to 26379
//	rediss://…                                         the same with TLS
//
// Further addresses can also be given as addr=host:port, one parameter each. The other
// parameters are those of the Config: prefix, replicas, flushed (true or false),
// replica_timeout (such as 500ms), and accept_risks, whose names are separated by commas; sentinel_user and
// sentinel_password, if the Sentinels require a login; and for rediss the PEM files
// tls_ca, with the certificate authorities to trust instead of the system's, and
// tls_cert and tls_key, for servers that require a client certificate.
//
// Special characters in names and passwords must be escaped as in any URL: @ is
// %40, / is %2F.
func ParseURL(raw string) (rueidis.ClientOption, Config, error) {
	o, cfg, err := parse(raw)
	if err != nil {
		return rueidis.ClientOption{}, Config{}, fmt.Errorf("redisstore: invalid URL of the store: %w", err)
	}
	return o, cfg, nil
}

var errForm = errors.New("write it as redis://user:password@host:6379/0, with the special characters of the password escaped")

func parse(raw string) (o rueidis.ClientOption, cfg Config, err error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if scheme != "redis" && scheme != "rediss" {
		return o, cfg, errForm
	}
	// The hosts are cut out, because url.Parse takes only one.
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	rest = rest[len(authority):]
	at := strings.LastIndexByte(authority, '@') + 1
	u, err := url.Parse(scheme + "://" + authority[:at] + "host" + rest)
	if err != nil || u.Fragment != "" {
		return o, cfg, errForm
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, cfg, errForm
	}
	p := &params{query}
	if err := p.check(); err != nil {
		return o, cfg, err
	}
	if o.SelectDB, err = database(u.Path); err != nil {
		return o, cfg, err
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	o.DisableCache = true
	o.MaxFlushDelay = 20 * time.Microsecond
	if err := p.sentinel(&o); err != nil {
		return o, cfg, err
	}
	if err := p.addresses(&o, strings.Split(authority[at:], ",")); err != nil {
		return o, cfg, err
	}
	if err := p.tls(&o, scheme == "rediss"); err != nil {
		return o, cfg, err
	}
	cfg, err = p.config()
	return o, cfg, err
}

func database(path string) (int, error) {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(path, 10, 16)
	if err != nil {
		return 0, errors.New("the text after the first / is not a database number: write /0 or leave it out, and escape a / in the password as %2F")
	}
	return int(n), nil
}

// params are the parameters of a URL.
type params struct{ url.Values }

// parameterForm matches names of parameters that an error may repeat. Other text may be
// part of a password.
var parameterForm = regexp.MustCompile(`^[a-z_]{1,32}$`)

func (p *params) check() error {
	for name, values := range p.Values {
		switch {
		case !slices.Contains(parameters, name) && parameterForm.MatchString(name):
			return fmt.Errorf("there is no parameter %s: the parameters are %s", name, strings.Join(parameters, ", "))
		case !slices.Contains(parameters, name):
			return fmt.Errorf("there is an unknown parameter: the parameters are %s", strings.Join(parameters, ", "))
		case len(values) > 1 && name != "addr":
			return fmt.Errorf("the parameter %s is given %d times: give it once", name, len(values))
		case slices.Contains(values, ""):
			return fmt.Errorf("the parameter %s is empty: give it a value or leave it out", name)
		}
	}
	return nil
}

func (p *params) sentinel(o *rueidis.ClientOption) error {
	s := &o.Sentinel
	s.MasterSet, s.Username, s.Password = p.Get("master_set"), p.Get("sentinel_user"), p.Get("sentinel_password")
	if s.MasterSet == "" && (s.Username != "" || s.Password != "") {
		return errors.New("sentinel_user and sentinel_password need master_set, the name of the set of servers that the Sentinels watch: add it, or leave them out")
	}
	if s.MasterSet != "" {
		s.TopologyRefreshInterval = 5 * time.Second
	}
	return nil
}

func (p *params) addresses(o *rueidis.ClientOption, hosts []string) error {
	port := "6379"
	if o.Sentinel.MasterSet != "" {
		port = "26379"
	}
	for _, host := range append(hosts, p.Values["addr"]...) {
		u, err := url.Parse("redis://" + host)
		if err != nil || u.Hostname() == "" || u.Host != host {
			return fmt.Errorf("a server is missing, or its address is malformed: %w", errForm)
		}
		at := port
		if u.Port() != "" {
			at = u.Port()
		}
		if n, err := strconv.ParseUint(at, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("the port of a server is not a number from 1 to 65535: %w", errForm)
		}
		o.InitAddress = append(o.InitAddress, net.JoinHostPort(u.Hostname(), at))
	}
	if o.SelectDB != 0 && len(o.InitAddress) > 1 && o.Sentinel.MasterSet == "" {
		return fmt.Errorf("a cluster has no database %d: write /0, or add master_set if the addresses are those of Sentinels", o.SelectDB)
	}
	return nil
}

func (p *params) tls(o *rueidis.ClientOption, on bool) error {
	ca, cert, key := p.Get("tls_ca"), p.Get("tls_cert"), p.Get("tls_key")
	if !on {
		if ca+cert+key != "" {
			return errors.New("tls_ca, tls_cert and tls_key need a rediss:// URL: write rediss://, or leave them out")
		}
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("tls_ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("tls_ca: %s contains no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("tls_cert and tls_key must be given together: give both, or neither")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	o.TLSConfig = c
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.TLSConfig = c
	}
	return nil
}

func (p *params) config() (cfg Config, err error) {
	cfg.Prefix = p.Get("prefix")
	if text := p.Get("replicas"); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return cfg, fmt.Errorf("replicas is %q: write a number, 0 or more", text)
		}
		cfg.Replicas = int(n)
	}
	if text := p.Get("flushed"); text != "" {
		if cfg.Flushed, err = strconv.ParseBool(text); err != nil {
			return cfg, fmt.Errorf("flushed is %q: write true or false", text)
		}
	}
	if text := p.Get("replica_timeout"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return cfg, fmt.Errorf("replica_timeout is %q: write a duration such as 500ms or 2s", text)
		}
		cfg.ReplicaTimeout = d
	}
	if text := p.Get("accept_risks"); text != "" {
		cfg.AcceptRisks = strings.Split(text, ",")
	}
	return cfg, cfg.check()
}
