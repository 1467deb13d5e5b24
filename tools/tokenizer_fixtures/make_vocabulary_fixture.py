"""Writes tests/text/fixtures/vocabularies.json: hashes of ids and decoded text of hostile texts, by the tokenizers package.

One hash for each group of texts and vocabulary of tools/assets.json (run tools/fetch_assets.py first); the test makes the same texts.
With a vocabulary's name and a text's number as arguments it prints that text and its ids. Run from the repository's root.
"""
import json
import os
import sys

from tokenizers import Tokenizer

NUM_TEXTS, GROUP = 480, 40
WHITE = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
MARKS = [0x301, 0x323, 0x334, 0x345, 0x7FD, 0x898, 0x1AC0, 0x11938, 0x11935, 0x11930, 0x1133B, 0x1100, 0x1161, 0x11A8, 0x212B]
RUNS = "aeo \n\t0-\u2581"
WORDS = ["the", " that", "foo_bar", "HTTPServer", " 日本語", "한국어", "नमस्ते", "مرحبا", "שלום", "e\u0301", "ﷺ", "ﬁ", "①", "👩‍👩‍👧",
         "🇩🇪", "x²", "½", "Ⅷ", "1234567", "٣٤٥", "'s", "'S", "'ſ", "'ll", "'Re", "'", "ß", "K", "İ", "\r\n \n", "  ", "    ",
         "<s>", "</s>", "<unk>", "[INST]", " [/INST] ", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>", "<start_of_turn>",
         "<0x41>", "<0x0A>", "\u2581the", "\u2581", "\u2581\u2581", "\n\n", "\n\n\n", "\t\t", "<table>", "Human:", "<EOT>",
         "<｜User｜>", "\x00", "\x7f", "don't", "for (int i = 0; i < n; i++) {", "    return x;\n", "…", "“quoted”", "ﬀ", "㎏", "Å"]
UNITS = ["a", " ", "\n", "é", "👩\u200d", "\u2581", "\u0301", "ab", " a", "1", "'", "日"]


class Random:
    def __init__(self, seed):
        self.state = (seed * 0x9E3779B97F4A7C15 + 1) % 2**64

    def __call__(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def make_text(number):
    if number < len(UNITS):
        return UNITS[number] * 3000
    rnd = Random(number)
    text = ""
    for _ in range(1 + rnd(20)):
        kind = rnd(8)
        if kind == 0:
            c = rnd(0x110000)
            text += chr(0xFFFD if 0xD800 <= c < 0xE000 else c)
        elif kind == 1:
            white = chr(WHITE[rnd(len(WHITE))])
            text += white * (1 + rnd(4))
        elif kind == 2:
            text += chr(97 + rnd(26))
            for _ in range(1 + rnd(3)):
                text += chr(MARKS[rnd(len(MARKS))])
        elif kind == 3:
            c = RUNS[rnd(len(RUNS))]
            text += c * (1 + rnd(60))
        elif kind == 4:
            for _ in range(1 + rnd(12)):
                text += chr(32 + rnd(95))
        elif kind == 5:
            for _ in range(1 + rnd(4)):
                text += chr(rnd(0x3000))
        else:
            text += WORDS[rnd(len(WORDS))]
    return text


def fnv(data, value=0x811C9DC5):
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def add_ids(ids, value):
    return fnv(b"".join(i.to_bytes(4, "little") for i in ids), value)


def add_text(tokenizer, text, value):
    for ignore_special in (False, True):
        tokenizer.encode_special_tokens = ignore_special
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        value = add_ids(ids, value)
        value = fnv(tokenizer.decode(ids, skip_special_tokens=ignore_special).encode(), value)
    return add_ids(tokenizer.encode(text, add_special_tokens=True).ids, value)  # special tokens still text


def load(name):
    return Tokenizer.from_file(f"build/assets/{name}/tokenizer.json")


def show(name, number):
    tokenizer = load(name)
    text = make_text(number)
    print(ascii(text))
    for ignore_special in (False, True):
        tokenizer.encode_special_tokens = ignore_special
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        print(ids, ascii(tokenizer.decode(ids, skip_special_tokens=ignore_special)))


def main():
    with open("tools/assets.json", encoding="utf-8") as f:
        names = [name for name in json.load(f) if os.path.exists(f"build/assets/{name}/tokenizer.json")]
    result = {"texts": NUM_TEXTS, "group": GROUP, "white": WHITE, "marks": MARKS, "runs": RUNS, "words": WORDS, "units": UNITS,
              "vocabularies": {}}
    texts = [make_text(i) for i in range(NUM_TEXTS)]
    for name in names:
        tokenizer = load(name)
        hashes = []
        for begin in range(0, NUM_TEXTS, GROUP):
            value = 0x811C9DC5
            for text in texts[begin:begin + GROUP]:
                value = add_text(tokenizer, text, value)
            hashes.append("%08x" % value)
        result["vocabularies"][name] = " ".join(hashes)
    with open("tests/text/fixtures/vocabularies.json", "w", encoding="utf-8") as out:
        json.dump(result, out, ensure_ascii=True, indent=1)
        out.write("\n")


if __name__ == "__main__":
    show(sys.argv[1], int(sys.argv[2])) if len(sys.argv) == 3 else main()
