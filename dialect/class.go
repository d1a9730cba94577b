package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
)

// Class says what an error of the database means for the unit of work that met it.
type Class int

const (
	// Other is an error of the statement or of the data: it belongs to whoever sent the statement.
	Other Class = iota
	// Retryable is a serialization failure, a deadlock or a busy database: the same work in a
	// fresh transaction may succeed.
	Retryable
	// LockTimeout is a wait for a lock that reached its bound.
	LockTimeout
	// Infrastructure is a database that is unreachable, shutting down, out of resources or
	// read-only: nothing is wrong with the work.
	Infrastructure
	// Missing is a table or column that is not there: migrations have not run.
	Missing
)

// Connection reports whether err is a broken connection rather than an answer of the server.
// Every dialect shares it, because database/sql and net define these errors.
func Connection(err error) bool {
	var network net.Error
	if errors.As(err, &network) && error(network) == context.DeadlineExceeded { //nolint:errorlint // a dial that timed out "Is" it too
		network = nil // the caller's own deadline has the methods of a network error, but is none
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		network != nil
}

// classifyPostgres reads the SQLSTATE, which lib/pq and pgx both offer by a method.
// The codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
func classifyPostgres(err error) Class {
	var server interface{ SQLState() string }
	if !errors.As(err, &server) {
		return Other
	}
	switch code := server.SQLState(); {
	case code == "40001", code == "40P01":
		return Retryable
	case code == "55P03":
		return LockTimeout
	case code == "42P01", code == "42703", code == "3F000":
		return Missing
	case code == "08P01":
		return Other // a protocol violation: lib/pq's answer to a wrong number of arguments
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57P0"), code == "25006":
		return Infrastructure
	}
	return Other
}

// classifySQLite reads the result code, whose low byte is the class, from the method that
// modernc.org/sqlite offers. The codes: https://www.sqlite.org/rescode.html
func classifySQLite(err error) Class {
	var engine interface{ Code() int }
	if !errors.As(err, &engine) {
		return Other
	}
	const (
		generic, busy, locked, readOnly, ioError, full, cannotOpen = 1, 5, 6, 8, 10, 13, 14
	)
	switch engine.Code() & 0xff {
	case busy, locked:
		return Retryable
	case readOnly, ioError, full, cannotOpen:
		return Infrastructure
	case generic:
		for _, text := range []string{"no such table", "no such column", "has no column named"} {
			if strings.Contains(err.Error(), text) {
				return Missing
			}
		}
	}
	return Other
}
