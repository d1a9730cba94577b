package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress says how far a pass has come: a line that is rewritten on a terminal, a line a quarter
// elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	name     string
	orders   int
	started  time.Time
	quarter  int
	last     time.Time
}

func newProgress(out io.Writer, name string, orders int) *progress {
	p := &progress{out: out, name: name, orders: orders, started: time.Now(), quarter: -1}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// show prints what is new. note is appended to the line.
func (p *progress) show(c counts, note string) {
	line := fmt.Sprintf("pass %s: %d orders, %d charged, %d shipped of %d%s, %.1f s",
		p.name, c.Orders, c.Charged, c.Shipped, p.orders, note, time.Since(p.started).Seconds())
	quarter := int(4 * c.progress(p.orders))
	switch {
	case p.terminal && (time.Since(p.last) > 100*time.Millisecond || c.done(p.orders)):
		p.last = time.Now()
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	case !p.terminal && quarter > p.quarter:
		p.quarter = quarter
		_, _ = fmt.Fprintln(p.out, line)
	}
}

// end leaves the terminal on a line of its own.
func (p *progress) end() {
	if p.terminal {
		_, _ = fmt.Fprintln(p.out)
	}
}
