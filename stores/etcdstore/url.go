package etcdstore

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/onlyonce-go/onlyonce/stores/internal/serverurl"
)

// A URL is the parsed URL of a store.
type URL struct {
	// Client has the settings of the client, for clientv3.New. The client notices within
	// seconds that a member has gone silent, connects to a member within a second or two of
	// its return, and leaves it to the members how large a request may be. If the URL names
	// a user, clientv3.New logs in, for up to DialTimeout.
	Client clientv3.Config

	// Config is the Config of the store.
	Config Config

	// SecretFiles are the files with secrets that the URL names.
	SecretFiles []string
}

// parameters are the names of a URL's parameters. Each may be given once.
var parameters = []string{"accept_risks", "members", "timeout", "tls_ca", "tls_cert", "tls_key"}

// The settings of a client. etcd rejects a client that pings more often than every five
// seconds.
const (
	keepAlive     = 10 * time.Second
	keepAliveWait = 3 * time.Second
	mostSent      = 64 << 20
)

// reconnects is how a client connects again. By default, it waits for up to two minutes after
// a long outage.
var reconnects = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 3 * time.Second,
}

// ParseURL parses the URL of a store. The errors do not repeat a password.
//
//	etcd://user:password@host:2379            one member; the port defaults to 2379
//	etcd://host1,host2,host3/shop?members=3   members of a cluster, and the prefix "shop"
//	etcds://…                                 the same with TLS
//
// The path is Config.Prefix, by default "onlyonce". These parameters are also those of the
// Config: members, timeout (a duration such as 5s), and accept_risks, whose names are
// separated by commas. The others are for etcds: the PEM files tls_ca, with the certificate
// authorities to trust instead of the system's, and tls_cert and tls_key, for members that
// require a client certificate.
//
// Special characters in names and passwords must be escaped as in any URL: @ is %40, / is
// %2F.
func ParseURL(raw string) (*URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("etcdstore: invalid URL of the store: %w", err)
	}
	return u, nil
}

var errForm = errors.New("write it as etcd://USER:PASSWORD@HOST:2379/onlyonce, with the special characters of the password escaped")

// prefixForm matches the prefixes that a URL may have. It is narrower than what a Config
// takes, so that no part of a password passes for a prefix.
var prefixForm = regexp.MustCompile(`^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$`)

func parseURL(raw string) (*URL, error) {
	parsed, ok := serverurl.Parse(raw, "etcd", "etcds")
	if !ok {
		return nil, errForm
	}
	p := parsed.Params
	if err := p.Check(parameters, ""); err != nil {
		return nil, err
	}
	if !prefixForm.MatchString(parsed.Path) {
		return nil, errors.New("the text after the first / is not a prefix, which has letters, digits, ., - and _, and / between them: write /onlyonce or leave it out, and escape a / in the password as %2F")
	}
	scheme := map[string]string{"etcd": "http://", "etcds": "https://"}[parsed.Scheme]
	u := &URL{Client: clientv3.Config{
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveWait, MaxCallSendMsgSize: mostSent,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnects)},
	}}
	for _, host := range parsed.Hosts {
		address, err := serverurl.Address(host, "2379", errForm)
		if err != nil {
			return nil, err
		}
		u.Client.Endpoints = append(u.Client.Endpoints, scheme+address)
	}
	if parsed.User != nil {
		u.Client.Username = parsed.User.Username()
		u.Client.Password, _ = parsed.User.Password()
		if u.Client.Username == "" || u.Client.Password == "" {
			return nil, fmt.Errorf("the user or the password is missing: give both, or neither: %w", errForm)
		}
	}
	var err error
	if u.Client.TLS, err = parsed.TLS("etcds"); err != nil {
		return nil, err
	}
	if key := p.Get("tls_key"); key != "" {
		u.SecretFiles = append(u.SecretFiles, key)
	}
	u.Config.Prefix, u.Config.AcceptRisks = parsed.Path, p.List("accept_risks")
	if u.Config.Members, err = p.Number("members"); err != nil {
		return nil, err
	}
	if text := p.Get("members"); text != "" && u.Config.Members == 0 {
		return nil, fmt.Errorf("members is %q: write how many voting members the cluster must have, 1 or more, or leave it out for 1", text)
	}
	if u.Config.Timeout, err = p.Duration("timeout"); err != nil {
		return nil, err
	}
	u.Client.DialTimeout = u.Config.timeout()
	return u, u.Config.check()
}
