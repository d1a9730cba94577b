package services

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"

	_ "github.com/lib/pq" // the driver by which ping asks whether the server answers
)

// PostgresVariable names a Postgres that is to be used in place of one started here: a superuser's connection string.
const PostgresVariable = "WATERMILL_INBOX_POSTGRES_DSN"

var postgres = kind{
	name:             "postgres",
	variable:         PostgresVariable,
	control:          "WATERMILL_INBOX_PGCTL",
	debian:           "postgresql",
	url:              postgresURL,
	ping:             pingPostgres,
	local:            localPostgres,
	containerControl: []string{"--user", "postgres", "postgres", "pg_ctl"},
}

func postgresURL(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

func pingPostgres(ctx context.Context, url string) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	return errors.Join(db.PingContext(ctx), db.Close())
}

// postgresSettings are what differs from the defaults, of which fsync is one: the tests are about what survives. 200
// connections are room for several test packages with a pool each.
func postgresSettings(port int) []string {
	return []string{
		"-c", "listen_addresses=127.0.0.1",
		"-c", fmt.Sprintf("port=%d", port),
		"-c", "unix_socket_directories=",
		"-c", "max_connections=200",
		"-c", "timezone=UTC",
		"-c", "log_line_prefix=%m [%p] %d ",
	}
}

func localPostgres(dir string) (*node, error) {
	bin := postgresBinaries()
	if bin == "" {
		return nil, errMissing
	}
	user, err := serverAccount("postgres")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	if err := user.own(dir); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	base := command{directory: dir, account: user, variables: []string{"PATH=" + systemPath, "HOME=" + dir, "LC_ALL=C.UTF-8"}}

	initdb := base
	initdb.path = filepath.Join(bin, "initdb")
	initdb.arguments = []string{
		"--pgdata", data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions",
	}
	initdb.deathSignal = syscall.SIGKILL

	server := base
	server.path = filepath.Join(bin, "postgres")
	server.arguments = append([]string{"-D", data}, postgresSettings(ports[0])...)
	server.stopSignal = syscall.SIGINT   // "fast": roll back, disconnect, checkpoint
	server.crashSignal = syscall.SIGQUIT // "immediate": the next start recovers from the log, and finds no leftover processes
	server.deathSignal = syscall.SIGQUIT

	control := base
	control.path = filepath.Join(bin, "pg_ctl")
	control.variables = append(control.variables, "PGDATA="+data)
	script, err := writeControl(dir, "pg_ctl", control.script())
	if err != nil {
		return nil, err
	}
	return &node{
		url: postgresURL(ports[0]), control: script, log: filepath.Join(dir, "server.log"),
		setup: []command{initdb}, run: []command{server},
	}, nil
}

// postgresBinaries is the directory of the newest version that Debian's packages installed.
func postgresBinaries() string {
	newest, bin := -1, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	for _, path := range found {
		directory := filepath.Dir(path)
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(directory))); err == nil && version > newest {
			newest, bin = version, directory
		}
	}
	return bin
}
