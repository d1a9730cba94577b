package dialect

import (
	"embed"
	"io/fs"
)

//go:embed postgres sqlite
var files embed.FS

// Postgres is PostgreSQL 12 and later, over any driver whose errors have a SQLState method
// (lib/pq, pgx).
var Postgres = Dialect{
	Name:       "postgres",
	SQL:        sub("postgres"),
	Migrations: sub("postgres/migrations"),
	Classify:   classifyPostgres,
}

// SQLite is SQLite 3.42 and later, over modernc.org/sqlite. Open it with
// _txlock=immediate, a busy timeout and WAL: a transaction that reads first and writes later is
// refused at once, whatever its busy timeout, when another one wrote in between.
var SQLite = Dialect{
	Name:       "sqlite3",
	SQL:        sub("sqlite"),
	Migrations: sub("sqlite/migrations"),
	Classify:   classifySQLite,
}

func sub(dir string) fs.FS {
	tree, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the name is a constant, embedded above
	}
	return tree
}
