#!/bin/bash
# Everything `make lint` checks. All checks run; the exit code says whether one failed.
# LODE_TIDY_SECONDS bounds clang-tidy (default 25).
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()
check() {
  local name=$1 begin=$SECONDS
  shift
  "$@" || failed+=("$name")
  echo "lint: $name took $((SECONDS - begin)) s"
}

documented_packages() {
  local package ok=0
  for package in $(sed -n '/^\[build\]/,/^\[/{/^lib.*-dev\|json/p}' tools/packages.txt); do
    if ! grep -q "$package" docs/dependencies.md; then
      echo "docs/dependencies.md: no entry for $package, which tools/packages.txt installs"
      ok=1
    fi
  done
  return $ok
}

check layers-self-test python3 tools/check_layers_test.py
check layers python3 tools/check_layers.py
check dependencies documented_packages
check documents python3 tools/check_docs.py
check format bash -c 'tools/sources.sh | xargs clang-format-14 --dry-run -Werror --ferror-limit=1'
check tidy tools/tidy.sh --changed --seconds "${LODE_TIDY_SECONDS:-25}"

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "lint: failed: ${failed[*]}"
  exit 1
fi
echo "lint: all passed"
