package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// errMissing is what a kind returns when the machine has no binaries of it.
var errMissing = errors.New("not installed")

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// localServers prepares a node for each kind from the machine's own binaries.
func localServers(ctx context.Context, dir string, wanted []kind, options Options) ([]*Server, error) {
	servers, missing, err := findLocal(dir, wanted)
	if err != nil || len(missing) == 0 {
		return servers, err
	}
	var reason error
	if !options.Install {
		reason = errors.New("installing is left to the one who runs the tests")
	} else if reason = install(ctx, options.Log, missing); reason == nil {
		var added []*Server
		added, missing, err = findLocal(dir, missing)
		servers = append(servers, added...)
		if err != nil || len(missing) == 0 {
			return servers, err
		}
		reason = errors.New("apt-get brought no binaries where Debian has them")
	}
	return servers, missingError(missing, reason)
}

func findLocal(dir string, wanted []kind) (servers []*Server, missing []kind, err error) {
	for _, k := range wanted {
		n, err := k.local(filepath.Join(dir, k.name))
		switch {
		case errors.Is(err, errMissing):
			missing = append(missing, k)
		case err != nil:
			return servers, nil, err
		default:
			servers = append(servers, &Server{kind: k, node: n, URL: n.url, Control: n.control})
		}
	}
	return servers, missing, nil
}

// missingError says in one line what is missing and the three ways out.
func missingError(missing []kind, reason error) error {
	var variables, packages []string
	for _, k := range missing {
		variables, packages = append(variables, k.variable), append(packages, k.debian)
	}
	return fmt.Errorf("services: no %s (%w): set %s to one that runs, or start Docker with its compose plugin, or install it with `apt-get install %s`",
		strings.Join(names(missing), ", no "), reason, strings.Join(variables, " and "), strings.Join(packages, " "))
}

// writeControl leaves an executable script for the tests and for people.
func writeControl(dir, name, script string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(script), 0o755)
}
