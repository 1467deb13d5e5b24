"""Rows of what Lodestone is to reach: how they are registered, judged, printed and written."""

import argparse
import dataclasses
import json
import os
import sys
import time

import measure


@dataclasses.dataclass
class Row:
    """A figure beside its reference. `ratio` is what `must` and `aim` speak of; without a reference the figure is."""

    name: str
    figure: float | None  # None: not measured
    unit: str
    reference: float | None
    must: float
    aim: float
    at_most: bool = False  # the figure or ratio is to stay below must; else to reach it
    percent: bool = False  # how must, aim and ratio are printed
    inverse: bool = False  # ratio is reference over figure (times)
    note: str = ""

    @property
    def ratio(self):
        if self.figure is None or not self.reference:
            return None
        return self.reference / self.figure if self.inverse else self.figure / self.reference

    def reaches(self, limit):
        value = self.ratio if self.reference is not None else self.figure
        return value is not None and (value <= limit if self.at_most else value >= limit)

    def to_json(self):
        return {"name": self.name, "figure": self.figure, "unit": self.unit, "reference": self.reference,
                "ratio": self.ratio, "must": self.must, "aim": self.aim, "met": self.reaches(self.must),
                "aim_met": self.reaches(self.aim), "at_most": self.at_most, "note": self.note}


def registrar(rows):
    """A decorator that puts a function, which yields Rows, under a name."""
    def row(name):
        def register(function):
            rows[name] = function
            return function
        return register
    return row


def measured(name, function):
    """The rows of one function; a failure becomes a row that says so."""
    try:
        return list(function())
    except Exception as error:  # one row that cannot run must not hide the others
        return [Row(name, None, "", None, 0, 0, note=f"failed: {error}")]


def show(value, percent=False):
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if percent else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def state(r):
    return "aim met" if r.reaches(r.aim) else "met" if r.reaches(r.must) else "missed"


def line(r):
    sign = "<=" if r.at_most else ">="
    return (f"{r.name:<72} {show(r.figure):>8} {r.unit:<9} {show(r.reference):>8} {show(r.ratio, r.percent):>8} "
            f"{sign} {show(r.must, r.percent):>7} {show(r.aim, r.percent):>7}  {state(r):<8} {r.note}")


def markdown(results):
    """The rows as a table for the documents."""
    lines = ["| subject | figure | ratio | must | aim | state | |", "|" + " --- |" * 7]
    for r in results:
        sign = "≤" if r.at_most else "≥"
        figure = f"{show(r.figure)} {r.unit}".strip()
        lines.append(f"| {r.name} | {figure} | {show(r.ratio, r.percent)} | {sign} {show(r.must, r.percent)} | "
                     f"{show(r.aim, r.percent)} | {state(r)} | {r.note} |")
    return lines


def write_document(path, name, lines):
    """Replaces what stands between the marks of `name` in a document; the first names the script that runs."""
    script = f"benchmarks/{os.path.basename(sys.argv[0])}"
    begin, end = f"<!-- {name}: written by {script} -->", f"<!-- {name}: end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin, 1)
    path.write_text("\n".join([before + begin, "", *lines, "", end]) + rest.split(end, 1)[1], encoding="utf-8")


def load():
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def main(document, functions, output, finish=None):
    """Measures the rows that the command line names and writes them. finish(rows, whole) comes after them unless
    --no-document is given; whole: none was left out. The exit code."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(functions), metavar="NAME",
                        help="a row; may be given several times")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--output", default=str(measure.ROOT / output))
    if finish:
        parser.add_argument("--no-document", action="store_true", help="leave the documents as they are")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(functions))
        return 0
    measure.WORK.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    print(f"load at the start: {load()}")
    print(f"{'subject':<72} {'figure':>8} {'unit':<9} {'ref.':>8} {'ratio':>8}    {'must':>7} {'aim':>7}  state")
    rows = []
    for name in arguments.only or functions:
        for r in measured(name, functions[name]):
            rows.append(r)
            print(line(r), flush=True)
    with open(arguments.output, "w") as file:
        json.dump([r.to_json() for r in rows], file, indent=2)
        file.write("\n")
    met = sum(r.reaches(r.must) for r in rows)
    print(f"load at the end: {load()}; {time.monotonic() - begin:.0f} s")
    print(f"{met} of {len(rows)} rows met, {len(rows) - met} missed; written to {arguments.output}")
    if finish and not arguments.no_document:
        finish(rows, not arguments.only)
    return 0
