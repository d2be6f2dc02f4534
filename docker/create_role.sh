#!/bin/sh
# Run once by the postgres image, in an empty volume: Dagster's role owns its database and nothing
# else. The superuser is left without a password: it can only log in inside the container.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\getenv password POSTGRES_PASSWORD
CREATE ROLE contextcliff LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'password';
CREATE DATABASE dagster OWNER contextcliff;
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;
ALTER ROLE CURRENT_USER PASSWORD NULL;
SQL
