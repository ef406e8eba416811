-- What vehicles report, one row for each field of a message. A message that comes twice has the same id.
CREATE TABLE IF NOT EXISTS readings (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL, vin TEXT NOT NULL, field TEXT NOT NULL, value,
  at_ms INTEGER NOT NULL, received_ms INTEGER NOT NULL, UNIQUE (id, field)
);
CREATE INDEX IF NOT EXISTS readings_by_field ON readings (vin, field, at_ms, n);
CREATE INDEX IF NOT EXISTS readings_by_time ON readings (vin, at_ms, n);
CREATE TABLE IF NOT EXISTS gaps (id TEXT PRIMARY KEY, vin TEXT, from_ms INTEGER NOT NULL, to_ms INTEGER NOT NULL);

-- The trips in them, by the vehicles' time. Each field has its own message, and messages overtake each other. So nothing is decided when a
-- message comes: each query reads all of them in their order, and a late one corrects its trip.
DROP VIEW IF EXISTS finished;
CREATE VIEW finished AS
WITH
  heard AS (
    SELECT vin, at_ms, received_ms, n,
      coalesce(lead(at_ms) OVER vehicle, at_ms + unixepoch() * 1000 - max(received_ms) OVER (PARTITION BY vin)) AS next_ms
    FROM readings WINDOW vehicle AS (PARTITION BY vin ORDER BY at_ms, n)
  ),
  states AS (
    SELECT vin, at_ms, received_ms, n, value <> 'P' AS drives, 0 AS is_cut
    FROM readings WHERE field = 'Gear' AND value IN ('P', 'R', 'N', 'D') -- not 'Invalid', for a moment
    UNION ALL -- Without a word for an hour, a trip ended with the last one: its end was lost.
    SELECT vin, at_ms, received_ms, n, 0, 1 FROM heard WHERE next_ms - at_ms > 3600000
  ),
  turns AS (SELECT *, lag(drives) OVER (PARTITION BY vin ORDER BY at_ms, n, is_cut) AS drove FROM states),
  legs AS (
    SELECT vin, drives, drove IS NULL AS is_first, n, at_ms AS started_ms, received_ms, lead(at_ms) OVER turn AS ended_ms,
      lead(received_ms) OVER turn AS end_received_ms, lead(is_cut) OVER turn AS is_cut
    FROM turns WHERE drives IS NOT drove WINDOW turn AS (PARTITION BY vin ORDER BY at_ms, n, is_cut)
  ),
  pauses AS (
    SELECT *, started_ms - lag(ended_ms) OVER (PARTITION BY vin ORDER BY started_ms, n) AS pause_ms FROM legs WHERE drives
  ),
  numbered AS ( -- A stop of up to three minutes belongs to the trip: a gate, a passenger.
    SELECT *, sum(pause_ms IS NULL OR pause_ms > 180000) OVER (PARTITION BY vin ORDER BY started_ms, n) AS number FROM pauses
  ),
  trips AS (
    SELECT vin, number, min(started_ms) AS started_ms, max(ended_ms) AS ended_ms, count(*) = count(ended_ms) AS is_over, max(is_first) OR max(is_cut) AS is_cut_off,
      iif(max(is_cut), max(ended_ms) + 1, coalesce(lead(min(started_ms)) OVER (PARTITION BY vin ORDER BY number), 1e18)) AS until_ms,
      min(min(received_ms), min(end_received_ms)) AS received_from_ms, max(max(received_ms), max(end_received_ms)) AS received_to_ms
    FROM numbered GROUP BY vin, number
  ),
  -- A parked odometer does not move, so its next value is that of the end, however late. The energy changes when the vehicle charges.
  fields (field, waits_ms) AS (VALUES ('Odometer', 1e18), ('EnergyRemaining', 900000)),
  ends AS (
    SELECT t.*, f.field,
      coalesce(
        (SELECT n FROM readings r WHERE r.vin = t.vin AND r.field = f.field AND at_ms <= started_ms ORDER BY at_ms DESC, n DESC LIMIT 1),
        (SELECT n FROM readings r WHERE r.vin = t.vin AND r.field = f.field AND at_ms BETWEEN started_ms AND ended_ms ORDER BY at_ms, n LIMIT 1)
      ) AS from_n,
      coalesce( -- the last one within two minutes after the end, or the one nearest to it
        (SELECT n FROM readings r WHERE r.vin = t.vin AND r.field = f.field AND at_ms BETWEEN ended_ms AND min(until_ms - 1, ended_ms + 120000)
          ORDER BY at_ms DESC, n DESC LIMIT 1),
        (SELECT n FROM readings r WHERE r.vin = t.vin AND r.field = f.field AND at_ms > started_ms AND at_ms < min(until_ms, ended_ms + waits_ms)
          ORDER BY r.field = 'Odometer' AND at_ms < ended_ms, abs(at_ms - ended_ms), n DESC LIMIT 1)
      ) AS to_n
    FROM trips t, fields f WHERE is_over
  )
-- What is not known is NULL, and never 0. `incomplete` is 1 when something is not known, or may be missing.
SELECT e.vin, datetime(started_ms / 1000, 'unixepoch') AS started, (ended_ms - started_ms) / 60000.0 AS minutes,
  round(max(b.value - a.value) FILTER (WHERE e.field = 'Odometer'), 3) AS miles,
  round(max(a.value - b.value) FILTER (WHERE e.field = 'EnergyRemaining'), 3) AS kwh,
  max(
    is_cut_off OR a.n IS NULL OR b.n IS NULL OR a.at_ms > started_ms + 120000 OR b.at_ms < ended_ms - 300000 OR EXISTS (
      SELECT 1 FROM gaps g WHERE (g.vin IS NULL OR g.vin = e.vin) AND g.to_ms >= min(received_from_ms, coalesce(a.received_ms, received_from_ms))
        AND g.from_ms <= max(received_to_ms, coalesce(b.received_ms, 0))
    )
  ) AS incomplete
FROM ends e LEFT JOIN readings b ON b.n = to_n LEFT JOIN readings a ON a.n = from_n AND from_n IS NOT to_n
GROUP BY e.vin, number;
