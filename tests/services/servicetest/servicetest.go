// Package servicetest gives a test the real servers it needs, or skips it where none was started.
package servicetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	_ "github.com/lib/pq" // the driver by which a database is made and dropped
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/tests/services"
)

// PostgresDSN makes an empty database for this test alone and returns its connection string. The database is dropped
// when the test ends, with whatever is still connected to it.
func PostgresDSN(t testing.TB) string {
	t.Helper()
	return newDatabase(t, address(t, services.PostgresVariable))
}

// AMQPURL returns the address of a RabbitMQ that other tests use at the same time: name queues and exchanges uniquely.
func AMQPURL(t testing.TB) string {
	t.Helper()
	return address(t, services.AMQPVariable)
}

// PrivatePostgres starts a Postgres of the test's own, which it may stop, kill and start again. It takes a few seconds.
func PrivatePostgres(t testing.TB) *services.Server {
	t.Helper()
	return private(t, "postgres", services.PostgresVariable)
}

// PrivateRabbitMQ starts a RabbitMQ of the test's own, which it may stop, kill and start again. It takes about ten
// seconds.
func PrivateRabbitMQ(t testing.TB) *services.Server {
	t.Helper()
	return private(t, "rabbitmq", services.AMQPVariable)
}

func address(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("%s is not set: run `make test`, which starts the servers", variable)
	}
	return value
}

func private(t testing.TB, name, variable string) *services.Server {
	t.Helper()
	address(t, variable) // a run without servers is meant to be quick: it starts none here either
	running, err := services.Start(context.Background(), services.Options{Only: []string{name}, Private: true})
	if err != nil && strings.Contains(os.Getenv(services.ExternalVariable), name) {
		t.Skipf("%s is a server of yours, and none can be started for this test to stop: %v", variable, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
	return running.Server(name)
}

func newDatabase(t testing.TB, superuser string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:16])
	execute(t, superuser, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, superuser, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return withDatabase(superuser, name)
}

func execute(t testing.TB, dsn, statement string) {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(context.Background(), statement)
	require.NoError(t, err, statement)
}

// withDatabase points a connection string, in either of the two forms of libpq, at another database.
func withDatabase(dsn, name string) string {
	address, err := url.Parse(dsn)
	if err != nil || address.Scheme == "" {
		return fmt.Sprintf("%s dbname=%s", dsn, name)
	}
	address.Path = "/" + name
	return address.String()
}
