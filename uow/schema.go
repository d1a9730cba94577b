package uow

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

const remedy = "run the migrations: migrate.Up, or the files of migrate.Print"

// CheckSchema compares the version of the tables, which a query reads, with the one that this release
// works on, and runs probe, a query that reads no row of the store's own table. It is for the
// stores' checks at the start.
func (w *UnitOfWork) CheckSchema(ctx context.Context, query, probe string) error {
	var version *int
	err := w.Do(Detach(ctx), func(ctx context.Context) error {
		if err := w.scalar(ctx, query, &version); err != nil {
			return err
		}
		return w.scalar(ctx, probe)
	})
	switch {
	case w.Class(err) == dialect.Missing:
		return fmt.Errorf("the tables are not there (%w); %s", err, remedy)
	case err != nil:
		return fmt.Errorf("the tables could not be checked, is this database one of dialect %s?: %w", w.dialect.Name, err)
	case version == nil:
		return fmt.Errorf("the tables have no version; %s", remedy)
	case *version < dialect.SchemaVersion:
		return fmt.Errorf("the tables are at version %d, this release needs %d; %s", *version, dialect.SchemaVersion, remedy)
	case *version > dialect.SchemaVersion:
		return fmt.Errorf("the tables are at version %d, newer than the %d of this release; upgrade the library", *version, dialect.SchemaVersion)
	}
	return nil
}

// scalar reads the first row of a query.
func (w *UnitOfWork) scalar(ctx context.Context, query string, dest ...any) (err error) {
	conn, err := w.Conn(ctx)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
	}
	return rows.Err()
}
