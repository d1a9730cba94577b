package main

const helpText = `usage: orders [flags]

Shows message handlers that take effect exactly once although everything around them misbehaves.

An order service places orders. A billing consumer charges each order that was placed, a shipping
consumer ships each order that was charged. Every event goes through the outbox: it is committed
together with the row that it announces, and published afterwards.

  order service ──outbox──▶ orders.placed ──▶ billing ──outbox──▶ orders.charged ──▶ shipping
   (orders)                                  (charges)                              (shipments)

Nothing has to be installed: the database is a SQLite file, the broker lives in this process and
behaves as badly as real ones do. It delivers about a third of the messages again, some at the same
time as the first delivery, some after the handler has committed and acknowledged. The handlers
fail and panic now and then when their rows are written but not committed.

The same load runs twice:

  pass 1  inbox off   what every at-least-once consumer gets: orders charged and shipped twice
  pass 2  inbox on    the same disturbances, each order charged and shipped once

The tables charges and shipments have no unique constraint, so double effects are there to see.

The table that is printed has a line for each pass and consumer:

  delivered       messages that the broker handed to the consumer, redeliveries included
  handled         runs of the handler whose transaction was committed
  skipped         deliveries that the inbox recognised as handled and acknowledged, from the
                  library's OpenTelemetry counter watermill_inbox.skipped
  failed          runs of the handler that failed or panicked, and were rolled back
  effects         rows that the consumer wrote
  double effects  rows beyond the first of an order
  lost            orders without a row

In pass 1 shipping shows more double effects than billing, because an order that is charged twice
is announced twice.

The last line is the verdict of pass 2; double and lost are sums over both consumers. The exit
status is 0 when both are 0, else 1; 2 means wrong flags, 130 an interruption.

With -real the order service, two processes of each consumer and two of the outbox's forwarder run
on a real Postgres and RabbitMQ, and are killed with SIGKILL at random moments and started again
until the work is done. Redeliveries then come from the kills alone: from messages that were
committed but not acknowledged, and published but not yet recorded as published. Counts are kept
in files that survive the kills; a run that is killed between its commit and its count is missing
in them, so handled may be a little below effects. The line before the verdict says how many
processes were killed in pass 2.

Flags:
`

const helpExamples = `
Examples:
  go run ./examples/orders
  go run ./examples/orders -orders 200 -seed 7
  go run ./examples/orders -keep -dir .        # then look at the tables with sqlite3
  make demo-real                               # starts Postgres and RabbitMQ, runs with -real
  ` + postgresVariable + `=postgres://... ` + amqpVariable + `=amqp://... \
    go run ./examples/orders -real -kills 30
`
