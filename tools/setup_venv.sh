#!/bin/bash
# Makes tools/venv with the pinned packages of tools/requirements.txt and requirements-checks.txt, for checks against other software that are run by
# hand. Neither the build nor the tests need it. With the default index PyTorch brings its CUDA libraries (5 GB);
# PIP_EXTRA_INDEX_URL can name an index with CPU builds.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m venv venv
venv/bin/pip install --quiet --requirement requirements.txt --requirement requirements-checks.txt
echo "use tools/venv/bin/python"
