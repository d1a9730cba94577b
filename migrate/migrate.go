// Package migrate creates and changes the library's tables by the migrations that a dialect
// carries. The library itself never runs DDL: call this from a deployment step, or print the files
// for a tool of your own.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

// Up brings the tables to the version that this release works on. Running it twice, or from
// several processes at once, is safe: on Postgres goose's table locker serialises them, on SQLite
// the loser of a step runs again. A configured schema must exist.
func Up(ctx context.Context, db *sql.DB, d dialect.Dialect) error {
	p, err := provider(db, d)
	if err != nil {
		return err
	}
	err = locked(ctx, db, d, func() error {
		_, err := p.Up(ctx)
		return err
	})
	if d.Name == dialect.SQLite.Name {
		// No lock can be held here: SQLite has one writer, and goose must be it. When another
		// process migrates at the same time, each step is still one transaction, so the loser's
		// is rolled back whole and its next run finds the step done.
		for try := 0; err != nil && try < 3 && ctx.Err() == nil; try++ {
			_, err = p.Up(ctx)
		}
	}
	return wrap("up", err)
}

// Down takes everything back, newest first. The messages in the tables are lost.
func Down(ctx context.Context, db *sql.DB, d dialect.Dialect) error {
	p, err := provider(db, d)
	if err != nil {
		return err
	}
	return wrap("down", locked(ctx, db, d, func() error {
		_, err := p.DownTo(ctx, 0)
		return err
	}))
}

// FS gives the migrations in goose's format with the configured table names in place, for a
// migration tool of your own.
func FS(d dialect.Dialect) (fs.FS, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	files, err := fs.Glob(d.Migrations, "*.sql")
	if err != nil {
		return nil, err
	}
	tree := fstest.MapFS{}
	for _, name := range files {
		text, err := fs.ReadFile(d.Migrations, name)
		if err != nil {
			return nil, err
		}
		tree[name] = &fstest.MapFile{Data: []byte(d.Names().Rewrite(string(text)))}
	}
	return tree, nil
}

// Print gives the statements of [Up] as one text.
func Print(d dialect.Dialect) (string, error) {
	tree, err := FS(d)
	if err != nil {
		return "", err
	}
	files, err := fs.Glob(tree, "*.sql")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range files {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return "", err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		fmt.Fprintf(&out, "-- %s\n%s\n", name, strings.TrimSpace(strings.ReplaceAll(up, "-- +goose Up\n", "")))
	}
	return out.String(), nil
}

func provider(db *sql.DB, d dialect.Dialect) (*goose.Provider, error) {
	if db == nil {
		return nil, errors.New("migrate: the database is nil; pass an open *sql.DB")
	}
	tree, err := FS(d)
	if err != nil {
		return nil, err
	}
	opts := []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(table(d, "_history")),
	}
	p, err := goose.NewProvider(goose.Dialect(d.Name), db, tree, opts...)
	return p, wrap("prepare", err)
}

// locked runs fn while no other process migrates. It is a lock in a table and not the session's
// advisory lock, which breaks behind a pooler. It is taken here and not by goose's provider, which
// would ask for another connection while it holds one, and so wait for ever in a pool of one.
func locked(ctx context.Context, db *sql.DB, d dialect.Dialect, fn func() error) (err error) {
	if d.Name != dialect.Postgres.Name {
		return fn()
	}
	locker, err := lock.NewPostgresTableLocker(lock.WithTableName(table(d, "_lock")))
	if err != nil {
		return err
	}
	if err := locker.Lock(ctx, db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Unlock(context.WithoutCancel(ctx), db)) }()
	return fn()
}

// table names a table of goose's beside our own.
func table(d dialect.Dialect, suffix string) string {
	names := d.Names()
	if names.Schema != "" {
		return names.Schema + "." + names.Version + suffix
	}
	return names.Version + suffix
}

func wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("migrate: %s: %w", step, err)
}
