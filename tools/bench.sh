#!/bin/bash
# usage: tools/bench.sh BUILD_FOLDER
# Runs the benchmark programs, then the binary's own benches. The tokenizer is measured on the demo's text.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1/benchmarks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for program in "$folder"/lode_bench_*; do
  name=$(basename "$program")
  echo "=== $name"
  if [[ $name == lode_bench_text ]]; then
    bible -f gen1:1-rev22:21 >"$work/text.txt"
    "$program" "$work/text.txt" 4096 gpt2 "$work/tokenizer"
  else
    "$program"
  fi
done
echo "=== lode bench"
build/bin/lode bench gemm
build/bin/lode bench train
for kind in full selective; do build/bin/lode bench train --recompute "$kind"; done
for buffers in two one none; do
  build/bin/lode bench train --tokens 8192 --offload-dir build --offload-buffers "$buffers"
done
