"""Writes tests/text/fixtures/{conformance,demo_text}.json with the tokenizers package (requirements.txt).

conformance.json: hostile texts and, per variant of tokenizer, a hash of vocabulary, merges, ids and decoded text.
demo_text.json: hashes of vocabularies and merges trained on the output of `bible -f gen1:1-rev22:21` (bible-kjv).
Run from the repository's root.
"""
import json
import random
import subprocess

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
R3 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|NUM| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|end|>", "<pad>", "th"]  # the last one is also what merges give
ADDED = [
    {"content": "<b>", "lstrip": True, "rstrip": True, "normalized": False},
    {"content": "cat", "single_word": True, "normalized": False},
    {"content": "<S>", "special": True, "normalized": True},
    {"content": "e\u0301", "normalized": True},
    {"content": "<bo", "normalized": False, "lstrip": True},
]
VARIANTS = [
    {"pre": "gpt2"}, {"pre": "llama3"}, {"pre": "qwen2"},
    {"pre": "qwen2", "nfc": True, "added": True},
    {"pre": "gpt2", "added": True, "digits": True, "ignore_merges": True},
]
WHITE = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
NEWER = [0x897, 0x1C89, 0x2FFC, 0xA7CB, 0x105C0, 0x10D40, 0x10D69, 0x11BF0, 0x1FAE9, 0x2EBF0, 0x31350, 0x11DE0, 0x113BB]
MARKS = [0x7FD, 0x898, 0x1AC0, 0x11938, 0x11935, 0x11930, 0x1133B, 0x301, 0x323, 0x334, 0x345, 0x1100, 0x1161, 0x11A8, 0x212B]
WORDS = ["the", "that", "God", "foo_bar", "HTTPServer", "日本語", "한국어", "नमस्ते", "مرحبا", "שלום", "e\u0301", "ﷺ",
         "👩‍👩‍👧", "🇩🇪", "x²", "½", "Ⅷ", "1234567", "٣٤٥", "'s", "'S", "'ſ", "'ll", "'Re", "'VE", "'", "ß", "K", "İ",
         "<|end|>", "<pad>", "<b>", " cat ", "cats", "<S>", "<bo", "_cat", "\r\n \n", "  "]


def fnv(data, value=0x811C9DC5):
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def pre_tokenizer(name):
    if name == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    number = r"\p{N}" if name == "qwen2" else r"\p{N}{1,3}"
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(R3.replace("NUM", number)), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(documents, size, name):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(name)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents, trainer)
    return json.loads(tokenizer.to_str())


def model_hash(document):
    vocab, merges = document["model"]["vocab"], document["model"]["merges"]
    text = "".join(token + "\n" for token in sorted(vocab, key=vocab.get))
    text += "".join(f"{a} {b}\n" for a, b in merges)
    return "%08x" % fnv(text.encode())


def hostile_text(rnd):
    def piece():
        kind = rnd.randrange(7)
        if kind == 0:
            return "".join(chr(rnd.choice(WHITE)) for _ in range(rnd.randrange(1, 5)))
        if kind == 1:
            return chr(rnd.choice(NEWER)) * rnd.randrange(1, 3)
        if kind == 2:
            return "".join(chr(rnd.choice(MARKS)) for _ in range(rnd.randrange(1, 4)))
        if kind == 3:
            return rnd.choice("aeiou \n") * rnd.randrange(1, 45)
        return rnd.choice(WORDS)
    return "".join(piece() for _ in range(rnd.randrange(1, 16)))


def apply_variant(document, variant):
    if variant.get("nfc"):
        document["normalizer"] = {"type": "NFC"}
    if variant.get("digits"):
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]}
    document["model"]["ignore_merges"] = bool(variant.get("ignore_merges"))
    vocab = document["model"]["vocab"]
    following = len(vocab)
    for fields in ADDED if variant.get("added") else []:
        token = {"id": vocab.get(fields["content"], following), "single_word": False, "lstrip": False, "rstrip": False,
                 "special": False, **fields}
        following += token["id"] == following
        document["added_tokens"].append(token)
    return Tokenizer.from_str(json.dumps(document))


def text_hash(tokenizer, text):
    value = 0x811C9DC5
    for ignore_special in (False, True):
        tokenizer.encode_special_tokens = ignore_special
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        value = fnv(b"".join(i.to_bytes(4, "little") for i in ids), value)
        value = fnv(tokenizer.decode(ids, skip_special_tokens=ignore_special).encode(), value)
    return "%08x" % value


def conformance():
    rnd = random.Random(7)
    texts = ["", " ", "a"] + [hostile_text(rnd) for _ in range(45)]
    result = {"special": SPECIAL, "added": ADDED, "vocab_size": 700, "texts": texts, "variants": []}
    for variant in VARIANTS:
        document = train(texts, 700, variant["pre"])
        entry = {**variant, "model": model_hash(document)}
        tokenizer = apply_variant(document, variant)
        entry["hashes"] = " ".join(text_hash(tokenizer, text) for text in texts)
        result["variants"].append(entry)
    return result


def demo_text():
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True).stdout
    result = {"text": "%08x" % fnv(text), "bytes": len(text), "special": SPECIAL, "trained": []}
    for size in (4096, 32768):
        for name in ("gpt2", "llama3"):
            document = train([text.decode()], size, name)
            result["trained"].append({"pre": name, "vocab_size": size, "merges": len(document["model"]["merges"]),
                                      "model": model_hash(document)})
    return result


for name, content in (("conformance", conformance()), ("demo_text", demo_text())):
    with open(f"tests/text/fixtures/{name}.json", "w") as out:
        json.dump(content, out, ensure_ascii=True, indent=1)
        out.write("\n")
