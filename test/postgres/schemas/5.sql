SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '5s';
SELECT pg_advisory_xact_lock(hashtext('fleethook inbox'));
CREATE SCHEMA IF NOT EXISTS inbox;
CREATE TABLE IF NOT EXISTS inbox.meta (
  version int NOT NULL, known_ms bigint, doubted_ms bigint, seen_ms bigint, oldest int);
CREATE TABLE IF NOT EXISTS inbox.message (
  id uuid PRIMARY KEY, lane text NOT NULL, received_at bigint NOT NULL, door text NOT NULL, kind text NOT NULL, bytes int NOT NULL,
  text text NOT NULL, branch smallint);
CREATE TABLE IF NOT EXISTS inbox.waiting (
  part smallint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, id uuid NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(), attempts int NOT NULL DEFAULT 0, not_before bigint NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, replayed boolean NOT NULL DEFAULT false, changed text, done text[] NOT NULL DEFAULT '{}', replay text,
  failing_since bigint, failed_by text, error text,
  PRIMARY KEY (part, seq)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS waiting_xid ON inbox.waiting (xid);
CREATE TABLE IF NOT EXISTS inbox.dead (
  id uuid PRIMARY KEY, error text NOT NULL, attempts int NOT NULL, died_at bigint NOT NULL, changed text,
  done text[] NOT NULL DEFAULT '{}', replay text);
CREATE TABLE IF NOT EXISTS inbox.part (
  part smallint PRIMARY KEY, owner uuid, epoch bigint NOT NULL DEFAULT 0, clean boolean NOT NULL DEFAULT true) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS inbox.handling (
  handlers text PRIMARY KEY, since timestamptz NOT NULL, until timestamptz NOT NULL, ended boolean NOT NULL);
CREATE TABLE IF NOT EXISTS inbox.process (id uuid PRIMARY KEY, until timestamptz NOT NULL, version int);
CREATE TABLE IF NOT EXISTS inbox.receiver (
  id uuid PRIMARY KEY, seen_at bigint NOT NULL, closed boolean NOT NULL, gaps text NOT NULL, accounted boolean NOT NULL DEFAULT false,
  since bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000), version int);
CREATE TABLE IF NOT EXISTS inbox.vehicle (
  vin text COLLATE "C" PRIMARY KEY, part smallint NOT NULL, seq bigint NOT NULL, seen_at bigint, due bigint, text text NOT NULL, rules text
) WITH (fillfactor = 50, toast_tuple_target = 4080);
CREATE INDEX IF NOT EXISTS vehicle_due ON inbox.vehicle (part) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS inbox.notice (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, vin text NOT NULL, seq bigint, at timestamptz NOT NULL DEFAULT now(), kind text);
CREATE TABLE IF NOT EXISTS inbox.moved (file uuid PRIMARY KEY, seq bigint NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS inbox.boot (one boolean PRIMARY KEY DEFAULT true, id uuid NOT NULL DEFAULT gen_random_uuid());
DO $update$ BEGIN IF EXISTS (SELECT FROM inbox.meta WHERE version < 5) THEN
ALTER TABLE inbox.receiver ADD COLUMN IF NOT EXISTS accounted boolean NOT NULL DEFAULT false,
  ADD COLUMN IF NOT EXISTS since bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
ALTER TABLE inbox.meta ADD COLUMN IF NOT EXISTS known_ms bigint,
  ADD COLUMN IF NOT EXISTS doubted_ms bigint, ADD COLUMN IF NOT EXISTS seen_ms bigint;
ALTER TABLE inbox.waiting ADD COLUMN IF NOT EXISTS replay text, ADD COLUMN IF NOT EXISTS failing_since bigint,
  ADD COLUMN IF NOT EXISTS failed_by text, ADD COLUMN IF NOT EXISTS error text;
ALTER TABLE inbox.dead ADD COLUMN IF NOT EXISTS done text[] NOT NULL DEFAULT '{}', ADD COLUMN IF NOT EXISTS replay text;
ALTER TABLE inbox.part ADD COLUMN IF NOT EXISTS clean boolean NOT NULL DEFAULT true, DROP COLUMN IF EXISTS until;
ALTER TABLE inbox.vehicle ADD COLUMN IF NOT EXISTS rules text;
ALTER TABLE inbox.message ADD COLUMN IF NOT EXISTS branch smallint;
ALTER TABLE inbox.process ADD COLUMN IF NOT EXISTS version int;
ALTER TABLE inbox.receiver ADD COLUMN IF NOT EXISTS version int;
ALTER TABLE inbox.notice ADD COLUMN IF NOT EXISTS kind text;
UPDATE inbox.meta SET version = 5 WHERE version < 5;
END IF; END $update$;
DO $update$ BEGIN IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'inbox.meta'::regclass AND attname = 'oldest') THEN
ALTER TABLE inbox.meta ADD COLUMN oldest int;
END IF; END $update$;
CREATE INDEX IF NOT EXISTS waiting_failing ON inbox.waiting (part) WHERE failing_since IS NOT NULL;
CREATE OR REPLACE VIEW inbox.backlog AS SELECT
  CASE WHEN c.messages < 100000 THEN c.messages ELSE greatest(c.messages, (SELECT reltuples::bigint FROM pg_catalog.pg_class
    WHERE oid = 'inbox.waiting'::regclass)) END AS messages,
  (SELECT greatest(0, floor(extract(epoch FROM clock_timestamp()) * 1000) - min(m.received_at))::bigint
    FROM inbox.part p CROSS JOIN LATERAL (SELECT f.id FROM (SELECT id, seq, replayed FROM inbox.waiting w
      WHERE w.part = p.part ORDER BY seq LIMIT 100) f WHERE NOT f.replayed ORDER BY f.seq LIMIT 1) o
    JOIN inbox.message m ON m.id = o.id) AS oldest_ms,
  (SELECT count(*) FROM inbox.process WHERE until > clock_timestamp()) AS processes,
  (SELECT count(*) FROM inbox.part p WHERE NOT EXISTS (SELECT FROM inbox.process x
    WHERE x.id = p.owner AND x.until > clock_timestamp())) AS unhandled_partitions,
  (SELECT count(*) FROM (SELECT FROM inbox.waiting WHERE failing_since IS NOT NULL LIMIT 10000) f) AS failing
FROM (SELECT count(*) AS messages FROM (SELECT FROM inbox.waiting LIMIT 100000) w) c;
CREATE OR REPLACE VIEW inbox.failing AS SELECT m.id, m.lane AS vin, w.failed_by AS handler,
  to_timestamp(w.failing_since / 1000.0) AS since, w.attempts, to_timestamp(w.not_before / 1000.0) AS next_attempt, w.error
FROM inbox.waiting w JOIN inbox.message m ON m.id = w.id WHERE w.failing_since IS NOT NULL;
CREATE TABLE IF NOT EXISTS inbox.branch (
  number smallint PRIMARY KEY, name text NOT NULL UNIQUE, used_at bigint NOT NULL, gone_at bigint);
DO $branches$ BEGIN FOR n IN 1..7 LOOP IF to_regclass('inbox.branch_' || n || '_notice') IS NULL THEN
EXECUTE 'CREATE TABLE inbox.branch_' || n || '_waiting (LIKE inbox.waiting INCLUDING ALL) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)';
EXECUTE 'CREATE TABLE inbox.branch_' || n || '_dead (LIKE inbox.dead INCLUDING ALL)';
EXECUTE 'CREATE TABLE inbox.branch_' || n || '_vehicle (LIKE inbox.vehicle INCLUDING ALL) WITH (fillfactor = 50, toast_tuple_target = 4080)';
EXECUTE 'CREATE TABLE inbox.branch_' || n || '_notice (LIKE inbox.notice INCLUDING ALL)';
END IF; END LOOP; END $branches$;
INSERT INTO inbox.part (part) SELECT generate_series(0, 63) ON CONFLICT DO NOTHING;
INSERT INTO inbox.meta (version, oldest) SELECT 5, 4 WHERE NOT EXISTS (SELECT FROM inbox.meta);
UPDATE inbox.meta SET oldest = 4 WHERE version = 5 AND (oldest IS NULL OR oldest < 4);
