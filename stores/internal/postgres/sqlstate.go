package postgres

import (
	"errors"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// CodeLockTimeout is the SQLSTATE of a wait for a lock that took longer than lock_timeout.
const CodeLockTimeout = "55P03"

// Code returns the SQLSTATE of an error, which every driver's error of the server has, or
// "" if the error is not the server's.
func Code(err error) string {
	if err == nil { // most are: no memory for them
		return ""
	}
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

// Classify returns the class of an error by its SQLSTATE.
func Classify(err error) server.ErrorClass {
	switch code := Code(err); code {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return server.ClassConflict
	case "25P02": // in_failed_sql_transaction
		return server.ClassAborted
	case "57014", CodeLockTimeout, "25P04": // query_canceled, and transaction_timeout, which also ends a lone statement
		return server.ClassTimeout
	case "25P03": // idle_in_transaction_session_timeout
		return server.ClassLeftOpen
	case "54000", "22001", "22003": // program_limit_exceeded, and values that are too long or too large
		return server.ClassTooLarge
	case "25006": // read_only_sql_transaction
		return server.ClassReadOnly
	case "42883": // undefined_function
		if strings.Contains(err.Error(), identityPrefix) {
			return server.ClassOtherCluster
		}
		return server.ClassRejected
	case "":
		return server.ClassOther
	default:
		switch code[:min(len(code), 2)] {
		case "08", "53", "57", "58", "XX": // the connection, resources, the operator, the system, the server itself
			return server.ClassOther
		}
		return server.ClassRejected
	}
}

// EndsConnection reports whether a server that returns the SQLSTATE ends the connection:
// another connection may work.
func EndsConnection(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}
