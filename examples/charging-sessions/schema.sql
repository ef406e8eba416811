-- What vehicles report, one row for each field of a message. A message that comes twice has the same id.
CREATE TABLE IF NOT EXISTS readings (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL, vin TEXT NOT NULL, field TEXT NOT NULL, value,
  at_ms INTEGER NOT NULL, received_ms INTEGER NOT NULL, UNIQUE (id, field)
);
CREATE INDEX IF NOT EXISTS readings_by_field ON readings (vin, field, at_ms, n);
CREATE INDEX IF NOT EXISTS readings_by_time ON readings (vin, at_ms, n);
CREATE TABLE IF NOT EXISTS gaps (id TEXT PRIMARY KEY, vin TEXT, from_ms INTEGER NOT NULL, to_ms INTEGER NOT NULL);

-- The charges in them, by the vehicles' time. Each field has its own message, and messages overtake each other. So nothing is decided when a
-- message comes: each query reads all of them in their order, and a late one corrects its charge.
DROP VIEW IF EXISTS finished;
CREATE VIEW finished AS
WITH
  heard AS (
    SELECT vin, at_ms, received_ms, n,
      coalesce(lead(at_ms) OVER vehicle, at_ms + unixepoch() * 1000 - max(received_ms) OVER (PARTITION BY vin)) AS next_ms
    FROM readings WINDOW vehicle AS (PARTITION BY vin ORDER BY at_ms, n)
  ),
  states AS (
    SELECT vin, at_ms, received_ms, n, value IN ('Starting', 'Charging') AS charges, value = 'Disconnected' AS unplugs, 0 AS is_cut
    FROM readings WHERE field = 'DetailedChargeState'
      AND value IN ('Disconnected', 'NoPower', 'Starting', 'Charging', 'Complete', 'Stopped') -- not 'Unknown', for a moment
    UNION ALL -- Without a word for six hours, a charge ended with the last one: its end was lost.
    SELECT vin, at_ms, received_ms, n, 0, 0, 1 FROM heard WHERE next_ms - at_ms > 21600000
  ),
  turns AS (
    SELECT *, lag(charges) OVER turn AS charged, sum(unplugs) OVER turn AS plug
    FROM states WINDOW turn AS (PARTITION BY vin ORDER BY at_ms, n, is_cut)
  ),
  legs AS (
    SELECT vin, charges, charged IS NULL AS is_first, plug, n, at_ms AS started_ms, received_ms, lead(at_ms) OVER turn AS ended_ms,
      lead(received_ms) OVER turn AS end_received_ms, lead(is_cut) OVER turn AS is_cut
    FROM turns WHERE charges IS NOT charged WINDOW turn AS (PARTITION BY vin ORDER BY at_ms, n, is_cut)
  ),
  pauses AS (
    SELECT *, started_ms - lag(ended_ms) OVER turn AS pause_ms, plug > lag(plug, 1, 0) OVER turn AS is_plugged_anew
    FROM legs WHERE charges WINDOW turn AS (PARTITION BY vin ORDER BY started_ms, n)
  ),
  numbered AS ( -- A pause of up to 15 minutes belongs to the charge: clouds, a moment without power. Unplugged, it is another charge.
    SELECT *, sum(pause_ms IS NULL OR pause_ms > iif(is_plugged_anew, 60000, 900000)) OVER (PARTITION BY vin ORDER BY started_ms, n) AS number
    FROM pauses
  ),
  charges AS (
    SELECT vin, number, min(started_ms) AS started_ms, max(ended_ms) AS ended_ms, count(*) = count(ended_ms) AS is_over,
      min(plug) > lag(max(plug), 1, 0) OVER (PARTITION BY vin ORDER BY number) AS is_plugged_anew, max(is_first) OR max(is_cut) AS is_cut_off,
      iif(max(is_cut), max(ended_ms) + 1, coalesce(lead(min(started_ms)) OVER (PARTITION BY vin ORDER BY number), 1e18)) AS until_ms,
      min(min(received_ms), min(end_received_ms)) AS received_from_ms, max(max(received_ms), max(end_received_ms)) AS received_to_ms
    FROM numbered GROUP BY vin, number
  ),
  -- Each counter counts from 0 since the vehicle was plugged in, goes on through pauses, and can step back a little.
  counts AS (
    SELECT *, sum(starts) OVER (PARTITION BY vin ORDER BY at_ms, n) AS number FROM (
      SELECT vin, at_ms, received_ms, n, field, value, 0 AS starts FROM readings WHERE field IN ('ACChargingEnergyIn', 'DCChargingEnergyIn')
      UNION ALL SELECT vin, started_ms, NULL, 0, NULL, NULL, 1 FROM charges
    )
  ),
  steps AS (
    SELECT *, lag(value) OVER (PARTITION BY vin, field ORDER BY at_ms, n) AS before,
      row_number() OVER (PARTITION BY vin, number, field ORDER BY at_ms, n) = 1 AS is_first_count
    FROM counts WHERE field IS NOT NULL
  ),
  counters AS (
    SELECT vin, number, s.field, ended_ms, max(at_ms) AS last_ms,
      max(s.received_ms) FILTER (WHERE at_ms <= ended_ms + 120000) AS counted_ms, sum(CASE
        WHEN before IS NULL THEN value
        WHEN is_first_count AND is_plugged_anew THEN iif(value = before, 0, value)
        WHEN value >= before / 2 THEN value - before
        WHEN at_ms <= ended_ms THEN value -- it began again from 0
        ELSE 0
      END) AS kwh,
      -- Soon after the start, the same value is still that of the charge before. Later it may be, so another counter decides.
      max(value) FILTER (WHERE is_first_count AND is_plugged_anew AND value = before AND at_ms >= started_ms + 120000) AS same_kwh
    FROM steps s JOIN charges USING (vin, number) GROUP BY vin, number, s.field
  ),
  energies AS ( -- With AC both count: what the socket gave, and what reached the battery. So the larger one, and never their sum.
    SELECT vin, number, coalesce(min(last_ms) FILTER (WHERE known > 0), max(last_ms)) AS last_ms, max(counted_ms) AS counted_ms,
      iif(max(known) > 0, max(known), coalesce(max(same_kwh), iif(count(known) = 2, 0, NULL))) AS kwh
    FROM (SELECT *, iif(kwh > 0 OR last_ms >= ended_ms, max(kwh, 0), NULL) AS known FROM counters) GROUP BY vin, number
  ),
  ends AS (
    SELECT c.*,
      coalesce(
        (SELECT n FROM readings r WHERE r.vin = c.vin AND field = 'BatteryLevel' AND at_ms <= started_ms ORDER BY at_ms DESC, n DESC LIMIT 1),
        (SELECT n FROM readings r WHERE r.vin = c.vin AND field = 'BatteryLevel' AND at_ms BETWEEN started_ms AND ended_ms ORDER BY at_ms, n LIMIT 1)
      ) AS from_n,
      coalesce( -- the last one within two minutes after the end, or the one nearest to it
        (SELECT n FROM readings r WHERE r.vin = c.vin AND field = 'BatteryLevel' AND at_ms BETWEEN ended_ms AND min(until_ms - 1, ended_ms + 120000)
          ORDER BY at_ms DESC, n DESC LIMIT 1),
        (SELECT n FROM readings r WHERE r.vin = c.vin AND field = 'BatteryLevel' AND at_ms > started_ms AND at_ms < min(until_ms, ended_ms + 900000)
          ORDER BY abs(at_ms - ended_ms), n DESC LIMIT 1)
      ) AS to_n
    FROM charges c WHERE is_over
  )
-- What is not known is NULL, and never 0. `incomplete` is 1 when something is not known, or may be missing.
SELECT e.vin, datetime(started_ms / 1000, 'unixepoch') AS started, (ended_ms - started_ms) / 60000.0 AS minutes,
  round(kwh, 3) AS kwh, a.value AS percent_from, b.value AS percent_to,
  is_cut_off OR kwh IS NULL OR a.n IS NULL OR b.n IS NULL OR last_ms < ended_ms - 900000
    OR a.at_ms > started_ms + 120000 OR b.at_ms < ended_ms - 900000 OR EXISTS (
      SELECT 1 FROM gaps g WHERE (g.vin IS NULL OR g.vin = e.vin) AND g.to_ms >= min(received_from_ms, coalesce(a.received_ms, received_from_ms))
        AND g.from_ms <= max(received_to_ms, coalesce(b.received_ms, 0), coalesce(counted_ms, 0))
    ) AS incomplete
FROM ends e LEFT JOIN energies USING (vin, number)
  LEFT JOIN readings b ON b.n = to_n LEFT JOIN readings a ON a.n = from_n AND from_n IS NOT to_n;
