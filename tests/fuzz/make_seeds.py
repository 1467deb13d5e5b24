#!/usr/bin/env python3
"""Writes small valid inputs, from which the fuzzers start: make_seeds.py FOLDER makes FOLDER/<target>/<n>."""
import json
import pathlib
import struct
import sys


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def field(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def u32(key, value):
    return field(key, 4, struct.pack("<I", value))


def array(key, kind, values):
    return field(key, 9, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def gguf(fields, tensors):
    out = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(fields)) + b"".join(fields)
    offset, data = 0, b""
    for name, dims, kind, size in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}qIQ", len(dims), *dims, kind, offset)
        size += -size % 32
        offset += size
        data += bytes(size)
    return out + bytes(-len(out) % 32) + data


def gguf_model(arch):
    fields = [field("general.architecture", 8, text(arch))]
    fields += [u32(f"{arch}.{key}", value) for key, value in [
        ("block_count", 1), ("context_length", 8), ("embedding_length", 32), ("feed_forward_length", 32), ("attention.head_count", 2),
        ("attention.head_count_kv", 1), ("attention.key_length", 16), ("attention.value_length", 16), ("attention.sliding_window", 4)]]
    for key in ("layer_norm_rms_epsilon", "layer_norm_epsilon"):
        fields.append(field(f"{arch}.attention.{key}", 6, struct.pack("<f", 1e-5)))
    fields += [field(f"{arch}.rope.scaling.type", 8, text("yarn")), field(f"{arch}.rope.scaling.factor", 6, struct.pack("<f", 2)),
               array("tokenizer.ggml.tokens", 8, [text("a"), text("b")]), array("tokenizer.ggml.scores", 6, [struct.pack("<f", 1)] * 2),
               field("tokenizer.ggml.add_bos_token", 7, b"\1")]
    return gguf(fields, [("token_embd.weight", (32, 4), 8, 136), ("position_embd.weight", (32, 8), 0, 1024),
                         ("rope_freqs.weight", (8,), 0, 32), ("blk.0.attn_q.weight", (32, 32), 2, 576)])


def configs():
    base = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
    for kind in ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "smollm3"):
        yield {"model_type": kind, **base, "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 5,
               "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}}
    yield {"model_type": "llama", **base, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                          "original_max_position_embeddings": 32}}
    yield {"model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 8, "n_inner": None}


def tokenizers():
    vocab = {t: i for i, t in enumerate(["<s>", "a", "b", "ab", "\u0120", "\u0120a"])}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b", "\u0120 a"], "byte_fallback": False, "ignore_merges": False}
    split = {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)|'s"}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    yield {"version": "1.0", "added_tokens": [{"id": 0, "content": "<s>", "special": True, "single_word": False, "lstrip": False,
                                              "rstrip": False, "normalized": False}], "normalizer": {"type": "NFC"},
           "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": None, "decoder": byte_level, "model": model}
    yield {"added_tokens": [], "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, "pre_tokenizer": None,
           "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
           "model": {**model, "byte_fallback": True, "unk_token": "<s>"}}


TEMPLATES = [
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m['content'] | trim + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{%- set ns = namespace(n=0) -%}{% macro f(x, y=1) %}{{ x * y }}{% endmacro %}{% for m in messages if m.role != 'system' %}"
    "{% set ns.n = ns.n + loop.index0 %}{{ f('ab', 2) }}{{ m | tojson }}{% else %}none{% endfor %}{{ ns.n ~ '' }}",
    "{{ bos_token }}{% if messages[0].role is defined and not tools %}{{ messages[1:] | length }}{{ raise_exception('no') if false }}{% endif %}",
]
LINES = [b'\1{"text": "a"}\n{"text": "b\\u00e9"}\r\n\n{"text": 1}\n', b'\1[{"messages": [{"role": "user", "content": "x"}]}, {"a": null}]',
         b'\4instruction,output\n"a ""q"", b",c\n1,2\n', b'\5\xef\xbb\xbf{"a": 1}\n{broken\n']


def main():
    root = pathlib.Path(sys.argv[1])
    f32 = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    seeds = {
        "safetensors": [safetensors({}, b""), safetensors({"__metadata__": {"format": "pt"}, "a": f32}, bytes(24)),
                        safetensors({"a": f32, "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]}}, bytes(26))],
        "gguf": [gguf_model(arch) for arch in ("llama", "qwen2", "gemma3", "gpt2", "smollm3")],
        "config": [json.dumps(c).encode() for c in configs()],
        "tokenizer": [json.dumps(t).encode() for t in tokenizers()],
        "chat_template": [t.encode() for t in TEMPLATES],
        "json_lines": LINES,
    }
    for target, inputs in seeds.items():
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        for i, data in enumerate(inputs):
            (folder / f"seed{i}").write_bytes(data)


main()
