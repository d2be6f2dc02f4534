#!/bin/sh
# docker/backup.sh FOLDER: the call ledger, the files of the store that are not made again from it, and Dagster's
# database, as they are now, of the containers that run. Nothing is stopped. Restoring: docker/README.md.
set -eu
folder=${1:?name the folder of the backups}
compose="docker compose -f $(dirname "$0")/compose.yaml"
at=$(date -u +%Y-%m-%dT%H%M%SZ)
umask 077
mkdir -p "$folder"
inside=/data/store/backup-$at.db
partial=$folder/.partial-$at
trap 'rm -f "$partial"; $compose exec -T code rm -f "$inside"' EXIT

# keep NAME COMMAND...: a file has its name only once it is whole; half of one would look like a backup.
keep() {
    name=$1; shift
    "$@" > "$partial"
    mv "$partial" "$folder/$name"
    echo "$folder/$name"
}

# The paths are those of docs/architecture.md ("The store"). A file in .tmp is being written. One that is gone when tar
# comes to it was replaced or taken away meanwhile: tar ends with 1 then, which is no error.
files='cd /data/store || exit
find . -maxdepth 2 \( -path ./store.json -o -path ./_models.yaml -o -path ./_renaming.json -o -path ./_studies \
    -o -path ./_alerts -o -path "./*/alerts" -o -path "./*/retired.json" -o -path "./*/baseline.json" \
    -o -path "./*/calibration.json" -o -path "./*/manifest" -o -path "./*/*_documents" \) -print0 |
    tar --create --gzip --null --exclude ".*.tmp" --files-from - || [ $? -eq 1 ]'

# The ledger first: what is answered after it has a sample that is here without answers, which does no harm.
$compose exec -T code contextcliff ledger backup "$inside" >&2
keep "ledger-$at.db" $compose exec -T code cat "$inside"
keep "store-$at.tar.gz" $compose exec -T code sh -c "$files"
keep "dagster-$at.dump" $compose exec -T postgres pg_dump --username postgres --format custom dagster
