"""Writes tests/models/fixtures/gradients_*.json: logits, loss and gradients of tiny models by transformers.

Run from the repository's root in a virtual environment with tools/requirements.txt. Weights follow fill_rule.py; the
tokens are two packed samples, computed here as two sequences whose losses are summed and divided by all targets. A
tensor's gradient is given by its norm and by a few elements at flat indices of the stored tensor; logits are those of
each sample's last position. Models that differ in their rotary positions alone list the tensors nearest to these.
"""
import json

import torch
import transformers

import fill_rule

TOKENS = [[3, 17, 5, 60, 2, 9, 44, 31, 8], [22, 13, 50, 7, 7, 19, 41]]
TINY = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 10000.0}
FACTORS = {"short_factor": [1.1, 1.2, 1.5, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0]}
THETA = {"rope_theta": 10000.0}
MODELS = {
    "llama": {"model_type": "llama", **TINY},
    "llama_biased": {"model_type": "llama", **TINY, "rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True,
                     "tie_word_embeddings": True},
    "gpt2": {"model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
             "bos_token_id": 1, "eos_token_id": 2},
    # One sample is longer than 8 tokens, the other is not.
    "llama_dynamic": {"model_type": "llama", **TINY, "max_position_embeddings": 8,
                      "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, **THETA}},
    "llama_longrope": {"model_type": "llama", **TINY, "rope_parameters": {
        "rope_type": "longrope", "original_max_position_embeddings": 8, **FACTORS, **THETA}},
    "llama_yarn": {"model_type": "llama", **TINY, "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
        "mscale_all_dim": 0.5, "truncate": False, **THETA}},
    "mistral": {"model_type": "mistral", **TINY, "sliding_window": 3},
    "qwen2": {"model_type": "qwen2", **TINY, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 3,
              "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **TINY, "head_dim": 16, "attention_bias": True},
    "smollm3": {"model_type": "smollm3", **TINY, "no_rope_layer_interval": 2, "use_sliding_window": True,
                "sliding_window": 3},
    "gemma3_text": {"model_type": "gemma3_text", **TINY, "head_dim": 16, "query_pre_attn_scalar": 20,
                    "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"],
                    "rope_parameters": {
                        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
}
ROTARY_ONLY = {"llama_dynamic", "llama_longrope", "llama_yarn"}


def rounded(value, digits=8):
    return float(f"{value:.{digits}g}")


def fixture(key, config):
    settings = json.loads(json.dumps(config))  # transformers changes what it is given
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(settings.pop("model_type"), **settings), attn_implementation="eager")
    model.float().eval()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(fill_rule.weights(name, tuple(parameter.shape))))
    targets = sum(len(tokens) - 1 for tokens in TOKENS)
    loss, last = 0, []
    for tokens in TOKENS:
        ids = torch.tensor([tokens])
        all_logits = model(ids).logits[0]
        last.append([rounded(x) for x in all_logits[-1, :8]])
        logits = all_logits[:-1]
        loss = loss + torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum") / targets
    loss.backward()
    tensors = {}
    for name, parameter in parameters.items():
        if key in ROTARY_ONLY and "q_proj" not in name and "k_proj" not in name:
            continue
        gradient = parameter.grad.double().flatten()
        indices = sorted({0, gradient.numel() // 3, int(gradient.abs().argmax()), gradient.numel() - 1})
        tensors[name] = [rounded(gradient.norm()), {str(i): rounded(gradient[i]) for i in indices}]
    return {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
            "config": config, "tokens": TOKENS, "loss": rounded(loss), "logits": last,
            "tensors": tensors}


for key, config in MODELS.items():
    with open(f"tests/models/fixtures/gradients_{key}.json", "w") as file:
        text = json.dumps(fixture(key, config), indent=None if key == "gemma3_text" else 1)
        file.write(text + "\n")
        print(key, len(text))
