package dialect_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

func load(text string) (dialect.Queries, error) {
	d := dialect.SQLite
	d.SQL = fstest.MapFS{"inbox.sql": {Data: []byte(text)}}
	return d.Queries("inbox.sql")
}

func TestQueriesAreFoundByName(t *testing.T) {
	queries, err := load("-- head\n-- name: one\nSELECT 1\n  -- a remark\nFROM inbox_messages;\n\n-- about two\n-- name: two \nSELECT ';--';\n")
	require.NoError(t, err)
	require.Equal(t, dialect.Queries{"one": "SELECT 1\nFROM \"inbox_messages\"", "two": "SELECT ';--'"}, queries)
	require.NoError(t, queries.Require("one", "two"))
	err = queries.Require("two", "three", "four")
	require.ErrorContains(t, err, "three, four")

	queries, err = load("-- name: first\nSELECT 1") // on the first line as well
	require.NoError(t, err)
	require.Equal(t, dialect.Queries{"first": "SELECT 1"}, queries)
}

func TestQueriesRefuseWhatWouldGoUnnoticed(t *testing.T) {
	for _, text := range []string{"-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;", "-- name: a\n-- name: b\nSELECT 1;", "-- name: a\n-- only a remark\n;"} {
		_, err := load(text)
		require.ErrorContains(t, err, "is empty or stands twice", text)
	}
	_, err := dialect.SQLite.Queries("nowhere.sql")
	require.ErrorContains(t, err, "nowhere.sql")
}
