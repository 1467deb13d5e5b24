#!/usr/bin/env python3
"""Reads a run's TensorBoard event files with TensorBoard's own reader and compares them with its metrics.jsonl.

usage: check_tensorboard.py FOLDER     (holds metrics.jsonl and the event files; needs the Python package tensorboard)
Exits with 1 when a point is missing, differs, or lies beyond the end of metrics.jsonl (a resume must drop those).
"""

import json
import math
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "time_tokens_per_second": "speed/tokens_per_second",
}
EVAL_KEYS = ["loss", "perplexity", "bits_per_byte", "token_accuracy"]


def as_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected_points(path):
    points = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        named = {tag: record.get(key) for key, tag in TAGS.items()}
        if "eval_set" in record:
            named.update({f"eval/{record['eval_set']}/{key}": record.get(f"eval_{key}") for key in EVAL_KEYS})
        for tag, value in named.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                points.setdefault(tag, {})[record["step"]] = as_f32(value)
    return points


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    scalars = accumulator.Tags()["scalars"]
    faults = []
    expected = expected_points(folder / "metrics.jsonl")
    for tag, points in expected.items():
        found = {e.step: e.value for e in accumulator.Scalars(tag)} if tag in scalars else {}
        if found != points:
            missing = sorted(points.keys() - found.keys())[:5]
            surplus = sorted(found.keys() - points.keys())[:5]
            differing = sorted(s for s in points.keys() & found.keys() if points[s] != found[s])[:5]
            faults.append(f"{tag}: steps missing {missing}, surplus {surplus}, differing {differing}")
    print(f"{len(scalars)} scalar tags, {sum(map(len, expected.values()))} points compared, "
          f"tensor tags {accumulator.Tags()['tensors']}")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults or not expected else 0)


if __name__ == "__main__":
    main()
