#!/bin/bash
# Runs clang-tidy with the compile commands of the release preset.
#   tools/tidy.sh [--seconds N] FILE.cc ...     the named sources
#   tools/tidy.sh [--seconds N] --changed       sources that differ from the base (LODE_BASE, else where origin/main was
#                                               left, else the commit before), and those named after changed headers
#   tools/tidy.sh [--seconds N] --all
# After N seconds no further file is begun, and those running have 20 s to end (0: no limit); how many were checked is
# printed.
set -euo pipefail
cd "$(dirname "$0")/.."
git() { command git -c safe.directory='*' "$@"; }

seconds=0
mode=files
files=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --changed) mode=changed ;;
    --all) mode=all ;;
    *) files+=("$1") ;;
  esac
  shift
done

base_commit() {
  local head base
  head=$(git rev-parse HEAD)
  if [[ -n ${LODE_BASE:-} ]]; then echo "$LODE_BASE"; return; fi
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [[ -n $base && $base != "$head" ]]; then echo "$base"; return; fi
  git rev-parse --verify -q HEAD~1 || git hash-object -t tree /dev/null
}

changed_sources() {
  {
    git diff --name-only --diff-filter=d "$(base_commit)"
    git ls-files --others --exclude-standard
  } | grep -E '\.(cc|h)$' | sed 's/\.h$/.cc/' | sort -u | while read -r file; do
    if [[ -f $file ]]; then echo "$file"; fi
  done
}

case $mode in
  changed) mapfile -t files < <(changed_sources || true) ;;
  all) mapfile -t files < <(tools/sources.sh | grep '\.cc$') ;;
esac

commands=build/release/compile_commands.json
if [[ ! -f $commands ]]; then cmake --preset release >/dev/null; fi
known=()
for file in "${files[@]}"; do
  if grep -qF "\"file\": \"$PWD/$file\"" "$commands"; then known+=("$file"); fi
done
if [[ ${#known[@]} -eq 0 ]]; then
  echo "clang-tidy: nothing to check"
  exit 0
fi

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export log seconds
export deadline=$(($(date +%s) + seconds))
one() {
  local left=0
  if [[ $seconds -gt 0 ]]; then
    left=$((deadline - $(date +%s)))
    if [[ $left -le 0 ]]; then exit 0; fi
    left=$((left + 20)) # what is begun may end, within reason
  fi
  # The commands are gcc's: clang does not know all of its warning names.
  local code=0
  timeout "$left" clang-tidy-14 --quiet -p build/release --extra-arg=-Wno-unknown-warning-option "$1" \
    >"$log/out.$$" 2>"$log/err.$$" || code=$?
  if [[ $code -eq 124 ]]; then exit 0; fi
  touch "$log/done.${1//\//_}"
  if [[ $code -ne 0 ]]; then
    touch "$log/failed"
    cat "$log/out.$$"
    grep -E 'error:' "$log/err.$$" || true
  fi
}
export -f one
printf '%s\0' "${known[@]}" | xargs -0 -P "$(nproc)" -n 1 bash -c 'one "$1"' _
echo "clang-tidy: checked $(find "$log" -name 'done.*' | wc -l) of ${#known[@]} files"
if [[ -e $log/failed ]]; then exit 1; fi
