-- What customers ask. Days and months are those of the database's time zone.
DROP VIEW IF EXISTS months, doubtful, charging, charging_costs, logbook;

-- The logbook: a trip is for what its destination is for, or else what its start is for.
CREATE VIEW logbook AS
SELECT vin, started, ended, round(extract(epoch FROM ended - started) / 60, 1) AS minutes, round(miles::numeric, 1) AS miles,
  round(kwh::numeric, 2) AS kwh, a.name AS from_area, b.name AS to_area, coalesce(b.purpose, a.purpose) AS purpose,
  doubts <> '{}' AS incomplete
FROM trips LEFT JOIN area_of(from_place) a ON true LEFT JOIN area_of(to_place) b ON true
WHERE NOT revoked
ORDER BY started;

-- Each charge and its cost. The price is that of its area, or else of charging at home or away.
CREATE VIEW charging_costs AS
SELECT vin, started, ended, round(extract(epoch FROM ended - started) / 60, 1) AS minutes, percent_from, percent_to, round(kwh::numeric, 2) AS kwh,
  CASE at_home WHEN true THEN 'home' WHEN false THEN 'away' ELSE 'unknown' END AS place, a.name AS area,
  round(kwh::numeric * coalesce(a.price_per_kwh, p.price_per_kwh), 2) AS cost, doubts <> '{}' AS incomplete
FROM charges LEFT JOIN area_of(place) a ON true LEFT JOIN prices p USING (at_home)
WHERE NOT revoked
ORDER BY started;

-- What charging costs at home and away, by vehicle and month. `unpriced` charges have no energy or no price, and are not in the sum.
CREATE VIEW charging AS
SELECT vin, date_trunc('month', started) AS month, place, count(*) AS charges, sum(kwh) AS kwh, sum(cost) AS cost,
  count(*) FILTER (WHERE cost IS NULL) AS unpriced
FROM charging_costs GROUP BY 1, 2, 3 ORDER BY 2, 1, 3;

-- Miles and kWh for each vehicle and month. What is not known is not in the sums: `incomplete` counts those rows.
CREATE VIEW months AS
SELECT vin, month, sum(miles) AS miles, sum(driven) AS kwh_driven, sum(charged) AS kwh_charged, sum(cost) AS cost, sum(incomplete::int) AS incomplete
FROM (
  SELECT vin, date_trunc('month', started) AS month, miles, kwh AS driven, NULL::numeric AS charged, NULL::numeric AS cost, incomplete FROM logbook
  UNION ALL
  SELECT vin, date_trunc('month', started), NULL, NULL, kwh, cost, incomplete FROM charging_costs
) AS parts
GROUP BY 1, 2 ORDER BY 2, 1;

-- What is doubtful, and why.
CREATE VIEW doubtful AS
SELECT started, vin, kind, array_to_string(doubts, ', ') AS why
FROM (
  SELECT started, vin, 'trip' AS kind, doubts FROM trips WHERE NOT revoked
  UNION ALL
  SELECT started, vin, 'charge', doubts FROM charges WHERE NOT revoked
) AS episodes
WHERE doubts <> '{}' ORDER BY started;
