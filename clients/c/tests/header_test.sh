#!/bin/sh
# Compares the header with the one that cbindgen makes now. Skipped without cbindgen.
set -eu
command -v "${CBINDGEN:-cbindgen}" >/dev/null || exit 77
exec "$(dirname "$0")/../header.sh" --check
