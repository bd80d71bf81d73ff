package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/stores/internal/serverurl"
)

// parameters are the names of a URL's parameters. Each may be given once, except addr.
var parameters = []string{
	"accept_risks", "addr", "flushed", "master_set", "prefix", "replica_timeout", "replicas",
	"sentinel_password", "sentinel_user", "tls_ca", "tls_cert", "tls_key",
}

// ParseURL reads the URL of a store: how a client reaches the servers, and the Config
// of the store, which refers to that as Config.Client. The errors do not repeat a password.
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
	cfg.Client = &o
	return o, cfg, nil
}

var errForm = errors.New("write it as redis://USER:PASSWORD@HOST:6379/0, with the special characters of the password escaped")

func parse(raw string) (o rueidis.ClientOption, cfg Config, err error) {
	u, ok := serverurl.Parse(raw, "redis", "rediss")
	if !ok {
		return o, cfg, errForm
	}
	if err := u.Params.Check(parameters, "addr"); err != nil {
		return o, cfg, err
	}
	if o.SelectDB, err = database(u.Path); err != nil {
		return o, cfg, err
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	o.DisableCache = true
	o.MaxFlushDelay = 20 * time.Microsecond
	if err := sentinel(&o, u.Params); err != nil {
		return o, cfg, err
	}
	if err := addresses(&o, append(u.Hosts, u.Params.Values["addr"]...)); err != nil {
		return o, cfg, err
	}
	if o.TLSConfig, err = u.TLS("rediss"); err != nil {
		return o, cfg, err
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.TLSConfig = o.TLSConfig
	}
	cfg, err = config(u.Params)
	return o, cfg, err
}

func database(path string) (int, error) {
	if path == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(path, 10, 16)
	if err != nil {
		return 0, errors.New("the text after the first / is not a database number: write /0 or leave it out, and escape a / in the password as %2F")
	}
	return int(n), nil
}

func sentinel(o *rueidis.ClientOption, p serverurl.Params) error {
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

func addresses(o *rueidis.ClientOption, hosts []string) error {
	port := "6379"
	if o.Sentinel.MasterSet != "" {
		port = "26379"
	}
	for _, host := range hosts {
		address, err := serverurl.Address(host, port, errForm)
		if err != nil {
			return err
		}
		o.InitAddress = append(o.InitAddress, address)
	}
	if o.SelectDB != 0 && len(o.InitAddress) > 1 && o.Sentinel.MasterSet == "" {
		return fmt.Errorf("a cluster has no database %d: write /0, or add master_set if the addresses are those of Sentinels", o.SelectDB)
	}
	return nil
}

func config(p serverurl.Params) (cfg Config, err error) {
	cfg.Prefix, cfg.AcceptRisks = p.Get("prefix"), p.List("accept_risks")
	if cfg.Replicas, err = p.Number("replicas"); err != nil {
		return cfg, err
	}
	if cfg.ReplicaTimeout, err = p.Duration("replica_timeout"); err != nil {
		return cfg, err
	}
	if text := p.Get("flushed"); text != "" {
		if cfg.Flushed, err = strconv.ParseBool(text); err != nil {
			return cfg, fmt.Errorf("flushed is %q: write true or false", text)
		}
	}
	return cfg, cfg.check()
}
