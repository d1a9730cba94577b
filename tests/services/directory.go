package services

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

const directoryPattern = "watermill-inbox-services-"

// directory holds the data of the servers of one Start. Its lock is held until this process ends, however it ends.
type directory struct {
	path string
	lock *os.File
}

func newDirectory() (*directory, error) {
	removeAbandoned()
	hidden, err := os.MkdirTemp("", ".watermill-inbox-*")
	if err != nil {
		return nil, err
	}
	// The servers run as other users: they may pass through, and each has a directory of its own below.
	if err := os.Chmod(hidden, 0o711); err != nil {
		return nil, err
	}
	lock, err := os.Create(filepath.Join(hidden, "lock"))
	if err != nil {
		return nil, err
	}
	tryLock(lock)
	// Only now does it get the name that removeAbandoned looks for, so that nobody finds it without its lock.
	_, unique, _ := strings.Cut(filepath.Base(hidden), "inbox-")
	path := filepath.Join(os.TempDir(), directoryPattern+unique)
	return &directory{path: path, lock: lock}, os.Rename(hidden, path)
}

func (d *directory) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// removeAbandoned deletes what killed runs left behind: a free lock says that the owner is dead, and then the kernel
// has ended its servers.
func removeAbandoned() {
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), directoryPattern+"*"))
	for _, path := range paths {
		lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if tryLock(lock) {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}
