//go:build unix

package services

import (
	"os"
	"syscall"
)

// tryLock takes the lock of a file, which the kernel frees when this process ends, unless someone has it.
func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
