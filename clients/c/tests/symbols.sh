#!/bin/sh
# Lists the symbols that a shared library exports, and its soname.
set -eu
nm --dynamic --defined-only --extern-only "$1" | sed 's/^[0-9a-f]* //' | LC_ALL=C sort
objdump -p "$1" | sed -n 's/^ *SONAME  */SONAME /p'
