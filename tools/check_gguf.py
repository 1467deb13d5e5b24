#!/usr/bin/env python3
"""Compares greedy continuations of a GGUF file in llama.cpp with ours. Run by hand, after tools/setup_venv.sh.

usage: check_gguf.py --lode BINARY MODEL.gguf [--lora ADAPTER.gguf] [--adapter FOLDER] [--max-new-tokens N] [--chat]

--lora is an adapter that llama.cpp adds to the model, --adapter the PEFT folder that lode adds to it (an exported model
needs neither). Texts are compared, since they are what both sides print. Export F32, F16 or BF16 for this check: with
quantised weights llama.cpp rounds the activations to 8 bits, which moves the logits of small models by 1 and more and so
changes tokens. Where its two best tokens are nearly level (within --lead) a step may go either way: the check then counts
the tokens before it as equal and says so. Exits with 1 when a continuation differs at a step with a clear lead.
"""

import argparse
import pathlib
import subprocess
import sys

import llamacpp

PROMPTS = ["The capital of France is", "Water boils at a temperature of", "def add(a, b):\n", "今天天气"]
QUESTIONS = ["Who are you?", "What is 15% of 60?", "Write a Python function that doubles a number.", "你叫什么名字？"]


def continuation_of(lode, arguments, prompt):
    """What lode writes after the prompt, without the prompt."""
    command = [lode, "generate", str(arguments.model), "--temperature", "0", "--f32", "--max-new-tokens",
               str(arguments.max_new_tokens)]
    if arguments.adapter:
        command += ["--adapter", str(arguments.adapter)]
    command += ["--chat", prompt] if arguments.chat else ["--prompt", prompt]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.removeprefix(prompt).rstrip("\n")


def compare(model, ours, prompt, count, lead):
    """A line about one prompt, and whether it is right."""
    tokens = model.tokenize(prompt, parse_special=True)
    reply, leads = model.greedy(tokens, count)
    theirs = model.detokenize(reply).rstrip("\n")
    if ours.strip() == theirs.strip():
        return f"same {len(reply)} tokens", True
    # The first step after which the texts part.
    step = next((i for i in range(len(reply)) if not ours.strip().startswith(model.detokenize(reply[:i + 1]).strip())),
                len(reply))
    gap = leads[step] if step < len(leads) else float("inf")
    if gap < lead:
        return f"same {step} of {len(reply)} tokens, then llama.cpp's two best are {gap:.3f} apart", True
    return f"differs at token {step} (lead {gap:.3f})\n  llama.cpp: {theirs!r}\n  lode:      {ours!r}", False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lode", required=True)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--lora", type=pathlib.Path, help="GGUF adapter for llama.cpp")
    parser.add_argument("--adapter", type=pathlib.Path, help="PEFT folder for lode")
    parser.add_argument("--max-new-tokens", type=int, default=24)
    parser.add_argument("--lead", type=float, default=0.15, help="logits closer than this are level")
    parser.add_argument("--chat", action="store_true", help="ask questions with the file's chat template")
    arguments = parser.parse_args()

    model = llamacpp.Model(arguments.model, lora=arguments.lora)
    failed = False
    for prompt in QUESTIONS if arguments.chat else PROMPTS:
        ours = continuation_of(arguments.lode, arguments, prompt)
        rendered = model.render_chat(prompt) if arguments.chat else prompt
        said, good = compare(model, ours, rendered, arguments.max_new_tokens, arguments.lead)
        failed |= not good
        print(f"{prompt!r}: {said}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
