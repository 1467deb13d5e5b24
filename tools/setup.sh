#!/bin/bash
# Installs the Debian packages of the named sections of tools/packages.txt (default: all) that are missing.
# With everything installed it needs neither root nor network.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
list=$here/packages.txt

wanted=()
section=
while read -r line; do
  case $line in
    '' | '#'*) ;;
    '['*']') section=${line//[\[\]]/} ;;
    *) if [[ $# -eq 0 || " $* " == *" $section "* ]]; then wanted+=("$line"); fi ;;
  esac
done <"$list"

if ! command -v dpkg-query >/dev/null; then
  echo "setup: no dpkg here; these are the Debian 12 names of what the build needs: ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for package in "${wanted[@]}"; do
  if [[ $'\n'$installed$'\n' != *$'\n'"installed $package"$'\n'* ]]; then missing+=("$package"); fi
done
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi

root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: missing packages, and neither root nor sudo to install them. As root, run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${root[@]}" apt-get update -qq
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
