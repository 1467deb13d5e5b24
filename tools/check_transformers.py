#!/usr/bin/env python3
"""Loads a checkpoint in transformers and compares its loss on a text with `lode eval`. Run by hand.

usage: check_transformers.py --lode BINARY CHECKPOINT TEXT [--cutoff-len N] [--separator TEXT]

Needs torch, transformers and tokenizers (pip install torch transformers tokenizers; a CPU will do). Both sides compute
in f32 over the same tokens: every document and its end token in one stream, cut into blocks of cutoff_len tokens, the
labels shifted inside each block. The exit code is 1 when the losses differ by more than 1e-3 or a greedy continuation
differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import torch
import transformers

LIMIT = 1e-3


def run_lode(arguments):
    done = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def token_stream(tokenizer, documents):
    """Ids of all documents in order, each followed by the end token."""
    stream = []
    for document in documents:
        # Text that spells a special token is text, as in lode's data.
        stream += tokenizer.encode(document, add_special_tokens=False, split_special_tokens=True)
        stream.append(tokenizer.eos_token_id)
    return stream


def loss_of(model, stream, cutoff_len):
    """Mean loss over the targets, and their number."""
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(stream), cutoff_len):
            block = torch.tensor([stream[begin:begin + cutoff_len]])
            if block.shape[1] < 2:
                continue
            logits = model(block).logits[0, :-1]
            total += torch.nn.functional.cross_entropy(logits.double(), block[0, 1:], reduction="sum").item()
            count += block.shape[1] - 1
    return total / count, count


def greedy(model, tokenizer, prompt, count):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    return tokenizer.decode(ids[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", required=True)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--cutoff-len", type=int, default=0, help="0: the model's context")
    parser.add_argument("--separator", default="", help="between documents; none: the file is one document")
    parser.add_argument("--prompt", default="In the beginning")
    arguments = parser.parse_args()

    # AutoTokenizer goes by the model's type for some families (qwen2) and replaces the file's own pre-tokenizer.
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(arguments.checkpoint)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(arguments.checkpoint, dtype=torch.float32,
                                                                      output_loading_info=True)
    model.eval()
    wrong = {kind: names for kind, names in report.items() if names}
    if wrong:
        sys.exit(f"transformers loads {arguments.checkpoint} with {wrong}")
    cutoff_len = arguments.cutoff_len or model.config.max_position_embeddings
    text = arguments.text.read_text(encoding="utf-8")
    separator = arguments.separator.replace("\\n", "\n")
    documents = [d for d in (text.split(separator) if separator else [text]) if d.strip()]

    theirs, count = loss_of(model, token_stream(tokenizer, documents), cutoff_len)
    command = [arguments.lode, "eval", arguments.checkpoint, arguments.text, "--f32", "--json", "--packing", "blocks",
               "--cutoff-len", str(cutoff_len)]
    result = run_lode(command + (["--separator", arguments.separator] if separator else []))
    ours = result["loss"]
    difference = abs(ours - theirs)
    print(f"transformers {transformers.__version__}: loss {theirs:.6f} over {count} tokens")
    print(f"lode:                loss {ours:.6f} over {result['tokens']} tokens")
    print(f"difference {difference:.2e}, allowed {LIMIT:g}")
    good = difference <= LIMIT and count == result["tokens"]

    length = min(16, cutoff_len - len(tokenizer(arguments.prompt).input_ids))
    generated = run_lode([arguments.lode, "generate", arguments.checkpoint, "--prompt", arguments.prompt, "--f32", "--json",
                          "--temperature", "0", "--max-new-tokens", str(length)])
    ours, theirs = arguments.prompt + generated["text"], greedy(model, tokenizer, arguments.prompt, length)
    # lode ends at the end token.
    same = theirs.startswith(ours) if generated["stopped_by"] == "eos" else ours == theirs
    print(f"greedy continuation {'equal' if same else 'differs'}: {ours!r}" + ("" if same else f" against {theirs!r}"))
    sys.exit(0 if good and same else 1)


if __name__ == "__main__":
    main()
