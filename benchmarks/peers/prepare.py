"""Makes models, adapters and data of the subjects under build/peers. Run by `run` with the peers' interpreter.

usage: prepare.py SUBJECT OUT [KEY=VALUE]...

Both trainers get the same bytes: weights as safetensors, the adapter that training starts from, and the samples in the
order of training; Lodestone reads the text itself, the peers get its ids.
"""
import json
import pathlib
import random
import sys

import numpy as np
import torch
import transformers


def write_samples(path, samples):
    path.write_text(json.dumps(samples))


def save_adapter(model, out, alpha=32, rank=16):
    import peft
    torch.manual_seed(1)
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear",
                             task_type="CAUSAL_LM")
    peft.get_peft_model(model, config).save_pretrained(out)


def answers(tokenizer, messages):
    """Ids of a chat, and labels: the assistant's words and their end token."""
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    labels = [-100] * len(ids)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        begin = len(tokenizer.apply_chat_template(messages[:i], add_generation_prompt=True, return_dict=False))
        end = len(tokenizer.apply_chat_template(messages[:i + 1], return_dict=False))
        while ids[end - 1] != tokenizer.eos_token_id and end > begin:
            end -= 1  # the line break after the end token is no target
        labels[begin:end] = ids[begin:end]
    return {"input_ids": ids, "labels": labels}


def group_by_length(lengths, batch_size):
    """The order in which transformers' group_by_length goes through the samples."""
    from transformers.trainer_pt_utils import LengthGroupedSampler
    generator = torch.Generator()
    generator.manual_seed(1)
    return list(LengthGroupedSampler(batch_size, lengths=lengths, generator=generator))


def read_chats(tokenizer, data):
    """Lines of the file in an order of their own, with their ids and labels."""
    lines = [line for line in open(data, encoding="utf-8").read().splitlines() if line]
    random.Random(1).shuffle(lines)
    return [(line, answers(tokenizer, json.loads(line)["messages"])) for line in lines]


def write_chats(out, chosen):
    (out / "chat.jsonl").write_text("".join(line + "\n" for line, _ in chosen), encoding="utf-8")
    write_samples(out / "tokens.json", [sample for _, sample in chosen])


def tokens_of(chats):
    return [len(sample["input_ids"]) for _, sample in chats]


def filled_batches(chats, batch_size, steps, length):
    """Batches whose chats fill `length` tokens together, within a fortieth."""
    generator, chosen = random.Random(1), []
    for _ in range(steps):
        rest = [chat for chat in chats if chat not in chosen]
        batch = generator.sample(rest, batch_size)
        while not length * 39 // 40 <= sum(tokens_of(batch)) <= length:
            batch = generator.sample(rest, batch_size)
        chosen += batch
    return chosen


def chat_lora(out, base, data, batch_size, steps):
    """A batch to warm up with, then a pass over `steps - 1` batches drawn from all lengths, grouped by length."""
    batch_size, steps = int(batch_size), int(steps)
    chats = read_chats(transformers.AutoTokenizer.from_pretrained(base), data)[:batch_size * steps]
    rest = chats[batch_size:]
    write_chats(out, chats[:batch_size] + [rest[i] for i in group_by_length(tokens_of(rest), batch_size)])
    save_adapter(transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16), out / "adapter")


def chat_lora_shape(out, config, tokenizer, data, batch_size, steps, length):
    """Random weights of the shape in `config`, with the tokenizer and the chat template of a folder."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(config), dtype=torch.bfloat16)
    model.save_pretrained(out / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (out / "model" / name).write_bytes((pathlib.Path(tokenizer) / name).read_bytes())
    save_adapter(model, out / "adapter")
    chats = read_chats(transformers.AutoTokenizer.from_pretrained(tokenizer), data)
    write_chats(out, filled_batches(chats, int(batch_size), int(steps), int(length)))


def blocks(tokenizer_file, text, length, count):
    from tokenizers import Tokenizer
    ids = Tokenizer.from_file(str(tokenizer_file)).encode(text, add_special_tokens=False).ids
    if len(ids) < length * count:
        sys.exit(f"the text has {len(ids)} tokens, {length * count} are needed")
    return [ids[i * length:(i + 1) * length] for i in range(count)]


def write_blocks(path, rows):
    write_samples(path, [{"input_ids": row, "labels": row} for row in rows])


def full(out, config, tokenizer, train, valid, length, rows):
    """Random f32 weights of the shape in `config`; rows of documents parted by empty lines, each with its end token."""
    from tokenizers import Tokenizer
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(config),
                                                          dtype=torch.float32)
    model.save_pretrained(out / "model")
    for file in pathlib.Path(tokenizer).iterdir():
        (out / "model" / file.name).write_bytes(file.read_bytes())
    encoder = Tokenizer.from_file(str(out / "model" / "tokenizer.json"))
    settings = json.loads((out / "model" / "tokenizer_config.json").read_text())
    end = encoder.token_to_id(settings["eos_token"])
    length = int(length)
    for name, path, limit in (("tokens", train, int(rows)), ("valid", valid, None)):
        stream = []
        for document in pathlib.Path(path).read_text(encoding="utf-8").split("\n\n"):
            if document.strip():
                stream += encoder.encode(document, add_special_tokens=False).ids + [end]
        cut = [stream[i:i + length] for i in range(0, len(stream), length)]
        cut = [row for row in cut if len(row) == length or (name == "valid" and len(row) > 1)]
        write_blocks(out / f"{name}.json", cut[:limit])


def llmc(out, tokenizer, text, length, rows):
    """GPT-2 124M with random weights as a Hugging Face folder and as llm.c's checkpoint, and rows of running text."""
    torch.manual_seed(1)
    config = transformers.GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(out / "model")
    (out / "model" / "tokenizer.json").write_bytes(pathlib.Path(tokenizer).read_bytes())
    content = pathlib.Path(text).read_text(encoding="utf-8")[:400_000]
    (out / "text.txt").write_text(content, encoding="utf-8")
    rows_of_ids = blocks(tokenizer, content, int(length), int(rows))
    np.array(rows_of_ids, dtype=np.int32).tofile(out / "tokens.bin")
    write_llmc(out / "gpt2.bin", config, model.state_dict())


def write_llmc(path, config, weights):
    """llm.c's checkpoint, version 3 (f32): a header of 256 integers, then the tensors, layers stacked."""
    padded = (config.vocab_size + 127) // 128 * 128
    header = np.zeros(256, dtype=np.int32)
    header[:8] = (20240326, 3, config.n_positions, config.vocab_size, config.n_layer, config.n_head, config.n_embd, padded)

    def one(name):
        value = weights[f"transformer.{name}"].numpy()
        return value.T if value.ndim == 2 and name.startswith("h.") else value  # Conv1D stores [in, out]

    with open(path, "wb") as f:
        f.write(header.tobytes())
        embedding = one("wte.weight")
        f.write(embedding.tobytes())
        f.write(np.zeros((padded - config.vocab_size, config.n_embd), dtype=np.float32).tobytes())
        f.write(one("wpe.weight").tobytes())
        for name in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                     "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                     "mlp.c_proj.weight", "mlp.c_proj.bias"):
            for layer in range(config.n_layer):
                f.write(np.ascontiguousarray(one(f"h.{layer}.{name}")).tobytes())
        f.write(one("ln_f.weight").tobytes())
        f.write(one("ln_f.bias").tobytes())


def main():
    kind, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    arguments = dict(argument.split("=", 1) for argument in sys.argv[3:])
    {"chat-lora": chat_lora, "chat-lora-shape": chat_lora_shape, "full": full, "llmc": llmc}[kind](out, **arguments)


if __name__ == "__main__":
    main()
