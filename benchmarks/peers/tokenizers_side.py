"""Our encoder beside tokenizers and tiktoken: one thread, the same documents of about 4 KB, ids compared one by one."""
import json
import os
import subprocess

from measured import LODE, ROOT, NotMeasured, python
from subjects import FOLDER, asset, say, text

PROGRAM = ROOT / "build" / "release" / "benchmarks" / "lode_bench_text"
VOCABULARIES = ["gpt2", "qwen", "smollm2"]
ROUNDS = 2


def ours(path, folder):
    done = subprocess.run([PROGRAM, path, folder], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["encode_mb_per_s_1"]


def theirs(path, folder, ids):
    """Speeds of both packages; the ids of the whole text, as they see it, go into the file `ids`."""
    arguments = [python(), FOLDER / "encode.py", path, folder / "tokenizer.json", ids]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True,
                          env={**os.environ, "RAYON_NUM_THREADS": "1"})
    return json.loads(done.stdout)


def compare():
    if not PROGRAM.exists():
        raise NotMeasured("build/release/benchmarks/lode_bench_text is missing: make bench builds it")
    path = text()[0]
    entries, good = [], True
    for name in VOCABULARIES:
        folder = asset(name).parent
        best, record = {}, {}
        for _ in range(ROUNDS):
            best["lodestone"] = max(best.get("lodestone", 0), ours(path, folder))
            record = theirs(path, folder, path.with_suffix(f".{name}.ids"))
            for peer, speed in record["mb_per_s"].items():
                best[peer] = max(best.get(peer, 0), speed)
        with open(path, encoding="utf-8") as f:
            done = subprocess.run([LODE, "tokenizer", "encode", folder], stdin=f, check=True, capture_output=True, text=True)
        equal = done.stdout.split() == path.with_suffix(f".{name}.ids").read_text().split() and record["ids_equal"]
        good = good and equal
        entries.append({"subject": "tokenizer", "trainer": "lodestone", "vocabulary": name, "ids_equal": equal,
                        **{f"{who}_mb_per_s": speed for who, speed in best.items()}, "version": record["version"],
                        "command": f"build/release/benchmarks/lode_bench_text TEXT build/assets/{name}"})
        say(f"tokenizer: {name}: " + ", ".join(f"{who} {speed:.1f} MB/s" for who, speed in best.items()) +
            f"; ids {'equal' if equal else 'DIFFER'}")
    return good, entries
