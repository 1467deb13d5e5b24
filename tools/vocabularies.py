"""Turns the vocabulary files that Python packages carry into tokenizer.json documents; used by fetch_assets.py.

Written from the formats' descriptions with Python's own library only, apart from the C++ sources: the two check each other.
"""
import base64
import json
import struct

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def added(content, token_id, special=True):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def document(vocab, merges, tokens, **parts):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges}
    model.update(parts.pop("model", {}))
    result = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
              "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    result.update(parts)
    return result


def gpt2(vocabulary, merges):
    """GPT-2's two files; its only special token ends the text."""
    vocab = json.loads(vocabulary)
    lines = merges.decode("utf-8").split("\n")
    end = "<|endoftext|>"
    byte_level = {**BYTE_LEVEL, "use_regex": True}
    return document(vocab, [line for line in lines if line and not line.startswith("#version")], [added(end, vocab[end])],
                    pre_tokenizer=byte_level, post_processor=byte_level, decoder=byte_level,
                    model={"continuing_subword_prefix": "", "end_of_word_suffix": ""})


def alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(kept))
    return table


def merges_of_ranks(ranks):
    """The pair that each token is merged from: its bytes, merged by the ranks below its own."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i:i + 1] for i in range(len(token))]
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
            if ranks.get(parts[best] + parts[best + 1], 1 << 30) >= rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append(tuple(parts))
    return merges


def byte_level(ranks, shift, specials, expression, **parts):
    table = alphabet()

    def spell(token):
        return "".join(table[b] for b in token)
    vocab = {spell(token): rank + shift for token, rank in ranks.items()}
    merges = [[spell(a), spell(b)] for a, b in merges_of_ranks(ranks)]
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    vocab.update({content: token_id for content, token_id in specials.items() if token_id < shift})
    return document(vocab, merges, [added(c, i) for c, i in specials.items()], decoder=BYTE_LEVEL,
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [split, BYTE_LEVEL]}, **parts)


def tiktoken(data):
    """Qwen's ranks, with the three special tokens that its models use."""
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines() if line)}
    specials = {t: len(ranks) + i for i, t in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])}
    return byte_level(ranks, 0, specials, QWEN, normalizer={"type": "NFC"})


def tekken(data):
    source = json.loads(data)
    config = source["config"]
    shift = config["default_num_special_tokens"]
    kept = source["vocab"][:config["default_vocab_size"] - shift]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in kept}
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    names += [f"<SPECIAL_{i}>" for i in range(len(names), shift)]
    return byte_level(ranks, shift, {name: i for i, name in enumerate(names)}, config["pattern"], model={"ignore_merges": True})


def scored_merges(pieces):
    """Every split of a piece into two pieces: by falling score, then longer parts first, then smaller ids."""
    ids = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    merges = []
    for piece, score, kind in pieces:
        if kind not in (2, 3):
            pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
            merges += [(score, a, b) for a, b in sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    return [[a, b] for _, a, b in merges]


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def template(before):
    single = [{"SpecialToken": {"id": token, "type_id": 0}} for token in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    specials = {token: {"id": token, "ids": [token_id], "tokens": [token]} for token, token_id in before.items()}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}


def pieces_document(pieces, prefix, unknown, begin):
    """Pieces are (text, score, type); types 2, 3 and 4 (unknown, control, user defined) are looked for in the text."""
    tokens = [added(piece, i, kind != 4) for i, (piece, _, kind) in enumerate(pieces) if kind in (2, 3, 4)]
    normalizer = replace(" ", "\u2581")
    decoders = [replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if prefix:
        normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, normalizer]}
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return document({piece: i for i, (piece, _, _) in enumerate(pieces)}, scored_merges(pieces), tokens, normalizer=normalizer,
                    decoder={"type": "Sequence", "decoders": decoders}, post_processor=template({pieces[begin][0]: begin}),
                    model={"byte_fallback": True, "fuse_unk": True, "unk_token": pieces[unknown][0]})


def protobuf_fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return value
    while at < len(data):
        tag = varint()
        size = {1: 8, 5: 4}.get(tag & 7)
        if size is None:
            value = varint()
            if tag & 7 == 0:
                yield tag >> 3, value
                continue
            size = value
        yield tag >> 3, data[at:at + size]
        at += size


def sentencepiece(data):
    pieces = []
    for number, value in protobuf_fields(data):
        if number == 1:
            fields = dict(protobuf_fields(value))
            score = struct.unpack("<f", fields[2])[0] if 2 in fields else 0.0
            pieces.append((fields[1].decode("utf-8"), score, fields.get(3, 1)))
    return pieces_document(pieces, True, 0, 1)


def gguf_metadata(data):
    """The metadata, and where it ends."""
    at = 24
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def number(kind):
        nonlocal at
        value = struct.unpack_from("<" + formats[kind], data, at)[0]
        at += struct.calcsize(formats[kind])
        return value

    def read(kind):
        nonlocal at
        if kind == 9:
            element, count = number(4), number(10)
            return [read(element) for _ in range(count)]
        if kind != 8:
            return number(kind)
        size = number(10)
        at += size
        return data[at - size:at].decode("utf-8")
    result = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = read(8)
        result[key] = read(number(4))
    return result, at


def gguf(data):
    metadata, end = gguf_metadata(data)
    m = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    tokens = m["tokens"]
    if m["model"] == "llama":
        pieces = list(zip(tokens, m["scores"], m["token_type"]))
        result = pieces_document(pieces, m.get("add_space_prefix", True), m["unknown_token_id"], m["bos_token_id"])
    else:
        assert m["pre"] == "smollm", m["pre"]
        whole = {**BYTE_LEVEL, "use_regex": True}
        pre = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, whole]}
        special = [added(token, i) for i, token in enumerate(tokens) if m["token_type"][i] == 3]
        result = document({token: i for i, token in enumerate(tokens)}, m["merges"], special, pre_tokenizer=pre,
                          post_processor=whole, decoder=whole)
    return result, data[:8] + struct.pack("<Q", 0) + data[16:end]
