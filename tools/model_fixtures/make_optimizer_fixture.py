"""Writes tests/optim/fixtures/adamw.json: ten steps of torch's AdamW with clipping on a tiny problem.

Run from the repository's root in a virtual environment with tools/requirements.txt. Weights and gradients follow
fill_rule.py: `weight` [3, 5] decays, `bias` [5] does not; the gradient of step s (from 0) is uniform("NAME/s").
"""
import json

import torch

import fill_rule

SHAPES = {"weight": (3, 5), "bias": (5,)}
parameters = {name: torch.nn.Parameter(torch.tensor(fill_rule.uniform(name, torch.Size(shape).numel()),
                                                    dtype=torch.float64).float().reshape(shape))
              for name, shape in SHAPES.items()}
optimizer = torch.optim.AdamW([{"params": [parameters["weight"]], "weight_decay": 0.1},
                               {"params": [parameters["bias"]], "weight_decay": 0.0}], betas=(0.9, 0.95), eps=1e-8)
norms = []
for step in range(10):
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * (step + 1) / 10
    for name, parameter in parameters.items():
        values = fill_rule.uniform(f"{name}/{step}", parameter.numel())
        parameter.grad = torch.tensor(values).float().reshape(parameter.shape)
    norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.5)))
    optimizer.step()
result = {"made_with": f"torch {torch.__version__.split('+')[0]}", "norms": [float(f"{n:.8g}") for n in norms]}
for name, parameter in parameters.items():
    state = optimizer.state[parameter]
    for key, tensor in [("value", parameter.detach()), ("exp_avg", state["exp_avg"]), ("exp_avg_sq", state["exp_avg_sq"])]:
        result[f"{name}.{key}"] = [float(f"{x:.8g}") for x in tensor.flatten().tolist()]
with open("tests/optim/fixtures/adamw.json", "w") as file:
    file.write(json.dumps(result, indent=1) + "\n")
