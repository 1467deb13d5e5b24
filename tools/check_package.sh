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

# Names of a dependency field, one a line: the first of alternatives, versions and architectures dropped.
names_of() {
  tr ',' '\n' | sed -E 's/[|(:].*//; s/ //g; /^$/d'
}

# Packages that the named ones need, themselves included, from the installed system's records. A virtual package stands
# for those that provide it.
closure() {
  local pending=("$@") seen=' ' package
  local records
  records=$(dpkg-query -W -f '${db:Status-Status}\t${Package}\t${Provides}\t${Pre-Depends},${Depends}\n' | grep ^installed)
  while [[ ${#pending[@]} -gt 0 ]]; do
    package=${pending[0]}
    pending=("${pending[@]:1}")
    if [[ $seen == *" $package "* ]]; then continue; fi
    seen+="$package "
    mapfile -t -O "${#pending[@]}" pending < <(awk -F'\t' -v name="$package" '
      $2 == name { print $4 }
      (", " $3 " ") ~ (", " name "[ ,]") { print $2 }' <<<"$records" | names_of)
  done
  echo "$seen"
}

# Copies the shared libraries of the packages into the root folder.
copy_libraries() {
  local root=$1 package file
  shift
  for package in "$@"; do
    while read -r file; do
      if [[ $file =~ \.so(\.[0-9.]+)?$ && -e $file && ! -d $file ]]; then
        mkdir -p "$root$(dirname "$file")"
        cp -a "$file" "$root$file"
      fi
    done < <(dpkg-query -L "$package" 2>/dev/null)
  done
}

# smoke NAME ROOT LODE: the binary LODE of the root folder finds every library, says its version, and does a bit of work.
smoke() {
  local name=$1 root=$2 lode=$3 version
  if readelf -d "$root$lode" | grep -F "$source_tree"; then die "$name: the binary names the build tree"; fi
  mkdir -p "$root/tmp"
  seq 1000 >"$root/tmp/text.txt"
  local run=(env -i) place=$root
  if [[ $(id -u) -eq 0 ]]; then
    # The loader finds $ORIGIN through /proc, which this root lacks.
    run+=(PATH=/usr/sbin:/usr/bin LD_ORIGIN_PATH="$(dirname "$lode")" chroot "$root")
    place=
  elif env -i ldd "$root$lode" | grep -E "not found|$source_tree/"; then
    die "$name: libraries missing"
  fi
  version=$("${run[@]}" "$place$lode" --version) || die "$name: does not run"
  "${run[@]}" "$place$lode" tokenizer train "$place/tmp/text.txt" --output "$place/tmp/tokenizer" --vocab-size 300 \
    >"$work/log" 2>&1 </dev/null || { cat "$work/log" >&2; die "$name: cannot train a tokenizer"; }
  [[ -s $root/tmp/tokenizer/tokenizer.json ]] || die "$name: wrote no tokenizer"
  echo "check_package: $name: $version"
}

# A root folder with merged /usr, as Debian 12 has it.
make_root() {
  mkdir -p "$1/usr/lib" "$1/usr/lib64"
  ln -s usr/lib "$1/lib"
  ln -s usr/lib64 "$1/lib64"
}

deb=$(ls "$folder"/*.deb)
make_root "$work/deb"
dpkg -x "$deb" "$work/deb"
depends=$(dpkg-deb -f "$deb" Depends | names_of)
if [[ $(id -u) -eq 0 ]]; then
  # shellcheck disable=SC2046,SC2086
  copy_libraries "$work/deb" $(closure $depends)
fi
smoke deb "$work/deb" /usr/bin/lode
echo "check_package: the deb depends on ${depends//$'\n'/ }"

make_root "$work/tar"
mkdir "$work/tar/opt"
tar -xzf "$(ls "$folder"/*.tar.gz)" -C "$work/tar/opt"
mv "$work/tar/opt"/lodestone-* "$work/tar/opt/lodestone"
if [[ $(id -u) -eq 0 ]]; then copy_libraries "$work/tar" libc6; fi
smoke tarball "$work/tar" /opt/lodestone/bin/lode
