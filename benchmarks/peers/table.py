"""The tables: printed, and written between marks into docs/performance.md."""
from measured import ROOT

DOCUMENT = ROOT / "docs" / "performance.md"
COLUMNS = ["trainer", "target tokens/s", "all tokens/s", "ratio", "MFU", "peak RSS, MB", "ratio", "first step, s",
           "last loss"]


def number(value, digits=0, unit=""):
    return "" if value is None else f"{value:,.{digits}f}{unit}"


def rows_of(subject):
    """Ratios are ours over the row's: how many times faster, and what part of its memory ours takes."""
    first = subject[0]
    rows = []
    for entry in subject:
        other = entry is not first
        rows.append([entry["trainer"], number(entry["target_tokens_per_s"]), number(entry["tokens_per_s"]),
                     number(first["target_tokens_per_s"] / entry["target_tokens_per_s"], 2, "x") if other else "",
                     number(entry["mfu"] and entry["mfu"] * 100, 1, " %"), number(entry["peak_rss_mb"]),
                     number(first["peak_rss_mb"] / entry["peak_rss_mb"] * 100, 0, " %") if other else "",
                     number(entry["time_to_first_step_s"], 1), number(entry["loss"], 4)])
    return rows


def markdown(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def plain(columns, rows):
    widths = [max(len(line[i]) for line in [columns, *rows]) for i in range(len(columns))]
    return ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
            for line in [columns, *rows]]


def grouped(results):
    groups = {}
    for entry in results:
        groups.setdefault(entry["subject"], []).append(entry)
    return groups


def training_text(results, missing, titles, form, heading):
    """A table for each subject, with what was checked about it."""
    lines = []
    for name, title in titles.items():
        lines += ["", heading.format(title), ""]
        group = grouped(results).get(name)
        if group is None:
            lines.append(f"Not measured: {missing.get(name, 'not run yet')}.")
            continue
        lines += form(COLUMNS, rows_of(group)) + [""] + group[0]["notes"]
    return lines


TOKENIZER_COLUMNS = ["vocabulary", "lodestone, MB/s", "tokenizers, MB/s", "ratio", "tiktoken, MB/s", "ratio", "ids"]


def tokenizer_text(entries, form):
    rows = []
    for entry in entries:
        ours = entry["lodestone_mb_per_s"]
        cells = [entry["vocabulary"], number(ours, 1)]
        for peer in ("tokenizers", "tiktoken"):
            value = entry.get(f"{peer}_mb_per_s")
            cells += [number(value, 1), number(ours / value, 1, "x") if value else ""]
        rows.append(cells + ["equal" if entry["ids_equal"] else "DIFFER"])
    return form(TOKENIZER_COLUMNS, rows)


def write_document(name, lines):
    """Replaces what stands between the marks of `name`."""
    begin, end = f"<!-- {name}: written by benchmarks/peers/run -->", f"<!-- {name}: end -->"
    content = DOCUMENT.read_text(encoding="utf-8")
    if begin not in content or end not in content:
        raise SystemExit(f"peers: docs/performance.md has no marks {begin} and {end}")
    before, rest = content.split(begin, 1)
    after = rest.split(end, 1)[1]
    DOCUMENT.write_text(before + begin + "\n\n" + "\n".join(lines).strip("\n") + "\n\n" + end + after, encoding="utf-8")
