-- One row for each trip and charge, by the vehicles' clocks. What is not known is NULL, and never 0. A row that is `revoked` was none.
-- `purpose` and `note` are yours to write: no correction changes them.
CREATE TABLE IF NOT EXISTS trips (
  id text PRIMARY KEY, revision int NOT NULL, revoked boolean NOT NULL, lasts boolean NOT NULL,
  vin text NOT NULL, started timestamptz NOT NULL, ended timestamptz NOT NULL,
  odometer_from float8, odometer_to float8, -- miles
  unseen float8 NOT NULL, -- miles before it that no message of a trip was there for
  kwh float8, from_place jsonb, to_place jsonb, route jsonb,
  doubts text NOT NULL, -- why it may be wrong
  purpose text, note text
);
CREATE INDEX IF NOT EXISTS trips_by_time ON trips (vin, started);

CREATE TABLE IF NOT EXISTS charges (
  id text PRIMARY KEY, revision int NOT NULL, revoked boolean NOT NULL, lasts boolean NOT NULL,
  vin text NOT NULL, started timestamptz NOT NULL, ended timestamptz NOT NULL,
  kwh float8, unseen float8 NOT NULL,
  parts jsonb, parts_certain boolean, -- the kWh of each quarter hour, for prices that change
  percent_from float8, percent_to float8, place jsonb, at_home boolean,
  doubts text NOT NULL, note text
);
CREATE INDEX IF NOT EXISTS charges_by_time ON charges (vin, started);

-- Yours to change: the unit of distances, and the time zone of days, months and prices.
CREATE TABLE IF NOT EXISTS settings (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  unit text NOT NULL DEFAULT 'mi' CHECK (unit IN ('mi', 'km')),
  zone text NOT NULL DEFAULT 'UTC' CHECK (now() AT TIME ZONE zone IS NOT NULL)
);
INSERT INTO settings DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Where each vehicle was last, and its charge over time. `zone` is yours: where its customer lives, if not in the zone of the settings.
CREATE TABLE IF NOT EXISTS vehicles (
  vin text PRIMARY KEY, at timestamptz NOT NULL, percent float8, place jsonb,
  zone text CHECK (zone IS NULL OR now() AT TIME ZONE zone IS NOT NULL)
);
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
-- What a kWh costs everywhere else, from this time of the day on. Change it.
CREATE TABLE IF NOT EXISTS prices (
  at_home boolean, starts time DEFAULT '00:00', price_per_kwh numeric NOT NULL, PRIMARY KEY (at_home, starts)
);
INSERT INTO prices (at_home, price_per_kwh) SELECT * FROM (VALUES (true, 0.30), (false, 0.60)) AS usual WHERE NOT EXISTS (SELECT FROM prices);
-- What a kWh costs at home from this moment on, for an hour at most. Empty, unless your price changes from hour to hour.
CREATE TABLE IF NOT EXISTS dynamic_prices (starts timestamptz PRIMARY KEY, price_per_kwh numeric NOT NULL);

-- The smallest area around a place, or no row.
CREATE OR REPLACE FUNCTION area_of(place jsonb) RETURNS SETOF areas LANGUAGE sql STABLE ROWS 1 AS $$
  SELECT a.* FROM areas a, (SELECT (place->>'latitude')::float8 AS latitude, (place->>'longitude')::float8 AS longitude) p
  -- The haversine formula, with the earth's diameter in meters.
  WHERE 12742018 * asin(least(1, sqrt(
    sind((a.latitude - p.latitude) / 2) ^ 2 + cosd(a.latitude) * cosd(p.latitude) * sind((a.longitude - p.longitude) / 2) ^ 2
  ))) <= radius_m
  ORDER BY radius_m LIMIT 1
$$;

-- What a kWh costs at this moment: the dynamic price, or the price for the time of the day. Before the first time of a day, the last one goes on.
CREATE OR REPLACE FUNCTION price_at(moment timestamptz, home boolean, zone text) RETURNS numeric LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (SELECT price_per_kwh FROM dynamic_prices WHERE home AND starts <= moment AND starts > moment - interval '1 hour' ORDER BY starts DESC LIMIT 1),
    (SELECT price_per_kwh FROM prices WHERE at_home = home ORDER BY starts <= (moment AT TIME ZONE zone)::time DESC, starts DESC LIMIT 1)
  )
$$;
