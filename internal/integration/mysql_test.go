package integration

import (
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// mysqlServer is where tests make databases of their own.
var mysqlServer = sync.OnceValues(func() (string, error) {
	dsn := os.Getenv("ONLYONCE_MYSQL")
	if dsn == "" {
		dsn = "root@tcp(127.0.0.1:3306)/"
	}
	return dsn, reach("mysql", dsn)
})

// A mysqlDatabase is one in which a test has its tables.
type mysqlDatabase struct {
	dsn  string
	name string
}

// newMySQLDatabase makes a database, which is dropped at the end.
func newMySQLDatabase(t testing.TB) mysqlDatabase {
	t.Helper()
	dsn, err := mysqlServer()
	needs.Service(t, "MySQL or MariaDB", err)
	d := mysqlDatabase{dsn: dsn, name: "onlyonce_" + strings.ToLower(rand.Text())}
	makeFor(t, "mysql", dsn, "DATABASE "+d.name, "")
	return d
}

// config is that of a connection to the database.
func (d mysqlDatabase) config(t testing.TB) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DBName = d.name
	return cfg
}

func (d mysqlDatabase) connector(t testing.TB) driver.Connector {
	t.Helper()
	c, err := mysql.NewConnector(d.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pool opens a pool with settings such as "clientFoundRows=true", which is
// closed at the end.
func (d mysqlDatabase) pool(t testing.TB, settings ...string) *sql.DB {
	t.Helper()
	dsn := d.config(t).FormatDSN()
	for _, setting := range settings {
		if strings.Contains(dsn, "?") {
			dsn += "&" + setting
		} else {
			dsn += "?" + setting
		}
	}
	return openPool(t, "mysql", dsn)
}

// open opens a store in the database, with its own pool.
func (d mysqlDatabase) open(t testing.TB, settings ...string) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	return openMigrated(t, d.pool(t, settings...))
}

// tx is a store in the database, which then has a table of the caller's.
func (mysqlDatabase) tx(t *testing.T, store *sqlstore.Store, db *sql.DB) storetest.Tx[*sql.Tx] {
	t.Helper()
	makeOwn(t, db, "VARBINARY(255)")
	return ownRows(store, db, "?")
}

// mysqlSettings are those of a user's pool: none of them must matter.
var mysqlSettings = map[string][]string{
	"as it is":        nil,
	"with everything": {"clientFoundRows=true", "interpolateParams=true", "parseTime=true", "charset=latin1", "tx_isolation=%27SERIALIZABLE%27", "time_zone=%27-11:30%27"},
}

func TestMySQL_KeepsTheRules(t *testing.T) {
	t.Parallel()
	keepsTheRules(t, mysqlSettings, func(t *testing.T) recordPlace { return newMySQLDatabase(t) })
}
