//go:build !unix

package services

import "os"

// tryLock never succeeds here, so that nothing is ever taken for abandoned.
func tryLock(*os.File) bool { return false }
