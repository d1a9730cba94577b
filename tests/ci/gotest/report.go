package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is one line of "go test -json"; see "go doc test2json".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type report struct {
	out         io.Writer
	allowSkips  bool
	output      map[string]*strings.Builder // what each running test has printed, shown only if it fails
	skipped     []string
	ran, passed int
}

func newReport(out io.Writer, allowSkips bool) *report {
	return &report{out: out, allowSkips: allowSkips, output: map[string]*strings.Builder{}}
}

// read prints as "go test" does: one line for a package that passes, everything that a failing test said.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		r.print(string(line)) // go itself speaks in between
		return
	}
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		r.print(e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		r.ended(e, r.take(key))
	}
}

func (r *report) take(key string) string {
	text := r.output[key]
	delete(r.output, key)
	if text == nil {
		return ""
	}
	return text.String()
}

func (r *report) ended(e event, text string) {
	if e.Test == "" {
		r.packageEnded(e, text)
		return
	}
	r.ran++
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.print(text)
	case "skip":
		r.skipped = append(r.skipped, e.Package+" "+e.Test+"\n"+text)
	}
}

// packageEnded prints a package's closing lines, of which only the last says something when it passed.
func (r *report) packageEnded(e event, text string) {
	if e.Action == "fail" {
		// A test that was running when the process died has no end of its own, and has the most to tell.
		for key := range r.output {
			if strings.HasPrefix(key, e.Package+"\x00") {
				r.print(r.take(key))
			}
		}
		r.print(text)
		return
	}
	r.print(tail(text))
}

func tail(text string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	return lines[len(lines)-1] + "\n"
}

func (r *report) print(text string) { _, _ = io.WriteString(r.out, text) }

// close prints the summary and reports whether all is well.
func (r *report) close(read, failed error) bool {
	for _, skip := range r.skipped {
		r.print("SKIPPED " + skip)
	}
	verdict, ok := "ok", true
	switch {
	case read != nil:
		verdict, ok = fmt.Sprintf("FAIL: reading the results: %v", read), false
	case failed != nil:
		verdict, ok = fmt.Sprintf("FAIL: go test: %v", failed), false
	case r.ran == 0:
		verdict, ok = "FAIL: no test ran", false
	case len(r.skipped) > 0 && !r.allowSkips:
		verdict, ok = "FAIL: tests were skipped though every server was started for them", false
	}
	r.print(fmt.Sprintf("%s (%d tests: %d passed, %d skipped)\n", verdict, r.ran, r.passed, len(r.skipped)))
	return ok
}
