// Package storeurl opens the store that a URL names, as every command with a store
// does: sqlite:PATH, or the URL of a PostgreSQL, MySQL or Redis server.
package storeurl

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/private"
	"github.com/spf13/cobra"
)

// A URL says where records are kept.
type URL struct {
	Engine string // SQLite, Postgres, MySQL or Redis
	Path   string // of the SQLite file, absolute
	server string // another engine's URL, without its password
	Source string // what another engine's driver is told
}

// The engines of stores in SQL databases, as sqlstore.Migrations names them.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
	MySQL    = "mysql"
)

// String returns the URL without its password.
func (u URL) String() string {
	if u.Engine == SQLite {
		return u.Engine + ":" + u.Path
	}
	return u.server
}

// Forms lists what a store URL may be, for messages.
const Forms = "sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, mysql://USER:PASSWORD@HOST/DATABASE or redis://USER:PASSWORD@HOST:PORT"

// schemeForm is what a scheme can be that is worth repeating.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+-]{0,15}$`)

// Parse reads sqlite:PATH or sqlite://PATH, the path being taken as it is, or the
// URL of a server. Its errors do not repeat the URL, which may hold a password.
func Parse(raw string) (URL, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok || !schemeForm.MatchString(scheme) {
		return URL{}, cli.Usagef("the store URL has no scheme: write sqlite: before the path of the file, or %s", Forms)
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
	}
	return URL{}, cli.Usagef("stores of the scheme %q are not supported: write %s", scheme, Forms)
}

func parseSQLite(path string) (URL, error) {
	path = strings.TrimPrefix(path, "//")
	switch {
	case path == "":
		return URL{}, cli.Usagef("the store URL names no file: write sqlite:PATH")
	case path == ":memory:":
		return URL{}, cli.Usagef("a store in memory forgets everything with the process: write sqlite:PATH with the path of a file")
	case strings.ContainsRune(path, 0):
		return URL{}, cli.Usagef("the path of the store holds a NUL byte")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return URL{}, fmt.Errorf("find the store's file: %w", err)
	}
	return URL{Engine: SQLite, Path: path}, nil
}

func parseServer(engine, raw string) (URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") == "" {
		return URL{}, cli.Usagef("the store URL names no server and database: write %s", Forms)
	}
	shown := *u
	shown.RawQuery, shown.Fragment = "", ""
	s := URL{Engine: engine, server: shown.Redacted(), Source: raw}
	if engine == MySQL {
		s.Source, err = mysqlDSN(u)
	}
	return s, err
}

// mysqlDSN writes a URL as the driver reads it.
func mysqlDSN(u *url.URL) (string, error) {
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return "", cli.Usagef("the parameters of the store URL are not those of its driver")
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

// FromEnv lets a command, or those below it, whose first argument is the URL of a
// store take it from the environment instead.
func FromEnv(cmd *cobra.Command) *cobra.Command {
	for _, under := range cmd.Commands() {
		FromEnv(under)
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
			err = cli.Usagef("%w, or set %s", err, cli.EnvName("store"))
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
	url, file := os.Getenv(cli.EnvName("store")), os.Getenv(cli.EnvName("store-file"))
	switch {
	case url != "" && file != "":
		return nil, cli.Usagef("%s and %s are set: leave one out", cli.EnvName("store"), cli.EnvName("store-file"))
	case file != "":
		var err error
		if url, err = ReadFile(file, nil); err != nil {
			return nil, err
		}
	case url == "":
		return args, nil
	}
	return append([]string{url}, args...), nil
}

// ErrBoth is the mistake of a command line with both --store and --store-file.
var ErrBoth = cli.Usagef("--store (%s) and --store-file (%s) are given: leave one out", cli.EnvName("store"), cli.EnvName("store-file"))

// ReadFile reads the URL of a store from a file, which holds nothing else.
func ReadFile(path string, acceptRisks []string) (string, error) {
	text, err := private.Read(path, acceptRisks)
	if err != nil {
		return "", fmt.Errorf("read the store URL: %w", err)
	}
	raw := strings.TrimSpace(string(text))
	if raw == "" || strings.ContainsAny(raw, "\r\n\x00") {
		return "", fmt.Errorf("read the store URL: %s does not hold one line: write the URL and nothing else", path)
	}
	return raw, nil
}
