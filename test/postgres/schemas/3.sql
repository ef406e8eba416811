SET LOCAL lock_timeout = '5s';
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('fleethook inbox'));
CREATE SCHEMA IF NOT EXISTS inbox;
CREATE TABLE IF NOT EXISTS inbox.meta (
  version int NOT NULL, known_ms bigint, doubted_ms bigint, seen_ms bigint, oldest int);
CREATE TABLE IF NOT EXISTS inbox.message (
  id pg_catalog.uuid PRIMARY KEY, lane pg_catalog.text NOT NULL, received_at bigint NOT NULL, door pg_catalog.text NOT NULL, kind pg_catalog.text NOT NULL, bytes int NOT NULL,
  text pg_catalog.text NOT NULL);
CREATE TABLE IF NOT EXISTS inbox.waiting (
  part smallint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, id pg_catalog.uuid NOT NULL,
  xid pg_catalog.xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(), attempts int NOT NULL DEFAULT 0, not_before bigint NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, replayed boolean NOT NULL DEFAULT false, changed pg_catalog.text, done pg_catalog.text[] NOT NULL DEFAULT '{}', replay pg_catalog.text,
  failing_since bigint, failed_by pg_catalog.text, error pg_catalog.text,
  PRIMARY KEY (part, seq)) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS waiting_xid ON inbox.waiting (xid);
CREATE TABLE IF NOT EXISTS inbox.dead (
  id pg_catalog.uuid PRIMARY KEY, error pg_catalog.text NOT NULL, attempts int NOT NULL, died_at bigint NOT NULL, changed pg_catalog.text,
  done pg_catalog.text[] NOT NULL DEFAULT '{}', replay pg_catalog.text);
CREATE TABLE IF NOT EXISTS inbox.part (
  part smallint PRIMARY KEY, owner pg_catalog.uuid, epoch bigint NOT NULL DEFAULT 0, clean boolean NOT NULL DEFAULT true) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS inbox.handling (
  handlers pg_catalog.text PRIMARY KEY, since pg_catalog.timestamptz NOT NULL, until pg_catalog.timestamptz NOT NULL, ended boolean NOT NULL);
CREATE TABLE IF NOT EXISTS inbox.process (id pg_catalog.uuid PRIMARY KEY, until pg_catalog.timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS inbox.receiver (
  id pg_catalog.uuid PRIMARY KEY, seen_at bigint NOT NULL, closed boolean NOT NULL, gaps pg_catalog.text NOT NULL, accounted boolean NOT NULL DEFAULT false,
  since bigint NOT NULL DEFAULT pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000));
CREATE TABLE IF NOT EXISTS inbox.vehicle (
  vin pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY, part smallint NOT NULL, seq bigint NOT NULL, seen_at bigint, due bigint, text pg_catalog.text NOT NULL) WITH (fillfactor = 50, toast_tuple_target = 4080);
CREATE INDEX IF NOT EXISTS vehicle_due ON inbox.vehicle (part) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS inbox.notice (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, vin pg_catalog.text NOT NULL, seq bigint, at pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.now());
CREATE TABLE IF NOT EXISTS inbox.moved (file pg_catalog.uuid PRIMARY KEY, seq bigint NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS inbox.boot (one boolean PRIMARY KEY DEFAULT true, id pg_catalog.uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid());
DO $update$ BEGIN IF EXISTS (SELECT FROM inbox.meta WHERE version OPERATOR(pg_catalog.<) 3) THEN
ALTER TABLE inbox.receiver ADD COLUMN IF NOT EXISTS accounted boolean NOT NULL DEFAULT false,
  ADD COLUMN IF NOT EXISTS since bigint NOT NULL DEFAULT pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::bigint;
ALTER TABLE inbox.meta ADD COLUMN IF NOT EXISTS known_ms bigint,
  ADD COLUMN IF NOT EXISTS doubted_ms bigint, ADD COLUMN IF NOT EXISTS seen_ms bigint;
ALTER TABLE inbox.waiting ADD COLUMN IF NOT EXISTS replay pg_catalog.text, ADD COLUMN IF NOT EXISTS failing_since bigint,
  ADD COLUMN IF NOT EXISTS failed_by pg_catalog.text, ADD COLUMN IF NOT EXISTS error pg_catalog.text;
ALTER TABLE inbox.dead ADD COLUMN IF NOT EXISTS done pg_catalog.text[] NOT NULL DEFAULT '{}', ADD COLUMN IF NOT EXISTS replay pg_catalog.text;
ALTER TABLE inbox.part ADD COLUMN IF NOT EXISTS clean boolean NOT NULL DEFAULT true, DROP COLUMN IF EXISTS until;
UPDATE inbox.meta SET version = 3 WHERE version OPERATOR(pg_catalog.<) 3;
END IF; END $update$;
DO $update$ BEGIN IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid OPERATOR(pg_catalog.=) 'inbox.meta'::pg_catalog.regclass AND attname OPERATOR(pg_catalog.=) 'oldest') THEN
ALTER TABLE inbox.meta ADD COLUMN oldest int;
END IF; END $update$;
CREATE INDEX IF NOT EXISTS waiting_failing ON inbox.waiting (part) WHERE failing_since IS NOT NULL;
CREATE OR REPLACE VIEW inbox.backlog AS SELECT
  CASE WHEN c.messages OPERATOR(pg_catalog.<) 100000 THEN c.messages ELSE greatest(c.messages, (SELECT reltuples::bigint FROM pg_catalog.pg_class
    WHERE oid OPERATOR(pg_catalog.=) 'inbox.waiting'::pg_catalog.regclass)) END AS messages,
  (SELECT greatest(0, pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000) OPERATOR(pg_catalog.-) pg_catalog.min(m.received_at))::bigint
    FROM inbox.part p CROSS JOIN LATERAL (SELECT f.id FROM (SELECT id, seq, replayed FROM inbox.waiting w
      WHERE w.part OPERATOR(pg_catalog.=) p.part ORDER BY seq LIMIT 100) f WHERE NOT f.replayed ORDER BY f.seq LIMIT 1) o
    JOIN inbox.message m ON m.id OPERATOR(pg_catalog.=) o.id) AS oldest_ms,
  (SELECT pg_catalog.count(*) FROM inbox.process WHERE until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()) AS processes,
  (SELECT pg_catalog.count(*) FROM inbox.part p WHERE NOT EXISTS (SELECT FROM inbox.process x
    WHERE x.id OPERATOR(pg_catalog.=) p.owner AND x.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())) AS unhandled_partitions,
  (SELECT pg_catalog.count(*) FROM (SELECT FROM inbox.waiting WHERE failing_since IS NOT NULL LIMIT 10000) f) AS failing
FROM (SELECT pg_catalog.count(*) AS messages FROM (SELECT FROM inbox.waiting LIMIT 100000) w) c;
CREATE OR REPLACE VIEW inbox.failing AS SELECT m.id, m.lane AS vin, w.failed_by AS handler,
  pg_catalog.to_timestamp(w.failing_since OPERATOR(pg_catalog./) 1000.0) AS since, w.attempts, pg_catalog.to_timestamp(w.not_before OPERATOR(pg_catalog./) 1000.0) AS next_attempt, w.error
FROM inbox.waiting w JOIN inbox.message m ON m.id OPERATOR(pg_catalog.=) w.id WHERE w.failing_since IS NOT NULL;
INSERT INTO inbox.part (part) SELECT pg_catalog.generate_series(0, 63) ON CONFLICT DO NOTHING;
INSERT INTO inbox.meta (version, oldest) SELECT 3, 3 WHERE NOT EXISTS (SELECT FROM inbox.meta);
UPDATE inbox.meta SET oldest = 3 WHERE version OPERATOR(pg_catalog.=) 3 AND oldest IS NULL;
