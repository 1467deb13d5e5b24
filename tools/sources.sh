#!/bin/bash
# Prints the C++ files of the tree, tracked or new, one a line.
set -euo pipefail
cd "$(dirname "$0")/.."
git -c safe.directory='*' ls-files --cached --others --exclude-standard -- '*.cc' '*.h' | sort -u | while read -r file; do
  if [[ -f $file ]]; then echo "$file"; fi
done
