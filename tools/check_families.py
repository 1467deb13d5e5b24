#!/usr/bin/env python3
"""Trains a tiny model of every family, saves it, and compares it in transformers. Run by hand.

usage: check_families.py --lode BINARY --tokenizer FOLDER TEXT [--family NAME]

TEXT is what the models train on for a few steps and are compared on (tools/check_transformers.py does that: all tensors
load, the losses and a greedy continuation are equal in f32). Needs the packages of tools/requirements.txt. The exit code
is 1 when any family differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TINY = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128}
# The spelling of version 4, except where the name says otherwise.
FAMILIES = {
    "llama": {**TINY, "attention_bias": True, "mlp_bias": True,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 32}},
    "gpt2": {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 128, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
             "attn_pdrop": 0.0},
    "mistral": {**TINY, "sliding_window": 16, "head_dim": 16},
    "qwen2": {**TINY, "use_sliding_window": True, "max_window_layers": 2, "sliding_window": 16,
              "tie_word_embeddings": True},
    "qwen3": {**TINY, "head_dim": 16, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                       "original_max_position_embeddings": 32}},
    "smollm3": {**TINY, "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 16},
    "gemma3_text": {**TINY, "num_hidden_layers": 7, "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16,
                    "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gemma3_text (version 5)": {
        **TINY, "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
}


def recipe(folder, tokenizer, text):
    return {"stage": "pt", "train_from_scratch": True, "model_name_or_path": str(folder / "config.json"),
            "tokenizer_name_or_path": str(tokenizer), "dataset": str(text), "cutoff_len": 128, "packing": True,
            "packing_strategy": "blocks", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1,
            "max_steps": 8, "learning_rate": 0.01, "seed": 1, "save_steps": 8, "logging_steps": 8,
            "output_dir": str(folder / "run")}


def check(lode, tokenizer, text, name):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        vocabulary = max(json.loads((tokenizer / "tokenizer.json").read_text())["model"]["vocab"].values()) + 1
        config = {"model_type": name.split()[0], "vocab_size": vocabulary + 64, **FAMILIES[name]}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "recipe.yaml").write_text(json.dumps(recipe(folder, tokenizer, text)))
        trained = subprocess.run([lode, "train", str(folder / "recipe.yaml")], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        if trained.returncode != 0:
            print(f"{name}:\n{trained.stdout}")
            return False
        command = [sys.executable, str(pathlib.Path(__file__).with_name("check_transformers.py")), "--lode", lode,
                   str(folder / "run" / "checkpoint-8"), str(text), "--cutoff-len", "96"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        print(f"{name}:\n  " + done.stdout.strip().replace("\n", "\n  "), flush=True)
        return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="default: all")
    arguments = parser.parse_args()
    results = {name: check(arguments.lode, arguments.tokenizer.resolve(), arguments.text.resolve(), name)
               for name in arguments.family or FAMILIES}
    wrong = [name for name, good in results.items() if not good]
    sys.exit(f"these differ: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
