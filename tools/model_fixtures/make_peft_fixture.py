"""Writes tests/models/fixtures/peft_*.json: loss and gradients of tiny models with LoRA adapters by peft.

Run from the repository's root in a virtual environment with tools/requirements.txt and peft. Weights of the base and of
the adapter follow fill_rule.py; tokens and numbers are those of make_gradient_fixture.py.
"""
import copy
import json
import pathlib
import sys

import peft
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import fill_rule  # noqa: E402

TOKENS = [[3, 17, 5, 60, 2, 9, 44, 31, 8], [22, 13, 50, 7, 7, 19, 41]]
TINY = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2}
MODELS = {
    "llama": ({"model_type": "llama", **TINY},
              {"r": 4, "lora_alpha": 8, "use_rslora": True, "rank_pattern": {"k_proj": 2},
               "alpha_pattern": {"k_proj": 3}, "modules_to_save": ["model.norm"],
               "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                  "embed_tokens", "lm_head"]}),
    "gpt2": ({"model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
              "bos_token_id": 1, "eos_token_id": 2},
             {"r": 4, "lora_alpha": 8, "fan_in_fan_out": True, "modules_to_save": ["wte"],
              "target_modules": ["c_attn", "mlp.c_fc", "c_proj"]}),
    "tied": ({"model_type": "llama", **TINY, "tie_word_embeddings": True},
             {"r": 4, "lora_alpha": 8, "ensure_weight_tying": True, "modules_to_save": ["embed_tokens", "lm_head"],
              "target_modules": ["q_proj"]}),
}


def rounded(value, digits=8):
    return float(f"{value:.{digits}g}")


def our_name(name):
    for part in (".default", ".base_layer", ".original_module"):
        name = name.replace(part, "")
    return name.removeprefix("base_model.model.")


def fixture(config, adapter):
    settings = dict(config)
    base = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(settings.pop("model_type"), **settings), attn_implementation="eager")
    for part in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(base.config, part, 0.0)
    lora = peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **copy.deepcopy(adapter))
    model = peft.get_peft_model(base.float(), lora)
    model.eval()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(fill_rule.weights(our_name(name), tuple(parameter.shape))))
    targets = sum(len(tokens) - 1 for tokens in TOKENS)
    loss = 0
    for tokens in TOKENS:
        ids = torch.tensor([tokens])
        logits = model(ids).logits[0, :-1]
        loss = loss + torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum") / targets
    loss.backward()
    with torch.no_grad(), model.disable_adapter():
        off = 0
        for tokens in TOKENS:
            ids = torch.tensor([tokens])
            off += torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="sum") / targets
    tensors = {}
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            continue
        gradient = parameter.grad.double().flatten()
        indices = sorted({0, int(gradient.abs().argmax()), gradient.numel() - 1})
        tensors[our_name(name)] = [rounded(gradient.norm(), 6), {str(i): rounded(gradient[i], 6) for i in indices}]
    files = sorted(peft.get_peft_model_state_dict(model, save_embedding_layers=False))
    return {"made_with": f"peft {peft.__version__}, transformers {transformers.__version__}", "config": config,
            "adapter": adapter, "tokens": TOKENS, "loss": rounded(loss), "loss_without": rounded(off),
            "tensors": tensors, "names": f"{fill_rule.fnv1a(' '.join(files)):08x}"}


for key, (config, adapter) in MODELS.items():
    with open(f"tests/models/fixtures/peft_{key}.json", "w") as file:
        text = json.dumps(fixture(config, adapter))
        file.write(text.replace("], ", "],\n ").replace("}, \"", "},\n\"") + "\n")
        print(key, len(text))
