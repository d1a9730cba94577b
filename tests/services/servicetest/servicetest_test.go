package servicetest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/watermill-inbox/tests/services"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestEachCallGetsItsOwnDatabase(t *testing.T) {
	one, two := servicetest.PostgresDSN(t), servicetest.PostgresDSN(t)
	require.NotEqual(t, one, two)
	_, err := open(t, one).Exec("CREATE TABLE only_in_one ()")
	require.NoError(t, err)
	_, err = open(t, two).Exec("SELECT FROM only_in_one")
	require.ErrorContains(t, err, "does not exist")
}

func TestDatabaseIsDroppedUnderOpenConnections(t *testing.T) {
	servicetest.PostgresDSN(t) // skips the whole test, not the inner one alone, where there are no servers
	var held *sql.DB
	t.Run("inner", func(inner *testing.T) {
		held = open(t, servicetest.PostgresDSN(inner))
		require.NoError(t, held.Ping())
	})
	require.Error(t, held.Ping())
}

func TestPrivatePostgresRecoversFromACrash(t *testing.T) {
	server := servicetest.PrivatePostgres(t)
	db := open(t, server.URL)
	_, err := db.Exec("CREATE TABLE kept AS SELECT 1 AS n")
	require.NoError(t, err)

	for _, end := range []func() error{server.Kill, server.Stop} {
		require.NoError(t, end())
		require.Error(t, db.Ping(), "nobody answers")
		require.NoError(t, server.Start(context.Background()))
		var n int
		require.NoError(t, db.QueryRow("SELECT n FROM kept").Scan(&n))
		assert.Equal(t, 1, n)
	}
	out, err := server.Ctl(context.Background(), "status")
	require.NoError(t, err)
	assert.Contains(t, out, "server is running")
}

func TestPrivateRabbitMQKeepsItsQueuesThroughACrash(t *testing.T) {
	server := servicetest.PrivateRabbitMQ(t)
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	declare := func(passive bool) {
		connection, err := amqp.Dial(server.URL)
		require.NoError(t, err)
		defer func() { _ = connection.Close() }()
		channel, err := connection.Channel()
		require.NoError(t, err)
		if passive {
			_, err = channel.QueueDeclarePassive("kept", true, false, false, false, nil)
		} else {
			_, err = channel.QueueDeclare("kept", true, false, false, false, nil)
		}
		require.NoError(t, err)
	}
	declare(false)

	require.NoError(t, server.Kill())
	_, err := amqp.Dial(server.URL)
	require.Error(t, err, "nobody answers")
	require.NoError(t, server.Start(within))
	declare(true)

	_, err = server.Ctl(within, "stop_app")
	require.NoError(t, err)
	_, err = amqp.Dial(server.URL)
	require.Error(t, err)
	_, err = server.Ctl(within, "start_app")
	require.NoError(t, err)
	declare(true)
}

func TestAMQPURLAnswers(t *testing.T) {
	connection, err := amqp.Dial(servicetest.AMQPURL(t))
	require.NoError(t, err)
	require.NoError(t, connection.Close())
}

func TestServerOfSomebodyElseCannotBeStopped(t *testing.T) {
	servicetest.AMQPURL(t)
	running, err := services.Start(t.Context(), services.Options{Only: []string{"rabbitmq"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, running.Stop()) }()
	server := running.Server("rabbitmq")
	require.ErrorIs(t, server.Stop(), services.ErrNotOurs)
	require.ErrorIs(t, server.Kill(), services.ErrNotOurs)
	require.ErrorIs(t, server.Start(t.Context()), services.ErrNotOurs)
	assert.Contains(t, running.Environment(), services.ExternalVariable+"=rabbitmq")
}
