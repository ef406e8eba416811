-- For Grafana: whoever opens a dashboard can send any query, so its user reads the tables of the logbook, and nothing else.
CREATE ROLE reader LOGIN PASSWORD 'only-for-this-machine';
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO reader;
