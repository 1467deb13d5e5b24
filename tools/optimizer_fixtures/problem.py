"""The problem that every optimizer's fixture solves: ten steps on seven small parameters of a one-and-a-half-layer model.

tests/optim/reference_test.h makes the same values. Gradients do not depend on the weights; the rate rises from a tenth.
"""
import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "model_fixtures"))
import fill_rule

SHAPES = {
    "model.embed_tokens.weight": (7, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.v_proj.weight": (4, 8),
    "model.layers.0.self_attn.v_proj.bias": (4,),
    "model.layers.0.mlp.down_proj.weight": (8, 12),
    "model.layers.1.mlp.up_proj.weight": (12, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (7, 8),
}
LR, STEPS, DECAY = 0.01, 10, 0.1
LINEAR = [name for name in SHAPES if "_proj.weight" in name]


def decays(name):
    return "norm" not in name and "bias" not in name


def make_parameters(shapes=None):
    return {name: torch.nn.Parameter(torch.tensor(fill_rule.uniform(name, torch.Size(shape).numel())).float().reshape(shape))
            for name, shape in (shapes or SHAPES).items()}


def groups(parameters, names=None, **more):
    """Two parameter groups, with and without decay."""
    names = names if names is not None else list(parameters)
    return [dict(params=[parameters[n] for n in names if decays(n) == flag], weight_decay=DECAY if flag else 0.0, **more)
            for flag in (True, False) if any(decays(n) == flag for n in names)]


def run(parameters, optimizers, after=None):
    for step in range(STEPS):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = LR * (step + 1) / STEPS
        for name, parameter in parameters.items():
            values = fill_rule.uniform(f"{name}/{step}", parameter.numel())
            parameter.grad = torch.tensor(values).float().reshape(parameter.shape)
        for optimizer in optimizers:
            optimizer.step()
        if after:
            after(step)


def values(parameters, every=3):
    """Every third value: enough to tell, small to keep."""
    return {name: [float(f"{x:.7g}") for x in p.detach().flatten().tolist()[::every]] for name, p in parameters.items()}


def write(name, made_with, cases):
    with open(f"tests/optim/fixtures/{name}.json", "w") as file:
        file.write(json.dumps({"made_with": made_with, **cases}, indent=None, separators=(",", ":")).replace("],", "],\n") + "\n")
