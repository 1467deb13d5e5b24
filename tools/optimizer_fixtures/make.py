"""Writes tests/optim/fixtures/NAME.json for the optimizers, each by its reference package.

Run from the repository's root: python tools/optimizer_fixtures/make.py [NAME...]. Needs torch, transformers and, without
their dependencies (pip install --no-deps), lion-pytorch, adam-mini, bitsandbytes, galore-torch, apollo-torch and badam.
"""
import importlib.metadata
import math
import sys

import torch

import problem


def version(*packages):
    return ", ".join(f"{p} {importlib.metadata.version(p).split('+')[0]}" for p in packages)


def sgd():
    cases = {}
    for case, options in {"plain": {}, "momentum": dict(momentum=0.9, dampening=0.1),
                          "nesterov": dict(momentum=0.9, nesterov=True)}.items():
        p = problem.make_parameters()
        problem.run(p, [torch.optim.SGD(problem.groups(p), lr=1, **options)])
        cases[case] = problem.values(p)
    problem.write("sgd", version("torch"), cases)


def lion():
    from lion_pytorch import Lion
    p = problem.make_parameters()
    problem.run(p, [Lion(problem.groups(p), lr=1, betas=(0.9, 0.99))])
    problem.write("lion", version("lion-pytorch"), {"lion": problem.values(p)})


def adafactor():
    from transformers.optimization import Adafactor
    fixed = dict(lr=1, scale_parameter=False, relative_step=False)
    cases = {}
    for case, options in {"fixed": fixed, "momentum": dict(fixed, beta1=0.9),
                          "scaled": dict(fixed, scale_parameter=True, clip_threshold=0.5),
                          "relative": dict(lr=None, scale_parameter=True, relative_step=True),
                          "warmup": dict(lr=None, scale_parameter=False, relative_step=True, warmup_init=True)}.items():
        p = problem.make_parameters()
        optimizer = Adafactor(problem.groups(p), **options)
        problem.run(p, [optimizer])
        cases[case] = problem.values(p)
    problem.write("adafactor", version("transformers"), cases)


def adam_mini():
    from adam_mini import Adam_mini
    p = problem.make_parameters()
    optimizer = Adam_mini(list(p.items()), lr=1, betas=(0.9, 0.95), eps=1e-8, weight_decay=problem.DECAY, dim=8, n_heads=2,
                          verbose=False)
    problem.run(p, [optimizer])
    problem.write("adam_mini", version("adam-mini"), {"adam_mini": problem.values(p)})


SHAPES_8BIT = {"model.layers.0.mlp.up_proj.weight": (65, 64), "model.layers.0.mlp.down_proj.weight": (61, 71),
               "model.layers.0.self_attn.q_proj.weight": (8, 8), "model.norm.weight": (8,)}


def run_8bit(name, make, moments):
    """The package's CPU library rounds through a table of equal steps, which misses small values; its CUDA kernel and the
    paper take the nearest value of the map, and so does this."""
    import bitsandbytes.backends.cpu.ops as ops

    def nearest(values, code, absmax, out, blocksize):
        flat = values.flatten()
        blocks = torch.nn.functional.pad(flat, (0, -len(flat) % blocksize)).view(-1, blocksize)
        absmax.copy_(blocks.abs().amax(dim=1))
        scaled = (blocks / absmax[:, None].clamp(min=1e-38)).flatten()[:len(flat)].double()
        out.copy_((scaled[:, None] - code.double()[None, :]).abs().argmin(dim=1).to(torch.uint8).view(out.shape))

    ops._quant_blockwise_fp32_direct = nearest
    p = problem.make_parameters(SHAPES_8BIT)
    optimizer = make(problem.groups(p))
    problem.run(p, [optimizer])
    cases = {"weights": problem.values(p, every=67)}
    state = optimizer.state[p["model.layers.0.mlp.down_proj.weight"]]
    cases["state"] = {f"state{k}": state[f"state{k}"].flatten().tolist()[::67] for k in moments}
    cases["state"].update({f"absmax{k}": [float(f"{x:.7g}") for x in state[f"absmax{k}"].tolist()] for k in moments})
    cases["maps"] = {f"qmap{k}": [float(f"{x:.9g}") for x in state[f"qmap{k}"].tolist()[::5]] for k in moments}
    problem.write(name, version("bitsandbytes") + ", nearest values", cases)


def adamw_8bit():
    import bitsandbytes
    run_8bit("adamw_8bit", lambda groups: bitsandbytes.optim.AdamW8bit(groups, lr=1, betas=(0.9, 0.95), eps=1e-8), (1, 2))


def lion_8bit():
    import bitsandbytes
    run_8bit("lion_8bit", lambda groups: bitsandbytes.optim.Lion8bit(groups, lr=1, betas=(0.9, 0.99)), (1,))


def muon():
    # The iteration in f32: at bf16 the order of additions would decide the second digit.
    import torch.optim._muon as module
    original = torch.Tensor.to
    cases = {}
    for case, scale, nesterov in [("original", "original", True), ("match_rms", "match_rms_adamw", True),
                                  ("spectral", "spectral_unclamped", False)]:
        p = problem.make_parameters()
        rest = [n for n in p if n not in problem.LINEAR]
        optimizers = [torch.optim.Muon(problem.groups(p, problem.LINEAR), lr=1, momentum=0.95, nesterov=nesterov,
                                       adjust_lr_fn=scale),
                      torch.optim.AdamW(problem.groups(p, rest), lr=1, betas=(0.9, 0.95), eps=1e-8)]
        try:
            torch.Tensor.to = lambda self, *a, dtype=None, copy=False, **k: (
                self.clone() if dtype == torch.bfloat16 else original(self, *a, **({"dtype": dtype} if dtype else {}), **k))
            problem.run(p, optimizers)
        finally:
            torch.Tensor.to = original
        cases[case] = problem.values(p)
    problem.write("muon", version("torch") + ", the iteration in f32", cases)


def positive(rows):
    """Of each row the entry of largest magnitude becomes positive: the sign of a singular vector is arbitrary."""
    index = rows.abs().argmax(dim=1, keepdim=True)
    return rows * torch.where(rows.gather(1, index) < 0, -1.0, 1.0)


def galore():
    import galore_torch.galore_projector as projector
    from galore_torch import GaLoreAdamW

    def vectors(self, weights, rank, type):
        u, _, vh = torch.linalg.svd(weights.double(), full_matrices=False)
        return positive(vh[:rank]).float() if type == "right" else positive(u[:, :rank].T).T.float()

    projector.GaLoreProjector.get_orthogonal_matrix = vectors
    cases = {}
    for case, side in [("standard", "std"), ("reverse", "reverse_std"), ("left", "left"), ("right", "right")]:
        p = problem.make_parameters()
        rest = [n for n in p if n not in problem.LINEAR]
        low = problem.groups(p, problem.LINEAR, rank=3, update_proj_gap=4, scale=0.25, proj_type=side)
        problem.run(p, [GaLoreAdamW(low, lr=1, betas=(0.9, 0.95), eps=1e-8, no_deprecation_warning=True),
                        torch.optim.AdamW(problem.groups(p, rest), lr=1, betas=(0.9, 0.95), eps=1e-8)])
        cases[case] = problem.values({n: p[n] for n in problem.LINEAR})
    problem.write("galore", version("galore-torch"), cases)


def apollo():
    """The random projection is replaced by one both sides can make: fill_rule's values over sqrt(rank)."""
    import apollo_torch.apollo as module
    import fill_rule
    names = {}

    class Projector:
        def __init__(self, rank, update_proj_gap, scale, proj_type, seed):
            self.rank, self.gap, self.name = rank, update_proj_gap, names[seed]

        def project(self, grad, step):
            right = grad.shape[0] >= grad.shape[1]
            side = grad.shape[1] if right else grad.shape[0]
            rank = min(self.rank, *grad.shape)
            values = fill_rule.uniform(f"{self.name}/projector{step // self.gap}", rank * side)
            p = (torch.tensor(values) / math.sqrt(rank)).float().reshape(rank, side)
            return grad @ p.T if right else p @ grad

    module.GradientProjector = Projector
    cases = {}
    for case, options, front, limit in [
            ("channel", dict(rank=3, scale=4, scale_type="channel"), False, True),
            ("front", dict(rank=3, scale=4, scale_type="channel"), True, True),
            ("mini", dict(rank=1, scale=128, scale_type="tensor"), False, True),
            ("unlimited", dict(rank=2, scale=1, scale_type="channel"), False, False)]:
        p = problem.make_parameters()
        names.clear()
        names.update({i + 1: n for i, n in enumerate(problem.LINEAR)})  # all decay: one group, in this order
        low = problem.groups(p, problem.LINEAR, proj="random", update_proj_gap=4, proj_type="std", **options)
        problem.run(p, [module.AdamW(low, lr=1, betas=(0.9, 0.95), eps=1e-6, scale_front=front, disable_nl=not limit)])
        cases[case] = problem.values({n: p[n] for n in problem.LINEAR})
    problem.write("apollo", version("apollo-torch"), cases)


def badam():
    """Two blocks, from the last to the first, three steps each."""
    from badam import BlockOptimizer
    p = problem.make_parameters()
    base = torch.optim.AdamW(list(p.values()), lr=1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    optimizer = BlockOptimizer(base, list(p.items()), switch_block_every=3, switch_mode="descending", verbose=0)
    optimizer.global_step = -1  # the package's first block is a step short
    problem.run(p, [optimizer])
    problem.write("badam", version("badam"), {"descending": problem.values(p)})


def main():
    makers = dict(badam=badam, sgd=sgd, lion=lion, adafactor=adafactor, adam_mini=adam_mini, adamw_8bit=adamw_8bit, lion_8bit=lion_8bit, muon=muon, galore=galore,
                  apollo=apollo)
    for name in sys.argv[1:] or makers:
        makers[name]()


main()
