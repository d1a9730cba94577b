package main

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// rabbitConfig gives each topic a durable fanout exchange and each consumer a durable queue on it.
func rabbitConfig(url, consumer string) amqp.Config {
	cfg := amqp.NewDurablePubSubConfig(url, queueName(consumer))
	// Without confirmation Publish succeeds before the broker has the message, and the outbox
	// would record as published what a broken connection has lost.
	cfg.Publish.ConfirmDelivery = true
	cfg.Publish.ChannelPoolSize = 8 // as many as the forwarder has workers
	return cfg
}

func queueName(consumer string) amqp.QueueNameGenerator {
	return amqp.GenerateQueueNameTopicNameWithSuffix(consumer)
}

func newPublisher(url string, logger watermill.LoggerAdapter) (message.Publisher, error) {
	return amqp.NewPublisher(rabbitConfig(url, ""), logger)
}

func newSubscriber(url, consumer string, subscriptions int, count tally, logger watermill.LoggerAdapter) (message.Subscriber, error) {
	subscriber, err := amqp.NewSubscriber(rabbitConfig(url, consumer), logger)
	if err != nil {
		return nil, err
	}
	return parallel{Subscriber: subscriber, consumer: consumer, subscriptions: subscriptions, count: count}, nil
}

// declareQueue makes a consumer's queue before the first message is published: an exchange drops
// what no queue is bound for.
func declareQueue(url, consumer, topic string) error {
	subscriber, err := amqp.NewSubscriber(rabbitConfig(url, consumer), watermill.NopLogger{})
	if err != nil {
		return err
	}
	return errors.Join(subscriber.SubscribeInitialize(topic), subscriber.Close())
}

// withChannel calls fn with a channel of its own connection.
func withChannel(url string, fn func(*amqp091.Channel) error) (err error) {
	connection, err := amqp091.Dial(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	return fn(channel)
}
