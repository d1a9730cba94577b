package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

// site is what one pass has on the real servers: a schema, topics and their queues, all under a
// name that no other run has.
type site struct {
	db        *sqlx.DB
	dsn       string
	amqpURL   string
	schema    string
	topics    Topics
	directory string // of the counts
}

func newSite(ctx context.Context, cfg config, p pass) (_ *site, err error) {
	name := "orders_" + strings.ToLower(rand.Text()[:12]) + "_" + p.file
	s := &site{
		amqpURL: cfg.amqpURL, schema: name, topics: Topics{Placed: name + ".placed", Charged: name + ".charged"},
		directory: filepath.Join(cfg.directory, p.file), dsn: withSearchPath(cfg.postgresDSN, name),
	}
	if err := os.Mkdir(s.directory, 0o700); err != nil {
		return nil, err
	}
	if s.db, err = openPool("postgres", s.dsn, 2); err != nil {
		return nil, fmt.Errorf("postgres (%s): %w", postgresVariable, err)
	}
	defer func() {
		if err != nil {
			_ = s.leave(context.WithoutCancel(ctx)) // what stood in the way of coming may do so now
		}
	}()
	if _, err := s.db.ExecContext(ctx, "CREATE SCHEMA "+name); err != nil {
		return nil, fmt.Errorf("postgres (%s): %w", postgresVariable, err)
	}
	if err := createTables(ctx, s.db, dialect.Postgres); err != nil {
		return nil, err
	}
	for consumer, topic := range s.queues() {
		if err := declareQueue(s.amqpURL, consumer, topic); err != nil {
			return nil, fmt.Errorf("rabbitmq (%s): %w", amqpVariable, err)
		}
	}
	return s, nil
}

// queues gives each consumer's topic.
func (s *site) queues() map[string]string {
	return map[string]string{billing: s.topics.Placed, shipping: s.topics.Charged}
}

func (s *site) assignment(cfg config, p pass) assignment {
	return assignment{
		PostgresDSN: s.dsn, AMQPURL: s.amqpURL, Topics: s.topics, Inbox: p.inbox,
		Orders: cfg.orders, Workers: cfg.workers, Seed: cfg.seed, Directory: s.directory, Verbose: cfg.verbose,
	}
}

// waiting is how many messages wait in the queues. Those that a consumer holds are not among them.
func (s *site) waiting() (total int, err error) {
	err = withChannel(s.amqpURL, func(channel *amqp091.Channel) error {
		for consumer, topic := range s.queues() {
			queue, err := channel.QueueDeclarePassive(queueName(consumer)(topic), true, false, false, false, nil)
			if err != nil {
				return err
			}
			total += queue.Messages
		}
		return nil
	})
	return total, err
}

// leave removes everything.
func (s *site) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, dropErr := s.db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+s.schema+" CASCADE")
	deleteErr := withChannel(s.amqpURL, func(channel *amqp091.Channel) error {
		for consumer, topic := range s.queues() {
			if _, err := channel.QueueDelete(queueName(consumer)(topic), false, false, false); err != nil {
				return err
			}
			if err := channel.ExchangeDelete(topic, false, false); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(dropErr, s.db.Close(), deleteErr)
}

// withSearchPath makes a schema the default one, in either form that a connection string has.
func withSearchPath(dsn, schema string) string {
	address, err := url.Parse(dsn)
	if err != nil || address.Scheme == "" {
		return dsn + " search_path=" + schema
	}
	query := address.Query()
	query.Set("search_path", schema)
	address.RawQuery = query.Encode()
	return address.String()
}
