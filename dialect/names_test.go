package dialect_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

func TestD2_NamesThatAreRefused(t *testing.T) {
	long := strings.Repeat("x", 41)
	for _, bad := range []string{
		"Inbox", "1box", "in-box", "in box", `in"box`, "in;box", "in.box", "in'box", "in\x00box", "b\u00f6x", "inbox\n", long, "--", "$1",
	} {
		for field, names := range map[string]dialect.Names{
			"Schema": {Schema: bad}, "Inbox": {Inbox: bad}, "Outbox": {Outbox: bad}, "Version": {Version: bad},
		} {
			require.ErrorContains(t, dialect.Postgres.WithNames(names).Validate(), "Names."+field, "%q", bad)
		}
	}
	for _, good := range []string{"a", "_", "a1_b", long[:40], "select", "order"} {
		require.NoError(t, dialect.Postgres.WithNames(dialect.Names{Schema: good, Inbox: good}).Validate(), good)
	}
}

func TestD4_NamesReportEveryFaultAtOnce(t *testing.T) {
	err := dialect.SQLite.WithNames(dialect.Names{Schema: "s", Inbox: "A", Outbox: "B", Version: "A"}).Validate()
	for _, part := range []string{"Names.Inbox", "Names.Outbox", "Names.Version", "must differ", "SQLite has no schemas"} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorContains(t, dialect.Postgres.WithNames(dialect.Names{Inbox: "outbox_messages"}).Validate(), "must differ")
	require.ErrorContains(t, dialect.Dialect{}.Validate(), "unknown dialect")
	huge := dialect.Postgres.WithNames(dialect.Names{Inbox: strings.Repeat("\u20ac", 10_000)}).Validate()
	require.Less(t, len(huge.Error()), 1000, "D6: text from outside is cut")
	require.NoError(t, dialect.Postgres.Validate())
	require.NoError(t, dialect.SQLite.Validate())
}

func TestD2_RewriteQuotesAndQualifies(t *testing.T) {
	names := dialect.Names{Schema: "app", Inbox: "order", Outbox: "sent"}
	for in, want := range map[string]string{
		"SELECT 1 FROM inbox_messages WHERE x":                `SELECT 1 FROM "app"."order" WHERE x`,
		"inbox_messages.state, outbox_messages.seq":           `"app"."order".state, "app"."sent".seq`,
		"CONSTRAINT inbox_messages_state_check":               `CONSTRAINT "order_state_check"`,
		"CREATE INDEX outbox_messages_due ON outbox_messages": `CREATE INDEX "sent_due" ON "app"."sent"`,
		"inbox_schema": `"app"."inbox_schema"`,
		"my_inbox_messages inbox_messagesx xinbox_schema":       "my_inbox_messages inbox_messagesx xinbox_schema",
		"inbox_messages(a), (inbox_messages), inbox_messages\n": "\"app\".\"order\"(a), (\"app\".\"order\"), \"app\".\"order\"\n",
	} {
		require.Equal(t, want, names.Rewrite(in))
	}
	require.Equal(t, `"inbox_messages"`, dialect.Names{}.Rewrite("inbox_messages"))
}

// Nothing that is sent may still name a default table where other names are configured.
func TestD2_EveryStatementFollowsTheNames(t *testing.T) {
	names := dialect.Names{Schema: "s", Inbox: "aaa", Outbox: "bbb", Version: "ccc"}
	for _, d := range []dialect.Dialect{dialect.Postgres, dialect.SQLite} {
		for _, file := range []string{"inbox.sql", "outbox.sql"} {
			queries, err := d.WithNames(names).Queries(file)
			require.NoError(t, err)
			require.NotEmpty(t, queries)
			for name, text := range queries {
				for _, old := range []string{"inbox_messages", "outbox_messages", "inbox_schema", "-- "} {
					require.NotContains(t, text, old, "%s: %s: %s", d.Name, file, name)
				}
				require.False(t, strings.HasSuffix(text, ";"), name)
			}
		}
		files, err := fs.Glob(d.Migrations, "*.sql")
		require.NoError(t, err)
		require.Len(t, files, dialect.SchemaVersion)
	}
}
