package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const passing = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Output":"-test.shuffle 1\n"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"--- PASS: TestX\n"}
{"Action":"pass","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"b","Output":"?   \tb\t[no test files]\n"}
{"Action":"skip","Package":"b"}
`

const skipping = `{"Action":"output","Package":"c","Test":"TestY","Output":"    y_test.go:3: no server\n"}
{"Action":"skip","Package":"c","Test":"TestY"}
{"Action":"pass","Package":"c"}
`

const failing = `{"Action":"output","Package":"d","Test":"TestZ","Output":"    z_test.go:9: wrong\n"}
{"Action":"fail","Package":"d","Test":"TestZ"}
{"Action":"output","Package":"d","Test":"TestHung","Output":"panic: test timed out\n"}
{"Action":"output","Package":"d","Output":"-test.shuffle 7\n"}
{"Action":"output","Package":"d","Output":"FAIL\td\t0.1s\n"}
{"Action":"fail","Package":"d"}
{"ImportPath":"e","Action":"build-output","Output":"e.go:1: syntax error\n"}
not json
`

func read(t *testing.T, allowSkips bool, events string, failed error) (string, bool) {
	t.Helper()
	var out strings.Builder
	r := newReport(&out, allowSkips)
	require.NoError(t, r.read(strings.NewReader(events)))
	ok := r.close(nil, failed)
	return out.String(), ok
}

func TestPassingPackagesAreOneLineEach(t *testing.T) {
	out, ok := read(t, false, passing, nil)
	assert.True(t, ok)
	assert.Equal(t, "ok  \ta\t0.1s\n?   \tb\t[no test files]\nok (1 tests: 1 passed, 0 skipped)\n", out)
}

func TestSkippedTestFailsTheRun(t *testing.T) {
	out, ok := read(t, false, passing+skipping, nil)
	assert.False(t, ok)
	assert.Contains(t, out, "SKIPPED c TestY\n    y_test.go:3: no server\n")

	_, ok = read(t, true, passing+skipping, nil)
	assert.True(t, ok, "the servers are somebody else's")
}

func TestFailureIsShownInFull(t *testing.T) {
	out, ok := read(t, false, passing+failing, errors.New("exit status 1"))
	assert.False(t, ok)
	for _, said := range []string{"wrong", "test timed out", "-test.shuffle 7", "FAIL\td", "syntax error", "not json"} {
		assert.Contains(t, out, said)
	}
}

func TestNothingRanIsAFailure(t *testing.T) {
	_, ok := read(t, false, "", nil)
	assert.False(t, ok)
}
