"""The tools on random programs: ftc and ftrun, data files, parts of a batch, evaluation of a set that is no multiple of the
batch. PyTorch in float64 says what the whole set gives, in one batch: the loss and the metrics are means over samples,
or functions of such means.

    endtoend.py [--programs N] [--seed S] [--one SEED] [--functions]      last line: N passed, N failed"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import numpy
import torch

import support
from disguise import samples_axis
from generate import generate
from operations import OPERATIONS
from program import Statement

RATE = 0.5  # of sgd: what the weights lose is the gradient times this


def plan(seed, functions=False):
    """functions: also of metrics that are functions of a mean. (program, samples of an update, samples of the evaluation, devices); None: nothing to learn from this seed."""
    r = random.Random(seed * 13 + 7)
    p = generate(seed, samplewise=True)
    if not p.exact or p.updates or any(leaf.kind == "state" for leaf in p.leaves):
        return None
    parts = r.choice([1, 2, 2, 3])
    if any(s.op == "BatchNorm" for s in p.statements) or samples_axis(p) is None:
        return None
    p.settings = {"optimizer": f"sgd(lr={RATE})", "precision": "f32", "accumulate": parts}
    p.regions = []
    p.metrics = [p.loss[0]]
    for i, op in enumerate(r.sample(["exp", "square", "abs", "softplus", "sin"], 2 if functions else 0)):
        p.statements.append(Statement(f"n{i}", op, [p.loss[0]], {}))
        p.metrics.append(f"n{i}")
    rest = r.randint(1, p.batch)
    return p, p.batch * parts, p.batch * r.choice([1, 2]) + (rest if rest < p.batch else 0)


def numpy_of(value):
    return value.detach().numpy().astype({torch.float64: "<f4", torch.int64: "<i4", torch.bool: "u1"}[value.dtype])


def write_inputs(p, folder, prefix, rows):
    values = p.leaf_values(rows)
    for leaf in p.leaves:
        if leaf.kind == "input":
            numpy.save(os.path.join(folder, f"{prefix}-{leaf.name}.npy"), numpy_of(values[leaf.name]) if leaf.dtype not in ("i64", "u8") else
                       values[leaf.name].numpy().astype({"i64": "<i8", "u8": "u1"}[leaf.dtype]))
    return values


def close(have, want, wiggle):
    have, want = (torch.as_tensor(x, dtype=torch.float64).reshape(-1) for x in (have, want))
    return have.shape == want.shape and bool(((have - want).abs() <= wiggle).all())


def moved(p, rows, times=6):
    """How far f32 may move loss, metrics and gradients: the leaves are moved by a place of f32, a few times."""
    plain = p.gradients(rows)
    most = {}
    for turn in range(times):
        generator = torch.Generator().manual_seed(turn)
        values = {n: v * (1 + 2**-22 * (2 * torch.rand(v.shape, generator=generator, dtype=torch.float64) - 1)) if v.is_floating_point() else v
                  for n, v in p.leaf_values(rows).items()}
        loss, gradients, known = p.gradients(rows, values)
        pairs = [("loss", loss, plain[0]), *((n, gradients[n], plain[1][n]) for n in gradients), *((m, known[m], plain[2][m]) for m in p.metrics)]
        for name, a, b in pairs:
            a, b = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (a, b))
            most[name] = max(most.get(name, 0), (a - b).abs().max().item() * 16 + 2e-6 * b.abs().max().item() + 1e-9)
    return plain, most


def compare(p, folder, trained, evaluated):
    """None, or what is wrong."""
    if not os.path.exists(os.path.join(folder, "w.safetensors")):
        return "no weights were saved"
    lines = support.read_jsonl(os.path.join(folder, "log.jsonl"))
    (loss, gradients, known), wiggle = moved(p, trained)
    step = next(line for line in lines if line["step"] == 1 and not line.get("eval"))
    for i, name in enumerate(["loss", *p.metrics]):
        want = loss if name == "loss" else known[name].item()
        have = step["loss" if name == "loss" else f"m{i - 1}"]
        if i < 2 and not close(have, want, wiggle[name]):  # a metric that is no mean is averaged over the parts
            return f"training of {trained} samples: {'loss' if i == 0 else 'metric m%d' % (i - 1)} is {have}, PyTorch says {want}"
    weights, before = support.read_safetensors(os.path.join(folder, "w.safetensors")), p.leaf_values()
    for name, gradient in gradients.items():
        have = (before[name] - torch.as_tensor(weights[name], dtype=torch.float64)) / RATE
        if not close(have, gradient, wiggle[name] + 1e-7 / RATE):
            return f"the gradient of '{name}' is {have.reshape(-1)[:4].tolist()}, PyTorch says {gradient.reshape(-1)[:4].tolist()}"
    done = json.loads(open(os.path.join(folder, "eval.json")).read())
    loss, _, known = p.gradients(evaluated, training=False)
    (_, _, _), wiggle = moved(p, evaluated)
    for i, name in enumerate(["loss", *p.metrics]):
        want = loss if name == "loss" else known[name].item()
        have = done.get("loss" if name == "loss" else f"m{i - 1}")
        if have is None or not close(have, want, wiggle[name]):
            return f"evaluation of {evaluated} samples at batch {p.batch}: {'loss' if i == 0 else 'metric m%d' % (i - 1)} is {have}, PyTorch says {want}"
    return None


def write_model(p, folder):
    inputs = [leaf for leaf in p.leaves if leaf.kind == "input"]
    files = lambda prefix: ", ".join(f'"{prefix}-{leaf.name}.npy"' for leaf in inputs)
    data = f"data Samples {{ train = npy({files('train')}); valid = npy({files('valid')}); shuffle = false }}"
    with open(os.path.join(folder, "model.ft"), "w") as file:
        file.write(p.text(data).replace("batch =", "data = Samples; batch ="))


def check(p, trained, evaluated, folder):
    """(verdict, text): ok, refused, fail."""
    write_model(p, folder)
    write_inputs(p, folder, "train", trained)
    write_inputs(p, folder, "valid", evaluated)
    params = {leaf.name: numpy_of(leaf.values(p.seed)) for leaf in p.leaves if leaf.kind == "param"}
    support.write_safetensors(os.path.join(folder, "init.safetensors"), params)
    done = support.run("ftc", "model.ft", "-o", "model.so", check=False, cwd=folder)
    if done.returncode:
        return ("refused" if done.returncode == 1 else "fail"), done.stderr.strip()
    done = support.run("ftrun", "model.so", "--init", "init.safetensors", "--steps", 1, "--save", "w.safetensors", "--log-jsonl", "log.jsonl",
                       "--set", "train.log.every=1", "--set", "train.eval.every=0", check=False, cwd=folder)
    if done.returncode:
        return "fail", f"ftrun ends with {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
    done = support.run("ftrun", "eval", "model.so", "--weights", "init.safetensors", "--log-jsonl", "eval.jsonl", check=False, cwd=folder)
    if done.returncode:
        return "fail", f"ftrun eval ends with {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
    path = os.path.join(folder, "eval.jsonl")
    last = support.read_jsonl(path)[-1]
    with open(os.path.join(folder, "eval.json"), "w") as file:
        json.dump(last, file)
    wrong = compare(p, folder, trained, evaluated)
    return ("fail", wrong) if wrong else ("ok", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int)
    parser.add_argument("--functions", action="store_true", help="also metrics that are functions of a mean over the samples")
    o = parser.parse_args()
    torch.set_num_threads(1)
    verdicts, failures, seed = {}, [], o.seed if o.one is None else o.one
    while sum(verdicts.values()) < (o.programs if o.one is None else 1):
        made = plan(seed, o.functions)
        seed += 1
        if not made:
            if o.one is not None:
                return print("nothing to learn from this seed")
            continue
        with tempfile.TemporaryDirectory(prefix="ft-random-") as folder:
            verdict, text = check(*made, folder)
            if o.one is not None:
                print(open(os.path.join(folder, "model.ft")).read(), verdict, text)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        if verdict == "fail":
            failures.append(seed - 1)
            print(f"seed {seed - 1}: {verdict}: {text}", flush=True)
        elif verdict == "refused":
            print(f"seed {seed - 1}: {verdict}: {text.splitlines()[0]}", flush=True)
    print(verdicts)
    print(f"{sum(verdicts.values()) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
