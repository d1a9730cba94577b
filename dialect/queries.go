package dialect

import (
	"fmt"
	"io/fs"
	"strings"
)

// Queries are the named statements of one SQL file, with the table names in place.
type Queries map[string]string

// Queries reads the named statements of a file of [Dialect.SQL].
func (d Dialect) Queries(file string) (Queries, error) {
	text, err := fs.ReadFile(d.SQL, file)
	if err != nil {
		return nil, fmt.Errorf("dialect %s: %w", d.Name, err)
	}
	const marker = "-- name: "
	queries := Queries{}
	for i, part := range strings.Split("\n"+string(text), "\n"+marker) {
		if i == 0 {
			continue // the file's head
		}
		name, body, _ := strings.Cut(part, "\n")
		name = strings.TrimSpace(name)
		body = strings.TrimSuffix(strings.TrimSpace(stripComments(body)), ";")
		if _, twice := queries[name]; twice || body == "" {
			return nil, fmt.Errorf("dialect %s: %s: statement %q is empty or stands twice", d.Name, file, name)
		}
		queries[name] = d.names.Rewrite(body)
	}
	return queries, nil
}

// Require checks that the statements are there, so that a dialect made by hand fails when it is
// loaded and not at the first message.
func (q Queries) Require(names ...string) error {
	var missing []string
	for _, name := range names {
		if _, ok := q[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("dialect: statements missing: %s", strings.Join(missing, ", "))
	}
	return nil
}

// stripComments drops whole-line comments: they explain the file, the server need not read them.
func stripComments(sql string) string {
	lines := strings.Split(sql, "\n")
	kept := lines[:0]
	for _, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
