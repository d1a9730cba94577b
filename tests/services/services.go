// Package services starts the real servers that the tests and the demonstration need, on a machine that may have
// nothing: it uses a server named in the environment, else a container, else a local binary run from a private
// directory on private ports, which it installs first where it may. It stops exactly what it started.
//
// A new server is one file with one kind in it, one line in kinds, and one service in compose.yaml.
package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// ExternalVariable lists, for the command that is run, the servers that were found in the environment. Nobody here
// can stop those, so tests that must stop a server may be skipped.
const ExternalVariable = "WATERMILL_INBOX_EXTERNAL_SERVERS"

// kinds are all the servers there are, in the order in which they are started and named.
var kinds = []kind{postgres, rabbitmq}

// Options says which servers to start and how far Start may go.
type Options struct {
	// Only names the servers to start. Default: all.
	Only []string
	// Private ignores servers named in the environment, for a caller that will stop or break what it gets.
	Private bool
	// Install lets Start install a missing server with apt-get when it runs as root.
	Install bool
	// Log receives a line for each step. Default: none.
	Log io.Writer
}

// Running is a set of servers that answered.
type Running struct {
	servers []*Server
	dir     *directory
}

// Start returns when every server answers a client, or with one error and nothing left running.
func Start(ctx context.Context, options Options) (*Running, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	chosen, err := choose(options.Only)
	if err != nil {
		return nil, err
	}
	running := &Running{}
	if err := running.start(ctx, chosen, options); err != nil {
		return nil, errors.Join(err, running.Stop())
	}
	return running, nil
}

func (r *Running) start(ctx context.Context, chosen []kind, options Options) error {
	var ours []kind
	for _, k := range chosen {
		if url := os.Getenv(k.variable); url != "" && !options.Private {
			r.servers = append(r.servers, &Server{kind: k, URL: url})
		} else {
			ours = append(ours, k)
		}
	}
	if len(ours) > 0 {
		dir, err := newDirectory()
		if err != nil {
			return err
		}
		r.dir = dir
		servers, err := build(ctx, dir.path, ours, options)
		r.servers = append(r.servers, servers...)
		if err != nil {
			return err
		}
	}
	// Each takes seconds and none needs another, so they start side by side.
	failures := make([]error, len(r.servers))
	var group sync.WaitGroup
	for i, server := range r.servers {
		group.Go(func() { failures[i] = server.first(ctx, options.Log) })
	}
	group.Wait()
	return errors.Join(failures...)
}

// build decides between containers and local binaries for all servers at once, so that one run uses one of the two.
func build(ctx context.Context, dir string, ours []kind, options Options) ([]*Server, error) {
	reason := composeAnswers(ctx)
	if reason == nil {
		var servers []*Server
		if servers, reason = composeServers(ctx, dir, ours); reason == nil {
			return servers, nil
		}
	}
	_, _ = fmt.Fprintf(options.Log, "services: no containers (%v), using local binaries\n", reason)
	return localServers(ctx, dir, ours, options)
}

// Server returns the server of that name, or nil when it was not asked for.
func (r *Running) Server(name string) *Server {
	for _, server := range r.servers {
		if server.Name() == name {
			return server
		}
	}
	return nil
}

// Environment is what a command needs in order to find the servers, each entry in the form NAME=value.
func (r *Running) Environment() []string {
	var variables, external []string
	for _, server := range r.servers {
		variables = append(variables, server.kind.variable+"="+server.URL)
		if server.Control != "" {
			variables = append(variables, server.kind.control+"="+server.Control)
		}
		if server.node == nil {
			external = append(external, server.Name())
		}
	}
	return append(variables, ExternalVariable+"="+strings.Join(external, ","))
}

// Stop ends every server that Start started and deletes their data. A second Stop does nothing.
func (r *Running) Stop() error {
	failures := make([]error, len(r.servers))
	var group sync.WaitGroup
	for i, server := range r.servers {
		group.Go(func() { failures[i] = server.last() })
	}
	group.Wait()
	r.servers = nil
	if r.dir != nil {
		failures = append(failures, r.dir.remove())
		r.dir = nil
	}
	return errors.Join(failures...)
}

func choose(only []string) ([]kind, error) {
	if len(only) == 0 {
		return kinds, nil
	}
	var chosen []kind
	for _, name := range only {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("services: no server is called %q; there are %s", name, strings.Join(names(kinds), ", "))
		}
		chosen = append(chosen, kinds[i])
	}
	return chosen, nil
}

func names(of []kind) []string {
	var list []string
	for _, k := range of {
		list = append(list, k.name)
	}
	return list
}

// patience bounds each single step: a start, a graceful stop. A loaded machine needs seconds, not a minute.
const patience = 60 * time.Second
