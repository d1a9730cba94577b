// Package testlog keeps log lines so that a test can ask for them while they are still written;
// Watermill's capture logger hands out its map without its lock.
package testlog

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// Logger keeps what is logged. It is safe for concurrent use.
type Logger struct {
	fields watermill.LogFields
	sink   *sink
}

type sink struct {
	mu    sync.Mutex
	lines []string
}

// New makes an empty logger.
func New() *Logger { return &Logger{sink: &sink{}} }

// Has reports whether some line of a level ("error", "info", "debug", "trace") holds all of parts,
// in its text, its error or its fields.
func (l *Logger) Has(level string, parts ...string) bool { return l.Count(level, parts...) > 0 }

// Count counts such lines.
func (l *Logger) Count(level string, parts ...string) (n int) {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
next:
	for _, line := range l.sink.lines {
		if !strings.HasPrefix(line, level+" ") {
			continue
		}
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue next
			}
		}
		n++
	}
	return n
}

// String gives all lines.
func (l *Logger) String() string {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	return strings.Join(l.sink.lines, "\n")
}

func (l *Logger) write(level, msg string, err error, fields watermill.LogFields) {
	line := fmt.Sprintf("%s %s", level, msg)
	if err != nil {
		line += fmt.Sprintf(" err=%q", err.Error())
	}
	for k, v := range l.fields.Add(fields) {
		line += fmt.Sprintf(" %s=%v", k, v)
	}
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	l.sink.lines = append(l.sink.lines, line)
}

// Error keeps a line.
func (l *Logger) Error(msg string, err error, fields watermill.LogFields) {
	l.write("error", msg, err, fields)
}

// Info keeps a line.
func (l *Logger) Info(msg string, fields watermill.LogFields) { l.write("info", msg, nil, fields) }

// Debug keeps a line.
func (l *Logger) Debug(msg string, fields watermill.LogFields) { l.write("debug", msg, nil, fields) }

// Trace keeps a line.
func (l *Logger) Trace(msg string, fields watermill.LogFields) { l.write("trace", msg, nil, fields) }

// With gives a logger that adds fields and keeps its lines in the same place.
func (l *Logger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &Logger{fields: l.fields.Add(fields), sink: l.sink}
}
