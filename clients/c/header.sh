#!/bin/sh
# Makes include/thunderhead.h from crates/capi with cbindgen. With --check it only compares.
# Get the tool with: cargo install cbindgen --version 0.29.4 --locked
set -eu
here=$(cd "$(dirname "$0")" && pwd)
crate=$here/../../crates/capi
case ${1-} in
'') set -- ;;
--check) set -- --verify ;;
*) echo "usage: $0 [--check]" >&2 && exit 2 ;;
esac
exec "${CBINDGEN:-cbindgen}" "$@" --quiet --config "$crate/cbindgen.toml" \
    --output "$here/include/thunderhead.h" "$crate"
