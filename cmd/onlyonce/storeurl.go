package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
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

// schemeForm is what a scheme can be that is worth repeating.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+-]{0,15}$`)

// parseStoreURL reads sqlite:PATH or sqlite://PATH, the path being taken as it
// is, or the URL of a server. Its errors do not repeat the URL, which may hold a
// password.
func parseStoreURL(raw string) (storeURL, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok || !schemeForm.MatchString(scheme) {
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

// onStore lets a command, or those below it, whose first argument is the URL of a
// store take it from the environment instead.
func onStore(cmd *cobra.Command) *cobra.Command {
	for _, under := range cmd.Commands() {
		onStore(under)
	}
	if cmd.HasSubCommands() {
		return cmd
	}
	check, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		args, err := withStoreURL(args)
		if err != nil {
			return err
		}
		if err = check(cmd, args); err != nil && len(args) == 0 {
			err = usagef("%w, or set %s", err, envName("store"))
		}
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args, err := withStoreURL(args)
		if err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// storeLike is how an argument begins that is the URL of a store, right or wrong.
var storeLike = regexp.MustCompile(`^(sqlite:|[A-Za-z][A-Za-z0-9+.-]*://)`)

// withStoreURL puts the environment's store first, unless args begin with one.
func withStoreURL(args []string) ([]string, error) {
	if len(args) > 0 && storeLike.MatchString(args[0]) {
		return args, nil
	}
	url, file := os.Getenv(envName("store")), os.Getenv(envName("store-file"))
	switch {
	case url != "" && file != "":
		return nil, usagef("%s and %s are set: leave one out", envName("store"), envName("store-file"))
	case file != "":
		var err error
		if url, err = readStoreURL(file, nil); err != nil {
			return nil, err
		}
	case url == "":
		return args, nil
	}
	return append([]string{url}, args...), nil
}

// errBothStores is the mistake of naming a store twice.
var errBothStores = usagef("--store (%s) and --store-file (%s) are given: leave one out", envName("store"), envName("store-file"))

// readStoreURL reads the URL of a store from a file, which holds nothing else.
func readStoreURL(path string, acceptRisks []string) (string, error) {
	text, err := readPrivate(path, acceptRisks)
	if err != nil {
		return "", fmt.Errorf("read the store URL: %w", err)
	}
	raw := strings.TrimSpace(string(text))
	if raw == "" || strings.ContainsAny(raw, "\r\n\x00") {
		return "", fmt.Errorf("read the store URL: %s does not hold one line: write the URL and nothing else", path)
	}
	return raw, nil
}
