#!/usr/bin/env python3
"""Checks that links and paths in the Markdown files lead somewhere.

A link target without a scheme is a path from the file; a `path/like/this` in backticks that begins with one of the tree's
folders is a path from the root. Paths with placeholders (<layer>, *, squash) are left alone.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("src", "include", "apps", "tests", "benchmarks", "examples", "tools", "docs", "cmake", "deploy", ".ci")
# Made by commands, or the example of docs/add-an-op.md.
MISSING_ON_PURPOSE = re.compile(r"[<>*{}$]|squash|^tools/venv")


def documents():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", ".git", "venv")]
        for name in names:
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def findings_of(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S | re.M)
    for number, line in enumerate(text.split("\n"), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:|#", target):
                continue
            if not os.path.exists(os.path.join(os.path.dirname(path), target.split("#")[0])):
                yield number, f"link to {target}: no such file"
        for target in re.findall(r"`([^`\s]+)`", line):
            if target.split("/")[0] not in FOLDERS or "/" not in target or MISSING_ON_PURPOSE.search(target):
                continue
            if not os.path.exists(os.path.join(ROOT, target.rstrip("/"))):
                yield number, f"{target}: no such file"


def main():
    failed, count = 0, 0
    for path in sorted(documents()):
        count += 1
        for number, message in findings_of(path):
            print(f"{os.path.relpath(path, ROOT)}:{number}: {message}")
            failed = 1
    print(f"check_docs: {count} documents")
    return failed


if __name__ == "__main__":
    sys.exit(main())
