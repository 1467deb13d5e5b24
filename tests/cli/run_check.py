#!/usr/bin/env python3
"""Checks run.py itself: with a stand-in for the binary, right expectations pass and each wrong one fails."""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

STAND_IN = """#!/bin/sh
case "$1" in
  json) echo '{"a": {"b": [1, 2.5]}}' ;;
  fail) echo "went wrong" >&2; exit 3 ;;
  sleep) sleep 30 ;;
  write) echo made > out.txt ;;
  cat) cat ;;
  env) echo "$LODE_CACHE $MINE" ;;
esac
"""

GOOD = """
# a comment
file in.txt times 2
| one
|
| two
folder sub/deep
set MINE=yes
$ lode env "two words"
stdout matches ^/.*/.cache yes$
$ lode json
json stdout a.b.1 equals 2.5
json stdout a.b.0 below 2
$ lode fail
exit 3
stderr contains went wrong
stdout lacks anything
absent out.txt
$ lode write
exists out.txt
content out.txt contains made
content in.txt matches one\\n\\ntwo\\none
exists sub/deep
bytes raw.bin A\\x00B\\n
flip raw.bin 1
content raw.bin lacks A\\x00B
stdin one\\ntwo
$ lode cat
stdout matches ^two$
$ lode cat
stdout lacks two
"""

BAD = [
    "$ lode fail",
    "$ lode fail\nstderr contains went wrong",
    "$ lode json\nexit 1",
    "$ lode json\nstdout lacks a",
    "$ lode json\nstdout contains zzz",
    "$ lode json\njson stdout a.c equals 1",
    "$ lode json\njson stdout a.b.0 equals 2",
    "$ lode json\nexists out.txt",
    "$ lode write\nabsent out.txt",
    "limit 1\n$ lode sleep",
    "stdout contains x",
    "$ ls",
    "no such step",
    "exists ../..",
    "copy no/such/fixture x",
    "file a b c",
    "flip nowhere 0",
    "stdin x\n$ lode cat\nstdout lacks x",
]


def passes(binary, folder, text):
    path = folder / "case.test"
    path.write_text(text + "\n")
    command = [sys.executable, str(HERE / "run.py"), "--lode", str(binary), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return result.returncode == 0, result.stdout + result.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        binary = folder / "stand-in"
        binary.write_text(STAND_IN)
        os.chmod(binary, 0o755)
        good, output = passes(binary, folder, GOOD)
        if not good:
            sys.exit("the good file fails:\n" + output)
        for text in BAD:
            wrong, output = passes(binary, folder, text)
            if wrong:
                sys.exit(f"this passes:\n{text}\n{output}")
        both, output = passes(binary, folder, "test first\n$ lode write\ntest second\nabsent out.txt\n$ lode json")
        if not both or "2 of 2" not in output:
            sys.exit("cases share a folder:\n" + output)
        begun = "folder made\ntest first\nexists made\n$ lode json\ntest second\nexists made\n$ lode json"
        both, output = passes(binary, folder, begun)
        if not both or "2 of 2" not in output:
            sys.exit("the steps before the first case do not begin every case:\n" + output)
    print(f"1 good and {len(BAD)} bad files behave")


if __name__ == "__main__":
    main()
