-- Statements of the outbox, for SQLite. The table names are the defaults; the library puts the
-- configured ones in their place. Parameters are listed above each statement. Rows and lists travel
-- as one JSON text. Times are microseconds since 1970. Every transaction begins IMMEDIATE, so there
-- is one writer at a time, which needs no locks on rows and no order of inserts: there is no
-- statement "reserve", and rows come in the order given.

-- Stages rows and returns each one that was new as a JSON array of [seq, topic, id, due]. ?1 is not
-- used here: it is the lock wait bound elsewhere. ?2 rows.
-- name: append
INSERT INTO outbox_messages (topic, message_id, tenant_id, idempotency_key, ordering_key,
                             payload, metadata, content_type, source, occurred_at, due_at)
SELECT g.value ->> 'topic', g.value ->> 'id', g.value ->> 'tenant', g.value ->> 'key', g.value ->> 'ordering',
       unhex(g.value ->> 'payload'), g.value ->> 'metadata', g.value ->> 'type', g.value ->> 'source', g.value ->> 'occurred',
       coalesce(g.value ->> 'due', min(coalesce(g.value ->> 'occurred', 9223372036854775807),
                                       CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
FROM json_each(?2) AS g
WHERE ?1 IS NOT NULL
ORDER BY g.key
ON CONFLICT DO NOTHING
RETURNING json_array(json_array(seq, topic, message_id, due_at)), '';

-- The rows that append collided with. ?1 identities.
-- name: find
SELECT g.value ->> 'n', o.seq, o.topic, o.message_id, o.tenant_id, o.idempotency_key, o.ordering_key,
       o.payload, o.metadata, o.content_type, o.source, o.occurred_at, o.due_at
FROM json_each(?1) AS g
JOIN outbox_messages AS o ON o.seq = coalesce(
    (SELECT m.seq FROM outbox_messages AS m WHERE m.topic = g.value ->> 'topic' AND m.message_id = g.value ->> 'id'),
    (SELECT m.seq FROM outbox_messages AS m WHERE m.tenant_id = g.value ->> 'tenant' AND m.idempotency_key = g.value ->> 'key'));

-- Leases the oldest due rows. ?1 owner, ?2 receipt, ?3 lease, ?4 rows at most, ?5 rows of one key
-- at most, ?6 the key after which the scan of keys begins, ?7 keys to pass at most, ?8 the due time
-- from which rows without a key are looked for, ?9 whether expired leases are looked for.
-- The first column is NULL: the scan of keys does not stop early here (?7 bounds it only beyond
-- any number of keys that one file serves).
--
-- Rows with a key: only the oldest unfinished row of a key, its head, opens a lane, and a lane goes
-- on as far as its rows may be leased without a gap. The scan jumps from key to key.
-- name: claim
WITH RECURSIVE clock(now) AS MATERIALIZED (
    SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)
), scan(ordering_key) AS (
    SELECT min(ordering_key) FROM outbox_messages
    WHERE state IN ('pending', 'leased') AND ordering_key IS NOT NULL AND ordering_key > ?6
    UNION ALL
    SELECT (SELECT min(o.ordering_key) FROM outbox_messages AS o
            WHERE o.state IN ('pending', 'leased') AND o.ordering_key IS NOT NULL AND o.ordering_key > scan.ordering_key)
    FROM scan WHERE scan.ordering_key IS NOT NULL
), heads(seq, ordering_key) AS MATERIALIZED (
    SELECT o.seq, o.ordering_key
    FROM scan CROSS JOIN outbox_messages AS o ON o.seq = (
        SELECT h.seq FROM outbox_messages AS h
        WHERE h.state IN ('pending', 'leased') AND h.ordering_key IS NOT NULL AND h.ordering_key = scan.ordering_key
        ORDER BY h.seq LIMIT 1)
    CROSS JOIN clock
    WHERE CASE o.state WHEN 'pending' THEN o.due_at <= clock.now ELSE o.lease_until < clock.now END AND ?7 > 0
    LIMIT ?4
), lanes(seq, since, free) AS MATERIALIZED (
    SELECT o.seq, max(o.due_at) OVER upto,
           min(CASE o.state WHEN 'pending' THEN o.due_at <= clock.now ELSE o.lease_until < clock.now END) OVER upto
    FROM heads CROSS JOIN outbox_messages AS o ON o.seq IN (
        SELECT r.seq FROM outbox_messages AS r
        WHERE r.state IN ('pending', 'leased') AND r.ordering_key IS NOT NULL AND r.ordering_key = heads.ordering_key
        ORDER BY r.seq LIMIT ?5)
    CROSS JOIN clock
    WINDOW upto AS (PARTITION BY o.ordering_key ORDER BY o.seq)
), due(seq, since) AS MATERIALIZED (
    SELECT o.seq, o.due_at FROM clock CROSS JOIN outbox_messages AS o
    WHERE o.state = 'pending' AND o.ordering_key IS NULL AND o.due_at <= clock.now AND o.due_at >= ?8
    ORDER BY o.due_at, o.seq LIMIT ?4
), expired(seq, since) AS MATERIALIZED (
    SELECT o.seq, o.due_at FROM clock CROSS JOIN outbox_messages AS o
    WHERE ?9 AND o.state = 'leased' AND o.ordering_key IS NULL AND o.lease_until < clock.now
    ORDER BY o.lease_until, o.seq LIMIT ?4
), picked(seq) AS MATERIALIZED (
    SELECT seq FROM (
        SELECT seq, since FROM due
        UNION ALL SELECT seq, since FROM expired
        UNION ALL SELECT seq, since FROM lanes WHERE free
    ) ORDER BY since, seq LIMIT ?4
)
UPDATE outbox_messages
SET state = 'leased', attempt = attempt + 1, lease_owner = ?1, receipt = ?2,
    lease_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
WHERE seq IN (SELECT seq FROM picked)
RETURNING NULL, seq, topic, message_id, tenant_id, idempotency_key, ordering_key,
          payload, metadata, content_type, source, occurred_at, due_at, attempt, rejections, lease_until;

-- Marks rows as published. ?1 leases. Each of the statements below returns the numbers of the rows
-- that it changed: those whose receipt was the current one.
-- name: complete
UPDATE outbox_messages AS o
SET state = 'forwarded', finished_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    receipt = NULL, lease_owner = NULL, lease_until = NULL
FROM json_each(?1) AS g
WHERE o.seq = g.value ->> 'seq' AND o.receipt = g.value ->> 'receipt' AND o.state = 'leased'
RETURNING seq;

-- Deletes rows that are published, where nothing is kept of them. ?1 leases.
-- name: remove
DELETE FROM outbox_messages
WHERE state = 'leased' AND seq IN (SELECT g.value ->> 'seq' FROM json_each(?1) AS g)
  AND receipt = (SELECT g.value ->> 'receipt' FROM json_each(?1) AS g WHERE g.value ->> 'seq' = outbox_messages.seq LIMIT 1)
RETURNING seq;

-- Gives rows back, due at once where they stand in the order or after a delay. ?1 leases.
-- name: release
UPDATE outbox_messages AS o
SET state = 'pending', receipt = NULL, lease_owner = NULL, lease_until = NULL,
    due_at = CASE WHEN g.value ->> 'delay' > 0
                  THEN max(o.due_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + (g.value ->> 'delay'))
                  ELSE o.due_at END
FROM json_each(?1) AS g
WHERE o.seq = g.value ->> 'seq' AND o.receipt = g.value ->> 'receipt' AND o.state = 'leased'
RETURNING seq;

-- Extends leases. ?1 leases, ?2 lease from now on.
-- name: renew
UPDATE outbox_messages AS o
SET lease_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2
FROM json_each(?1) AS g
WHERE o.seq = g.value ->> 'seq' AND o.receipt = g.value ->> 'receipt' AND o.state = 'leased'
RETURNING seq;

-- Counts a rejection of each row, and makes it dead when that was the last one allowed. A row that
-- is held keeps its lease otherwise. ?1 leases.
-- name: reject
UPDATE outbox_messages AS o
SET rejections = o.rejections + 1,
    last_error = g.error,
    state = CASE WHEN o.rejections + 1 >= g.allowed THEN 'dead' WHEN g.held THEN o.state ELSE 'pending' END,
    finished_at = CASE WHEN o.rejections + 1 >= g.allowed THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END,
    receipt = CASE WHEN g.held AND o.rejections + 1 < g.allowed THEN o.receipt END,
    lease_owner = CASE WHEN g.held AND o.rejections + 1 < g.allowed THEN o.lease_owner END,
    lease_until = CASE WHEN g.held AND o.rejections + 1 < g.allowed THEN o.lease_until END,
    due_at = CASE WHEN g.delay > 0 AND NOT g.held AND o.rejections + 1 < g.allowed
                  THEN max(o.due_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + g.delay)
                  ELSE o.due_at END
FROM (SELECT value ->> 'seq' AS seq, value ->> 'receipt' AS receipt, value ->> 'delay' AS delay, value ->> 'error' AS error,
             value ->> 'held' AS held, value ->> 'allowed' AS allowed FROM json_each(?1)) AS g
WHERE o.seq = g.seq AND o.receipt = g.receipt AND o.state = 'leased'
RETURNING seq;

-- Deletes one chunk of finished rows. ?1 state, ?2 age, ?3 rows at most.
-- name: purge
DELETE FROM outbox_messages
WHERE seq IN (
    SELECT seq FROM outbox_messages
    WHERE state = ?1 AND state IN ('forwarded', 'dead')
      AND finished_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2
    ORDER BY finished_at
    LIMIT ?3);

-- How many rows wait, are leased and are dead, and the age of the oldest one that is due. ?1 rows
-- to count at most, of each kind and of rows with and without a key.
-- name: stats
WITH free AS MATERIALIZED (
    SELECT due_at FROM outbox_messages
    WHERE state = 'pending' AND ordering_key IS NULL ORDER BY due_at, seq LIMIT ?1
), keyed AS MATERIALIZED (
    SELECT state, due_at FROM outbox_messages
    WHERE state IN ('pending', 'leased') AND ordering_key IS NOT NULL ORDER BY ordering_key, seq LIMIT ?1
)
SELECT (SELECT count(*) FROM free) + (SELECT count(*) FROM keyed WHERE state = 'pending'),
       (SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE state = 'leased' AND ordering_key IS NULL LIMIT ?1))
           + (SELECT count(*) FROM keyed WHERE state = 'leased'),
       (SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE state = 'dead' AND state IN ('forwarded', 'dead') LIMIT ?1)),
       (SELECT max(0, CAST(unixepoch('subsec') * 1000000 AS INTEGER) - min(due_at)) FROM (
           SELECT min(due_at) AS due_at FROM free
           UNION ALL SELECT min(due_at) FROM keyed WHERE state = 'pending'));

-- One page of rows, by number. ?1 state or '', ?2 the number after which it begins, ?3 topic, ?4
-- tenant, ?5 ordering key, ?6 part of the last error (each '' for any), ?7 age or 0, ?8 rows at
-- most, ?9 whether payloads are wanted. Each arm reads one partial index, and only that of the
-- state asked for; what has no index of its own is looked for in order of numbers.
-- name: list
WITH fit AS NOT MATERIALIZED (
    SELECT o.seq, o.state, o.ordering_key FROM outbox_messages AS o
    WHERE o.seq > ?2
      AND (?3 = '' OR o.topic = ?3)
      AND (?4 = '' OR o.tenant_id = ?4)
      AND (?5 = '' OR o.ordering_key = ?5)
      AND (?6 = '' OR instr(o.last_error, ?6) > 0)
      AND (?7 = 0 OR coalesce(o.finished_at, o.due_at) <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?7)
), found(seq) AS MATERIALIZED (
    SELECT seq FROM fit WHERE ?1 = 'dead' AND state = 'dead' AND state IN ('forwarded', 'dead')
    UNION ALL
    SELECT seq FROM fit WHERE ?1 = 'pending' AND state = 'pending' AND ordering_key IS NULL
    UNION ALL
    SELECT seq FROM fit WHERE ?1 = 'leased' AND state = 'leased' AND ordering_key IS NULL
    UNION ALL
    SELECT seq FROM fit
    WHERE ?1 IN ('pending', 'leased') AND state = ?1 AND state IN ('pending', 'leased') AND ordering_key IS NOT NULL
    UNION ALL
    SELECT seq FROM (SELECT seq FROM fit WHERE ?1 IN ('', 'forwarded') AND (?1 = '' OR state = ?1) ORDER BY seq LIMIT ?8)
)
SELECT o.seq, o.topic, o.message_id, o.tenant_id, o.idempotency_key, o.ordering_key,
       CASE WHEN ?9 THEN o.payload END, o.metadata, o.content_type, o.source, o.occurred_at, o.due_at,
       o.state, o.attempt, o.rejections, o.lease_owner, o.lease_until, o.last_error, o.finished_at
FROM (SELECT seq FROM found ORDER BY seq LIMIT ?8) AS page JOIN outbox_messages AS o USING (seq)
ORDER BY o.seq;

-- Makes dead rows pending under new numbers, in the order of their old ones. The new number puts a
-- row last in its key. ?1 numbers.
-- name: requeue
UPDATE outbox_messages AS o
SET seq = d.number, state = 'pending', due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    attempt = 0, rejections = 0, finished_at = NULL
FROM (SELECT m.seq AS old, (SELECT max(seq) FROM outbox_messages) + row_number() OVER (ORDER BY m.seq) AS number
      FROM outbox_messages AS m
      WHERE m.seq IN (SELECT value FROM json_each(?1)) AND m.state = 'dead') AS d
WHERE o.seq = d.old
RETURNING seq;

-- Deletes dead rows. ?1 numbers.
-- name: discard
DELETE FROM outbox_messages
WHERE seq IN (SELECT value FROM json_each(?1)) AND state = 'dead'
RETURNING seq;

-- The version of the tables. It reads no row of the outbox, but fails where there is none.
-- name: version
SELECT max(version) FROM inbox_schema WHERE NOT EXISTS (SELECT 1 FROM outbox_messages WHERE 0);

-- Whether the table is there, with its columns. It reads no row.
-- name: probe
SELECT seq, topic, message_id, tenant_id, idempotency_key, ordering_key, payload, metadata, content_type, source,
       occurred_at, due_at, state, attempt, rejections, lease_owner, receipt, lease_until, last_error, finished_at
FROM outbox_messages WHERE false;
