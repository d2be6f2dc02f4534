#!/bin/sh
# docker/backup.sh FOLDER: the call ledger and Dagster's database as they are now, of the containers that run.
# Nothing is stopped. Restoring: docker/README.md.
set -eu
folder=${1:?name the folder of the backups}
compose="docker compose -f $(dirname "$0")/compose.yaml"
at=$(date -u +%Y-%m-%dT%H%M%SZ)
umask 077
mkdir -p "$folder"
inside=/data/store/backup-$at.db
trap '$compose exec -T code rm -f "$inside"' EXIT
$compose exec -T code contextcliff ledger backup "$inside" >&2
$compose exec -T code cat "$inside" > "$folder/ledger-$at.db"
$compose exec -T postgres pg_dump --username postgres --format custom dagster > "$folder/dagster-$at.dump"
echo "$folder/ledger-$at.db"
echo "$folder/dagster-$at.dump"
