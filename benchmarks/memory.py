#!/usr/bin/env python3
"""Whether memory is what the plan says and the savers cost what they are to cost: `make bench-memory` runs this.

usage: memory.py [--only NAME ...] [--list] [--no-document] [--output build/bench-memory.json]

Each row is one function below, judged as those of table.py are. All runs are `lode plan` and `lode train` on random
weights, `lode bench train` or lode_bench_optim; each is ended when it takes ten minutes. Without --only the rows go into
docs/memory.md as well; the table of the recipes goes there whenever it was measured.
"""

import os
import shutil
import statistics
import sys

import measure
import memory_recipes
import rows
from memory_recipes import FUSED, OFFLOAD, QLORA
from measure import bench
from rows import Row

ROWS = {}
row = rows.registrar(ROWS)
DOCUMENT = measure.ROOT / "docs/memory.md"
LIMIT = 600  # seconds of a process
STEPS = 5


def train(name, keys):
    """A run whose folder, with its checkpoint, is gone afterwards."""
    try:
        return measure.train(name, timeout=LIMIT, **keys)
    finally:
        shutil.rmtree(measure.WORK / "runs" / name, ignore_errors=True)


class Compared:
    """A recipe's plan beside its run: bytes and seconds."""

    def __init__(self, recipe):
        self.name, self.tokens = recipe[0], recipe[2]
        self.shape = "-".join([recipe[1][0], *(f"{key} {value}" for key, value in recipe[1][1].items())])
        keys = memory_recipes.keys_of(recipe, STEPS)
        planned = measure.plan("plan", timeout=LIMIT, **keys)
        run = train("plan", keys)
        self.plan, self.plan_seconds = planned["resident"], planned["step_seconds"]
        self.peak = run.record["process"]["peak_resident_bytes"]
        self.accounted = run.record["memory"]["total"]["peak"]
        self.reserved = run.record["memory"]["reserved_peak"]
        self.seconds = statistics.median(step["time_step"] for step in run.steps[1:])

    def memory_error(self):
        return self.plan / self.peak - 1

    def time_error(self):
        return self.plan_seconds / self.seconds - 1

    def unaccounted(self):
        return self.peak - self.accounted


_compared, _failed = [], []


def compared():
    """All recipes, run once; what fails is kept for the note."""
    if not _compared and not _failed:
        for recipe in memory_recipes.RECIPES:
            try:
                _compared.append(Compared(recipe))
                c = _compared[-1]
                print(f"  {c.name:<52} T {c.tokens:>4}  plan {c.plan / 1e6:>6.0f} MB, measured {c.peak / 1e6:>6.0f} MB "
                      f"({100 * c.memory_error():+5.1f} %), tensors {c.accounted / 1e6:>6.0f} MB; plan {c.plan_seconds:.2f} s, "
                      f"measured {c.seconds:.2f} s ({100 * c.time_error():+5.1f} %)", flush=True)
            except Exception as error:  # the others are still to be seen
                _failed.append(f"{recipe[0]}: {error}")
                print(f"  {_failed[-1]}", flush=True)
    if not _compared:
        raise RuntimeError("; ".join(_failed))
    return _compared


def farthest(error):
    """The largest error in percent, and whose it is."""
    worst = max(compared(), key=lambda c: abs(error(c)))
    failed = f"; {len(_failed)} FAILED" if _failed else ""
    return 100 * abs(error(worst)), f"{worst.name}: {100 * error(worst):+.1f} %; {len(_compared)} recipes{failed}"


@row("plan")
def plan():
    off, note = farthest(Compared.memory_error)
    yield Row("plan against measured peak, farthest of the recipes", off, "%", None, 5, 2, at_most=True, note=note)
    off, note = farthest(Compared.time_error)
    yield Row("plan against measured step time, farthest of the recipes", off, "%", None, 20, 8, at_most=True, note=note)
    worst = max(compared(), key=Compared.unaccounted)
    yield Row("peak resident memory beyond the tags, most of the recipes", worst.unaccounted() / 1e6, "MB", None, 100, 40,
              at_most=True, note=f"{worst.name}; {(worst.reserved - worst.accounted) / 1e6:.0f} MB of it are free blocks "
                                 "between those in use")


def peak_row(name, folder, keys, must, aim):
    planned = measure.plan(folder, timeout=LIMIT, **keys)["resident"]
    peak = train(folder, keys).record["process"]["peak_resident_bytes"]
    yield Row(name, peak / 1e9, "GB", None, must, aim, at_most=True, note=f"planned {planned / 1e9:.2f} GB")


def full_half(folder, name, must, aim, **options):
    keys = memory_recipes.base_keys("qwen2-0.5b", {}, 4096, False, 2)
    yield from peak_row(f"full fine-tune, 0.5B Qwen2 shape, T = 4,096, {name}: peak", folder,
                        keys | {"optim": "adamw_8bit"} | OFFLOAD | options, must, aim)


@row("full-0.5b")
def full_half_mixed():
    yield from full_half("full-0.5b", "mixed precision", 6.5, 6.0)
    yield from full_half("full-0.5b", "the same, state in a file", 6.5, 6.0, optim_offload_dir=measure.WORK)


@row("full-0.5b-pure")
def full_half_pure():
    yield from full_half("full-0.5b-pure", "pure_bf16, in backward", 3.0, 2.2, pure_bf16="true", **FUSED)
    yield from full_half("full-0.5b-pure", "the same, state in a file", 3.0, 2.2, pure_bf16="true",
                         optim_offload_dir=measure.WORK, **FUSED)


@row("qlora-1.5b")
def qlora():
    """The rank that is the default, the optimizer that QLoRA's paper uses."""
    keys = memory_recipes.base_keys("qwen2-1.5b", {}, 4096, True, 2) | QLORA | OFFLOAD
    keys |= {"lora_rank": 8, "optim": "adamw_8bit"}
    yield from peak_row("QLoRA, 1.5B Qwen2 shape, T = 4,096: peak", "qlora-1.5b", keys, 2.5, 1.8)


@row("layers")
def layers():
    """Thin layers, so that 32 of them run in seconds."""
    thin = {"vocab_size": 12288, "hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 4,
            "num_key_value_heads": 4}
    peaks = {}
    for count in (4, 8, 16, 32):
        keys = memory_recipes.base_keys("smollm2-135m", thin | {"num_hidden_layers": count}, 4096, False, 2) | OFFLOAD
        peaks[count] = train("layers", keys).record["memory"]["by_tag"]["activations"]["peak"] / 1e6
    yield Row("activations with offload, 4 to 32 layers: apart", 100 * (max(peaks.values()) / min(peaks.values()) - 1), "%",
              None, 10, 1, at_most=True, note=", ".join(f"{n}: {peak:.1f} MB" for n, peak in peaks.items()))


def against_keep(*options):
    """Steps with a policy and such that keep, in turns in one process: the ratio of their medians, and what it saved."""
    result = bench("train", "--model", "smollm2-135m", "--tokens", 2048, "--sample-length", 2048, "--steps", STEPS, *options)
    saved = result["against_keep"]
    return saved["slow_down"], (f"activations {saved['activation_bytes'] / 1e6:.0f} MB, kept "
                                f"{saved['keep_activation_bytes'] / 1e6:.0f} MB")


@row("recompute")
def recompute():
    for kind, must, aim in (("full", 1.36, 1.30), ("selective", 1.08, 1.04)):
        ratio, note = against_keep("--recompute", kind)
        yield Row(f"{kind} recompute against keep, SmolLM2-135M shape, T = 2,048", ratio, "x", None, must, aim, at_most=True,
                  note=note)


@row("offload")
def offload():
    """What blocks save waits in a file (selective), or their inputs alone do, from which they are made again (full)."""
    def ratio(kind, buffers):
        return against_keep("--recompute", kind, "--offload-dir", measure.WORK, "--offload-buffers", buffers)

    two, note = ratio("selective", "two")
    one, _ = ratio("selective", "one")
    none, _ = ratio("selective", "none")
    yield Row("offload of what blocks save, two buffers, against keep, SmolLM2-135M shape", two, "x", None, 1.10, 1.04,
              at_most=True, note=note)
    yield Row("the same against one buffer", two, "x", one, 1, 0.99, at_most=True,
              note=f"times of keeping; synchronous {none:.2f}")
    inputs, note = ratio("full", "two")
    memory, _ = against_keep("--recompute", "full")
    yield Row("offload of blocks' inputs, against recompute with them in memory", inputs, "x", memory, 1.10, 1.04,
              at_most=True, note=note)


def paper_bytes():
    """State bytes a parameter that the papers' formulas give for the shape of lode_bench_optim: f32 moments of m x n
    matrices, m <= n, and AdamW for what is no matrix of a layer. GaLore (arXiv 2403.03507, table 1): m r of the projection
    and 2 n r; APOLLO (arXiv 2412.05270, table 1): 2 n r; Adam-mini (arXiv 2406.16793): one moment a parameter; 8 bits
    (arXiv 2110.02861): a byte, and a float for 256 of them."""
    wide, inner, vocabulary, depth, rank = 768, 2048, 8192, 4, 128
    matrices = depth * ([(wide, wide)] * 4 + [(wide, inner)] * 3)
    others = vocabulary * wide + (2 * depth + 1) * wide
    total = others + sum(m * n for m, n in matrices)
    moment, byte = 4, 1 + 4 / 256
    projections = sum(4 * m * rank for m, _ in matrices)
    projected = sum(2 * n for _, n in matrices)
    return {"AdamW, 8-bit state": 2 * byte,
            "Adam-mini": moment,
            "GaLore, rank 128": (projections + moment * rank * projected + 2 * moment * others) / total,
            "GaLore, rank 128, 8-bit state": (projections + byte * rank * projected + 2 * byte * others) / total,
            "APOLLO, rank 128": (moment * rank * projected + 2 * moment * others) / total,
            "APOLLO-Mini": (moment * projected + 2 * moment * others) / total}


@row("optimizers")
def optimizers():
    text = measure.run([measure.ROOT / "build/release/benchmarks/lode_bench_optim", len(os.sched_getaffinity(0)), 5, 4096],
                       timeout=LIMIT)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    found = {cell[0]: cell for cell in cells}
    for name, expected in paper_bytes().items():
        _, state, step, _, ratio, first = found[name]
        yield Row(f"{name}: state, bytes a parameter against the paper's", float(state), "B", expected, 1.05, 1.01,
                  at_most=True)
        yield Row(f"{name}: training step of 4,096 tokens against AdamW's", float(ratio), "x", None, 1.15, 1.05,
                  at_most=True, note=f"optimizer {step} ms, its first step {first} ms")


def recipe_table():
    lines = ["| recipe | shape | T | planned, MB | measured, MB | apart | tensors, MB | planned, s | measured, s | apart |",
             "|" + " --- |" * 10]
    for c in _compared:
        lines.append(f"| {c.name} | {c.shape} | {c.tokens:,} | {c.plan / 1e6:,.0f} | {c.peak / 1e6:,.0f} | "
                     f"{100 * c.memory_error():+.1f} % | {c.accounted / 1e6:,.0f} | {c.plan_seconds:.2f} | {c.seconds:.2f} | "
                     f"{100 * c.time_error():+.1f} % |")
    return lines + [f"\nNot run: {reason}" for reason in _failed]


def document(results, whole):
    if _compared:
        rows.write_document(DOCUMENT, "recipes", recipe_table())
    if whole:
        rows.write_document(DOCUMENT, "rows", rows.markdown(results))


if __name__ == "__main__":
    sys.exit(rows.main(__doc__, ROWS, "build/bench-memory.json", document))
