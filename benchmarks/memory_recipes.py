"""The recipes of benchmarks/memory.py: what each saves with, on cut shapes that take seconds a step on two cores."""

import measure

SMALL = ("smollm2-135m", {"num_hidden_layers": 6})
WIDE = ("qwen2-0.5b", {"num_hidden_layers": 4})  # its head and embedding are most of it
NARROW_HEAD = ("qwen2-0.5b", {"num_hidden_layers": 4, "vocab_size": 32768})

RECOMPUTE = {"activation_policy": "recompute"}
SELECTIVE = RECOMPUTE | {"recompute": "selective"}
EVERY_K = RECOMPUTE | {"recompute": "every_k"}
OFFLOAD = {"activation_policy": "offload"}
OFFLOAD_SAVED = OFFLOAD | {"recompute": "selective"}
LORA = {"finetuning_type": "lora", "lora_rank": 16}
QLORA = LORA | {"quantization_bit": 4}
FUSED = {"optim_in_backward": "true", "max_grad_norm": 0}

# Name, shape, T, what differs from full training with AdamW that keeps its activations.
RECIPES = [
    ("full, keep", SMALL, 2048, {}),
    ("full, selective", SMALL, 2048, SELECTIVE),
    ("full, recompute", SMALL, 4096, RECOMPUTE),
    ("full, offload", SMALL, 4096, OFFLOAD),
    ("full, adamw_8bit, two micro-batches", SMALL, 1024, {"optim": "adamw_8bit", "gradient_accumulation_steps": 2}),
    ("full, adafactor, 4 rows", SMALL, 512, {"optim": "adafactor", "per_device_train_batch_size": 4}),
    ("full, lion, every second block", SMALL, 2048, {"optim": "lion_32bit"} | EVERY_K),
    ("full, muon", SMALL, 2048, {"use_muon": "true"}),
    ("full, galore", SMALL, 2048, {"use_galore": "true", "galore_rank": 64}),
    ("full, apollo", SMALL, 1024, {"use_apollo": "true", "apollo_rank": 64}),
    ("full, adam_mini", NARROW_HEAD, 512, {"use_adam_mini": "true"}),
    ("full, badam, selective", NARROW_HEAD, 1024, {"use_badam": "true"} | SELECTIVE),
    ("full, pure_bf16, adamw_8bit in backward, recompute", SMALL, 2048,
     {"pure_bf16": "true", "optim": "adamw_8bit"} | FUSED | RECOMPUTE),
    ("full, adamw_8bit, offload of what is saved", WIDE, 1024, {"optim": "adamw_8bit"} | OFFLOAD_SAVED),
    ("LoRA, keep", SMALL, 2048, LORA),
    ("LoRA, recompute", WIDE, 1024, LORA | RECOMPUTE),
    ("LoRA, offload", NARROW_HEAD, 4096, LORA | OFFLOAD),
    ("QLoRA, keep", SMALL, 2048, QLORA),
    ("QLoRA, selective", WIDE, 2048, QLORA | SELECTIVE),
    ("QLoRA, offload", NARROW_HEAD, 4096, QLORA | OFFLOAD),
]


def base_keys(shape, changes, tokens, tuned, steps):
    """A recipe of rows of `tokens` tokens of the demo's text on random weights: trained whole, or tuned."""
    model = measure.random_model(shape, **changes) if tuned else measure.write_config(shape, **changes)
    keys = {"stage": "pt", "model_name_or_path": model, "tokenizer_name_or_path": measure.tokenizer(), "max_steps": steps,
            "learning_rate": 1e-4, "save_strategy": "no", "report_to": "none"}
    if not tuned:
        keys["train_from_scratch"] = "true"
    return measure.BLOCKS | {"dataset": measure.text_file(), "cutoff_len": tokens} | keys


def keys_of(recipe, steps):
    _, (shape, changes), tokens, options = recipe
    return base_keys(shape, changes, tokens, options.get("finetuning_type") == "lora", steps) | options
