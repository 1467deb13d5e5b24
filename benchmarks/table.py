#!/usr/bin/env python3
"""The table of what Lodestone is to reach, measured: `make bench` builds and runs this.

usage: table.py [--only NAME ...] [--list] [--no-document] [--output build/bench.json]

Each row is one function below; it compares a figure with a reference of the same minutes and yields one or more Rows.
`ratio` is what `must` and `aim` speak of; rows without a reference are compared by their figure. Rows about peers read
build/peers.json, which benchmarks/peers/run writes. Without --only the rows go into docs/performance.md as well.
"""

import json
import statistics
import sys

import measure
import rows
from measure import bench, kernels
from rows import Row

ROWS = {}
row = rows.registrar(ROWS)


def mfu(model, must, aim):
    result = bench("train", "--model", model, "--tokens", 2048, "--sample-length", 2048, "--steps", 5)
    return Row(f"full training of {model}, T = 2,048: MFU", result["step_flops"] / result["step_seconds"] / 1e9, "GFLOP/s",
               result["peak_gflops"], must, aim, percent=True, note=f"{result['tokens_per_second']:.0f} tokens/s")


@row("mfu-124m")
def mfu_124m():
    yield mfu("gpt2-124m", 0.60, 0.75)


@row("mfu-135m")
def mfu_135m():
    yield mfu("smollm2-135m", 0.50, 0.65)


def from_peers(subject, field, best, side="lodestone"):
    """Our `side`, the peer that is best by `best`, and a remark; two times None without a result."""
    results = [r for r in measure.peers() if r["subject"] == subject and r.get(field) is not None]
    ours = [r for r in results if r["role"] == "ours" and r["trainer"] == side]
    theirs = [r for r in results if r["role"] != "ours"]
    if not ours or not theirs:
        return None, None, "not measured: benchmarks/peers/run writes build/peers.json"
    peer = best(theirs)
    remark = "" if ours[0]["losses_agree"] else "; THE LOSSES DO NOT AGREE"
    return ours[0][field], peer[field], f"against {peer['trainer']}{remark}"


def peer_rows(subject, text, side="lodestone", variant=""):
    def fastest(results):
        return max(results, key=lambda r: r["target_tokens_per_s"])

    ours, theirs, note = from_peers(subject, "target_tokens_per_s", fastest, side)
    yield Row(f"LoRA r=16, {text}{variant}: target tokens/s against transformers + PEFT", ours, "tokens/s", theirs, 3, 5,
              note=note)
    ours, theirs, note = from_peers(subject, "peak_rss_mb", fastest, side)
    yield Row(f"LoRA r=16, {text}{variant}: peak memory against transformers + PEFT", ours, "MB", theirs, 0.4, 0.2,
              at_most=True, percent=True, note=note)


INT8_SIDE = "lodestone, frozen weights in int8"  # in benchmarks/peers


@row("lora-peers-135m")
def lora_peers_135m():
    yield from peer_rows("lora-smollm2", "SmolLM2-135M")
    yield from peer_rows("lora-smollm2", "SmolLM2-135M", INT8_SIDE, ", int8")


@row("lora-peers-0.5b")
def lora_peers_half():
    yield from peer_rows("lora-qwen2-0.5b", "0.5B Qwen2 shape")
    yield from peer_rows("lora-qwen2-0.5b", "0.5B Qwen2 shape", INT8_SIDE, ", int8")


SAMPLE = 512  # tokens of a sample where steps of fine-tuning are compared, packed to T: as long as chats are


def steps_in_turns(model, tokens, steps, rounds, *variants):
    """The medians of the steps of each variant of a training run over processes in turns, and the last losses."""
    seconds, losses = [[] for _ in variants], [[] for _ in variants]
    for _ in range(rounds):
        for i, options in enumerate(variants):
            result = bench("train", "--model", model, "--tokens", tokens, "--sample-length", SAMPLE, "--steps", steps, *options)
            seconds[i].append(result["step_seconds"])
            losses[i] = result["losses"]
    return [statistics.median(each) for each in seconds], losses


def lora_against_full(model, tokens, rounds, must, aim):
    (full, lora), _ = steps_in_turns(model, tokens, 2, rounds, (), ("--lora", 16))
    yield Row(f"LoRA r=16 step against our full step, {model}", lora, "s", full, must, aim, inverse=True,
              note=f"T = {tokens}, samples of {SAMPLE}")


@row("lora-full-135m")
def lora_full_135m():
    yield from lora_against_full("smollm2-135m", 2048, 3, 1.2, 1.3)


@row("lora-full-0.5b")
def lora_full_half():
    yield from lora_against_full("qwen2-0.5b", 1024, 2, 1.3, 1.45)


def int8(model, tokens, rounds, must, aim):
    """bf16 and int8 LoRA steps in turns, and how far the losses part."""
    lora = ("--lora", 16)
    seconds, losses = steps_in_turns(model, tokens, 3, rounds, lora, (*lora, "--frozen-compute", "int8"))
    apart = max(abs(a - b) / a for a, b in zip(*losses))
    yield Row(f"int8 frozen weights against our bf16 LoRA step, {model}", seconds[1], "s", seconds[0], must, aim, inverse=True,
              note=f"T = {tokens}, samples of {SAMPLE}")
    yield Row(f"the same: losses apart, {model}, random weights", 100 * apart, "%", None, 1, 1, at_most=True)


@row("int8-135m")
def int8_135m():
    yield from int8("smollm2-135m", 2048, 3, 1.2, 1.4)
    chats = [r for r in measure.peers() if r["subject"] == "lora-smollm2" and r["trainer"] == INT8_SIDE]
    apart = 100 * chats[0]["largest_loss_difference"] if chats else None
    yield Row("int8 frozen weights: losses apart from bf16, SmolLM2-135M on chats, the farthest step", apart, "%", None, 1, 1,
              at_most=True, note=f"{chats[0]['steps']} steps" if chats else "not measured: benchmarks/peers/run writes build/peers.json")


@row("int8-0.5b")
def int8_half():
    yield from int8("qwen2-0.5b", 1024, 2, 1.3, 1.6)


@row("head")
def head():
    for f in kernels("head")["figures"]:
        trained = f["name"].startswith("trained")
        large = f["model"] == "qwen2-0.5b"
        # Frozen heads have one limit; trained ones by vocabulary.
        memory = ((160, 96) if large else (64, 32)) if trained else (64, 16)
        speed = (1.15, 1.05) if trained else (1.1, 1.0)
        yield Row(f"head + loss, {f['name']}: scratch memory", f["scratch_bytes"] / 1e6, "MB", None, *memory, at_most=True)
        yield Row(f"head + loss, {f['name']}: time against the plain products", f["seconds"] * 1e3, "ms",
                  f["plain_seconds"] * 1e3, *speed, at_most=True)


@row("attention")
def attention():
    for f in kernels("attention")["figures"]:
        yield Row(f"attention forward + backward, {f['name']}", f["flops"] / f["seconds"] / 1e9, "GFLOP/s",
                  f["peak_gflops"], 0.35, 0.55, percent=True)


PASSES = {
    "optimizer step": ("adamw", "gradient norm"),
    "norms": ("norm", "norm backward"),
    "rotary": ("rotary",),
    "activation": ("gated", "gated backward", "gelu", "gelu backward"),
}


@row("passes")
def passes():
    result = kernels("ops")
    for name, ops in PASSES.items():
        chosen = [f for f in result["figures"] if f["name"].split(": ")[-1] in ops and f["bytes"] > 0]
        if not chosen:
            yield Row(f"{name}: memory bandwidth", None, "GB/s", None, 0.7, 0.85, note="no such op ran")
            continue
        moved, seconds = sum(f["bytes"] for f in chosen), sum(f["seconds"] for f in chosen)
        yield Row(f"{name}: memory bandwidth", moved / seconds / 1e9, "GB/s", result["bandwidth_gbytes"], 0.7, 0.85,
                  percent=True, note="over the benchmark models, T = 2,048")


@row("length")
def length():
    """Two layers of the 124M shape; utilisation must not change with T."""
    config = measure.write_config("llama-124m", num_hidden_layers=2)
    used, memory = {}, {}
    for tokens, steps in ((512, 9), (2048, 5), (8192, 3), (16384, 1), (32768, 1)):
        result = bench("train", "--model", config, "--tokens", tokens, "--sample-length", tokens, "--steps", steps)
        used[tokens], memory[tokens] = result["mfu"], result["peak_memory_bytes"] / 1e6
    middle = statistics.median(used.values())
    worst = max(used.values(), key=lambda value: abs(value / middle - 1))
    yield Row("tokens/s times FLOPs a token, T = 512 to 32k: farthest from the median", 100 * abs(worst / middle - 1), "%",
              None, 15, 5, at_most=True, note="MFU " + ", ".join(f"{t}: {u:.2f}" for t, u in used.items()))
    slope = (memory[32768] - memory[16384]) / 16384, (memory[16384] - memory[8192]) / 8192
    yield Row("memory as T grows to 32k: slopes apart", 100 * abs(slope[0] / slope[1] - 1), "%", None, 15, 5, at_most=True,
              note=f"{slope[1] * 1e3:.1f} and {slope[0] * 1e3:.1f} kB a token")


@row("tokenizer")
def tokenizer():
    program = measure.ROOT / "build/release/benchmarks/lode_bench_text"
    out = json.loads(measure.run([program, measure.text_file(), 32768, "gpt2", measure.WORK / "tokenizer-32k"]))
    one, two = out["encode_mb_per_s_1"], out["encode_mb_per_s_2"]
    yield Row("tokenizer encode, one thread", one, "MB/s", None, 10, 25, note="GPT-2's expression, 32,768 tokens, English")
    yield Row("tokenizer encode, two threads against one", two, "MB/s", one, 1.8, 1.95)


@row("loader")
def loader():
    # The first step's wait is the start of the run, not of the loader.
    steps = measure.small_model_run().steps[1:]
    waited = sum(step["time_data_wait"] for step in steps)
    total = sum(step["time_step"] + step["time_data_wait"] for step in steps)
    yield Row("loader, tokenizer and packer on the step's path", waited * 1e3, "ms", total * 1e3, 0.01, 0.003, at_most=True,
              percent=True)


@row("start")
def start():
    model = measure.small_model()
    keys = dict(stage="pt", model_name_or_path=model, finetuning_type="lora", lora_rank=16, max_steps=1,
                save_strategy="no", **measure.BLOCKS)
    counter, found = "milliseconds from command to first step", []
    for i in range(4):
        found.append(measure.train("start", **keys).record["counters"][counter] / 1e3)
    yield Row("command to first forward, 135M model, caches warm", statistics.median(found[1:]), "s", None, 0.8, 0.3,
              at_most=True)


@row("validation")
def validation():
    ours, theirs, note = from_peers("full-demo", "time_to_loss_s", lambda results: min(results, key=lambda r: r["time_to_loss_s"]))
    yield Row("time to a validation loss on the demo's text against transformers Trainer", ours, "s", theirs, 3, 5,
              inverse=True, note=note)


@row("checkpoint")
def checkpoint():
    run = measure.small_model_run()
    saves = run.saves()
    step, written, seconds, _ = saves[-1]
    disk = measure.disk_bandwidth()
    yield Row("checkpoint: throughput with fsync and checksums against raw fsync", written / seconds / 1e6, "MB/s",
              disk / 1e6, 0.7, 0.9, percent=True, note=f"{written / 1e6:.0f} MB in {seconds:.1f} s")
    # A save in the background touches the steps from its own to its end; the first step is never counted.
    times = {line["step"]: line["time_step"] for line in run.steps if line["step"] > 1}
    touched = {}
    for at, _, left, _ in saves[:-1]:
        touched[at] = []
        while left > 0 and (following := at + len(touched[at]) + 1) in times:
            touched[at].append(following)
            left -= times[following]
    spoilt = {step for steps in touched.values() for step in steps}  # never the second, after which the first save is
    usual = statistics.median(seconds for at, seconds in times.items() if at not in spoilt)
    stalls = [sum(times[at] - usual for at in steps) for steps in touched.values()]
    yield Row("checkpoint: stall of a background save, of a step", max(0.0, statistics.median(stalls)), "s", usual,
              0.1, 0.05, at_most=True, percent=True,
              note=f"{len(stalls)} saves, each during {max(len(steps) for steps in touched.values())} step")


@row("generation")
def generation():
    for model in ("smollm2-135m", "qwen2-0.5b"):
        result = bench("generate", "--model", model)
        yield Row(f"generation, batch 1, {model}: bandwidth over the weights",
                  result["weight_bytes"] * result["tokens_per_second"] / 1e9, "GB/s", result["bandwidth_gbytes"], 0.6, 0.8,
                  percent=True, note=f"{result['tokens_per_second']:.1f} tokens/s")


def document(results, whole):
    if whole:
        rows.write_document(measure.ROOT / "docs/performance.md", "rows", rows.markdown(results))


if __name__ == "__main__":
    sys.exit(rows.main(__doc__, ROWS, "build/bench.json", document))
