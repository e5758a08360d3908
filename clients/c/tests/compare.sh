#!/bin/sh
# Compares the output of a command with a file: compare.sh FILE COMMAND...
set -eu
expected=$1
shift
"$@" | diff -u "$expected" -
