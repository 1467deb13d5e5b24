#!/usr/bin/env python3
"""Runs the feature files of the command line: text files that say what is typed and what must come of it.

usage: run.py --lode BINARY [--only TEXT] [FILE.test ...]      (without files: every *.test beside this script)

A file is read line by line; empty lines and lines starting with # are skipped.

  test NAME                  a new case, in a fresh folder of its own (a file without this line is one case;
                             steps before the first one begin every case of the file)
  folder PATH                makes a folder
  file PATH [times N]        writes the following lines, each after "| ", N times over
  bytes PATH TEXT            writes TEXT with its Python escapes (\\n, \\x00) as bytes, without a line end
  flip PATH OFFSET           inverts a byte of a file; a negative offset counts from the end
  copy FIXTURE PATH          copies a file or folder of tests/ into the case's folder
  set NAME=VALUE             environment of the following commands
  stdin TEXT                 standard input of the next command, with escapes
  limit SECONDS              time that a following command may take (60)
  $ lode VERB ...            runs the binary; words are split as a shell does, but there is no shell
  exit N                     its exit code (without this line: 0)
  stdout|stderr contains|lacks TEXT
  stdout|stderr matches REGEX
  exists|absent PATH
  content PATH contains|lacks TEXT
  json stdout|PATH KEY.KEY equals|above|below VALUE      VALUE is JSON; list elements by number

Each case runs with HOME and LODE_CACHE inside its folder. The exit code is 1 when a case failed.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    pass


class Case:
    """One case: its folder, its environment and the last command's results."""

    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = folder
        self.limit = 60.0
        self.stdin = b""
        self.ran = None  # (exit code, {"stdout": text, "stderr": text})
        self.exit_checked = True
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("LODE_", "HF_"))}
        self.env = keep | {"HOME": str(folder), "LODE_CACHE": str(folder / ".cache"), "LC_ALL": "C.UTF-8"}

    def path(self, name):
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise Failure(f"{name} is outside the case's folder")
        return path

    def run(self, line):
        argv = shlex.split(line)
        if not argv or argv[0] != "lode":
            raise Failure("only lode can be run")
        argv[0] = self.binary
        process = subprocess.Popen(argv, cwd=self.folder, env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = process.communicate(self.stdin, timeout=self.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failure(f"took longer than {self.limit:g} s") from None
        streams = {"stdout": out.decode(errors="replace"), "stderr": err.decode(errors="replace")}
        self.ran = (process.returncode, streams)
        self.stdin = b""
        self.exit_checked = False

    def check_exit(self, expected):
        self.exit_checked = True
        if self.ran[0] != expected:
            raise Failure(f"exit code {self.ran[0]}, expected {expected}")

    def check_text(self, what, text, operation, expected):
        found = re.search(expected, text, re.MULTILINE) if operation == "matches" else expected in text
        if bool(found) == (operation == "lacks"):
            raise Failure(f"{what} {'has' if operation == 'lacks' else 'has not'} {expected!r}")

    def check_json(self, source, keys, operation, expected):
        text = self.ran[1]["stdout"] if source == "stdout" else self.path(source).read_text()
        value = json.loads(text)
        for key in keys.split("."):
            try:
                value = value[int(key)] if isinstance(value, list) else value[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise Failure(f"{source} has no {keys} (at {key})") from None
        wanted = json.loads(expected)
        good = {"equals": lambda: value == wanted, "above": lambda: value > wanted, "below": lambda: value < wanted}
        if not good[operation]():
            raise Failure(f"{keys} is {json.dumps(value)}, expected {operation} {expected}")


STEPS = [
    (r"folder (\S+)", lambda c, p: c.path(p).mkdir(parents=True)),
    (r"bytes (\S+) ?(.*)", lambda c, p, text: c.path(p).write_bytes(unescape(text))),
    (r"flip (\S+) (-?\d+)", lambda c, p, offset: flip(c.path(p), int(offset))),
    (r"stdin (.*)", lambda c, text: setattr(c, "stdin", unescape(text))),
    (r"copy (\S+) (\S+)", lambda c, fixture, p: copy_fixture(c, fixture, p)),
    (r"set (\w+)=(.*)", lambda c, name, value: c.env.__setitem__(name, value)),
    (r"limit (\d+)", lambda c, seconds: setattr(c, "limit", float(seconds))),
    (r"\$ (.*)", lambda c, line: c.run(line)),
    (r"exit (\d+)", lambda c, code: c.check_exit(int(code))),
    (r"(stdout|stderr) (contains|lacks|matches) (.+)", lambda c, s, op, text: c.check_text(s, c.ran[1][s], op, text)),
    (r"exists (\S+)", lambda c, p: require(c.path(p).exists(), f"{p} is not there")),
    (r"absent (\S+)", lambda c, p: require(not c.path(p).exists(), f"{p} is there")),
    (r"content (\S+) (contains|lacks|matches) (.+)",
     lambda c, p, op, text: c.check_text(p, c.path(p).read_text(errors="replace"), op, text)),
    (r"json (\S+) (\S+) (equals|above|below) (.+)", lambda c, s, keys, op, v: c.check_json(s, keys, op, v)),
]
# Expectations of a command's result need one that ran.
NEEDS_RUN = re.compile(r"exit |stdout |stderr |json stdout ")


def require(condition, message):
    if not condition:
        raise Failure(message)


def unescape(text):
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def copy_fixture(case, fixture, target):
    source = (HERE.parent / fixture).resolve()
    require(source.exists(), f"there is no tests/{fixture}")
    (shutil.copytree if source.is_dir() else shutil.copy)(source, case.path(target))


def read_cases(path):
    """Yields (name, [(line number, text, file contents or None)])."""
    name, steps, cases, prelude = path.stem, [], [], None
    lines = path.read_text().splitlines()
    i = 0
    while i < len(lines):
        number, line = i + 1, lines[i].strip()
        i += 1
        if not line or line.startswith("#"):
            continue
        if line.startswith("test "):
            if prelude is None:
                prelude = steps
            else:
                cases.append((name, prelude + steps))
            name, steps = f"{path.stem}: {line[5:]}", []
        elif line.startswith("file "):
            body = []
            while i < len(lines) and lines[i].startswith("|"):
                body.append(lines[i][2:])
                i += 1
            steps.append((number, line, "".join(text + "\n" for text in body)))
        else:
            steps.append((number, line, None))
    return cases + [(name, (prelude or []) + steps)]


def perform(case, line, contents):
    if contents is not None:
        match = re.fullmatch(r"file (\S+)(?: times (\d+))?", line)
        require(match, "expected: file PATH [times N]")
        path = case.path(match[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents * int(match[2] or 1))
        return
    if not case.exit_checked and not line.startswith("exit "):
        case.check_exit(0)
    for pattern, action in STEPS:
        match = re.fullmatch(pattern, line)
        if match:
            require(case.ran or not NEEDS_RUN.match(line), "no command has run")
            action(case, *match.groups())
            return
    raise Failure("not understood")


def run_case(binary, path, name, steps):
    """The report of a failure, or None."""
    with tempfile.TemporaryDirectory(prefix="lode-cli-") as folder:
        case = Case(binary, pathlib.Path(folder))
        number, line = 0, ""
        try:
            for number, line, contents in steps:
                perform(case, line, contents)
            if not case.exit_checked:
                case.check_exit(0)
        except (Failure, OSError, ValueError) as error:
            report = f"FAILED  {name}\n  {path}:{number}: {line}\n  {error}\n"
            for stream in ("stdout", "stderr"):
                text = case.ran[1][stream] if case.ran else ""
                report += "".join(f"    {stream}| {l}\n" for l in text.splitlines()[:40])
            return report
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    binary = os.path.abspath(arguments.lode)
    if not os.access(binary, os.X_OK):
        sys.exit(f"{binary}: no such program; build it first")
    failed = count = 0
    for path in arguments.files or sorted(HERE.glob("*.test")):
        for name, steps in read_cases(path):
            if arguments.only not in name:
                continue
            begin = time.monotonic()
            report = run_case(binary, path, name, steps)
            count += 1
            failed += report is not None
            print(report or f"ok      {name} ({time.monotonic() - begin:.2f} s)", flush=True)
    print(f"{count - failed} of {count} cases passed")
    sys.exit(1 if failed or count == 0 else 0)


if __name__ == "__main__":
    main()
