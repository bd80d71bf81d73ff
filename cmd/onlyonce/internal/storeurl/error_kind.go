package storeurl

import (
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onlyonce-go/onlyonce"
	"github.com/redis/rueidis"
	sqlite3 "modernc.org/sqlite/lib"
)

// An ErrorKind says what an error of a store means for an operator.
type ErrorKind string

// The kinds of errors.
const (
	Unavailable ErrorKind = "unavailable" // the store did not respond, or said that it is not able to work
	Full        ErrorKind = "full"        // there is no room for more
	ReadOnly    ErrorKind = "read_only"   // nothing can be written
	Corrupt     ErrorKind = "corrupt"     // a record or the database can't be read
	OtherError  ErrorKind = "other"       // the server understood the call and rejected it
)

// ErrorKinds has all of them.
var ErrorKinds = []ErrorKind{Unavailable, Full, ReadOnly, Corrupt, OtherError}

// KindOf returns the kind of a store's error. An error that no server has returned counts
// as unavailable.
func KindOf(err error) ErrorKind {
	if errors.Is(err, onlyonce.ErrCorrupt) {
		return Corrupt
	}
	var postgres interface{ SQLState() string }
	var mariadb *mysql.MySQLError
	var sqlite interface{ Code() int }
	var redis *rueidis.RedisError
	var nats *jetstream.APIError
	switch {
	case errors.As(err, &postgres):
		return ofPostgres(postgres.SQLState())
	case errors.As(err, &mariadb):
		return ofMySQL(mariadb.Number)
	case errors.As(err, &sqlite):
		return ofSQLite(sqlite.Code())
	case errors.As(err, &redis):
		return ofRedis(redis.Error())
	case errors.As(err, &nats):
		return ofNATS(nats)
	case strings.Contains(err.Error(), "mvcc: database space exceeded"): // etcd's, whose type depends on the call
		return Full
	}
	return Unavailable
}

func ofPostgres(state string) ErrorKind {
	switch state {
	case "53100": // disk_full
		return Full
	case "25006": // read_only_sql_transaction
		return ReadOnly
	case "XX001", "XX002": // data_corrupted, index_corrupted
		return Corrupt
	}
	switch state[:min(len(state), 2)] {
	case "08", "53", "57", "58": // the connection, resources, the operator, the system
		return Unavailable
	}
	return OtherError
}

func ofMySQL(number uint16) ErrorKind {
	switch number {
	case 1021, 1114: // ER_DISK_FULL, ER_RECORD_FILE_FULL
		return Full
	case 1290, 1792, 1836, 3989: // --read-only, and transactions and servers that are
		return ReadOnly
	case 1034, 1194, 1195, 1712: // tables and indexes that are marked as crashed or corrupt
		return Corrupt
	case 1040, 1053, 1077, 1205, 1927, 2006, 2013, 3024, 3169: // connections, shutdowns, time-outs
		return Unavailable
	}
	return OtherError
}

func ofSQLite(code int) ErrorKind {
	switch code & 0xff { // of an extended code
	case sqlite3.SQLITE_FULL:
		return Full
	case sqlite3.SQLITE_READONLY:
		return ReadOnly
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return Corrupt
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return Unavailable
	}
	return OtherError
}

func ofRedis(text string) ErrorKind {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "OOM":
		return Full
	case "READONLY", "MISCONF": // MISCONF: the server can't save, and takes no writes
		return ReadOnly
	case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "BUSY":
		return Unavailable
	}
	return OtherError
}

func ofNATS(err *jetstream.APIError) ErrorKind {
	switch {
	case strings.Contains(err.Description, "maximum bytes exceeded"), strings.Contains(err.Description, "maximum messages exceeded"), strings.Contains(err.Description, "insufficient"):
		return Full
	case err.Code >= 500:
		return Unavailable
	}
	return OtherError
}
