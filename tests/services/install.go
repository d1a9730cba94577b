package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

const policyFile = "/usr/sbin/policy-rc.d"

// install brings the packages of the kinds with apt-get.
func install(ctx context.Context, log io.Writer, missing []kind) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can install it")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("this machine has no apt-get to install it")
	}
	withdraw, err := forbidStarting()
	if err != nil {
		return err
	}
	defer withdraw()
	arguments := []string{"install", "-y", "--no-install-recommends"}
	for _, k := range missing {
		arguments = append(arguments, k.debian)
	}
	_, _ = fmt.Fprintf(log, "services: apt-get %s (takes about a minute)\n", strings.Join(arguments, " "))
	// A list that cannot be refreshed may still name the packages, so the second step is the one that counts.
	updated := aptGet(ctx, "update")
	if err := aptGet(ctx, arguments...); err != nil {
		return errors.Join(updated, err)
	}
	return nil
}

func aptGet(ctx context.Context, arguments ...string) error {
	// Another apt-get may be at work: waiting for it is better than failing.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, arguments...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", arguments[0], err, tail(printed.String(), 3))
	}
	return nil
}

// forbidStarting keeps the packages from starting their own service on the usual port: only the binaries are wanted.
// Debian asks this file before it starts a service. It answers only while this process lives, so that a run that is
// killed in between forbids nothing for good. A policy that is there already is left as it is.
func forbidStarting() (withdraw func(), err error) {
	script := fmt.Sprintf("#!/bin/sh\n# Written by watermill-inbox's tests; may be deleted.\n[ -d /proc/%d ] && exit 101\nexit 0\n", os.Getpid())
	file, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString(script)
	return func() { _ = os.Remove(policyFile) }, errors.Join(err, file.Close())
}
