#!/usr/bin/env python3
"""Measures every optimizer and writes the table of docs/optimizers.md between its markers.

Run from the repository's root with tests, benchmarks and lode built (-DLODE_BUILD_TESTS=ON -DLODE_BUILD_BENCHMARKS=ON) and
the demo's text and tokenizer made (examples/demo/run.sh): tools/optimizer_table.py [--threads N] [--steps N]
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path("docs/optimizers.md")
WORK = pathlib.Path("build/optimizers")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

# Row of the benchmark, its test, the reference, the recipe of the demo run.
ROWS = [
    ("AdamW", "AdamWTest", "torch.optim.AdamW", {}),
    ("AdamW, 8-bit state", "AdamW8bit", "bitsandbytes AdamW8bit", {"optim": "adamw_8bit"}),
    ("Adam-mini", "AdamMini", "adam-mini", {"use_adam_mini": "true"}),
    ("Adafactor", "Adafactor", "transformers Adafactor", {"optim": "adafactor"}),
    ("Lion", "Lion", "lion-pytorch", {"optim": "lion_32bit", "learning_rate": "5e-4"}),
    ("Lion, 8-bit state", "Lion8bit", "bitsandbytes Lion8bit", {"optim": "lion_8bit", "learning_rate": "5e-4"}),
    ("SGD", "Sgd", "torch.optim.SGD", {"optim": "sgd", "learning_rate": "0.3"}),
    ("SGD, momentum", "Sgd", "torch.optim.SGD",
     {"optim": "sgd", "optim_args": "'momentum=0.9,nesterov=true'", "learning_rate": "0.1"}),
    ("Muon", "Muon", "torch.optim.Muon, in f32", {"use_muon": "true"}),
    ("GaLore, rank 128", "Galore", "galore-torch",
     {"optim": "galore_adamw", "optim_args": "'rank=64,scale=1'"}),
    ("GaLore, rank 128, 8-bit state", "", "galore-torch: the test above in f32",
     {"optim": "galore_adamw_8bit", "optim_args": "'rank=64,scale=1'"}),
    ("APOLLO, rank 128", "Apollo", "apollo-torch",
     {"optim": "apollo_adamw", "optim_args": "'rank=64,scale=1,scale_type=channel'"}),
    ("APOLLO-Mini", "Apollo", "apollo-torch", {"optim": "apollo_adamw"}),
    ("BAdam", "Badam", "badam", {"use_badam": "true", "badam_switch_interval": "10"}),
]


def output_of(*command):
    words = [str(c) for c in command]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"optimizer_table: {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def differences(build):
    """The largest difference that any ten-step test of a class saw."""
    report = WORK / "tests.json"
    output_of(build / "tests/optim/optim_tests", "--gtest_filter=*TenSteps*", f"--gtest_output=json:{report}")
    return {suite["name"]: max((t["largest_difference"] for t in suite["testsuite"] if "largest_difference" in t),
                               key=float, default="-") for suite in json.loads(report.read_text())["testsuites"]}


def benchmark(build, threads):
    text = output_of(build / "benchmarks/lode_bench_optim", threads)
    rows = {cells[0]: cells[1:] for line in text.splitlines()
            if line.startswith("| ") and "---" not in line and (cells := [c.strip() for c in line.strip("|").split("|")])}
    return rows, text.splitlines()[-1]


def demo_loss(lode, name, recipe, steps, threads):
    folder = WORK / re.sub("[^a-z0-9]+", "_", name.lower())
    settings = {"max_steps": steps, "logging_steps": steps // 4, "eval_strategy": "no", "save_strategy": "no",
                "load_best_model_at_end": "false", "generate_prompts": "[]", "warmup_steps": 5, "num_threads": threads,
                "report_to": "none", "output_dir": folder, "overwrite_output_dir": "true", **recipe}
    output_of(lode, "train", "examples/demo/recipe.yaml", *[f"{k}={v}" for k, v in settings.items()])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--lode", type=pathlib.Path, default=pathlib.Path("build/bin/lode"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    if not pathlib.Path("build/demo/tokenizer").is_dir():
        parser.error("build/demo has no tokenizer: run examples/demo/run.sh first")
    WORK.mkdir(parents=True, exist_ok=True)
    worst = differences(arguments.build)
    figures, whole = benchmark(arguments.build, arguments.threads)
    table = ["| optimizer | reference | largest difference, ten steps | state, bytes a parameter | step, ms | "
             f"training step against AdamW's | demo loss, {arguments.steps} steps |", "|" + " --- |" * 7]
    for name, test, reference, recipe in ROWS:
        state, step, _, ratio, _ = figures[name]
        loss = demo_loss(arguments.lode, name, recipe, arguments.steps, arguments.threads)
        table.append(f"| {name} | {reference} | {worst.get(test, '-')} | {state} | {step} | {ratio} | {loss:.3f} |")
        print(table[-1], flush=True)
    table += ["", f"{arguments.threads} threads; {whole} of the benchmark's model."]
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(table) + "\n" + END + rest.split(END)[1])


main()
