-- Statements of the inbox, for SQLite. The table names are the defaults; the library puts the
-- configured ones in their place. Parameters are listed above each statement.

-- Stages one row. Of two deliveries at once the second waits for the write lock of the whole
-- database, bounded by the connection's busy timeout. ?1 is not used here: it is the lock wait
-- bound elsewhere. ?2 consumer, ?3 message id, ?4 tenant, ?5 idempotency key or NULL.
-- name: begin
INSERT INTO inbox_messages (consumer, message_id, tenant_id, idempotency_key)
SELECT ?2, ?3, ?4, ?5 WHERE ?1 IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING 'fresh', '';

-- The state of the row that begin collided with, by message id or by business key. A processed one
-- comes first, as a dead one does not speak for the other.
-- ?1 consumer, ?2 message id, ?3 tenant, ?4 idempotency key or NULL.
-- name: find
SELECT state FROM inbox_messages WHERE consumer = ?1 AND message_id = ?2
UNION ALL
SELECT state FROM inbox_messages WHERE consumer = ?1 AND tenant_id = ?3 AND idempotency_key = ?4
ORDER BY state DESC
LIMIT 1;

-- Whether the row of one message is there. ?1 consumer, ?2 message id.
-- name: exists
SELECT state FROM inbox_messages WHERE consumer = ?1 AND message_id = ?2;

-- Makes a dead row processed, for a message that was mended and sent again, unless another message
-- has been handled under its business key. ?1 is not used here, ?2 consumer, ?3 message id, ?4 tenant,
-- ?5 idempotency key or NULL.
-- name: revive
UPDATE inbox_messages
SET state = 'processed', recorded_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    tenant_id = ?4, idempotency_key = ?5,
    topic = NULL, payload = NULL, metadata = NULL, last_error = NULL
WHERE ?1 IS NOT NULL AND consumer = ?2 AND message_id = ?3 AND state = 'dead'
  AND NOT EXISTS (SELECT 1 FROM inbox_messages WHERE consumer = ?2 AND tenant_id = ?4 AND idempotency_key = ?5)
RETURNING 1, '';

-- Keeps a message that cannot be handled. ?1 consumer, ?2 message id, ?3 topic, ?4 payload,
-- ?5 metadata, ?6 error.
-- name: bury
INSERT INTO inbox_messages (consumer, message_id, state, topic, payload, metadata, last_error)
VALUES (?1, ?2, 'dead', ?3, ?4, ?5, ?6)
ON CONFLICT DO NOTHING;

-- Deletes one chunk of old rows. ?1 state, ?2 age in microseconds, ?3 rows at most.
-- name: purge
DELETE FROM inbox_messages
WHERE rowid IN (
    SELECT rowid FROM inbox_messages
    WHERE state = ?1 AND recorded_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2
    LIMIT ?3);

-- name: version
SELECT max(version) FROM inbox_schema;

-- The isolation level of this transaction.
-- name: isolation
SELECT 'serializable';

-- How long, in milliseconds, this connection waits for its turn to write. 0 means not at all.
-- name: patience
SELECT timeout FROM pragma_busy_timeout;

-- Whether the table is there, with its columns. It reads no row.
-- name: probe
SELECT consumer, message_id, tenant_id, idempotency_key, state, recorded_at, topic, payload, metadata, last_error
FROM inbox_messages WHERE false;
