#!/bin/sh
# Kills the store several times while a program counts, and starts it again with its data. The
# program checks each sum itself: counter_test.sh PROGRAM
set -eu
test -n "${THUNDERHEAD-}" || { echo "THUNDERHEAD does not name the program" && exit 77; }
program=$1
work=$(mktemp -d)
store=
counter=
finish() {
    for process in $store $counter; do
        kill -9 "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
mkfifo "$work/line" "$work/progress"
address=127.0.0.1:0
start() {
    "$THUNDERHEAD" dev --json --data "$work/data" --buffer-directory "$work" --memory 64MiB \
        --listen "$address" >"$work/line" &
    store=$!
    read -r first <"$work/line"
    address=$(echo "$first" | sed 's/.*"coordinators":\["\([^"]*\)".*/\1/')
}
start
"$program" "thunderhead://$address/" 4000 >"$work/progress" &
counter=$!
exec 3<"$work/progress"
while read -r line <&3; do
    echo "$line"
    case $line in
    1000 | 2000 | 3000)
        kill -9 "$store"
        wait "$store" || true
        start
        ;;
    esac
done
wait "$counter"
counter=
