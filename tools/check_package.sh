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

# smoke NAME ROOT LODE: the binary LODE of the root folder says its version, finding every library it needs.
smoke() {
  local name=$1 root=$2 lode=$3 out
  if readelf -d "$root$lode" | grep -F "$source_tree"; then die "$name: the binary names the build tree"; fi
  if [[ $(id -u) -eq 0 ]]; then
    # The loader finds $ORIGIN through /proc, which this root lacks.
    out=$(env -i PATH=/usr/sbin:/usr/bin LD_ORIGIN_PATH="$(dirname "$lode")" chroot "$root" "$lode" --version) || die "$name: does not run in an empty root"
  else
    if env -i ldd "$root$lode" | grep -E "not found|$source_tree/"; then die "$name: libraries missing"; fi
    out=$(env -i "$root$lode" --version) || die "$name: does not run"
  fi
  echo "check_package: $name: $out"
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
