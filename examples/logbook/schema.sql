-- One row for each trip and charge, by the vehicles' clocks. What is not known is NULL, and never 0. A row that is `revoked` was none.
CREATE TABLE IF NOT EXISTS trips (
  id text PRIMARY KEY, revision int NOT NULL, revoked boolean NOT NULL, vin text NOT NULL, started timestamptz NOT NULL, ended timestamptz NOT NULL,
  miles float8, kwh float8, from_place jsonb, to_place jsonb, route jsonb,
  doubts text[] NOT NULL -- why it may be wrong
);
CREATE INDEX IF NOT EXISTS trips_by_time ON trips (started);

CREATE TABLE IF NOT EXISTS charges (
  id text PRIMARY KEY, revision int NOT NULL, revoked boolean NOT NULL, vin text NOT NULL, started timestamptz NOT NULL, ended timestamptz NOT NULL,
  kwh float8, percent_from float8, percent_to float8, place jsonb, at_home boolean,
  doubts text[] NOT NULL
);
CREATE INDEX IF NOT EXISTS charges_by_time ON charges (started);

-- Where each vehicle was last, and its charge over time.
CREATE TABLE IF NOT EXISTS vehicles (vin text PRIMARY KEY, at timestamptz NOT NULL, percent float8, place jsonb);
CREATE TABLE IF NOT EXISTS levels (vin text, at timestamptz, percent float8 NOT NULL, PRIMARY KEY (vin, at));
CREATE INDEX IF NOT EXISTS levels_by_time ON levels (at);

CREATE OR REPLACE FUNCTION save_vehicle(new_vin text, new_at timestamptz, new_percent float8, new_place jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO levels SELECT new_vin, new_at, new_percent WHERE new_percent IS NOT NULL ON CONFLICT DO NOTHING;
  INSERT INTO vehicles VALUES (new_vin, new_at, new_percent, new_place)
  ON CONFLICT (vin) DO UPDATE SET at = new_at, percent = coalesce(new_percent, vehicles.percent), place = coalesce(new_place, vehicles.place)
  WHERE vehicles.at <= new_at;
$$;

-- Yours to fill: what a place is for, and what a kWh costs there.
CREATE TABLE IF NOT EXISTS areas (
  name text PRIMARY KEY, purpose text NOT NULL, latitude float8 NOT NULL, longitude float8 NOT NULL, radius_m float8 NOT NULL, price_per_kwh numeric
);
-- What a kWh costs everywhere else. Change it.
CREATE TABLE IF NOT EXISTS prices (at_home boolean PRIMARY KEY, price_per_kwh numeric NOT NULL);
INSERT INTO prices VALUES (true, 0.30), (false, 0.60) ON CONFLICT DO NOTHING;

-- The smallest area around a place, or no row.
CREATE OR REPLACE FUNCTION area_of(place jsonb) RETURNS SETOF areas LANGUAGE sql STABLE ROWS 1 AS $$
  SELECT a.* FROM areas a, (SELECT (place->>'latitude')::float8 AS latitude, (place->>'longitude')::float8 AS longitude) p
  -- The haversine formula, with the earth's diameter in meters.
  WHERE 12742018 * asin(least(1, sqrt(
    sind((a.latitude - p.latitude) / 2) ^ 2 + cosd(a.latitude) * cosd(p.latitude) * sind((a.longitude - p.longitude) / 2) ^ 2
  ))) <= radius_m
  ORDER BY radius_m LIMIT 1
$$;
