#!/bin/sh
# Makes the proxy's login at its first start, and starts the proxy. The password is printed once and
# kept as a hash alone; remove the file for a new one.
set -eu
: "${CONTEXTCLIFF_TOKEN:?set CONTEXTCLIFF_TOKEN in docker/.env}"
login=${CONTEXTCLIFF_LOGIN:?}
if [ ! -s "$login" ]; then
    umask 077
    password=$(od -An -N18 -tx1 /dev/urandom | tr -d ' \n')
    printf 'contextcliff %s\n' "$(printf '%s\n' "$password" | caddy hash-password)" > "$login.new"
    mv "$login.new" "$login"
    echo "The login of https://$CONTEXTCLIFF_DOMAIN is contextcliff with password $password; it is not shown again."
fi
exec caddy run --config "${CONTEXTCLIFF_CADDYFILE:-/etc/caddy/Caddyfile}" --adapter caddyfile
