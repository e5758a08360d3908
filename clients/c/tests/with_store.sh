#!/bin/sh
# Runs a program with the URL of a temporary store as its first argument: with_store.sh PROGRAM ...
set -eu
test -n "${THUNDERHEAD-}" || { echo "THUNDERHEAD does not name the program" && exit 77; }
work=$(mktemp -d)
store=
trap 'test -z "$store" || kill "$store"; rm -rf "$work"' EXIT
mkfifo "$work/line"
"$THUNDERHEAD" dev --ephemeral --json >"$work/line" &
store=$!
read -r first <"$work/line"
address=$(echo "$first" | sed 's/.*"coordinators":\["\([^"]*\)".*/\1/')
program=$1
shift
"$program" "thunderhead://$address/" "$@"
