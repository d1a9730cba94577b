package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
)

func TestMain(m *testing.M) {
	// In the real mode the program starts itself in other roles, and here the program is the test.
	if len(os.Args) == 3 && os.Args[1] == roleFlag {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestInboxKeepsEffectsSingleInMemory(t *testing.T) {
	out, status := start(t, "-orders", "100", "-seed", "3", "-dir", t.TempDir())
	require.Equal(t, statusOK, status, out)

	assert.Positive(t, doubleEffects(t, out, "1 inbox off"), "without the inbox the disturbances must show\n%s", out)
	assert.Zero(t, doubleEffects(t, out, "2 inbox on"), out)
	v := verdict(t, out)
	assert.Positive(t, v["duplicates_skipped"], out)
	delete(v, "duplicates_skipped")
	assert.Equal(t, map[string]int{"orders": 100, "charged": 100, "double": 0, "lost": 0}, v, out)
}

func TestInboxKeepsEffectsSingleInProcessesThatAreKilled(t *testing.T) {
	t.Setenv(postgresVariable, servicetest.PostgresDSN(t))
	t.Setenv(amqpVariable, servicetest.AMQPURL(t))
	out, status := start(t, "-real", "-orders", "150", "-kills", "6", "-dir", t.TempDir())
	require.Equal(t, statusOK, status, out)

	v := verdict(t, out)
	delete(v, "duplicates_skipped")
	assert.Equal(t, map[string]int{"orders": 150, "charged": 150, "double": 0, "lost": 0}, v, out)
	var kills int
	_, err := fmt.Sscanf(lines(out)[len(lines(out))-2], "kills=%d", &kills)
	require.NoError(t, err, out)
	assert.GreaterOrEqual(t, kills, 3, out)
}

func TestFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	_, status := start(t, "-orders", "1", "-dir", dir)
	require.Equal(t, statusOK, status)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestInterruptionEndsCleanly(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	// The first progress line comes when the pass runs.
	status := run(ctx, []string{"-orders", "100000", "-dir", dir}, &stdout, writerFunc(func() { cancel() }))
	assert.Equal(t, statusInterrupted, status)
	assert.Empty(t, stdout.String())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestUsage(t *testing.T) {
	t.Setenv(postgresVariable, "")
	t.Setenv(amqpVariable, "")
	for _, c := range []struct {
		args   []string
		status int
		says   []string
	}{
		{[]string{"-h"}, statusOK, []string{"pass 1", "double effects", "-orders", "-seed", "-workers", "-dir", "-keep", "-real", "Examples:"}},
		{[]string{"-orders", "0", "-workers", "-1"}, statusUsage, []string{"-orders is 0", "-workers is -1"}},
		{[]string{"-nonsense"}, statusUsage, []string{"-nonsense", "-h"}},
		{[]string{"nonsense"}, statusUsage, []string{`"nonsense"`}},
		{[]string{"-real"}, statusUsage, []string{postgresVariable, amqpVariable, "make demo-real"}},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, c.status, run(t.Context(), c.args, &stdout, &stderr), c.args)
		for _, text := range c.says {
			assert.Contains(t, stdout.String()+stderr.String(), text, c.args)
		}
	}
}

// start runs the program and gives its standard output and status.
func start(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), args, &stdout, &stderr)
	t.Logf("%s%s", stderr.String(), stdout.String())
	return stdout.String(), status
}

func lines(out string) []string { return strings.Split(strings.TrimSpace(out), "\n") }

// verdict reads the last line.
func verdict(t *testing.T, out string) map[string]int {
	t.Helper()
	fields := map[string]int{}
	for _, field := range strings.Fields(lines(out)[len(lines(out))-1]) {
		name, value, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(value)
		require.NoError(t, err, out)
		fields[name] = n
	}
	return fields
}

var numbers = regexp.MustCompile(`\d+`)

// doubleEffects adds up the column of that name over the lines of one pass.
func doubleEffects(t *testing.T, out, pass string) (sum int) {
	t.Helper()
	found := 0
	for _, line := range lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), pass); ok {
			columns := numbers.FindAllString(rest, -1)
			n, err := strconv.Atoi(columns[len(columns)-2])
			require.NoError(t, err, line)
			sum += n
			found++
		}
	}
	require.Equal(t, len(consumers), found, out)
	return sum
}

// writerFunc calls a function at each write.
type writerFunc func()

func (f writerFunc) Write(text []byte) (int, error) {
	f()
	return len(text), nil
}
