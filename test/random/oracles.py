"""What a program is held against: the interpreter and rounding (random_program.c), and PyTorch in float64."""
import math
import os
import random
import subprocess

import torch

from disguise import disguise
from driver import BUILD

CLOSE = 1e-7  # both compute in double; what is left of it where a norm of nearly equal numbers loses half the digits


def choices():
    """All that --disable takes."""
    text = subprocess.run([os.path.join(BUILD, "bin", "ftc"), "--help"], capture_output=True, text=True, check=True).stdout
    return text[text.index("--disable takes:") :].split()[2:]


HOPPER = ("wgmma", "attention_wgmma", "tma")
GPU = (*HOPPER, "transpose_tiles", "column_sums", "slope_epilogues", "channels", "moments", "masks")
CPU = ("concat_parts", "widen")


def leave_out(r, machine, names):
    """Something that the machine has; fuse more often than the rest."""
    fits = [n for n in names if n not in (GPU if machine == "cpu" else CPU if "sm_90a" in machine else (*CPU, *HOPPER))]
    return "fuse" if r.random() < 0.2 else r.choice(fits)


def forms(seed, gpu, names):
    """How this seed's program is compiled: (machine, what is left out, is it disguised). Always as it is; then, often, with
    something left out or in other words."""
    r = random.Random(seed * 31 + 5)
    machine = r.choice(["gpu", "sm_80", "sm_90a", "sm_90a"]) if gpu else "cpu"
    if machine == "sm_90a" and r.random() < 0.7:
        machine += f":{r.randint(1, 26)}"
    yield machine, None, False
    if r.random() < 0.25:
        yield machine, leave_out(r, machine, names), False
    if r.random() < 0.25:
        yield machine, None, True


def read_dump(path):
    found = {}
    with open(path) as file:
        for line in file:
            kind, name, *numbers = line.split()
            found[kind, name] = torch.tensor([float(n) for n in numbers], dtype=torch.float64)
    return found


def far(have, want):
    """None, or how far apart they are."""
    want = want.detach().to(torch.float64).reshape(-1)
    if have.shape != want.shape:
        return f"{have.numel()} elements instead of {want.numel()}"
    scale = max(want.abs().max().item(), 1e-6) if want.numel() else 1
    error = (have - want).abs().max().item() if want.numel() else 0
    return None if error <= CLOSE * scale else f"off by {error:.3g}, largest {scale:.3g}: {have[:4].tolist()} and not {want[:4].tolist()}"


def against_pytorch(program, dump):
    """The interpreter's first step and evaluation against PyTorch; None, or what differs."""
    if not program.exact or not program.settings["precision"] in ("f32", "tf32"):
        return None
    found = read_dump(dump)
    loss, gradients, known = program.gradients()
    _, _, evaluated = program.gradients(training=False)
    scale = program.settings.get("loss_scale", 1)
    pairs = [("train.loss", "loss", sum(known[n] for n in program.loss)), ("eval.loss", "loss", sum(evaluated[n] for n in program.loss))]
    for graph, values in (("train", known), ("eval", evaluated)):
        pairs += [(f"{graph}.output", n, values[n]) for n in program.outputs]
        pairs += [(f"{graph}.metric", f"m{i}", values[n]) for i, n in enumerate(program.metrics)]
    pairs += [("gradient", name, g * scale) for name, g in gradients.items()]
    for kind, name, want in pairs:
        if (kind, name) not in found:
            continue  # evaluation drops what is for training only
        if not math.isfinite(want.detach().to(torch.float64).sum().item()):
            continue
        wrong = far(found[kind, name], want)
        if wrong:
            return f"{kind} '{name}' of the interpreter is not PyTorch's: {wrong}"
    return None


def check(driver, program, form, pytorch=True):
    """(verdict, text). A disguised program is held against what PyTorch says of the plain one."""
    machine, without, disguised = form
    dump = driver.path("dump") if pytorch and program.exact and without is None else None
    asked = disguise(program, program.seed) if disguised else program
    verdict, text = driver.ask(asked, machine, without, dump)
    if verdict == "ok" and dump:
        wrong = against_pytorch(program, dump)
        if wrong:
            return "fail", wrong
    return verdict, text
