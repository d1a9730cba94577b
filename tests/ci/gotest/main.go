// Command gotest runs "go test" with the given arguments, prints what it prints, and fails also when a test was
// skipped: with every server up, a skip is a promise that nobody checked.
package main

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/watermill-inbox/watermill-inbox/tests/services"
)

func main() {
	// Servers that somebody else named cannot be stopped by the tests, and some of these skip then.
	report := newReport(os.Stdout, os.Getenv(services.ExternalVariable) != "")
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	read := report.read(events)
	failed := cmd.Wait()
	if !report.close(read, failed) {
		os.Exit(1)
	}
}
