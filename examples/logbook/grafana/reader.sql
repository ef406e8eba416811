-- For Grafana: whoever opens a dashboard can send any query, so its user reads the tables and views of the logbook, and nothing else.
-- `migrate.ts` runs this, and gives the user its password.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'logbook_reader') THEN
    CREATE ROLE logbook_reader LOGIN;
  END IF;
END
$$;
GRANT USAGE ON SCHEMA public TO logbook_reader;
GRANT SELECT ON trips, charges, bookings, levels, vehicles, settings, areas, prices, dynamic_prices TO logbook_reader;
GRANT SELECT ON zones, lines, logbook, customers, months, charging, charging_costs, doubtful TO logbook_reader;
