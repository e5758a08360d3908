#!/bin/sh
# Checks that a cost program answers each request that docs/testing/costs.md names:
# cost_test.sh URL PROGRAM
set -eu
url=$1
program=$2
. "$(dirname "$0")/new_table.sh"

request='"mode":"sync","store":"thunderhead","table":"t","count":200,"rounds":2,"value_bytes":50'
for kind in get:1 put:1 get_many:100 put_many:100; do
    echo "{\"id\":5,\"work\":\"${kind%:*}\",\"width\":${kind#*:},\"url\":\"$url\",$request}"
done >"$work/requests"
echo '{"id":6,"work":"get","store":"redis","mode":"sync","url":"x"}' >>"$work/requests"
"$program" <"$work/requests" >"$work/output" 2>"$work/errors"
test ! -s "$work/errors" || { cat "$work/errors" && exit 1; }
measured=$(grep -cE '"ns":\[[0-9.e+]+,[0-9.e+]+\].*"id":5' "$work/output") || true
test "$measured" = 4 || { cat "$work/output" && exit 1; }
head -n 1 "$work/output" | grep -q '^{"ready":true,.*"sync"' || { echo "it is not ready" && exit 1; }
tail -n 1 "$work/output" | grep -q '"missing":.*"id":6' || { cat "$work/output" && exit 1; }
status=0
echo nonsense | "$program" >"$work/output" 2>"$work/errors" || status=$?
test $status = 1 || { echo "the status is $status after nonsense" && exit 1; }
