-- An inbox as version 1 of the schema left it: one message waits, one is settled, one is dead. Never changes.
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE messages (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    door TEXT NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    text TEXT NOT NULL
  ) STRICT;
CREATE TABLE pending (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane TEXT NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0,
    replayed INTEGER NOT NULL DEFAULT 0
  ) STRICT;
CREATE TABLE dead (
    place INTEGER PRIMARY KEY,
    bytes INTEGER NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_at INTEGER NOT NULL
  ) STRICT;
CREATE TABLE holes (number INTEGER PRIMARY KEY, reason TEXT NOT NULL, from_ms INTEGER NOT NULL) STRICT;
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    closed INTEGER NOT NULL,
    alive_at INTEGER NOT NULL,
    last_id TEXT
  ) STRICT;
CREATE VIEW waiting AS
    SELECT p.id, p.lane, p.kind, strftime('%Y-%m-%dT%H:%M:%fZ', m.received_at / 1000.0, 'unixepoch') AS received_at, p.bytes, p.deliveries, p.attempts,
      CASE p.not_before WHEN 0 THEN NULL ELSE strftime('%Y-%m-%dT%H:%M:%fZ', p.not_before / 1000.0, 'unixepoch') END AS not_before, p.replayed, m.text
    FROM pending p LEFT JOIN messages m USING (place);
CREATE VIEW dead_letters AS
    SELECT m.id, m.lane, m.kind, strftime('%Y-%m-%dT%H:%M:%fZ', m.received_at / 1000.0, 'unixepoch') AS received_at, strftime('%Y-%m-%dT%H:%M:%fZ', d.died_at / 1000.0, 'unixepoch') AS died_at, d.attempts,
      d.error, m.text
    FROM dead d JOIN messages m USING (place);
CREATE VIEW settled AS
    SELECT m.id, m.lane, m.kind, strftime('%Y-%m-%dT%H:%M:%fZ', m.received_at / 1000.0, 'unixepoch') AS received_at, m.bytes, m.text
    FROM messages m
    WHERE NOT EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place)
      AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.place = m.place);
INSERT INTO messages VALUES (3499531333183488, '018dd9c4-3fd5-7000-8000-000000000000', 'VIN', 1700000000001, 'root', 'wire', 64, 3532292750, '{"state":"online","vin":"VIN","createdAt":"2024-02-24T04:58:44Z","n":1}');
INSERT INTO messages VALUES (3499531333185536, '018dd9c4-3fd6-7000-8000-000000000000', 'VIN', 1700000000002, 'root', 'wire', 64, 4188524877, '{"state":"online","vin":"VIN","createdAt":"2024-02-24T04:58:44Z","n":2}');
INSERT INTO messages VALUES (3499531333187584, '018dd9c4-3fd7-7000-8000-000000000000', 'VIN', 1700000000003, 'root', 'wire', 64, 3770474508, '{"state":"online","vin":"VIN","createdAt":"2024-02-24T04:58:44Z","n":3}');
INSERT INTO pending VALUES (3499531333183488, '018dd9c4-3fd5-7000-8000-000000000000', 'VIN', 'wire', 64, 1, 2, 5, 0);
INSERT INTO dead VALUES (3499531333187584, 64, 'Error: no', 5, 1700000000000);
INSERT INTO state VALUES (1, 1, 1700000000010, NULL);
PRAGMA application_id = 1718380660;
PRAGMA user_version = 1;
