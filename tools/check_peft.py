#!/usr/bin/env python3
"""Loads an adapter in peft and its merged model in transformers, and compares both with lode. Run by hand.

usage: check_peft.py --lode BINARY BASE ADAPTER [--merged FOLDER] [--prompt TEXT]

BASE is a GGUF file, which transformers dequantises, or a Hugging Face folder; ADAPTER the PEFT folder of a run; MERGED
what `lode export --format safetensors` made of them. Everything computes in f32. What is compared, all within --limit:
the loss of a text by base + adapter in peft with lode's, the logits of the merged model with those of base + adapter,
and greedy continuations of both with lode's. Needs tools/setup_venv.sh. Exits with 1 when something differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import peft
import torch
import transformers

import llamacpp

TEXT = pathlib.Path(__file__).resolve().parent / "perplexity_text.txt"


def load_base(path):
    """The base in f32."""
    place = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    folder = path.parent if place else path
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **place).eval()


def resize_for(base, stored):
    """Gives the base the rows that the adapter was trained with, as its user would; True when it lacked some."""
    embedding = base.get_input_embeddings()
    name = next(name for name, module in base.named_modules() if module is embedding)
    table = stored.get(f"base_model.model.{name}.weight")
    if table is None or len(table) == len(embedding.weight):
        return False
    base.resize_token_embeddings(len(table))
    return True


def load_adapted(base, adapter):
    """Base + adapter; ValueError when the adapter has a tensor that peft finds no place for, or lacks one."""
    stored = peft.utils.load_peft_weights(str(adapter), device="cpu")
    resized = resize_for(base, stored)
    model = peft.PeftModel.from_pretrained(base, adapter).eval()
    stored = set(stored)
    # Of a resized base peft lists the tables again, those of the base included.
    wanted = set(peft.get_peft_model_state_dict(model, save_embedding_layers=False if resized else "auto"))
    if stored != wanted:
        raise ValueError(f"{adapter}: {sorted(stored - wanted)} are not peft's, {sorted(wanted - stored)} are missing")
    return model


def tokenizer_of(base, merged):
    """encode(text) and decode(ids) by the tokenizer that lies beside the weights."""
    if base.suffix == ".gguf" and merged is None:
        model = llamacpp.Model(base, num_ctx=64)
        return model.tokenize, model.detokenize, model.end_token()
    folder = merged or base
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return (lambda text: tokenizer(text).input_ids), tokenizer.decode, tokenizer.eos_token_id


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].double()


def greedy(model, ids, count, end):
    out = []
    while len(out) < count:
        token = int(logits_of(model, ids + out)[-1].argmax())
        if token == end:
            break
        out.append(token)
    return out


def run_lode(arguments, *command):
    adapter = ["--adapter", str(arguments.adapter)]
    done = subprocess.run([arguments.lode, command[0], str(arguments.base), *adapter, *command[1:], "--f32", "--json"],
                          stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", required=True)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("adapter", type=pathlib.Path)
    parser.add_argument("--merged", type=pathlib.Path)
    parser.add_argument("--prompt", default="The lighthouse at the end of")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--limit", type=float, default=1e-3, help="of the loss, and of logits over their largest")
    arguments = parser.parse_args()

    encode, decode, end = tokenizer_of(arguments.base, arguments.merged)
    ids = encode(TEXT.read_text(encoding="utf-8")) + [end]
    model = load_adapted(load_base(arguments.base), arguments.adapter)
    logits = logits_of(model, ids)
    failed = False

    def judge(name, difference, limit):
        nonlocal failed
        failed |= not difference <= limit
        print(f"{name}: {difference:.2e}, allowed {limit:g}{'' if difference <= limit else ' WRONG'}", flush=True)

    theirs = float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])))
    with torch.no_grad(), model.disable_adapter():
        plain = model(input_ids=torch.tensor([ids])).logits[0].double()
    print(f"the adapter moves the logits by at most {float((logits - plain).abs().max()):.3f}")
    evaluated = run_lode(arguments, "eval", str(TEXT))
    print(f"loss over {len(ids) - 1} tokens: peft {theirs:.6f}, lode {evaluated['loss']:.6f} over {evaluated['tokens']}")
    judge("loss", abs(theirs - evaluated["loss"]) if evaluated["tokens"] == len(ids) - 1 else float("inf"), arguments.limit)

    prompt = encode(arguments.prompt)
    wanted = decode(greedy(model, prompt, arguments.max_new_tokens, end))
    ours = run_lode(arguments, "generate", "--prompt", arguments.prompt, "--temperature", "0", "--max-new-tokens",
                    str(arguments.max_new_tokens))["text"]
    failed |= ours.strip() != wanted.strip()
    print(f"greedy: peft {wanted!r}, lode {ours!r}")

    if arguments.merged:
        merged = load_base(arguments.merged)
        largest = float(logits.abs().max())
        judge("logits of the merged model", float((logits_of(merged, ids) - logits).abs().max()) / largest,
              max(arguments.limit, 2e-2 if stored_dtype(arguments.merged) != "float32" else 0))
        same = decode(greedy(merged, prompt, arguments.max_new_tokens, end)).strip() == wanted.strip()
        print(f"greedy of the merged model: {'the same' if same else 'differs'}")
    return int(failed)


def stored_dtype(folder):
    """What config.json says: weights stored in 16 bits cannot equal base + adapter to the last digit."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config.get("dtype") or config.get("torch_dtype") or "float32"


if __name__ == "__main__":
    sys.exit(main())
