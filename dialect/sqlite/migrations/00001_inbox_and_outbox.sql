-- +goose Up

-- Times are microseconds since 1970 by the database's clock. Text compares byte by byte
-- (BINARY is SQLite's default collation).
CREATE TABLE inbox_messages (
    consumer        TEXT    NOT NULL,
    message_id      TEXT    NOT NULL,
    tenant_id       TEXT    NOT NULL DEFAULT '',
    idempotency_key TEXT,
    state           TEXT    NOT NULL DEFAULT 'processed',
    recorded_at     INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    topic           TEXT,
    payload         BLOB,
    metadata        TEXT,
    last_error      TEXT,
    PRIMARY KEY (consumer, message_id),
    CONSTRAINT inbox_messages_state_check CHECK (state IN ('processed', 'dead')),
    CONSTRAINT inbox_messages_dead_check CHECK (
        (state = 'dead') = (payload IS NOT NULL)
        AND (state = 'dead') = (metadata IS NOT NULL)
        AND (state = 'dead') = (last_error IS NOT NULL)
        AND (state = 'dead') = (topic IS NOT NULL))
);

CREATE UNIQUE INDEX inbox_messages_key ON inbox_messages (consumer, tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE INDEX inbox_messages_age ON inbox_messages (recorded_at);

CREATE TABLE outbox_messages (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    topic           TEXT    NOT NULL,
    message_id      TEXT    NOT NULL,
    tenant_id       TEXT    NOT NULL DEFAULT '',
    idempotency_key TEXT,
    ordering_key    TEXT,
    payload         BLOB    NOT NULL,
    metadata        TEXT    NOT NULL,
    content_type    TEXT,
    source          TEXT,
    occurred_at     INTEGER,
    due_at          INTEGER NOT NULL,
    state           TEXT    NOT NULL DEFAULT 'pending',
    attempt         INTEGER NOT NULL DEFAULT 0,
    rejections      INTEGER NOT NULL DEFAULT 0,
    lease_owner     TEXT,
    receipt         TEXT,
    lease_until     INTEGER,
    last_error      TEXT,
    finished_at     INTEGER,
    CONSTRAINT outbox_messages_state_check CHECK (state IN ('pending', 'leased', 'forwarded', 'dead')),
    CONSTRAINT outbox_messages_lease_check CHECK (
        (state = 'leased') = (receipt IS NOT NULL)
        AND (state = 'leased') = (lease_until IS NOT NULL)
        AND (state = 'leased') = (lease_owner IS NOT NULL)),
    CONSTRAINT outbox_messages_finished_check CHECK ((state IN ('forwarded', 'dead')) = (finished_at IS NOT NULL)),
    CONSTRAINT outbox_messages_dead_check CHECK (state <> 'dead' OR last_error IS NOT NULL)
);

CREATE UNIQUE INDEX outbox_messages_id ON outbox_messages (topic, message_id);

CREATE UNIQUE INDEX outbox_messages_key ON outbox_messages (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE INDEX outbox_messages_due ON outbox_messages (due_at, seq)
    WHERE state = 'pending' AND ordering_key IS NULL;

CREATE INDEX outbox_messages_expired ON outbox_messages (lease_until, seq)
    WHERE state = 'leased' AND ordering_key IS NULL;

CREATE INDEX outbox_messages_order ON outbox_messages (ordering_key, seq)
    WHERE state IN ('pending', 'leased') AND ordering_key IS NOT NULL;

CREATE INDEX outbox_messages_finished ON outbox_messages (state, finished_at, seq)
    WHERE state IN ('forwarded', 'dead');

CREATE TABLE inbox_schema (version INTEGER NOT NULL);
INSERT INTO inbox_schema (version) VALUES (1);

-- +goose Down
DROP TABLE inbox_schema;
DROP TABLE outbox_messages;
DROP TABLE inbox_messages;
