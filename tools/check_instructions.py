#!/usr/bin/env python3
"""Counts the instructions of small fixed runs under callgrind and compares them with tests/instructions/counts.json.

usage: check_instructions.py [--program build/release/tests/instructions/lode_fixed_runs] [--accept REASON] [RUN ...]

Growth above 3 % fails. A change that is worth it is accepted with its reason, which goes into the file and is committed
with the change: tools/check_instructions.py --accept "the tokenizer also normalises". valgrind knows neither AVX-512 nor
bf16, so the AVX2 forms of the kernels are counted.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/instructions/counts.json"
RUNS = ["encode", "pack", "template", "safetensors"]
ALLOWED = 0.03


def count(program, run):
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=lode_measured",
                   f"--callgrind-out-file={folder}/out", program, run]
        # One thread, and the same instructions whatever the processor has.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2", "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None or int(found[1]) == 0:
        sys.exit(f"instructions: {run}: exit code {done.returncode}: {done.stderr[-600:]}")
    return int(found[1])


def compare(run, counted, known):
    """A line for people, and whether it is good."""
    if known is None:
        return f"{run:<12} {counted:>12,}  no count is committed for it", False
    growth = counted / known - 1
    line = f"{run:<12} {counted:>12,}  {known:>12,}  {100 * growth:+6.2f} %"
    if growth > ALLOWED:
        return f"{line}  more than {100 * ALLOWED:.0f} %: make it cheaper, or accept it with a reason (--help)", False
    if growth < -ALLOWED:
        return f"{line}  better: --accept keeps it so", True
    return line, True


def check_reasons(content):
    """Every committed count came with a reason: numbers are not edited by hand."""
    last = {change["run"]: change for change in content["changes"]}
    wrong = [run for run, value in content["counts"].items()
             if run not in last or last[run]["count"] != value or not last[run]["reason"].strip()]
    if wrong:
        sys.exit(f"{FILE.relative_to(ROOT)}: no reason for the count of {', '.join(wrong)}: use --accept REASON")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="*", help=", ".join(RUNS))
    parser.add_argument("--program", default=str(ROOT / "build/release/tests/instructions/lode_fixed_runs"))
    parser.add_argument("--accept", metavar="REASON")
    arguments = parser.parse_args()
    unknown = set(arguments.run) - set(RUNS)
    if unknown or (arguments.accept is not None and not arguments.accept.strip()):
        parser.error(f"no run {', '.join(unknown)}" if unknown else "--accept needs a reason")
    content = json.loads(FILE.read_text())
    check_reasons(content)
    good = True
    for run in arguments.run or RUNS:
        counted = count(arguments.program, run)
        known = content["counts"].get(run)
        line, fine = compare(run, counted, known)
        if arguments.accept is not None and (known is None or abs(counted / known - 1) > ALLOWED / 10):
            content["counts"][run] = counted
            content["changes"].append({"run": run, "count": counted, "reason": arguments.accept})
            line, fine = f"{line}  accepted", True
        print(line, flush=True)
        good = good and fine
    if arguments.accept is not None:
        FILE.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
