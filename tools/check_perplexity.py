#!/usr/bin/env python3
"""Compares the perplexity of GGUF models on a fixed text with a reference's. Run by hand, after tools/setup_venv.sh.

usage: check_perplexity.py [--lode BINARY] [--text FILE] [--reference transformers|llamacpp] [--limit PERCENT] [MODEL]...

Without MODEL: the models of tools/fetch_example_models. Both sides see the same tokens, llama.cpp's: the text, after the
begin token where the file asks for one, and the end token. The reference is transformers on the weights dequantised to
f32, or llama.cpp, which rounds activations to 8 bits before it multiplies with quantised weights and so is about 0.5 % off.
Exits with 1 when two perplexities differ by more than the limit (0.5 %) or the numbers of tokens differ.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

import llamacpp

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = [ROOT / "build/assets/models" / name / "model.gguf" for name in ("smollm2-135m-instruct", "gemma3-270m")]


def transformers_logits(path, tokens):
    """Logits of the dequantised weights in f32."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.eval()
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def reference_of(path, text, kind):
    """Perplexity by the reference and the number of tokens that it is the mean over."""
    model = llamacpp.Model(path, num_ctx=llamacpp.room_for(text))
    tokens = model.tokenize(text) + [model.end_token()]
    logits = model.logits(tokens) if kind == "llamacpp" else transformers_logits(path, tokens)
    return math.exp(llamacpp.loss_of(logits, tokens)), len(tokens) - 1


def ours_of(lode, path, text_path):
    """The same by `lode eval`."""
    command = [lode, "eval", str(path), str(text_path), "--f32", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    result = json.loads(done.stdout)
    return result["perplexity"], result["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", help="the binary; without it only the reference is printed")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "tools/perplexity_text.txt")
    parser.add_argument("--reference", choices=["transformers", "llamacpp"], default="transformers")
    parser.add_argument("--limit", type=float, default=0.5, help="in percent")
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    text = arguments.text.read_text(encoding="utf-8")
    failed = False
    for path in arguments.models or MODELS:
        wanted, wanted_tokens = reference_of(path, text, arguments.reference)
        line = f"{path.parent.name}/{path.name}: {arguments.reference} {wanted:.4f} over {wanted_tokens} tokens"
        if arguments.lode:
            ours, tokens = ours_of(arguments.lode, path, arguments.text)
            percent = 100 * (ours / wanted - 1)
            good = abs(percent) <= arguments.limit and tokens == wanted_tokens
            failed |= not good
            line += f", lode {ours:.4f} over {tokens}: {percent:+.3f} %{'' if good else ' WRONG'}"
        print(line, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
