"""What is compared: for each subject how its files are made, and its sides, each a trainer on the same files."""
import hashlib
import json
import os
import shutil
import subprocess

from measured import (LODE, PEER_ENVIRONMENT, ROOT, THREADS, WORK, NotMeasured, command_text, lode_run, measure, python)

ASSETS = ROOT / "build" / "assets"
LLMC = ("https://github.com/karpathy/llm.c", "f1e2ace651495b74ae22d45d1723443fd00ecd3a")
FOLDER = ROOT / "benchmarks" / "peers"
TEXT = WORK / "text"


class Side:
    """One trainer of a subject: run() measures it once; `role` is "ours", "peer" or "peer-off" (only with --all)."""

    def __init__(self, trainer, role, run, command, dtype="bf16"):
        self.trainer, self.role, self.run, self.command, self.dtype = trainer, role, run, command, dtype


class Subject:
    """`sides(folder)` is called once the files are made; warm_up steps of each run are not counted."""

    def __init__(self, name, title, prepare, sides, rounds=2, warm_up=1, tolerance=0.01):
        self.name, self.title, self.prepare, self.sides = name, title, prepare, sides
        self.rounds, self.warm_up, self.tolerance = rounds, warm_up, tolerance

    @property
    def folder(self):
        return WORK / self.name


# --- files -------------------------------------------------------------------------------------------------------------

def say(text):
    print(f"peers: {text}", flush=True)


def made(folder, kind, before=None, **arguments):
    """What prepare.py makes of the arguments, in `folder`: made anew when it or they have changed."""
    words = [f"{key}={value}" for key, value in arguments.items()]
    mark = folder / "made"
    version = hashlib.sha256("\n".join([(FOLDER / "prepare.py").read_text(), kind, *words]).encode()).hexdigest()
    if mark.exists() and mark.read_text() == version:
        return
    say(f"making {folder.relative_to(ROOT)}")
    if before:
        before()
    subprocess.run([python(), FOLDER / "prepare.py", kind, folder, *words], cwd=ROOT, check=True,
                   env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})
    mark.write_text(version)


def asset(name):
    path = ASSETS / name / "tokenizer.json"
    if not path.exists():
        subprocess.run([ROOT / "tools" / "fetch_assets.py"], cwd=ROOT, stdout=subprocess.DEVNULL)
    if not path.exists():
        raise NotMeasured(f"build/assets/{name} is missing: make assets fetches it (needs a network)")
    return path


def text():
    """The demo's text and its two parts: every twentieth chapter is held out, as in examples/demo/run.sh."""
    whole, train, valid = TEXT / "bible.txt", TEXT / "train.txt", TEXT / "valid.txt"
    if valid.exists():
        return whole, train, valid
    if shutil.which("bible") is None:
        raise NotMeasured("the command bible is missing: make setup installs it (package bible-kjv)")
    TEXT.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, capture_output=True, text=True)
    parts, last, number = {True: [], False: []}, None, 0
    for line in done.stdout.splitlines(keepends=True):
        chapter = line.split(":", 1)[0]
        if chapter != last:
            number, last = number + 1, chapter
            if parts[number % 20 == 0]:
                parts[number % 20 == 0].append("\n")
        parts[number % 20 == 0].append(line)
    whole.write_text(done.stdout)
    train.write_text("".join(parts[False]))
    valid.write_text("".join(parts[True]))
    return whole, train, valid


def smollm2():
    """SmolLM2 135M Instruct in bf16: the example's GGUF, dequantised."""
    gguf = ASSETS / "models" / "smollm2-135m-instruct" / "model.gguf"
    folder = WORK / "smollm2"
    if not (folder / "model.safetensors").exists():
        if not gguf.exists():
            subprocess.run([ROOT / "tools" / "fetch_example_models", "smollm2-135m-instruct"], cwd=ROOT)
        if not gguf.exists():
            raise NotMeasured("tools/fetch_example_models smollm2-135m-instruct fetches the model (needs a network)")
        say("dequantising SmolLM2 135M")
        subprocess.run([LODE, "export", gguf, "--format", "safetensors", "--dtype", "bf16", "--out", folder,
                        "--check-tokens", "1", "--prompt", "Water boils at"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    return folder, gguf


# --- sides -------------------------------------------------------------------------------------------------------------

COMMON = {"bf16": True, "weight_decay": 0.0, "adam_beta2": 0.999, "lr_scheduler_type": "constant", "warmup_steps": 0}


def lode_side(trainer, folder, name, recipe):
    """A side of ours; `recipe` in the spelling of recipes."""
    path = folder / f"{name}.yaml"
    values = {**COMMON, "seed": 1, "disable_shuffling": True, "logging_steps": 1, "save_strategy": "no",
              "report_to": "none", "num_threads": THREADS, "max_grad_norm": 1.0, **recipe,
              "output_dir": folder / name, "overwrite_output_dir": True}
    lines = [f"{key}: {json.dumps(str(value) if hasattr(value, 'parts') else value)}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n")
    return Side(trainer, "ours", lambda: lode_run(path, folder / f"{name}.log"),
                command_text([LODE, "train", path], {}), "bf16" if values["bf16"] else "f32")


def transformers_side(trainer, role, folder, name, values):
    path = folder / f"{name}.json"
    run = {**COMMON, "compile": False, "adapter": None, "eval": None, **values, "output_dir": folder / name}
    path.write_text(json.dumps({key: str(value) if hasattr(value, "parts") else value for key, value in run.items()},
                               indent=1))
    arguments = [python(), FOLDER / "trainer.py", path]
    return Side(trainer, role, lambda: measure(arguments, PEER_ENVIRONMENT, folder / f"{name}.log"),
                command_text(arguments, PEER_ENVIRONMENT))


INT8_SIDE = "lodestone, frozen weights in int8"
# What costs one pass over memory is made again in the backward instead of waiting for it.
LEAN = {"activation_policy": "recompute", "recompute": "selective", "recompute_modules": ["norm", "mlp"]}


# --- LoRA on SmolLM2 135M ----------------------------------------------------------------------------------------------

CHAT_BATCH, CHAT_STEPS = 8, 7


def prepare_chat(folder):
    base, _ = smollm2()
    made(folder, "chat-lora", base=base, data=ROOT / "examples/sft/train.jsonl", batch_size=CHAT_BATCH, steps=CHAT_STEPS)


def chat_sides(folder):
    base, gguf = smollm2()
    recipe = {"stage": "sft", "finetuning_type": "lora", "adapter_name_or_path": folder / "adapter",
              "dataset": folder / "chat.jsonl", "packing": False, "cutoff_len": 1024,
              "per_device_train_batch_size": CHAT_BATCH, "max_steps": CHAT_STEPS, "learning_rate": 1e-3, **LEAN}
    peer = {"model": base, "dtype": "bfloat16", "adapter": folder / "adapter", "tokens": folder / "tokens.json",
            "batch_size": CHAT_BATCH, "steps": CHAT_STEPS, "learning_rate": 1e-3}
    name = "transformers + PEFT"
    return [lode_side("lodestone", folder, "lode", {"model_name_or_path": base, **recipe}),
            transformers_side(f"{name}, padded", "peer", folder, "padded", {**peer, "layout": "padded"}),
            transformers_side(f"{name}, packed", "peer", folder, "packed", {**peer, "layout": "packed"}),
            lode_side("lodestone, on the GGUF file", folder, "lode-gguf", {"model_name_or_path": gguf, **recipe}),
            lode_side(INT8_SIDE, folder, "int8", {"model_name_or_path": base, "frozen_compute": "int8", **recipe}),
            transformers_side(f"{name}, padded, compiled", "peer-off", folder, "padded-compiled",
                              {**peer, "layout": "padded", "compile": True}),
            transformers_side(f"{name}, packed, compiled", "peer-off", folder, "packed-compiled",
                              {**peer, "layout": "packed", "compile": True})]


# --- LoRA on a 0.5B Qwen2 shape ----------------------------------------------------------------------------------------

QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 896,
         "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True}
QWEN2_BATCH, QWEN2_STEPS, QWEN2_LENGTH = 13, 4, 1024  # 13 chats, chosen to fill that many tokens


def prepare_qwen2(folder):
    config = folder / "shape.json"
    config.write_text(json.dumps(QWEN2))
    made(folder, "chat-lora-shape", config=config, tokenizer=smollm2()[0], data=ROOT / "examples/sft/train.jsonl",
         batch_size=QWEN2_BATCH, steps=QWEN2_STEPS, length=QWEN2_LENGTH)


def qwen2_sides(folder):
    recipe = {"model_name_or_path": folder / "model", "stage": "sft", "finetuning_type": "lora",
              "adapter_name_or_path": folder / "adapter", "dataset": folder / "chat.jsonl", "packing": False,
              "cutoff_len": QWEN2_LENGTH, "per_device_train_batch_size": QWEN2_BATCH, "max_steps": QWEN2_STEPS,
              "learning_rate": 1e-3, **LEAN}
    peer = {"model": folder / "model", "dtype": "bfloat16", "adapter": folder / "adapter", "layout": "packed",
            "tokens": folder / "tokens.json", "batch_size": QWEN2_BATCH, "steps": QWEN2_STEPS, "learning_rate": 1e-3}
    return [lode_side("lodestone", folder, "lode", recipe),
            transformers_side("transformers + PEFT, packed", "peer", folder, "packed", peer),
            lode_side(INT8_SIDE, folder, "int8", {**recipe, "frozen_compute": "int8"}),
            transformers_side("transformers + PEFT, packed, compiled", "peer-off", folder, "compiled",
                              {**peer, "compile": True})]


# --- full training of the demo's model ---------------------------------------------------------------------------------

DEMO_STEPS, DEMO_BATCH, DEMO_LENGTH = 120, 4, 256


def prepare_demo(folder):
    _, train, valid = text()
    tokenizer = folder / "tokenizer"
    command = [LODE, "tokenizer", "train", train, "--output", tokenizer, "--vocab-size", "12288"]
    made(folder, "full", before=lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL),
         config=ROOT / "examples/demo/config.json", tokenizer=tokenizer, train=train, valid=valid, length=DEMO_LENGTH,
         rows=DEMO_STEPS * DEMO_BATCH)


def demo_sides(folder):
    _, train, valid = text()
    optimizer = {"learning_rate": 2.5e-3, "lr_scheduler_type": "linear", "warmup_steps": 12, "weight_decay": 0.1,
                 "adam_beta2": 0.95}
    recipe = {"model_name_or_path": folder / "model", "stage": "pt", "dataset": train, "eval_dataset": valid,
              "document_separator": "\n\n", "packing_strategy": "blocks", "cutoff_len": DEMO_LENGTH,
              "per_device_train_batch_size": DEMO_BATCH, "max_steps": DEMO_STEPS, "eval_strategy": "steps",
              "eval_steps": DEMO_STEPS, **optimizer}
    peer = {"model": folder / "model", "dtype": "float32", "layout": "blocks", "tokens": folder / "tokens.json",
            "batch_size": DEMO_BATCH, "steps": DEMO_STEPS, "eval": folder / "valid.json", **optimizer}
    return [lode_side("lodestone", folder, "lode", recipe),
            transformers_side("transformers", "peer", folder, "transformers", peer),
            transformers_side("transformers, compiled", "peer-off", folder, "compiled", {**peer, "compile": True})]


# --- llm.c -------------------------------------------------------------------------------------------------------------

LLMC_STEPS, LLMC_BATCH, LLMC_LENGTH = 4, 4, 256


def llmc_program():
    """llm.c at its pinned commit and our driver, built with the flags of its Makefile."""
    source, program = WORK / "llm.c", WORK / "llmc_driver"
    url, commit = LLMC
    if not (source / "train_gpt2.c").exists():
        url = os.environ.get("LODE_PEERS_LLMC", url)
        cloned = subprocess.run(["git", "clone", "--quiet", "--no-checkout", url, source], stderr=subprocess.DEVNULL)
        if cloned.returncode != 0:
            shutil.rmtree(source, ignore_errors=True)
            raise NotMeasured(f"{url} cannot be cloned (needs a network)")
        subprocess.run(["git", "-C", source, "checkout", "--quiet", commit], check=True)
    driver = FOLDER / "llmc_driver.c"
    if not program.exists() or program.stat().st_mtime < driver.stat().st_mtime:
        subprocess.run(["gcc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", f"-I{source}", driver, "-lm", "-o",
                        program], check=True)
    return program


def prepare_gpt2(folder):
    llmc_program()
    made(folder, "llmc", tokenizer=asset("gpt2"), text=text()[1], length=LLMC_LENGTH, rows=LLMC_STEPS * LLMC_BATCH)


def gpt2_sides(folder):
    recipe = {"model_name_or_path": folder / "model", "stage": "pt", "bf16": False, "dataset": folder / "text.txt",
              "packing_strategy": "blocks", "cutoff_len": LLMC_LENGTH, "per_device_train_batch_size": LLMC_BATCH,
              "max_steps": LLMC_STEPS, "learning_rate": 1e-4, "max_grad_norm": 0}
    arguments = [llmc_program(), folder / "gpt2.bin", folder / "tokens.bin", LLMC_BATCH, LLMC_LENGTH, LLMC_STEPS]
    environment = {"OMP_NUM_THREADS": str(THREADS), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

    def run():
        result = measure(arguments, environment, folder / "llmc.log")
        result.more["version"] = f"llm.c {LLMC[1][:7]}"
        return result
    return [lode_side("lodestone, f32", folder, "lode", recipe),
            Side("llm.c, f32", "peer", run, command_text(arguments, environment), "f32"),
            lode_side("lodestone, bf16", folder, "lode-bf16", {**recipe, "bf16": True})]


SUBJECTS = [
    Subject("lora-smollm2", "LoRA r=16 on SmolLM2 135M, chats of many lengths, 8 a step", prepare_chat, chat_sides),
    Subject("lora-qwen2-0.5b", "LoRA r=16 on a 0.5B Qwen2 shape, 13 chats a step, packed to 1,024 tokens", prepare_qwen2, qwen2_sides,
            rounds=3),
    # In 120 steps at the demo's learning rate the rounding of bf16 grows beyond what single steps differ by.
    Subject("full-demo", "full training of the demo's model, 4 x 256 tokens", prepare_demo, demo_sides, rounds=1,
            warm_up=3, tolerance=0.02),
    Subject("full-gpt2-124m", "full training of GPT-2 124M in f32, 4 x 256 tokens", prepare_gpt2, gpt2_sides,
            rounds=1),
]
