#!/bin/sh
# Checks that a driver answers each request that docs/testing/drivers.md names:
# driver_test.sh URL DRIVER MODE
set -eu
url=$1
driver=$2
mode=$3
. "$(dirname "$0")/new_table.sh"

# Each line is a request of the client 7 and its reply. V stands for a version, and T for a text.
cat >"$work/messages" <<END
"op":"open","url":"$url","mode":"$mode" => "ok":{}
"op":"get",KEY => "ok":{"absent":true}
"op":"put",KEY,"value":"dg==","if":{"version":"0"} => "ok":{"version":"V"}
"op":"get",KEY => "ok":{"version":"V","value":"dg=="}
"op":"put",KEY,"value":"","if":"absent" => "error":{"code":1,"outcome":"not_done","version":"V","text":"T"}
"op":"put",KEY,"value":"","if":{"version":"1000"} => "error":{"code":1,"outcome":"not_done","version":"V","text":"T"}
"op":"increment",KEY,"by":"1" => "error":{"code":1013,"outcome":"not_done","version":"V","text":"T"}
"op":"put",KEY,"value":"dmFsdWU=","if":"present" => "ok":{"version":"V"}
"op":"get",KEY => "ok":{"version":"V","value":"dmFsdWU="}
"op":"delete",KEY,"if":"present" => "ok":{"version":"V"}
"op":"delete",KEY => "ok":{"absent":true}
"op":"put",KEY,"value":"","if":"present" => "error":{"code":1,"outcome":"not_done","version":"0","text":"T"}
"op":"put_number",KEY,"number":"-40","if":"absent" => "ok":{"version":"V"}
"op":"put_number",KEY,"number":"-40","if":"absent" => "error":{"code":1,"outcome":"not_done","version":"V","text":"T"}
"op":"put_number",KEY,"number":"-41" => "ok":{"version":"V"}
"op":"increment",KEY,"by":"83" => "ok":{"version":"V","sum":"42"}
"op":"put","table":"t","key":"","value":"" => "error":{"code":1010,"outcome":"not_done","version":"0","text":"T"}
"op":"delete",KEY => "ok":{"version":"V"}
"op":"put_many","table":"t","objects":[["YQ==",""],["Yg==","dg=="]] => "ok":{"results":[{"version":"V"},{"version":"V"}]}
"op":"get_many","table":"t","keys":["YQ==","eA==","Yg=="] => "ok":{"results":[{"version":"V","value":""},{"absent":true},{"version":"V","value":"dg=="}]}
"op":"delete","table":"t","key":"YQ==" => "ok":{"version":"V"}
"op":"scan","table":"t" => "ok":{"objects":[{"key":"Yg==","value":"dg==","version":"V"}]}
"op":"get","table":"none","key":"aw==" => "error":{"code":1020,"outcome":"not_done","version":"0","text":"T"}
"op":"close" => "ok":{}
"op":"get",KEY => "error":{"code":12,"outcome":"not_done","version":"0","text":"T"}
"op":"open","url":"$url","mode":"$mode" => "ok":{}
"op":"increment",KEY,"by":"5" => "ok":{"version":"V","sum":"5"}
END
sed 's/KEY/"table":"t","key":"aw=="/; s/ => .*//; s/.*/{"id":5,"client":7,&}/' "$work/messages" >"$work/requests"
sed 's/.* => //; s/.*/{"id":5,&}/' "$work/messages" >"$work/expected"
"$driver" <"$work/requests" >"$work/output" 2>"$work/errors"
sed -E '1d; s/"version":"[1-9][0-9]*"/"version":"V"/g; s/"text":"[^"]{10,}"/"text":"T"/g' "$work/output" >"$work/replies"
diff "$work/expected" "$work/replies"
test ! -s "$work/errors" || { cat "$work/errors" && exit 1; }
head -n 1 "$work/output" | grep -q "^{\"ready\":true,.*\"$mode\"" || { echo "it is not ready" && exit 1; }

# A driver that cancels: each increment ends in one of three ways, and is done at most once.
if head -n 1 "$work/output" | grep -q "\"cancels\":.*\"$mode\""; then
    fields='"op":"increment","table":"t","key":"Yw==","by":"1"'
    {
        echo "{\"id\":1,\"client\":8,\"op\":\"open\",\"url\":\"$url\",\"mode\":\"$mode\"}"
        for id in $(seq 2 51); do echo "{\"id\":$id,\"client\":8,$fields,\"cancel\":true}"; done
        echo "{\"id\":52,\"client\":8,$fields}"
    } | "$driver" >"$work/output" 2>"$work/errors"
    test ! -s "$work/errors" || { cat "$work/errors" && exit 1; }
    done=$(grep -c '"ok":{"version":' "$work/output") || true
    not_done=$(grep -c '"code":20,"outcome":"not_done"' "$work/output") || true
    unknown=$(grep -c '"code":8,"outcome":"unknown"' "$work/output") || true
    test $((done + not_done + unknown)) = 51 || { cat "$work/output" && exit 1; }
    sum=$(sed -n 's/^{"id":52,.*"sum":"\([0-9]*\)".*/\1/p' "$work/output")
    test "$sum" -ge "$done" && test "$sum" -le $((done + unknown)) || {
        echo "$done were done, $unknown may be, and the sum is $sum" && exit 1
    }
fi

# A request that makes no sense ends the driver.
refuses() {
    status=0
    echo "$1" | "$driver" >"$work/output" 2>"$work/errors" || status=$?
    test $status = 1 || { echo "the status is $status after $1" && exit 1; }
    grep -q "$2" "$work/errors" || { cat "$work/errors" && exit 1; }
}
refuses nonsense .
refuses '{"id":5,"client":7,"op":"get","table":"t","key":"aw=="}' 'the client 7 is not open'
refuses '{"id":5,"client":7,"op":"open","url":"x","mode":"odd"}' 'there is no mode odd'
refuses '{"id":5,"client":7,"op":"open"}' mode
