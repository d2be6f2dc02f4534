#!/bin/sh
# The run of skypilot.yaml: measures STUDY with MODEL, served by vLLM on this machine. In the bucket, mounted at KEPT,
# every study and model has a folder of its own. Where the ledger is a file, the newest copy there is where the study
# goes on, and the newest two stay.
set -eu
: "${STUDY:?}" "${MODEL:?}" "${VLLM_ARGUMENTS:?}" "${KEPT:?}"
port=${VLLM_PORT:-8000}
export CONTEXTCLIFF_QWEN_URL="http://127.0.0.1:$port/v1"
export CONTEXTCLIFF_HOME="${CONTEXTCLIFF_HOME:-$HOME/store}"
[ -n "${CONTEXTCLIFF_LEDGER:-}" ] || unset CONTEXTCLIFF_LEDGER # an empty secret is none
ledger="$CONTEXTCLIFF_HOME/state.db"
# The checksum keeps apart what reads the same without its signs (org/m+1, org/m-1).
readable=$(printf %s "$STUDY-$MODEL" | tr -c 'A-Za-z0-9._-' _ | cut -c1-100)
KEPT="$KEPT/$readable-$(printf '%s\n' "$STUDY" "$MODEL" | cksum | cut -d' ' -f1)"
umask 077
mkdir -p "$CONTEXTCLIFF_HOME" "$KEPT"
rm -f "$KEPT"/.partial-* # of a machine that was taken away

copies() { find "$KEPT" -maxdepth 1 -name 'ledger-*.db' | sort; }

# put FILE: into the bucket, under its name only once it is whole; half a ledger would be the next machine's newest.
put() { cp "$1" "$KEPT/.partial-${1##*/}" && mv "$KEPT/.partial-${1##*/}" "$KEPT/${1##*/}"; }

keep() {
    [ -z "${CONTEXTCLIFF_LEDGER:-}" ] && [ -e "$ledger" ] || return 0
    copy="$CONTEXTCLIFF_HOME/ledger-$(date -u +%Y-%m-%dT%H%M%SZ).db"
    contextcliff ledger backup "$copy" && put "$copy" && rm "$copy" || return 1
    copies | head -n -2 | xargs -r -d '\n' rm
}

end() {
    kill "$server" "$keeper" ${measuring:+"$measuring"} 2>/dev/null || true
    wait ${measuring:+"$measuring"} 2>/dev/null || true
    keep
    rm -f "$KEPT"/.partial-* # of a copy that the keeper had begun
}

if [ -z "${CONTEXTCLIFF_LEDGER:-}" ] && [ ! -e "$ledger" ]; then
    newest=$(copies | tail -n 1)
    if [ -n "$newest" ]; then
        cp "$newest" "$ledger.partial"
        mv "$ledger.partial" "$ledger"
    fi
fi

# shellcheck disable=SC2086 # several words
vllm serve $VLLM_ARGUMENTS --host 127.0.0.1 --port "$port" &
server=$!
while sleep "${KEEP_EVERY_S:-300}" >/dev/null 2>&1; do keep || true; done &
keeper=$!
trap end EXIT
trap 'exit 143' TERM INT

until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/health"; do
    kill -0 "$server" || { echo "vLLM has ended." >&2; exit 1; }
    sleep 2
done
contextcliff profile "$STUDY" --model "$MODEL" --yes &
measuring=$!
wait "$measuring"
contextcliff export "$STUDY" "$CONTEXTCLIFF_HOME/$STUDY.zip"
put "$CONTEXTCLIFF_HOME/$STUDY.zip"
