"""Encoding speed of the packages tokenizers and tiktoken with one vocabulary. Prints one JSON object.

usage: encode.py TEXT TOKENIZER_JSON IDS        the ids of the whole text go into the file IDS

tiktoken gets the ranks of the vocabulary and the expression of its pre-tokenizer; a vocabulary whose pre-tokenizer is not
one expression is left to tokenizers alone.
"""
import json
import sys
import time

import tiktoken
import tokenizers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
RUNS = 5


def cut(text, size=4096):
    """Documents as benchmarks/text/tokenizer_bench.cc cuts them."""
    documents = []
    while text:
        end = text.find(b"\n", min(size, len(text)))
        end = len(text) if end < 0 else end + 1
        documents.append(text[:end].decode())
        text = text[end:]
    return documents


def byte_of_character():
    """The characters that byte-level vocabularies write for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    for i, b in enumerate(b for b in range(256) if b not in plain):
        table[chr(256 + i)] = b
    return table


def expression(pre):
    parts = pre.get("pretokenizers", [pre])
    if len(parts) == 1 and parts[0]["type"] == "ByteLevel" and parts[0]["use_regex"]:
        return GPT2
    if [p["type"] for p in parts] == ["Split", "ByteLevel"] and not parts[1]["use_regex"]:
        return parts[0]["pattern"].get("Regex")
    return None


def make_tiktoken(path):
    with open(path, encoding="utf-8") as f:
        content = json.load(f)
    pattern = expression(content["pre_tokenizer"])
    if pattern is None:
        return None
    table = byte_of_character()
    special = {token["content"] for token in content["added_tokens"]}
    ranks = {bytes(table[c] for c in token): rank for token, rank in content["model"]["vocab"].items() if token not in special}
    return tiktoken.Encoding("given", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def best_rate(size, encode):
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        encode()
        times.append(time.perf_counter() - begin)
    return size / 1e6 / min(times)


def main():
    text = open(sys.argv[1], "rb").read()
    documents = cut(text)
    hf = tokenizers.Tokenizer.from_file(sys.argv[2])
    other = make_tiktoken(sys.argv[2])
    whole = text.decode()
    ids = hf.encode(whole, add_special_tokens=False).ids
    speeds = {"tokenizers": best_rate(len(text), lambda: hf.encode_batch_fast(documents, add_special_tokens=False))}
    if other:
        speeds["tiktoken"] = best_rate(len(text), lambda: [other.encode_ordinary(document) for document in documents])
    with open(sys.argv[3], "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, ids)))
    print(json.dumps({"mb_per_s": speeds, "ids_equal": other is None or other.encode_ordinary(whole) == ids,
                      "version": f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}"}))


if __name__ == "__main__":
    main()
