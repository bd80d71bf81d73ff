package natsstore

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/stores/internal/serverurl"
)

// A URL is the parsed URL of a store.
type URL struct {
	// Client has the options of the connection whose account has the stream. It connects
	// again for as long as it takes.
	Client nats.Options

	// System has the options of the connection to the system account, for Config.System. It
	// is nil if the URL names no user of that account.
	System *nats.Options

	// Config is the Config of the store, without a connection to the system account.
	Config Config

	// SecretFiles are the files with secrets that the URL names.
	SecretFiles []string
}

// parameters are the names of a URL's parameters. Each may be given once.
var parameters = []string{
	"accept_risks", "clock_skew", "creds", "replicas", "system_creds", "system_password", "system_user",
	"timeout", "tls_ca", "tls_cert", "tls_key",
}

// ParseURL parses the URL of a store. The errors do not repeat a password or a token.
//
//	nats://user:password@host:4222            one server; the port defaults to 4222
//	nats://token@host:4222                    the same with a token
//	nats://host1,host2,host3/shop?replicas=3  servers of a cluster, and the stream "shop"
//	tls://…                                   the same with TLS
//
// The path is Config.Stream, by default "onlyonce". These parameters are also those of the
// Config: replicas, clock_skew and timeout (durations such as 500ms), and accept_risks,
// whose names are separated by commas. The others are creds, a file with the credentials of
// a user, instead of the user in the URL; system_user and system_password, or system_creds,
// for a user of the system account, which can see the sync_interval of the servers; and for
// tls the PEM files tls_ca, with the certificate authorities to trust instead of the
// system's, and tls_cert and tls_key, for servers that require a client certificate.
//
// Special characters in names, passwords and tokens must be escaped as in any URL: @ is
// %40, / is %2F.
func ParseURL(raw string) (*URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("natsstore: invalid URL of the store: %w", err)
	}
	return u, nil
}

var errForm = errors.New("write it as nats://USER:PASSWORD@HOST:4222/onlyonce, with the special characters of the password escaped")

// streamForm matches the names of streams that a URL may have. It is narrower than what the
// server takes, so that no part of a password passes for a name.
var streamForm = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)

func parseURL(raw string) (*URL, error) {
	parsed, ok := serverurl.Parse(raw, "nats", "tls")
	if !ok {
		return nil, errForm
	}
	p := parsed.Params
	if err := p.Check(parameters, ""); err != nil {
		return nil, err
	}
	if !streamForm.MatchString(parsed.Path) {
		return nil, errors.New("the text after the first / is not the name of a stream, which has letters, digits, - and _ only: write /onlyonce or leave it out, and escape a / in the password as %2F")
	}
	o := nats.GetDefaultOptions()
	o.Name, o.MaxReconnect, o.ReconnectWait, o.IgnoreAuthErrorAbort = "onlyonce", -1, 250*time.Millisecond, true
	for _, host := range parsed.Hosts {
		address, err := serverurl.Address(host, "4222", errForm)
		if err != nil {
			return nil, err
		}
		o.Servers = append(o.Servers, parsed.Scheme+"://"+address)
	}
	var err error
	if o.TLSConfig, err = parsed.TLS("tls"); err != nil {
		return nil, err
	}
	o.Secure = o.TLSConfig != nil
	u := &URL{Client: o}
	if u.Config, err = config(parsed.Path, p); err != nil {
		return nil, err
	}
	if key := p.Get("tls_key"); key != "" {
		u.SecretFiles = append(u.SecretFiles, key)
	}
	system := o
	user, password := p.Get("system_user"), p.Get("system_password")
	if password != "" && user == "" {
		return nil, errors.New("system_password needs system_user, a user of the system account: add it, or leave the password out")
	}
	if user != "" || p.Get("system_creds") != "" {
		if err := u.login(&system, login{user: user, password: password, file: p.Get("system_creds"), by: "system_creds", instead: "system_user"}); err != nil {
			return nil, err
		}
		u.System = &system
	}
	l := login{user: parsed.User.Username(), file: p.Get("creds"), by: "creds", instead: "a user or a token before the @"}
	if l.password, ok = parsed.User.Password(); !ok {
		l.user, l.token = "", l.user
	}
	return u, u.login(&u.Client, l)
}

// A login is a way for a client to authenticate.
type login struct {
	user, password, token string
	file                  string // with credentials
	by, instead           string // the setting that names the file, and the one that names the user
}

func (u *URL) login(o *nats.Options, l login) error {
	o.User, o.Password, o.Token = l.user, l.password, l.token
	if l.file == "" {
		return nil
	}
	if l.user+l.token != "" {
		return fmt.Errorf("%s and %s are both given: leave one out", l.by, l.instead)
	}
	if _, err := os.Stat(l.file); err != nil {
		return fmt.Errorf("%s: %w", l.by, err)
	}
	u.SecretFiles = append(u.SecretFiles, l.file)
	return nats.UserCredentials(l.file)(o)
}

func config(stream string, p serverurl.Params) (cfg Config, err error) {
	cfg.Stream, cfg.AcceptRisks = stream, p.List("accept_risks")
	if cfg.Replicas, err = p.Number("replicas"); err != nil {
		return cfg, err
	}
	if cfg.ClockSkew, err = p.Duration("clock_skew"); err != nil {
		return cfg, err
	}
	if cfg.Timeout, err = p.Duration("timeout"); err != nil {
		return cfg, err
	}
	return cfg, cfg.check()
}
