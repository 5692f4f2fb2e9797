"""Products of 8-bit floats in PyTorch, as docs/language.md (Precision) says of fp8: operands are scaled and rounded to e4m3, the result's gradient to
e5m2. The rounding is that of test/num/float8.py. What is rounded to bf16 around them is not emulated: see Exact."""
import math
import os
import re
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "num"))
from float8 import FORMATS, nearest

LEAST = 2.0**-100
CONTRACTIONS = ("Linear", "SwiGLU", "apply", "matmul", "matmul_transposed", "Conv2d", "conv2d", "attention")
WITHIN = ("SwiGLU", "attention")  # they round values that are no statement's
DOUBTS = []  # roundings near a tie
CURRENT, FIRST = "current", "first"  # scales: of the tensor itself; of delayed scaling's first step, 1


def largest(x):
    return x.detach().abs().max().item() if x.numel() else 0.0


def scaled(x, name, scales):
    """x rounded as it is scaled, and the scale."""
    most = x.abs().max().clamp(min=LEAST) if x.numel() else torch.ones((), dtype=x.dtype)
    scale = FORMATS[name][2] / most if scales == CURRENT else torch.ones((), dtype=x.dtype)
    rounded = nearest(name, (x * scale).numpy())
    is_exact = math.log2(scale) % 1 == 0 and bool((x.to(torch.float32).to(x.dtype) == x).all())
    if not is_exact and any((nearest(name, (x * scale * (1 + e)).numpy()) != rounded).any() for e in (1e-9, -1e-9)):
        DOUBTS.append(name)
    return torch.from_numpy(rounded), scale


def summed_to(x, shape):
    """The gradient of what was broadcast."""
    while x.dim() > len(shape):
        x = x.sum(dim=0)
    for i, n in enumerate(shape):
        x = x.sum(dim=i, keepdim=True) if n == 1 else x
    return x


LARGEST = []  # of the operands and of the result's gradient of each product that was computed


class Product8(torch.autograd.Function):
    """x @ y"""

    @staticmethod
    def forward(context, x, y, scales):
        (a, of_a), (b, of_b) = (scaled(t.detach(), "e4m3", scales) for t in (x, y))
        context.scales, context.rounded = scales, (a, of_a, b, of_b)
        context.largest = [largest(x), largest(y), 0.0]
        LARGEST.append(context.largest)
        return a @ b / (of_a * of_b)

    @staticmethod
    def backward(context, gradient):
        a, of_a, b, of_b = context.rounded
        context.largest[2] = largest(gradient)
        dy, of_dy = scaled(gradient.contiguous(), "e5m2", context.scales)
        dx = summed_to(dy @ b.transpose(-1, -2) / (of_dy * of_b), a.shape)
        return dx, summed_to(a.transpose(-1, -2) @ dy / (of_dy * of_a), b.shape), None


def product8(x, y, scales):
    if not scales:
        return x @ y
    if y.dim() == 1:  # a vector is a matrix of one column, or of one row
        return product8(x, y.unsqueeze(-1), scales).squeeze(-1)
    if x.dim() == 1:
        return product8(x.unsqueeze(0), y, scales).squeeze(-2)
    return Product8.apply(x, y, scales)


def holds(x):
    """Does bf16 hold all of it?"""
    return bool((x.to(torch.bfloat16).to(x.dtype) == x).all())


class Exact:
    """Whether a program's values are what they are wherever it is rounded to bf16: bf16 holds what products read and make, and the gradients of
    what they read, so that it does not matter which of these are rounded; and no rounding to 8 bits has a tie near by that is none."""

    def __init__(self, program):
        self.is_exact, self.read = all(s.op not in WITHIN for s in program.statements), set()
        for s in reversed(program.statements):
            if s.name in self.read or s.op in CONTRACTIONS:
                self.read.update(s.args)
        self.read -= {leaf.name for leaf in program.leaves}
        self.scales = program.scales
        DOUBTS.clear()
        LARGEST.clear()

    def see(self, statement, args, value):
        if not value.is_floating_point():
            return
        if statement.name in self.read or statement.op in CONTRACTIONS:
            self.is_exact &= holds(value.detach())
        reads_gradient = statement.op in CONTRACTIONS and not self.scales(statement)  # as an operand of bf16
        if (statement.name in self.read or reads_gradient) and value.requires_grad:
            value.register_hook(self.see_gradient)

    def see_gradient(self, gradient):
        self.is_exact &= holds(gradient.detach())

    @property
    def judges(self):
        return self.is_exact and not DOUBTS


ENDS = torch.tensor([448.0, 448.0, 57344.0], dtype=torch.float64)


def wrong_states(program, found, judged):
    """Delayed scaling's scales and history behind each step, as docs/language.md says what they are: None, or what is wrong. judged: the largest numbers of the
    first step, or of its operands alone, where it is known."""
    setting = re.search(r"history=(\d+), margin=(\d+)", program.settings["precision"])
    rows = {(kind.split(".")[1], name): value for (kind, name), value in found.items() if kind.startswith("state.")}
    if not setting or not rows:
        return None
    steps, margin = map(int, setting.groups())
    scale, history = torch.ones_like(rows["0", "@float8.scale"].reshape(-1, 3)), None
    for step in range(3):
        now, next_scale = rows[str(step), "@float8.history"].reshape(steps, -1, 3), rows[str(step), "@float8.scale"].reshape(-1, 3)
        before = torch.zeros_like(now) if history is None else history
        if not torch.equal(now[:-1], before[1:]):
            return f"the history behind step {step} does not go on"
        most = now.amax(0)
        want = torch.where((most > 0) & most.isfinite(), (ENDS / most / 2**margin).clamp(max=torch.finfo(torch.float32).max), scale)
        if (next_scale - want).abs().max() > 1e-6 * want.abs().max() or ((next_scale - want).abs() > 1e-6 * want).any():
            return f"the scales behind step {step} are {next_scale.tolist()} and not {want.tolist()}"
        history, scale = now, next_scale
        if step == 0 and judged is not None and not are_rows_of(now[-1].tolist(), judged):
            return f"the largest numbers of the first step are {now[-1].tolist()} and not {judged}"
    return None


def of_first_step(program, exact, largest):
    """What is largest of each product's tensors: `largest`, or of the operands in all parts of a batch. None: it is not known."""
    if "freeze" in program.settings or (program.parts > 1 and program.updates):
        return None
    rows = of_parts(program, exact) if program.parts > 1 else largest
    return rows if exact.judges else None


def of_parts(program, exact):
    rows, values = [], program.leaf_values(program.batch * program.parts)
    for part in range(program.parts):
        LARGEST.clear()
        first = part * program.batch
        some = {leaf.name: values[leaf.name][first : first + program.batch] for leaf in program.leaves if leaf.kind == "input"}
        program.evaluate(dict(values, **some), watch=exact.see)
        rows.append([row[:2] for row in LARGEST])
    return torch.tensor(rows, dtype=torch.float64).amax(0).tolist() if LARGEST else []


def are_rows_of(have, want):
    """In any order; of a product that nothing needs, ft has none."""
    rest = [tuple(f"{x:.7g}" for x in row) for row in want]
    for row in have:
        words = tuple(f"{x:.7g}" for x in row[: len(want[0]) if want else 3])
        if words in rest:
            rest.remove(words)
        elif any(row):
            return False
    return len(have) == len(want)
