#!/bin/bash
# usage: tools/check_package.sh FOLDER
# Unpacks the .deb and the tarball of FOLDER and runs both. As root each runs in a root folder of its own that holds only
# what it may count on: glibc for the tarball; the packages named by Depends, and theirs, for the .deb.
set -euo pipefail
folder=$(cd "$1" && pwd)
source_tree=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
die() {
  echo "check_package: $*" >&2
  exit 1
}

# Packages that the named ones need, themselves included, from the installed system's records.
closure() {
  local pending=("$@") seen=' ' package
  while [[ ${#pending[@]} -gt 0 ]]; do
    package=${pending[0]}
    pending=("${pending[@]:1}")
    if [[ $seen == *" $package "* ]]; then continue; fi
    seen+="$package "
    # The first of alternatives; versions and architectures dropped.
    mapfile -t -O "${#pending[@]}" pending < <(dpkg-query -W -f '${Pre-Depends},${Depends}\n' "$package" 2>/dev/null |
      tr ',' '\n' | sed -E 's/[|(:].*//; s/ //g' | grep .)
  done
  echo "$seen"
}

# Copies the shared libraries of the packages into the root folder.
copy_libraries() {
  local root=$1 package file
  shift
  for package in "$@"; do
    dpkg-query -L "$package" 2>/dev/null | grep -E '\.so(\.[0-9.]+)?$' | while read -r file; do
      if [[ -e $file && ! -d $file ]]; then
        mkdir -p "$root$(dirname "$file")"
        cp -a "$file" "$root$file"
      fi
    done
  done
}

# smoke NAME ROOT: /usr/bin/lode or /opt/lodestone/bin/lode in ROOT says its version and finds every library.
smoke() {
  local name=$1 root=$2 lode=$3 out
  if readelf -d "$root$lode" | grep -F "$source_tree"; then die "$name: the binary names the build tree"; fi
  if [[ $(id -u) -eq 0 ]]; then
    if [[ ! -e $root/lib ]]; then ln -s usr/lib "$root/lib"; fi
    if [[ ! -e $root/lib64 ]]; then ln -s usr/lib64 "$root/lib64"; fi
    out=$(env -i PATH=/usr/bin chroot "$root" "$lode" --version) || die "$name: does not run in an empty root"
  else
    if env -i ldd "$root$lode" | grep -E "not found|$source_tree"; then die "$name: libraries missing"; fi
    out=$(env -i "$root$lode" --version) || die "$name: does not run"
  fi
  echo "check_package: $name: $out"
}

deb=$(ls "$folder"/*.deb)
dpkg -x "$deb" "$work/deb"
depends=$(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed -E 's/[|(:].*//; s/ //g')
if [[ $(id -u) -eq 0 ]]; then
  # Merged /usr, as Debian 12 has it.
  mkdir -p "$work/deb/usr/lib" "$work/deb/usr/lib64"
  ln -s usr/lib "$work/deb/lib"
  ln -s usr/lib64 "$work/deb/lib64"
  # shellcheck disable=SC2046,SC2086
  copy_libraries "$work/deb" $(closure $depends)
fi
smoke deb "$work/deb" /usr/bin/lode
echo "check_package: deb depends on" $depends

mkdir -p "$work/tar/opt" "$work/tar/usr/lib" "$work/tar/usr/lib64"
ln -s usr/lib "$work/tar/lib"
ln -s usr/lib64 "$work/tar/lib64"
tar -xzf "$(ls "$folder"/*.tar.gz)" -C "$work/tar/opt"
mv "$work/tar/opt"/lodestone-* "$work/tar/opt/lodestone"
if [[ $(id -u) -eq 0 ]]; then copy_libraries "$work/tar" libc6; fi
smoke tarball "$work/tar" /opt/lodestone/bin/lode
