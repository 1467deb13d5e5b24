"""What rows share: running the binary, models by shape, plans and training runs on the demo's text, the disk's speed."""

import json
import math
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LODE = ROOT / "build/bin/lode"
WORK = ROOT / "build/bench"
SHAPES = {
    "llama-124m": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 50304, "hidden_size": 768,
                   "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
                   "max_position_embeddings": 32768, "tie_word_embeddings": True},
    "smollm2-135m": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 49152,
                     "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
                     "num_key_value_heads": 3, "max_position_embeddings": 8192, "tie_word_embeddings": True},
    "qwen2-0.5b": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 896,
                   "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
                   "max_position_embeddings": 32768, "tie_word_embeddings": True},
    "qwen2-1.5b": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 1536,
                   "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
                   "max_position_embeddings": 32768, "tie_word_embeddings": True},
}


def run(command, **options):
    """Standard output of a command; a failure names it with the end of what it said."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def bench(*arguments):
    """The JSON of `lode bench ...`."""
    return json.loads(run([LODE, "bench", *arguments, "--json"]))


_kernels = {}


def kernels(part):
    """`lode bench kernels --part PART`, run once."""
    if part not in _kernels:
        _kernels[part] = bench("kernels", "--part", part)
    return _kernels[part]


def write_config(name, **changes):
    """A config.json of a shape, with changes, in a folder of its own."""
    folder = WORK / "configs" / "-".join([name, *(f"{k}{v}" for k, v in changes.items())])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[name] | changes))
    return folder / "config.json"


def _tensors(config):
    """Names and shapes of the weights of a llama or qwen2 model with a tied head."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    narrow = hidden // heads * config.get("num_key_value_heads", heads)
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        for name, rows, columns in (("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", narrow, hidden),
                                    ("self_attn.v_proj", narrow, hidden), ("self_attn.o_proj", hidden, hidden),
                                    ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
                                    ("mlp.down_proj", hidden, inner)):
            yield f"model.layers.{layer}.{name}.weight", (rows, columns)
            if config["model_type"] == "qwen2" and name[-6] in "qkv":
                yield f"model.layers.{layer}.{name}.bias", (rows,)
        yield f"model.layers.{layer}.input_layernorm.weight", (hidden,)
        yield f"model.layers.{layer}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)


def random_model(name, **changes):
    """A folder with a model of a shape, with changes, as published: bf16 in safetensors. The weights are normal with
    deviation 0.02 and repeat after a megabyte: no figure here depends on more."""
    config_file = write_config(name, **changes)
    path = config_file.parent / "model.safetensors"
    if path.exists():
        return path.parent
    generator = random.Random(1)
    values = b"".join(struct.pack("<f", generator.gauss(0, 0.02))[2:] for _ in range(1 << 19))
    header, size, tensors = {}, 0, list(_tensors(json.loads(config_file.read_text())))
    for tensor, shape in tensors:
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [size, size + 2 * math.prod(shape)]}
        size += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path.with_suffix(".part"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor, shape in tensors:
            left = 2 * math.prod(shape)
            while left > 0:
                left -= file.write(b"\x80\x3f" * (left // 2) if "norm" in tensor else values[:left])
    path.with_suffix(".part").rename(path)
    return path.parent


def text_file():
    """The demo's text, 4.4 MB of English."""
    path = WORK / "text.txt"
    if not path.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        path.write_text(run(["bible", "-f", "gen1:1-rev22:21"]))
    return path


def tokenizer():
    folder = WORK / "tokenizer"
    if not folder.exists():
        run([LODE, "tokenizer", "train", text_file(), "--output", folder, "--vocab-size", 12288])
    return folder


class TrainingRun:
    """What `lode train` left in its folder."""

    def __init__(self, folder, seconds):
        self.folder, self.seconds = folder, seconds
        self.record = json.loads((folder / "run.json").read_text())
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.steps = [line for line in lines if "time_step" in line]
        self.log = (folder / "log.txt").read_text()

    def saves(self):
        """Of each checkpoint: step, bytes, seconds in the background, seconds that updates waited."""
        pattern = r"step (\d+): saved (\S+) \(.*?, ([\d.]+) s in the background, updates waited ([\d.]+) s\)"
        return [(int(step), sum(f.stat().st_size for f in pathlib.Path(path).rglob("*")) if os.path.isdir(path) else 0,
                 float(seconds), float(waited)) for step, path, seconds, waited in re.findall(pattern, self.log)]


def _words(name, keys):
    """The recipe as key=value words, in build/bench/runs/NAME, and the folder."""
    folder = WORK / "runs" / name
    keys = {"output_dir": folder, "overwrite_output_dir": "true", "logging_steps": 1, "seed": 1} | keys
    return folder, [f"{key}={value}" for key, value in keys.items()]


def _lode(*words, timeout=None):
    return run([LODE, *words], env=os.environ | {"LODE_CACHE": str(WORK / "cache")}, timeout=timeout)


def train(name, timeout=None, **keys):
    """`lode train key=value ...` in build/bench/runs/NAME, ended after `timeout` seconds."""
    folder, words = _words(name, keys)
    begin = time.monotonic()
    _lode("train", *words, timeout=timeout)
    return TrainingRun(folder, time.monotonic() - begin)


def plan(name, timeout=None, **keys):
    """The JSON of `lode plan` for the same recipe."""
    folder, words = _words(name, keys)
    folder.mkdir(parents=True, exist_ok=True)  # files are offloaded into it, and their room is checked
    return json.loads(_lode("plan", *words, "--json", timeout=timeout))


# Rows of 2,048 tokens from the demo's text, one a step.
BLOCKS = {"dataset": WORK / "text.txt", "packing": "true", "packing_strategy": "blocks", "cutoff_len": 2048,
          "per_device_train_batch_size": 1}
_small = []


def small_model_run():
    """Nine steps of the SmolLM2-135M shape on the demo's text, with four background saves and one at the end; run once."""
    if not _small:
        text_file()
        _small.append(train("smollm2-135m", stage="pt", train_from_scratch="true",
                            model_name_or_path=write_config("smollm2-135m"), tokenizer_name_or_path=tokenizer(),
                            max_steps=9, save_steps=2, save_total_limit=1, learning_rate=1e-4, **BLOCKS))
    return _small[0]


def small_model():
    """A folder with that model in bf16, as models are published."""
    folder = WORK / "smollm2-135m-bf16"
    if not folder.exists():
        result = small_model_run().folder / "checkpoint-9"
        run([LODE, "export", result, "--format", "safetensors", "--dtype", "bf16", "--out", folder])
    return folder


def disk_bandwidth(megabytes=1024, times=3):
    """Bytes per second of plain writes and one fsync, in the folder that the runs write into."""
    block = os.urandom(1 << 20) * 8
    speeds = []
    for _ in range(times):
        with tempfile.NamedTemporaryFile(dir=WORK) as file:
            begin = time.monotonic()
            for _ in range(megabytes // 8):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            speeds.append(megabytes * (1 << 20) / (time.monotonic() - begin))
    return statistics.median(speeds)


def peers():
    """The last result of benchmarks/peers/run: a list of objects, or an empty one."""
    path = ROOT / "build/peers.json"
    return json.loads(path.read_text()) if path.exists() else []
