#!/bin/bash
# Builds the packages into build/package and checks that they run without anything of the build tree.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
rm -rf build/package
cmake --preset release -DLODE_PACKAGE=ON -DLODE_BUILD_TESTS=OFF -DLODE_BUILD_BENCHMARKS=OFF
cmake --build build/release --parallel "$jobs" --target lode lode_shared
(cd build/release && cpack)
rm -rf build/package/_CPack_Packages
tools/check_package.sh build/package
ls -l build/package
