package main

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// A storeURL says where records are kept.
type storeURL struct {
	engine string // as sqlstore.Migrations names it
	path   string // of the SQLite file, absolute
	server string // another engine's URL, without its password
	source string // what another engine's driver is told
}

const (
	engineSQLite   = "sqlite"
	enginePostgres = "postgres"
	engineMySQL    = "mysql"
)

func (u storeURL) String() string {
	if u.engine == engineSQLite {
		return u.engine + ":" + u.path
	}
	return u.server
}

// storeForms is what a store URL may be.
const storeForms = "sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or mysql://USER:PASSWORD@HOST/DATABASE"

// parseStoreURL reads sqlite:PATH or sqlite://PATH, the path being taken as it
// is, or the URL of a server. Its errors do not repeat the URL, which may hold a
// password.
func parseStoreURL(raw string) (storeURL, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok || strings.ContainsAny(scheme, `/\.`) {
		return storeURL{}, usagef("the store URL has no scheme: write sqlite: before the path of the file, or %s", storeForms)
	}
	switch scheme {
	case "sqlite":
		return parseSQLite(rest)
	case "postgres", "postgresql":
		return parseServer(enginePostgres, raw)
	case "mysql", "mariadb":
		return parseServer(engineMySQL, raw)
	}
	return storeURL{}, usagef("stores of the scheme %q are not supported: write %s", scheme, storeForms)
}

func parseSQLite(path string) (storeURL, error) {
	path = strings.TrimPrefix(path, "//")
	switch {
	case path == "":
		return storeURL{}, usagef("the store URL names no file: write sqlite:PATH")
	case path == ":memory:":
		return storeURL{}, usagef("a store in memory forgets everything with the process: write sqlite:PATH with the path of a file")
	case strings.ContainsRune(path, 0):
		return storeURL{}, usagef("the path of the store holds a NUL byte")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return storeURL{}, fmt.Errorf("find the store's file: %w", err)
	}
	return storeURL{engine: engineSQLite, path: path}, nil
}

func parseServer(engine, raw string) (storeURL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") == "" {
		return storeURL{}, usagef("the store URL names no server and database: write %s", storeForms)
	}
	shown := *u
	shown.RawQuery, shown.Fragment = "", ""
	s := storeURL{engine: engine, server: shown.Redacted(), source: raw}
	if engine == engineMySQL {
		s.source, err = mysqlDSN(u)
	}
	return s, err
}

// mysqlDSN writes a URL as the driver reads it.
func mysqlDSN(u *url.URL) (string, error) {
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return "", usagef("the parameters of the store URL are not those of its driver")
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
