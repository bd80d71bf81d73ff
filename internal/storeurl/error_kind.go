package storeurl

import (
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/redis/rueidis"
	sqlite3 "modernc.org/sqlite/lib"
)

// KindOf returns the kind of a store's error. An error that no server has returned counts
// as unavailable.
func KindOf(err error) promonce.ErrorKind {
	if errors.Is(err, onlyonce.ErrCorrupt) {
		return promonce.KindCorrupt
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
		return promonce.KindFull
	}
	return promonce.KindUnavailable
}

func ofPostgres(state string) promonce.ErrorKind {
	switch state {
	case "53100": // disk_full
		return promonce.KindFull
	case "25006": // read_only_sql_transaction
		return promonce.KindReadOnly
	case "XX001", "XX002": // data_corrupted, index_corrupted
		return promonce.KindCorrupt
	}
	switch state[:min(len(state), 2)] {
	case "08", "53", "57", "58": // the connection, resources, the operator, the system
		return promonce.KindUnavailable
	}
	return promonce.KindOther
}

func ofMySQL(number uint16) promonce.ErrorKind {
	switch number {
	case 1021, 1114: // ER_DISK_FULL, ER_RECORD_FILE_FULL
		return promonce.KindFull
	case 1290, 1792, 1836, 3989: // --read-only, and transactions and servers that are
		return promonce.KindReadOnly
	case 1034, 1194, 1195, 1712: // tables and indexes that are marked as crashed or corrupt
		return promonce.KindCorrupt
	case 1040, 1053, 1077, 1205, 1927, 2006, 2013, 3024, 3169: // connections, shutdowns, time-outs
		return promonce.KindUnavailable
	}
	return promonce.KindOther
}

func ofSQLite(code int) promonce.ErrorKind {
	switch code & 0xff { // of an extended code
	case sqlite3.SQLITE_FULL:
		return promonce.KindFull
	case sqlite3.SQLITE_READONLY:
		return promonce.KindReadOnly
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return promonce.KindCorrupt
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return promonce.KindUnavailable
	}
	return promonce.KindOther
}

func ofRedis(text string) promonce.ErrorKind {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "OOM":
		return promonce.KindFull
	case "READONLY", "MISCONF": // MISCONF: the server can't save, and takes no writes
		return promonce.KindReadOnly
	case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "BUSY":
		return promonce.KindUnavailable
	}
	return promonce.KindOther
}

func ofNATS(err *jetstream.APIError) promonce.ErrorKind {
	switch {
	case strings.Contains(err.Description, "maximum bytes exceeded"), strings.Contains(err.Description, "maximum messages exceeded"), strings.Contains(err.Description, "insufficient"):
		return promonce.KindFull
	case err.Code >= 500:
		return promonce.KindUnavailable
	}
	return promonce.KindOther
}
