#!/bin/sh
# Runs the compiler for test/house/project.ts. A signal makes it print an error, so it ends when its input ends.
trap '' TERM
"$(dirname "$0")/../../node_modules/typescript/bin/tsc" "$@"
