-- Statements of the outbox, for PostgreSQL. The table names are the defaults; the library puts the
-- configured ones in their place. Parameters are listed above each statement. Rows and lists travel
-- as one JSON text, so that a statement's text never changes and no driver needs to know arrays.
-- Times travel as microseconds since 1970.

-- Takes numbers for rows that need more than one statement. $1 how many.
-- name: reserve
SELECT nextval((SELECT pg_get_serial_sequence('outbox_messages', 'seq'))::regclass)
FROM generate_series(1, $1::bigint);

-- Stages rows and returns those that were new as a JSON array of [seq, topic, id, due]. $1 lock
-- wait bound (such as 5000ms), $2 rows.
--
-- Numbers are taken in the order in which the rows were given (n), but rows are inserted in the
-- order of their identity (place), so that two batches in opposite order cannot wait for each
-- other. A row that another transaction has staged is waited for on the unique index; the bound of
-- that wait is the server's own lock_timeout, set for this statement only and put back at its end.
-- Without a conflict target both unique indexes count and no collision aborts the transaction.
-- name: append
WITH bound AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1::text, true) AS during
), numbered AS MATERIALIZED (
    SELECT coalesce(g.seq, nextval((SELECT pg_get_serial_sequence('outbox_messages', 'seq'))::regclass)) AS number,
           g.place, g.topic, g.id, g.tenant, g.key, g.ordering, g.payload, g.metadata, g.type, g.source,
           'epoch'::timestamptz + g.occurred * interval '1 microsecond' AS occurred,
           'epoch'::timestamptz + g.due * interval '1 microsecond' AS due
    FROM (SELECT * FROM json_to_recordset($2::text::json) AS r(
              n bigint, place bigint, seq bigint, topic text, id text, tenant text, key text, ordering text,
              payload text, metadata text, type text, source text, occurred bigint, due bigint)
          ORDER BY r.n) AS g
), staged AS (
    INSERT INTO outbox_messages (seq, topic, message_id, tenant_id, idempotency_key, ordering_key,
                                 payload, metadata, content_type, source, occurred_at, due_at)
    SELECT g.number, g.topic, g.id, g.tenant, g.key, g.ordering,
           decode(g.payload, 'hex'), g.metadata, g.type, g.source, g.occurred,
           coalesce(g.due, least(g.occurred, now()))
    FROM bound, numbered AS g
    ORDER BY g.place
    ON CONFLICT DO NOTHING
    RETURNING seq, topic, message_id, due_at
)
SELECT fresh.rows, set_config('lock_timeout', (SELECT before FROM bound), true)
FROM (SELECT json_agg(json_build_array(seq, topic, message_id,
                                       (extract(epoch FROM due_at) * 1000000)::bigint))::text AS rows
      FROM staged) AS fresh;

-- The rows that append collided with. It is a statement of its own because append's snapshot does
-- not show a row that was committed while append waited. $1 identities.
-- name: find
SELECT g.n, o.seq, o.topic, o.message_id, o.tenant_id, o.idempotency_key, o.ordering_key,
       o.payload, o.metadata, o.content_type, o.source,
       (extract(epoch FROM o.occurred_at) * 1000000)::bigint, (extract(epoch FROM o.due_at) * 1000000)::bigint
FROM json_to_recordset($1::text::json) AS g(n bigint, topic text, id text, tenant text, key text)
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT 1 AS rank, m.* FROM outbox_messages AS m WHERE m.topic = g.topic AND m.message_id = g.id
        UNION ALL
        SELECT 2 AS rank, m.* FROM outbox_messages AS m WHERE m.tenant_id = g.tenant AND m.idempotency_key = g.key
    ) AS either
    ORDER BY rank LIMIT 1
) AS o;

-- Leases the oldest due rows. $1 owner, $2 receipt, $3 lease, $4 rows at most, $5 rows of one key
-- at most, $6 the key after which the scan of keys begins, $7 keys to pass at most, $8 the due time
-- from which rows without a key are looked for, $9 whether expired leases are looked for.
-- The first column is the key at which the scan of keys stopped early, or NULL; it comes with every
-- row and, where nothing was leased, alone.
--
-- Rows with a key: only the oldest unfinished row of a key, its head, may open a lane. That can not
-- be undone by anything that commits later, so a snapshot that is out of date misleads nobody, and
-- no lock on the key is needed. The scan jumps from key to key, so it costs nothing that 100,000
-- rows wait behind a head. A lane is as long as its rows may be leased without a gap, first as the
-- snapshot shows them, then as they turn out once locked: behind a gap somebody else is at work.
-- name: claim
WITH RECURSIVE scan AS (
    (SELECT o.ordering_key, o.seq, 1 AS passed, 0 AS found_before,
            (CASE o.state WHEN 'pending' THEN o.due_at <= now() ELSE o.lease_until < now() END) AS free
     FROM outbox_messages AS o
     WHERE o.state IN ('pending', 'leased') AND o.ordering_key IS NOT NULL AND o.ordering_key > $6::text
     ORDER BY o.ordering_key, o.seq LIMIT 1)
    UNION ALL
    SELECT next.ordering_key, next.seq, k.passed + 1, k.found_before + k.free::int, next.free
    FROM scan AS k CROSS JOIN LATERAL (
        SELECT o.ordering_key, o.seq,
               (CASE o.state WHEN 'pending' THEN o.due_at <= now() ELSE o.lease_until < now() END) AS free
        FROM outbox_messages AS o
        WHERE o.state IN ('pending', 'leased') AND o.ordering_key IS NOT NULL AND o.ordering_key > k.ordering_key
        ORDER BY o.ordering_key, o.seq LIMIT 1
    ) AS next
    WHERE k.passed < $7::int AND k.found_before + k.free::int < $4::int
), heads AS MATERIALIZED (
    SELECT o.seq, o.ordering_key FROM outbox_messages AS o
    WHERE o.seq = ANY (ARRAY(SELECT seq FROM scan WHERE free))
      AND (CASE o.state WHEN 'pending' THEN o.due_at <= now() WHEN 'leased' THEN o.lease_until < now() ELSE false END)
    FOR UPDATE SKIP LOCKED
), lanes AS MATERIALIZED (
    SELECT lane.seq, lane.since, lane.rank, head.ordering_key
    FROM heads AS head CROSS JOIN LATERAL (
        SELECT r.seq, max(r.due_at) OVER upto AS since, row_number() OVER upto AS rank, bool_and(r.free) OVER upto AS free
        FROM (SELECT o.seq, o.due_at,
                     (CASE o.state WHEN 'pending' THEN o.due_at <= now() ELSE o.lease_until < now() END) AS free
              FROM outbox_messages AS o
              WHERE o.ordering_key = head.ordering_key AND o.seq >= head.seq AND o.state IN ('pending', 'leased')
              ORDER BY o.seq LIMIT $5::int) AS r
        WINDOW upto AS (ORDER BY r.seq)
    ) AS lane
    WHERE lane.free
), due AS MATERIALIZED (
    SELECT o.seq, o.due_at AS since FROM outbox_messages AS o
    WHERE o.state = 'pending' AND o.ordering_key IS NULL AND o.due_at <= now()
      AND o.due_at >= 'epoch'::timestamptz + $8::bigint * interval '1 microsecond'
    ORDER BY o.due_at, o.seq LIMIT $4::int FOR UPDATE SKIP LOCKED
), expired AS MATERIALIZED (
    SELECT o.seq, o.due_at AS since FROM outbox_messages AS o
    WHERE $9::boolean AND o.state = 'leased' AND o.ordering_key IS NULL AND o.lease_until < now()
    ORDER BY o.lease_until, o.seq LIMIT $4::int FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT seq, since, 1 AS rank, NULL AS ordering_key FROM due
    UNION ALL SELECT seq, since, 1, NULL FROM expired
    UNION ALL SELECT seq, since, rank, ordering_key FROM lanes
    ORDER BY since, seq LIMIT $4::int
), held AS MATERIALIZED (
    SELECT o.seq FROM outbox_messages AS o
    WHERE o.seq = ANY (ARRAY(SELECT seq FROM picked WHERE ordering_key IS NOT NULL))
      AND (CASE o.state WHEN 'pending' THEN o.due_at <= now() WHEN 'leased' THEN o.lease_until < now() ELSE false END)
    FOR UPDATE SKIP LOCKED
), whole AS (
    SELECT p.seq, p.rank, row_number() OVER (PARTITION BY p.ordering_key ORDER BY p.seq) AS place
    FROM picked AS p JOIN held USING (seq)
), claimed AS (
    UPDATE outbox_messages AS o
    SET state = 'leased', attempt = o.attempt + 1, lease_owner = $1::text, receipt = $2::text,
        lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
    WHERE o.seq = ANY (ARRAY(SELECT seq FROM picked WHERE ordering_key IS NULL
                             UNION ALL SELECT seq FROM whole WHERE rank = place))
    RETURNING o.seq, o.topic, o.message_id, o.tenant_id, o.idempotency_key, o.ordering_key,
              o.payload, o.metadata, o.content_type, o.source,
              (extract(epoch FROM o.occurred_at) * 1000000)::bigint AS occurred,
              (extract(epoch FROM o.due_at) * 1000000)::bigint AS due,
              o.attempt, o.rejections, (extract(epoch FROM o.lease_until) * 1000000)::bigint AS until
)
SELECT stop.ordering_key, claimed.*
FROM (SELECT max(ordering_key) AS ordering_key FROM scan
      WHERE passed >= $7::int OR found_before + free::int >= $4::int) AS stop
LEFT JOIN claimed ON true;

-- Marks rows as published. $1 leases. Each of the statements below returns the numbers of the rows
-- that it changed: those whose receipt was the current one.
-- name: complete
UPDATE outbox_messages AS o
SET state = 'forwarded', finished_at = now(), receipt = NULL, lease_owner = NULL, lease_until = NULL
FROM json_to_recordset($1::text::json) AS g(seq bigint, receipt text)
WHERE o.seq = g.seq AND o.receipt = g.receipt AND o.state = 'leased'
RETURNING o.seq;

-- Deletes rows that are published, where nothing is kept of them. $1 leases.
-- name: remove
DELETE FROM outbox_messages AS o
USING json_to_recordset($1::text::json) AS g(seq bigint, receipt text)
WHERE o.seq = g.seq AND o.receipt = g.receipt AND o.state = 'leased'
RETURNING o.seq;

-- Gives rows back, due at once where they stand in the order or after a delay. $1 leases.
-- name: release
UPDATE outbox_messages AS o
SET state = 'pending', receipt = NULL, lease_owner = NULL, lease_until = NULL,
    due_at = CASE WHEN g.delay > 0 THEN greatest(o.due_at, now() + g.delay * interval '1 microsecond') ELSE o.due_at END
FROM json_to_recordset($1::text::json) AS g(seq bigint, receipt text, delay bigint)
WHERE o.seq = g.seq AND o.receipt = g.receipt AND o.state = 'leased'
RETURNING o.seq;

-- Extends leases. $1 leases, $2 lease from now on.
-- name: renew
UPDATE outbox_messages AS o
SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
FROM json_to_recordset($1::text::json) AS g(seq bigint, receipt text)
WHERE o.seq = g.seq AND o.receipt = g.receipt AND o.state = 'leased'
RETURNING o.seq;

-- Counts a rejection of each row, and makes it dead when that was the last one allowed. A row that
-- is held keeps its lease otherwise. $1 leases.
-- name: reject
UPDATE outbox_messages AS o
SET rejections = o.rejections + 1,
    last_error = g.error,
    state = CASE WHEN g.dies THEN 'dead' WHEN g.held THEN o.state ELSE 'pending' END,
    finished_at = CASE WHEN g.dies THEN now() END,
    receipt = CASE WHEN g.held AND NOT g.dies THEN o.receipt END,
    lease_owner = CASE WHEN g.held AND NOT g.dies THEN o.lease_owner END,
    lease_until = CASE WHEN g.held AND NOT g.dies THEN o.lease_until END,
    due_at = CASE WHEN g.delay > 0 AND NOT g.dies AND NOT g.held
                  THEN greatest(o.due_at, now() + g.delay * interval '1 microsecond') ELSE o.due_at END
FROM (SELECT m.seq, r.receipt, r.delay, r.error, r.held, m.rejections + 1 >= r.allowed AS dies
      FROM json_to_recordset($1::text::json) AS r(
               seq bigint, receipt text, delay bigint, error text, held boolean, allowed bigint)
      JOIN outbox_messages AS m ON m.seq = r.seq) AS g
WHERE o.seq = g.seq AND o.receipt = g.receipt AND o.state = 'leased'
RETURNING o.seq;

-- Deletes one chunk of finished rows. $1 state, $2 age, $3 rows at most. Rows that another purge
-- holds are passed over.
-- name: purge
DELETE FROM outbox_messages
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM outbox_messages
    WHERE state = $1::text AND state IN ('forwarded', 'dead')
      AND finished_at < now() - $2::bigint * interval '1 microsecond'
    ORDER BY finished_at
    LIMIT $3::int FOR UPDATE SKIP LOCKED));

-- How many rows wait, are leased and are dead, and the due time and age of the oldest one that is
-- due. $1 rows to count at most, of each kind and of rows with and without a key.
-- name: stats
WITH free AS MATERIALIZED (
    SELECT due_at FROM outbox_messages
    WHERE state = 'pending' AND ordering_key IS NULL ORDER BY due_at, seq LIMIT $1::int
), keyed AS MATERIALIZED (
    SELECT state, due_at FROM outbox_messages
    WHERE state IN ('pending', 'leased') AND ordering_key IS NOT NULL ORDER BY ordering_key, seq LIMIT $1::int
)
SELECT (SELECT count(*) FROM free) + (SELECT count(*) FROM keyed WHERE state = 'pending'),
       (SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE state = 'leased' AND ordering_key IS NULL LIMIT $1::int) AS l)
           + (SELECT count(*) FROM keyed WHERE state = 'leased'),
       (SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE state = 'dead' LIMIT $1::int) AS d),
       greatest(0, (extract(epoch FROM now() - least((SELECT min(due_at) FROM free),
                   (SELECT min(due_at) FROM keyed WHERE state = 'pending'))) * 1000000)::bigint);

-- One page of rows, by number. $1 state or '', $2 the number after which it begins, $3 topic, $4
-- tenant, $5 ordering key, $6 part of the last error (each '' for any), $7 age or 0, $8 rows at
-- most, $9 whether payloads are wanted. Each arm reads one partial index, and only that of the
-- state asked for; what has no index of its own is looked for in order of numbers.
-- name: list
WITH fit AS NOT MATERIALIZED (
    SELECT o.seq, o.state, o.ordering_key FROM outbox_messages AS o
    WHERE o.seq > $2::bigint
      AND ($3::text = '' OR o.topic = $3::text)
      AND ($4::text = '' OR o.tenant_id = $4::text)
      AND ($5::text = '' OR o.ordering_key = $5::text)
      AND ($6::text = '' OR strpos(o.last_error, $6::text) > 0)
      AND ($7::bigint = 0 OR coalesce(o.finished_at, o.due_at) <= now() - $7::bigint * interval '1 microsecond')
), found AS MATERIALIZED (
    SELECT seq FROM fit WHERE $1::text = 'dead' AND state = 'dead'
    UNION ALL
    SELECT seq FROM fit WHERE $1::text = 'pending' AND state = 'pending' AND ordering_key IS NULL
    UNION ALL
    SELECT seq FROM fit WHERE $1::text = 'leased' AND state = 'leased' AND ordering_key IS NULL
    UNION ALL
    SELECT seq FROM fit
    WHERE $1::text IN ('pending', 'leased') AND state = $1::text AND state IN ('pending', 'leased') AND ordering_key IS NOT NULL
    UNION ALL
    (SELECT seq FROM fit
     WHERE $1::text IN ('', 'forwarded') AND ($1::text = '' OR state = $1::text) ORDER BY seq LIMIT $8::int)
)
SELECT o.seq, o.topic, o.message_id, o.tenant_id, o.idempotency_key, o.ordering_key,
       CASE WHEN $9::boolean THEN o.payload END, o.metadata, o.content_type, o.source,
       (extract(epoch FROM o.occurred_at) * 1000000)::bigint, (extract(epoch FROM o.due_at) * 1000000)::bigint,
       o.state, o.attempt, o.rejections, o.lease_owner, (extract(epoch FROM o.lease_until) * 1000000)::bigint,
       o.last_error, (extract(epoch FROM o.finished_at) * 1000000)::bigint
FROM (SELECT seq FROM found ORDER BY seq LIMIT $8::int) AS page JOIN outbox_messages AS o USING (seq)
ORDER BY o.seq;

-- Makes dead rows pending under new numbers, in the order of their old ones. The new number puts a
-- row last in its key, and keeps true that the rows before the head of a key stay finished.
-- $1 numbers. Rows are locked in order, so two of these cannot wait for each other in a circle.
-- name: requeue
WITH dead AS MATERIALIZED (
    SELECT o.seq FROM outbox_messages AS o
    WHERE o.seq = ANY (ARRAY(SELECT r::text::bigint FROM json_array_elements($1::text::json) AS r)) AND o.state = 'dead'
    ORDER BY o.seq FOR UPDATE
), numbered AS MATERIALIZED (
    SELECT d.seq, nextval((SELECT pg_get_serial_sequence('outbox_messages', 'seq'))::regclass) AS number
    FROM (SELECT seq FROM dead ORDER BY seq) AS d
)
UPDATE outbox_messages AS o
SET seq = n.number, state = 'pending', due_at = now(), attempt = 0, rejections = 0, finished_at = NULL
FROM numbered AS n
WHERE o.seq = n.seq AND o.state = 'dead'
RETURNING o.seq;

-- Deletes dead rows. $1 numbers.
-- name: discard
WITH dead AS MATERIALIZED (
    SELECT o.seq FROM outbox_messages AS o
    WHERE o.seq = ANY (ARRAY(SELECT r::text::bigint FROM json_array_elements($1::text::json) AS r)) AND o.state = 'dead'
    ORDER BY o.seq FOR UPDATE
)
DELETE FROM outbox_messages AS o USING dead AS d
WHERE o.seq = d.seq AND o.state = 'dead'
RETURNING o.seq;

-- The version of the tables. It reads no row of the outbox, but fails where there is none.
-- name: version
SELECT max(version) FROM inbox_schema WHERE NOT EXISTS (SELECT FROM outbox_messages WHERE false);

-- Whether the table is there, with its columns. It reads no row.
-- name: probe
SELECT seq, topic, message_id, tenant_id, idempotency_key, ordering_key, payload, metadata, content_type, source,
       occurred_at, due_at, state, attempt, rejections, lease_owner, receipt, lease_until, last_error, finished_at
FROM outbox_messages WHERE false;
