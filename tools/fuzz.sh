#!/bin/bash
# Builds the fuzzers and runs each for some seconds: tools/fuzz.sh [SECONDS [TARGET...]]. Needs clang and its sanitizers. What was found
# stays in build/fuzz/corpus, crashes in build/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift || true
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then targets=(safetensors gguf config tokenizer chat_template json_lines); fi
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --parallel "$(nproc)" --target "${targets[@]/%/_fuzz}"
python3 tests/fuzz/make_seeds.py build/fuzz/seeds
mkdir -p build/fuzz/crashes
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
failed=0
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  log=build/fuzz/$target.log code=0
  "build/fuzz/tests/fuzz/${target}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/crashes/$target-" "build/fuzz/corpus/$target" "build/fuzz/seeds/$target" >"$log" 2>&1 || code=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [[ $code -eq 0 ]]; then
    echo "fuzz $target: ${runs:-0} inputs, nothing found"
  else
    failed=1
    tail -40 "$log"
    echo "fuzz $target: FAILED, the input is in build/fuzz/crashes"
  fi
done
exit $failed
