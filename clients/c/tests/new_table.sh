# Creates the table t of the store at $url, and sets work to a directory that ends with the script.
# A test reads this file with `.`.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
coordinator=${url#thunderhead://}
"$THUNDERHEAD" table create t --coordinators "${coordinator%/}" >"$work/created"
