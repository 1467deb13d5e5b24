#!/bin/bash
# usage: tools/bench.sh BUILD_FOLDER [benchmark options]
# Runs every benchmark program, then the binary's own benches.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift
find "$folder/benchmarks" -name '*_bench' -type f -perm -u+x | sort | while read -r program; do
  echo "=== $(basename "$program")"
  "$program" "$@"
done
build/bin/lode bench gemm
build/bin/lode bench train
