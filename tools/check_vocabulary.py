#!/usr/bin/env python3
"""Grows the vocabulary of tiny models in lode and compares them in transformers and peft. Run by hand.

usage: check_vocabulary.py --lode BINARY [--base FOLDER] [--limit X]

For a tied and an untied llama and for gpt2, random in transformers with a tokenizer by lode (or for the one model in
FOLDER): a few steps in full, and with LoRA, with two tokens more. Then, in f32: the full checkpoint's tensors all load in
transformers; the adapter loads in peft onto the base that transformers has resized; losses of a text with the new tokens
equal those of `lode eval`, and the logits of the exported merged model those of base + adapter. Needs
tools/setup_venv.sh. Exits with 1 when something differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import check_peft

NEW = ["<note>", "<aside>"]
TINY = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128}
MODELS = {
    "llama, tied": ("llama", {**TINY, "tie_word_embeddings": True}),
    "llama, untied": ("llama", {**TINY, "tie_word_embeddings": False}),
    "gpt2": ("gpt2", {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128, "embd_pdrop": 0.0,
                      "resid_pdrop": 0.0, "attn_pdrop": 0.0}),
}


def lode(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"lode {' '.join(map(str, arguments))}:\n{done.stderr}")
    return done.stdout


def make_text(path):
    """Prose with the new tokens in it."""
    words = check_peft.TEXT.read_text(encoding="utf-8").split(" ")
    path.write_text(" ".join(f"{NEW[i // 6 % 2]} {w}" if i % 6 == 0 else w for i, w in enumerate(words)),
                    encoding="utf-8")


def make_base(binary, folder, text, kind):
    lode(binary, "tokenizer", "train", text, "-o", folder, "--vocab-size", 400)
    vocabulary = max(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"].values()) + 1
    torch.manual_seed(1)
    name, sizes = MODELS[kind]
    config = transformers.AutoConfig.for_model(name, vocab_size=vocabulary, bos_token_id=None, eos_token_id=None,
                                               pad_token_id=None, **sizes)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def train(binary, base, text, out, *more):
    lode(binary, "train", f"model_name_or_path={base}", f"dataset={text}", "cutoff_len=96", "max_steps=4",
         "packing_strategy=blocks", "learning_rate=5e-3", "per_device_train_batch_size=2", "bf16=false",
         "report_to=none", f"output_dir={out}", "add_tokens=" + ",".join(NEW), *more)
    return out / "checkpoint-4"


def loss_of(model, ids):
    return float(torch.nn.functional.cross_entropy(check_peft.logits_of(model, ids)[:-1], torch.tensor(ids[1:])))


def check(binary, base, work, limit):
    text, short = work / "text.txt", work / "short.txt"
    short.write_text(text.read_text(encoding="utf-8")[:160], encoding="utf-8")
    good = True

    def judge(name, difference):
        nonlocal good
        good &= difference <= limit
        print(f"  {name}: {difference:.2e}{'' if difference <= limit else ' WRONG'}", flush=True)

    full = train(binary, base, text, work / "full")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(full)
    ids = tokenizer.encode(short.read_text(encoding="utf-8"), add_special_tokens=False) + [tokenizer.eos_token_id]
    if not set(tokenizer.convert_tokens_to_ids(NEW)) <= set(ids):
        sys.exit(f"{short}: the text lacks new tokens")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(full, dtype=torch.float32,
                                                                      output_loading_info=True)
    good &= not any(report.values())
    print(f"  rows: {model.config.vocab_size}, tokens: {len(tokenizer)}; not loaded: {any(report.values())}")
    evaluate = ("--f32", "--json", "--cutoff-len", 128)
    ours = json.loads(lode(binary, "eval", full, short, *evaluate))
    judge(f"loss of the full model over {ours['tokens']} tokens",
          abs(ours["loss"] - loss_of(model.eval(), ids)) if ours["tokens"] == len(ids) - 1 else float("inf"))

    adapter = train(binary, base, text, work / "lora", "finetuning_type=lora", "lora_rank=4")
    adapted = check_peft.load_adapted(check_peft.load_base(base), adapter)
    ours = json.loads(lode(binary, "eval", base, short, "--adapter", adapter, *evaluate))
    judge("loss of base + adapter in peft", abs(ours["loss"] - loss_of(adapted, ids)))
    merged = work / "merged"
    lode(binary, "export", base, "--adapter", adapter, "--format", "safetensors", "-o", merged)
    wanted = check_peft.logits_of(adapted, ids)
    found = check_peft.logits_of(check_peft.load_base(merged), ids)
    judge("logits of the merged model over the largest", float((found - wanted).abs().max() / wanted.abs().max()))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", required=True)
    parser.add_argument("--base", type=pathlib.Path, help="a Hugging Face folder in f32; none: tiny random models")
    parser.add_argument("--limit", type=float, default=1e-5)
    arguments = parser.parse_args()
    wrong = []
    for kind in [str(arguments.base)] if arguments.base else MODELS:
        print(f"{kind}:")
        with tempfile.TemporaryDirectory() as temporary:
            work = pathlib.Path(temporary)
            make_text(work / "text.txt")
            if not arguments.base:
                make_base(arguments.lode, work / "base", work / "text.txt", kind)
            if not check(arguments.lode, arguments.base or work / "base", work, arguments.limit):
                wrong.append(kind)
    sys.exit(f"these differ: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
