"""Numbers that a test can make again without a file: tensor values as a function of tensor name and flat index."""
import numpy as np


def fnv1a(name):
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


def uniform(name, count):
    """`count` values in [-1, 1): a 32-bit finaliser of name hash and index; tests/models/fill_rule.h says the same."""
    with np.errstate(over="ignore"):
        z = np.uint32(fnv1a(name)) + np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        z ^= z >> 16
        z *= np.uint32(0x85EBCA6B)
        z ^= z >> 13
        z *= np.uint32(0xC2B2AE35)
        z ^= z >> 16
    return (z >> 8).astype(np.float64) / 2**23 - 1


def weights(name, shape):
    base = 1.0 if len(shape) == 1 and name.endswith(".weight") else 0.0
    return (base + 0.25 * uniform(name, int(np.prod(shape)))).astype(np.float32).reshape(shape)
