"""What the rows of benchmarks/table.py share: running the binary, training runs on the demo's text, the disk's speed."""

import json
import os
import pathlib
import re
import statistics
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
}


class Unsupported(Exception):
    """The binary does not know what a row asks for."""


def run(command, **options):
    """Standard output of a command; a failure names it with the end of what it said."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def bench(*arguments):
    """The JSON of `lode bench ...`."""
    try:
        return json.loads(run([LODE, "bench", *arguments, "--json"]))
    except RuntimeError as error:
        if "exit code 2" in str(error) and "not expected" in str(error):
            raise Unsupported(str(error)) from error
        raise


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


def train(name, **keys):
    """`lode train key=value ...` in build/bench/NAME."""
    folder = WORK / "runs" / name
    keys = {"output_dir": folder, "overwrite_output_dir": "true", "logging_steps": 1, "seed": 1} | keys
    begin = time.monotonic()
    run([LODE, "train", *(f"{key}={value}" for key, value in keys.items())],
        env=os.environ | {"LODE_CACHE": str(WORK / "cache")})
    return TrainingRun(folder, time.monotonic() - begin)


# Rows of 2,048 tokens from the demo's text, one a step.
BLOCKS = {"dataset": WORK / "text.txt", "packing": "true", "packing_strategy": "blocks", "cutoff_len": 2048,
          "per_device_train_batch_size": 1}
_small = []


def small_model_run():
    """Nine steps of the SmolLM2-135M shape on the demo's text, with a background save and one at the end; run once."""
    if not _small:
        text_file()
        _small.append(train("smollm2-135m", stage="pt", train_from_scratch="true",
                            model_name_or_path=write_config("smollm2-135m"), tokenizer_name_or_path=tokenizer(),
                            max_steps=9, save_steps=5, save_total_limit=1, learning_rate=1e-4, **BLOCKS))
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
