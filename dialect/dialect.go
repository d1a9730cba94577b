// Package dialect says what one database means to the stores: its native SQL, its migrations
// and the classes of its errors.
//
// A dialect is a value, not an implementation: a directory of named SQL statements, a directory
// of numbered migrations and one function that classifies errors. [Postgres] and [SQLite] are
// built in. The package imports no driver; it recognises a driver's errors by their methods.
package dialect

import (
	"errors"
	"fmt"
	"io/fs"
)

// Dialect describes one database. The zero value is no dialect and fails [Dialect.Validate].
// Copy and adapt it freely; the With methods return changed copies.
type Dialect struct {
	// Name is the dialect's name as goose spells it: "postgres", "sqlite3".
	Name string
	// SQL holds inbox.sql and outbox.sql: statements in the database's own language, each
	// below a line "-- name: NAME". They name the default tables; see [Names].
	SQL fs.FS
	// Migrations holds the numbered migrations in goose's format.
	Migrations fs.FS
	// Classify gives the class of an error that the database's driver returned.
	Classify func(error) Class

	names Names
}

// SchemaVersion is the version of the tables that this release of the library works on: the
// number of its newest migration.
const SchemaVersion = 1

// WithNames returns the dialect with its tables under other names. Zero fields keep their
// default. A name that is not allowed is reported by [Dialect.Validate].
func (d Dialect) WithNames(n Names) Dialect {
	d.names = n
	return d
}

// Names returns the names of the tables, with defaults filled in.
func (d Dialect) Names() Names { return d.names.withDefaults() }

// Validate reports every fault of the dialect at once.
func (d Dialect) Validate() error {
	if d.Name == "" || d.SQL == nil || d.Migrations == nil || d.Classify == nil {
		return errors.New("dialect: unknown dialect (zero value); use dialect.Postgres or dialect.SQLite")
	}
	err := d.Names().validate()
	if d.Name == SQLite.Name && d.names.Schema != "" {
		err = errors.Join(err, fmt.Errorf("dialect: Names.Schema is %q, but SQLite has no schemas; leave it empty", clip(d.names.Schema)))
	}
	return err
}
