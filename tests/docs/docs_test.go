// Package docs keeps the documentation true: what it names exists, what it shows compiles.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// tree reads all files with the ending below the root.
func tree(t *testing.T, ending string) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ending):
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	}))
	return files
}

// Every test that the guarantees name is there, so that a renamed or deleted one is noticed.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	guarantees, err := os.ReadFile(filepath.Join(root, "docs/guarantees.md"))
	require.NoError(t, err)
	var source strings.Builder
	for path, text := range tree(t, ".go") {
		if strings.Contains(path, "tests/") || strings.HasSuffix(path, "_test.go") {
			source.WriteString(text)
		}
	}
	all := source.String()
	named := regexp.MustCompile("`((?:Test|Example|[A-D][0-9]+_)[A-Za-z0-9_]*)`").FindAllStringSubmatch(string(guarantees), -1)
	require.Greater(t, len(named), 40)
	for _, m := range named {
		found := strings.Contains(all, "func "+m[1]+"(") || strings.Contains(all, `"`+m[1]+`"`)
		require.True(t, found, "docs/guarantees.md names %s", m[1])
	}
}

// Every statement that this release keeps has a line, and on it a test.
func TestGuaranteesCoverEveryStatement(t *testing.T) {
	guarantees, err := os.ReadFile(filepath.Join(root, "docs/guarantees.md"))
	require.NoError(t, err)
	for _, statement := range strings.Fields("B1 B2 B3 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A16 A17 A18 A19 A20 C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11 C12 D1 D2 D3 D4 D5 D6 D7") {
		require.Regexp(t, `(?m)^\| `+statement+` \| .*`+"`"+`(Test|[A-D][0-9])`, string(guarantees), statement)
	}
}

// The README's programs are parts of one that compiles, line by line.
func TestREADMEShowsTheQuickstart(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	program, err := os.ReadFile(filepath.Join(root, "examples/quickstart/main.go"))
	require.NoError(t, err)
	flat := func(text string) string {
		return regexp.MustCompile(`\s+`).ReplaceAllString(strings.TrimSpace(text), " ")
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.GreaterOrEqual(t, len(blocks), 3)
	for _, block := range blocks[:2] {
		require.Contains(t, flat(string(program)), flat(block[1]))
	}
}

// Links between documents lead somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	code := regexp.MustCompile("(?s)```.*?```")
	for path, text := range tree(t, ".md") {
		text = code.ReplaceAllString(text, "")
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
			require.NoError(t, err, "%s links to %s", path, m[1])
		}
	}
}
