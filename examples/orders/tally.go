package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// The columns of the table that are counted while the load runs. The others are counted in the
// database afterwards.
const (
	delivered = "delivered"
	handled   = "handled"
	skipped   = "skipped"
	failed    = "failed"
)

// tally counts events of the consumers.
type tally interface {
	add(consumer, column string)
	count(consumer, column string) int
}

// memoryTally counts in this process.
type memoryTally struct {
	mu     sync.Mutex
	counts map[[2]string]int
}

func newMemoryTally() *memoryTally { return &memoryTally{counts: map[[2]string]int{}} }

func (m *memoryTally) add(consumer, column string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[[2]string{consumer, column}]++
}

func (m *memoryTally) count(consumer, column string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[[2]string{consumer, column}]
}

// fileTally counts across processes that may be killed at any moment: one byte appended is one
// event, the length of the file is the count. What has been written to a file is the kernel's, so
// SIGKILL does not take it back, and appends of several processes do not overwrite each other.
type fileTally struct {
	directory string
	mu        sync.Mutex
	files     map[string]*os.File
}

func newFileTally(directory string) *fileTally {
	return &fileTally{directory: directory, files: map[string]*os.File{}}
}

func (f *fileTally) path(consumer, column string) string {
	return filepath.Join(f.directory, consumer+"-"+column)
}

func (f *fileTally) add(consumer, column string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := f.path(consumer, column)
	file := f.files[path]
	if file == nil {
		var err error
		if file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			panic(err) // a table with a wrong number is worse than none
		}
		f.files[path] = file
	}
	if _, err := file.Write([]byte{'.'}); err != nil {
		panic(err)
	}
}

func (f *fileTally) count(consumer, column string) int {
	info, err := os.Stat(f.path(consumer, column))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		panic(err)
	}
	return int(info.Size())
}
