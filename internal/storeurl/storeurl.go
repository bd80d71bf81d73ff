// Package storeurl opens the store that a URL names, for the commands of onlyonce and for
// adapters that are configured by text: sqlite:PATH, or the URL of a PostgreSQL, MySQL, Redis, NATS or etcd server, or of a DynamoDB table.
package storeurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// A mistake is in the URL or the settings of a store. It is for whoever wrote them.
type mistake struct{ error }

// Misuse marks the error as a mistake of whoever started the program.
func (mistake) Misuse() {}

func (m mistake) Unwrap() error { return m.error }

func mistakef(format string, args ...any) error { return mistake{fmt.Errorf(format, args...)} }

// A URL is the parsed URL of a store.
type URL struct {
	Engine string // SQLite, Postgres, MySQL, Redis, NATS, Etcd or DynamoDB
	Path   string // of the SQLite file, absolute
	server string // another engine's URL, without its password or token
	Source string // the data source name for another engine's driver
}

// The engines of stores in SQL databases, as sqlstore.Migrations names them.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
	MySQL    = "mysql"
)

// The engines of stores that keep only records.
const (
	Redis    = "redis"
	NATS     = "nats"
	Etcd     = "etcd"
	DynamoDB = "dynamodb"
)

// RecordsOnly returns the name of the engine of a store that keeps only records, and
// "" for a SQL database.
func (u URL) RecordsOnly() string {
	return map[string]string{Redis: "Redis", NATS: "NATS", Etcd: "etcd", DynamoDB: "DynamoDB"}[u.Engine]
}

// String returns the URL without its password or token.
func (u URL) String() string {
	if u.Engine == SQLite {
		return u.Engine + ":" + u.Path
	}
	return u.server
}

// Forms lists the forms of a store URL, for messages.
const Forms = "sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, mysql://USER:PASSWORD@HOST/DATABASE, redis://USER:PASSWORD@HOST:PORT, nats://USER:PASSWORD@HOST:PORT/STREAM, etcd://USER:PASSWORD@HOST:PORT/PREFIX or dynamodb://REGION/TABLE"

// schemeForm matches a scheme that an error may repeat.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+-]{0,15}$`)

// Parse parses sqlite:PATH or sqlite://PATH, whose path is taken as it is, or the URL
// of a server. Its errors do not repeat the URL, which may contain a password.
func Parse(raw string) (URL, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok || !schemeForm.MatchString(scheme) {
		return URL{}, mistakef("the store URL has no scheme: write sqlite: before the path of the file, or %s", Forms)
	}
	switch scheme {
	case "sqlite":
		return parseSQLite(rest)
	case "postgres", "postgresql":
		return parseServer(Postgres, raw)
	case "mysql", "mariadb":
		return parseServer(MySQL, raw)
	case "redis", "rediss":
		return parseRedis(scheme, raw)
	case "nats", "tls":
		return parseNATS(scheme, raw)
	case "etcd", "etcds":
		return parseEtcd(scheme, raw)
	case "dynamodb":
		return parseDynamo(raw)
	}
	return URL{}, mistakef("stores of the scheme %q are not supported: write %s", scheme, Forms)
}

func parseSQLite(path string) (URL, error) {
	path = strings.TrimPrefix(path, "//")
	switch {
	case path == "":
		return URL{}, mistakef("the store URL names no file: write sqlite:PATH")
	case path == ":memory:":
		return URL{}, mistakef("a store in memory is lost when the process ends: write sqlite:PATH with the path of a file")
	case strings.ContainsRune(path, 0):
		return URL{}, mistakef("the path of the store contains a NUL byte")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return URL{}, fmt.Errorf("find the store's file: %w", err)
	}
	return URL{Engine: SQLite, Path: path}, nil
}

func parseServer(engine, raw string) (URL, error) {
	scheme, _, _ := strings.Cut(raw, ":")
	u, err := ParseServer(raw, Forms, scheme)
	if err == nil && strings.Trim(u.Path, "/") == "" {
		err = errors.New("the URL names no database: write " + Forms)
	}
	// pgx takes the first @ for the end of the password, and would look up the rest as a host.
	beforeQuery, _, _ := strings.Cut(raw, "?")
	if err == nil && (misplaced(u) || engine == Postgres && strings.Count(beforeQuery, "@") > 1) {
		err = errors.New("the URL has an @ or a # in the wrong place: escape special characters in the password, such as @ as %40, # as %23, / as %2F and ? as %3F")
	}
	if err != nil {
		return URL{}, mistakef("the store URL can't be used: %w", err)
	}
	shown := *u
	shown.RawQuery, shown.Fragment = "", ""
	s := URL{Engine: engine, server: shown.Redacted(), Source: raw}
	if engine == MySQL {
		s.Source, err = mysqlDSN(u)
	}
	return s, err
}

// misplaced reports whether the path or the parameters of a URL look like the rest of a
// password that is not escaped. Its beginning would be shown as a host and a database.
func misplaced(u *url.URL) bool {
	for name := range u.Query() {
		if strings.Contains(name, "@") {
			return true
		}
	}
	return u.Fragment != "" || strings.Contains(u.Path, "@")
}

func parseRedis(scheme, raw string) (URL, error) {
	o, _, err := redisstore.ParseURL(raw)
	if err != nil {
		return URL{}, mistakef("the store URL can't be used: %w", err)
	}
	user := ""
	switch {
	case o.Password != "":
		user = url.UserPassword(o.Username, "xxxxx").String() + "@"
	case o.Username != "":
		user = url.User(o.Username).String() + "@"
	}
	shown := scheme + "://" + user + strings.Join(o.InitAddress, ",")
	if o.SelectDB != 0 {
		shown += "/" + strconv.Itoa(o.SelectDB)
	}
	return URL{Engine: Redis, server: shown, Source: raw}, nil
}

// mysqlDSN returns the data source name that the driver needs for a URL.
func mysqlDSN(u *url.URL) (string, error) {
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return "", mistakef("the driver does not know the parameters of the store URL")
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
	cfg.DBName = strings.Trim(u.Path, "/")
	return cfg.FormatDSN(), nil
}

// ReadFile reads the URL of a store from a file that contains nothing else.
func ReadFile(path string, acceptRisks []string) (string, error) {
	text, err := private.Read(path, acceptRisks)
	if err != nil {
		return "", fmt.Errorf("read the store URL: %w", err)
	}
	raw := strings.TrimSpace(string(text))
	if raw == "" || strings.ContainsAny(raw, "\r\n\x00") {
		return "", fmt.Errorf("read the store URL: %s does not contain exactly one line: write the URL and nothing else", path)
	}
	return raw, nil
}

// ParseServer parses the URL of a server, which has one of the schemes, a host, and a
// port from 1 to 65535 or none. Its error says to write form, and does not repeat the
// URL, which may contain a password.
func ParseServer(text, form string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("this is not the URL of a server: write %s", form)
	case u.Port() != "" && !isPort(u.Port()):
		return nil, fmt.Errorf("the port of the server is not a number from 1 to 65535: write %s", form)
	}
	return u, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
