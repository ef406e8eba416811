-- What customers ask. Days and months are in the customer's time zone, and distances have the unit of the table `settings`.
DROP VIEW IF EXISTS customers, months, doubtful, charging, charging_costs, logbook, lines, zones;

-- The time zone of each vehicle, and how many units a mile has.
CREATE VIEW zones AS
SELECT vin, coalesce(vehicles.zone, settings.zone) AS zone, unit, CASE unit WHEN 'km' THEN 1.609344 ELSE 1 END AS per_mile
FROM (SELECT vin FROM trips UNION SELECT vin FROM charges) AS known LEFT JOIN vehicles USING (vin), settings;

-- Each trip that is over, and before it what grew on the odometer while no trip was seen: so the sum of miles is all that it grew. Unseen miles
-- are a customer's when one booking has all of that time.
CREATE VIEW lines AS
WITH finished AS (
  SELECT *, lag(ended) OVER (PARTITION BY vin ORDER BY started) AS ended_before FROM trips WHERE NOT revoked AND NOT lasts
)
SELECT id, vin, customer, started, ended, odometer_from, odometer_to, odometer_to - odometer_from AS miles, kwh, from_place, to_place, purpose, note, doubts
FROM finished
UNION ALL
SELECT id || ':unseen', vin,
  (SELECT b.customer FROM bookings b WHERE b.vin = finished.vin AND b.starts <= ended_before AND b.ends >= started),
  coalesce(ended_before, started), started, odometer_from - unseen, odometer_from, unseen, NULL, NULL, NULL, NULL, NULL,
  'not recorded'
FROM finished WHERE unseen > 0;

-- The logbook. A trip is for what you wrote, or for what its destination is for, or else its start.
CREATE VIEW logbook AS
SELECT vin, customer, (started AT TIME ZONE zone)::date AS day, started, ended, round(extract(epoch FROM ended - started) / 60, 1) AS minutes,
  round((odometer_from * per_mile)::numeric, 1) AS odometer_from, round((odometer_to * per_mile)::numeric, 1) AS odometer_to,
  round((miles * per_mile)::numeric, 3) AS distance, unit, round(kwh::numeric, 2) AS kwh,
  a.name AS from_area, b.name AS to_area, coalesce(lines.purpose, b.purpose, a.purpose) AS purpose, note, doubts <> '' OR miles IS NULL AS incomplete, doubts
FROM lines JOIN zones USING (vin) LEFT JOIN area_of(from_place) a ON true LEFT JOIN area_of(to_place) b ON true
ORDER BY started, ended;

-- Each charge and its cost: the price of its area, or of each quarter hour at home or away.
CREATE VIEW charging_costs AS
SELECT vin, customer, (started AT TIME ZONE zone)::date AS day, started, ended, round(extract(epoch FROM ended - started) / 60, 1) AS minutes,
  percent_from, percent_to, round(kwh::numeric, 2) AS kwh,
  CASE at_home WHEN true THEN 'home' WHEN false THEN 'away' ELSE 'unknown' END AS place, a.name AS area,
  round(kwh::numeric * coalesce(a.price_per_kwh, average.price, price_at(started, at_home, zone)), 2) AS cost,
  doubts <> '' OR kwh IS NULL OR (prices > 1 AND NOT parts_certain) AS incomplete, doubts
FROM charges JOIN zones USING (vin) LEFT JOIN area_of(place) a ON true LEFT JOIN LATERAL (
  SELECT sum(growth * price) / nullif(sum(growth), 0) AS price, count(DISTINCT price) AS prices
  FROM jsonb_to_recordset(parts) AS part(at timestamptz, growth numeric), price_at(at, at_home, zone) AS price
) AS average ON true
WHERE NOT revoked AND NOT lasts
ORDER BY started;

-- What charging costs at home and away, by vehicle and month. `unpriced` charges have no energy or no price, and are not in the sum.
CREATE VIEW charging AS
SELECT vin, date_trunc('month', day)::date AS month, place, count(*) AS charges, sum(kwh) AS kwh, sum(cost) AS cost,
  count(*) FILTER (WHERE cost IS NULL) AS unpriced
FROM charging_costs GROUP BY 1, 2, 3 ORDER BY 2, 1, 3;

-- The distance, the energy and the cost of each customer, vehicle and month. Without a customer: nobody had booked it. What is not known is not in the
-- sums: `incomplete` counts those rows.
CREATE VIEW customers AS
SELECT customer, vin, month, sum(distance) AS distance, max(unit) AS unit, sum(driven) AS kwh_driven, sum(charged) AS kwh_charged, sum(cost) AS cost,
  sum(incomplete::int) AS incomplete
FROM (
  SELECT customer, vin, date_trunc('month', day)::date AS month, distance, unit, kwh AS driven, NULL::numeric AS charged, NULL::numeric AS cost, incomplete
  FROM logbook
  UNION ALL
  SELECT customer, vin, date_trunc('month', day)::date, NULL, NULL, NULL, kwh, cost, incomplete FROM charging_costs
) AS parts
GROUP BY 1, 2, 3 ORDER BY 3, 1, 2;

-- The same of each vehicle and month: what its customers have adds up to it.
CREATE VIEW months AS
SELECT vin, month, sum(distance) AS distance, max(unit) AS unit, sum(kwh_driven) AS kwh_driven, sum(kwh_charged) AS kwh_charged, sum(cost) AS cost,
  sum(incomplete) AS incomplete
FROM customers GROUP BY 1, 2 ORDER BY 2, 1;

-- What is doubtful, and why.
CREATE VIEW doubtful AS
SELECT started, vin, kind, coalesce(nullif(doubts, ''), 'its number, or its cost by quarter hours, is not known') AS why
FROM (
  SELECT started, vin, 'trip' AS kind, doubts FROM logbook WHERE incomplete
  UNION ALL
  SELECT started, vin, 'charge', doubts FROM charging_costs WHERE incomplete
) AS episodes ORDER BY started;
