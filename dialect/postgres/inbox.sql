-- Statements of the inbox, for PostgreSQL. The table names are the defaults; the library puts the
-- configured ones in their place. Parameters are listed above each statement.

-- Stages one row and says what was there. $1 lock wait bound (such as 5000ms), $2 consumer,
-- $3 message id, $4 tenant, $5 idempotency key or NULL.
--
-- A second delivery of the same message waits here, on the unique index, until the first one has
-- ended. The bound of that wait is the server's own lock_timeout, because ending the wait by the
-- client's context would kill the connection and with it the caller's transaction; it is set for
-- this statement only and put back at its end, so the handler's own setting is untouched.
-- Without a conflict target both unique indexes count and no collision aborts the transaction.
-- name: begin
WITH bound AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true) AS during
), staged AS (
    INSERT INTO inbox_messages (consumer, message_id, tenant_id, idempotency_key)
    SELECT $2, $3, $4, $5 FROM bound
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM staged) = 1 THEN 'fresh'
            ELSE (SELECT state FROM inbox_messages WHERE consumer = $2 AND message_id = $3) END,
       set_config('lock_timeout', (SELECT before FROM bound), true);

-- The state of the row that begin collided with, when begin's own snapshot did not show it: it was
-- committed while begin waited, or it shares only the business key. A processed one comes first, as
-- a dead one does not speak for the other. Parameters as above, from $2 on.
-- name: find
SELECT state FROM inbox_messages WHERE consumer = $1 AND message_id = $2
UNION ALL
SELECT state FROM inbox_messages WHERE consumer = $1 AND tenant_id = $3 AND idempotency_key = $4
ORDER BY state DESC
LIMIT 1;

-- Whether the row of one message is there. $1 consumer, $2 message id.
-- name: exists
SELECT state FROM inbox_messages WHERE consumer = $1 AND message_id = $2;

-- Makes a dead row processed, for a message that was mended and sent again, unless another message
-- has been handled under its business key. Another delivery may be at it: the wait is bounded as in
-- begin. $1 lock wait bound, $2 consumer, $3 message id, $4 tenant, $5 idempotency key or NULL.
-- name: revive
WITH bound AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true) AS during
), revived AS (
    UPDATE inbox_messages
    SET state = 'processed', recorded_at = now(), tenant_id = $4, idempotency_key = $5,
        topic = NULL, payload = NULL, metadata = NULL, last_error = NULL
    FROM bound
    WHERE consumer = $2 AND message_id = $3 AND state = 'dead'
      AND NOT EXISTS (SELECT 1 FROM inbox_messages WHERE consumer = $2 AND tenant_id = $4 AND idempotency_key = $5)
    RETURNING 1
)
SELECT (SELECT count(*) FROM revived), set_config('lock_timeout', (SELECT before FROM bound), true);

-- Keeps a message that cannot be handled. $1 consumer, $2 message id, $3 topic, $4 payload,
-- $5 metadata, $6 error.
-- name: bury
INSERT INTO inbox_messages (consumer, message_id, state, topic, payload, metadata, last_error)
VALUES ($1, $2, 'dead', $3, $4, $5, $6)
ON CONFLICT DO NOTHING;

-- Deletes one chunk of old rows. $1 state, $2 age in microseconds, $3 rows at most. Rows that
-- another purge holds are passed over.
-- name: purge
DELETE FROM inbox_messages
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM inbox_messages
    WHERE state = $1 AND recorded_at < now() - $2 * interval '1 microsecond'
    LIMIT $3 FOR UPDATE SKIP LOCKED));

-- name: version
SELECT max(version) FROM inbox_schema;

-- The isolation level of this transaction.
-- name: isolation
SELECT current_setting('transaction_isolation');

-- Whether the table is there, with its columns. It reads no row.
-- name: probe
SELECT consumer, message_id, tenant_id, idempotency_key, state, recorded_at, topic, payload, metadata, last_error
FROM inbox_messages WHERE false;
