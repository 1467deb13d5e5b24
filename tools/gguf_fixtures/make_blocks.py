#!/usr/bin/env python3
"""Writes tests/kernels/fixtures/quantized.json: what the Python packages gguf and bitsandbytes make of seeded blocks and rows.

    pip install gguf==0.19.0 bitsandbytes==0.50.2 torch; tools/gguf_fixtures/make_blocks.py
"""
import json
import pathlib

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import torch

BLOCKS = 40
TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL BF16 F16".split()
# Where each type's f16 scales are in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "BF16": [], "F16": []}


def byte_stream(count):
    """A linear congruential generator, the same as in the test."""
    state, out = 12345, np.empty(count, np.uint8)
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = state >> 24
    return out


def weights(rows, cols):
    """Values between -1 and 1 from the same stream, some rows larger, one block all zero."""
    raw = byte_stream(4 * rows * cols).view("<u4").astype(np.float64)
    unit = raw / 2**31 - 1
    values = (unit * unit * unit).astype(np.float32).reshape(rows, cols)
    values *= (1 + np.arange(rows, dtype=np.float32))[:, None]
    values[0, :64] = 0
    return values


def shown(values):
    flat = values.astype(np.float64).reshape(-1)
    return {"sum": float(flat.sum()), "abs_sum": float(np.abs(flat).sum()), "picks": [float(v) for v in flat[:: max(1, flat.size // 7)]][:8]}


def main():
    out = {"blocks": BLOCKS, "dequantize": {}, "quantize": {}}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        data = byte_stream(BLOCKS * size).reshape(BLOCKS, size)
        for at in SCALES[name]:  # finite, of either sign
            data[:, at + 1] = (data[:, at + 1] & 0x8F) | 0x20
        if not SCALES[name]:
            data[:, 1] = (data[:, 1] & 0x8F) | 0x30
        out["dequantize"][name] = shown(gguf.dequantize(data, kind).reshape(-1))
    x = weights(5, 256)
    for name in ("Q8_0", "Q4_0"):
        data = gguf.quantize(x, gguf.GGMLQuantizationType[name])
        out["quantize"][name] = {"byte_sum": int(data.astype(np.int64).sum()), "weighted": int((data.astype(np.int64).reshape(-1) * (1 + np.arange(data.size) % 251)).sum())}
    packed, state = bnb.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="nf4")
    # One row holds two 4-bit codes a byte, the first in the high half, as there.
    out["quantize"]["nf4"] = {"weighted": int((packed.numpy().reshape(-1).astype(np.int64) * (1 + np.arange(packed.numel()) % 251)).sum()),
                              **shown(bnb.dequantize_4bit(packed, state).numpy())}
    q, scales, _ = bnb.int8_vectorwise_quant(torch.from_numpy(x).half())
    out["quantize"]["int8"] = {"weighted": int((q.numpy().reshape(-1).astype(np.int64) * (1 + np.arange(q.numel()) % 251)).sum()),
                               "scales": [float(s) for s in scales]}
    path = pathlib.Path(__file__).parents[2] / "tests/kernels/fixtures/quantized.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, indent=1) + "\n")


main()
