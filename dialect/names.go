package dialect

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Names are the names of the library's tables. Lower-case letters, digits and underscores are
// allowed, a digit not first, at most 40 bytes, so that the names of indexes, which are derived by
// a suffix, stay within Postgres' 63 bytes. Every name is quoted where it is used.
type Names struct {
	// Schema qualifies the tables. Default: none, the connection's search path decides.
	Schema string
	// Inbox is the table of inbox rows. Default: inbox_messages.
	Inbox string
	// Outbox is the table of outbox rows. Default: outbox_messages.
	Outbox string
	// Version is the table with the one row that holds the schema version. Default: inbox_schema.
	Version string
}

// The names that the SQL files use.
const (
	defaultInbox   = "inbox_messages"
	defaultOutbox  = "outbox_messages"
	defaultVersion = "inbox_schema"
)

func (n Names) withDefaults() Names {
	for field, value := range map[*string]string{&n.Inbox: defaultInbox, &n.Outbox: defaultOutbox, &n.Version: defaultVersion} {
		if *field == "" {
			*field = value
		}
	}
	return n
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func (n Names) validate() error {
	var errs []error
	for _, f := range []struct{ field, value string }{
		{"Schema", n.Schema}, {"Inbox", n.Inbox}, {"Outbox", n.Outbox}, {"Version", n.Version},
	} {
		if f.value == "" && f.field == "Schema" {
			continue
		}
		if !identifier.MatchString(f.value) {
			errs = append(errs, fmt.Errorf("dialect: Names.%s is %q; use lower-case letters, digits and underscores, not starting with a digit, at most 40 bytes", f.field, clip(f.value)))
		}
	}
	if n.Inbox == n.Outbox || n.Inbox == n.Version || n.Outbox == n.Version {
		errs = append(errs, fmt.Errorf("dialect: Names.Inbox %q, Names.Outbox %q and Names.Version %q must differ", clip(n.Inbox), clip(n.Outbox), clip(n.Version)))
	}
	return errors.Join(errs...)
}

// occurrence finds a default table name in SQL, with the suffix of an index or a constraint.
var occurrence = regexp.MustCompile(`\b(` + defaultInbox + `|` + defaultOutbox + `|` + defaultVersion + `)(_[a-z_]+)?\b`)

// Rewrite puts the configured names in the place of the default names, quoted: a table name with
// its schema, the name of an index or constraint (table name and suffix) without. The SQL files
// stay valid as they stand because their names are the defaults.
func (n Names) Rewrite(sql string) string {
	n = n.withDefaults()
	return occurrence.ReplaceAllStringFunc(sql, func(found string) string {
		m := occurrence.FindStringSubmatch(found)
		name := map[string]string{defaultInbox: n.Inbox, defaultOutbox: n.Outbox, defaultVersion: n.Version}[m[1]]
		if m[2] != "" || n.Schema == "" {
			return quote(name + m[2])
		}
		return quote(n.Schema) + "." + quote(name)
	})
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// clip bounds text from outside before it reaches an error.
func clip(s string) string {
	const bound = 64
	if len(s) > bound {
		return strings.ToValidUTF8(s[:bound], "") + "…"
	}
	return s
}
