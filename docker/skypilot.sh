#!/bin/sh
# The run of skypilot.yaml: measures STUDY with MODEL, served by vLLM on this machine. Where the ledger is a file,
# its newest copy in the folder KEPT is where the study goes on, and its newest two stay there.
set -eu
: "${STUDY:?}" "${MODEL:?}" "${VLLM_ARGUMENTS:?}" "${KEPT:?}"
port=${VLLM_PORT:-8000}
export CONTEXTCLIFF_QWEN_URL="http://127.0.0.1:$port/v1"
export CONTEXTCLIFF_HOME="${CONTEXTCLIFF_HOME:-$HOME/store}"
[ -n "${CONTEXTCLIFF_LEDGER:-}" ] || unset CONTEXTCLIFF_LEDGER # an empty secret is none
ledger="$CONTEXTCLIFF_HOME/state.db"
umask 077
mkdir -p "$CONTEXTCLIFF_HOME"

copies() { find "$KEPT" -maxdepth 1 -name 'ledger-*.db' | sort; }

keep() {
    [ -z "${CONTEXTCLIFF_LEDGER:-}" ] && [ -e "$ledger" ] || return 0
    copy="$CONTEXTCLIFF_HOME/ledger-$(date -u +%Y-%m-%dT%H%M%SZ).db"
    contextcliff ledger backup "$copy" && cp "$copy" "$KEPT/" && rm "$copy" || return 1
    copies | head -n -2 | xargs -r rm
}

end() {
    kill "$server" "$keeper" ${measuring:+"$measuring"} 2>/dev/null || true
    wait ${measuring:+"$measuring"} 2>/dev/null || true
    keep
}

if [ -z "${CONTEXTCLIFF_LEDGER:-}" ] && [ ! -e "$ledger" ]; then
    newest=$(copies | tail -n 1)
    [ -z "$newest" ] || cp "$newest" "$ledger"
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
cp "$CONTEXTCLIFF_HOME/$STUDY.zip" "$KEPT/"
