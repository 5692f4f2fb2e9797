"""A random program: leaves, statements, roots, recipe. It prints itself as a .ft file and computes itself in PyTorch."""
import copy
import json
import math
import zlib

import numpy
import torch

from float8_product import CURRENT, FIRST
import further_operations  # noqa: F401  which are OPERATIONS, too
import more_operations  # noqa: F401
import wider_operations  # noqa: F401
from operations import OPERATIONS, literal

PRODUCTS8 = ("Linear", "SwiGLU", "matmul", "matmul_transposed", "apply")

INTEGERS = ("i32", "i64", "u8")


class Leaf:
    """kind: input, param, state; hidden: a layer declares it. scale: values lie in -scale … scale; of integers, below it.
    grid: not 0: values are whole numbers up to this, one of which is reached, times a power of two that is at most scale / 8.
    twin: the second half of the samples is the first again ("same"), 1 less it ("rest"), or all are a half ("half")."""

    def __init__(self, kind, name, dtype, shape, scale=1.0, hidden=False, init="normal(0.5)", positive=False, twin=None, grid=0):
        self.kind, self.name, self.dtype, self.shape = kind, name, dtype, list(shape)
        self.scale, self.hidden, self.init, self.positive, self.twin = scale, hidden, init, positive, twin
        self.grid = grid

    def values(self, seed, rows=None):
        """A function of seed and name. Floats are multiples of 2^-20, so that f32 holds them; rows: another batch."""
        random = numpy.random.RandomState((zlib.crc32(self.name.encode()) + 977 * seed) % 2**32)
        shape = self.shape if rows is None or self.kind != "input" else [rows, *self.shape[1:]]
        if self.twin:
            first = Leaf(self.kind, self.name, self.dtype, [shape[0] // 2, *shape[1:]], self.scale, positive=self.positive, grid=self.grid).values(seed)
            first = first * 0 + 0.5 if self.twin == "half" else first
            first = first.reshape(-1, self.shape[0] // 2, *shape[1:])  # batch by batch
            return torch.cat([first, 1 - first if self.twin == "rest" else first], 1).reshape(shape)
        if self.dtype == "bool":
            return torch.from_numpy(random.randint(0, 2, shape).astype(bool))
        if self.dtype in INTEGERS:
            return torch.as_tensor(random.randint(0, max(int(self.scale), 1), shape))
        if self.grid:
            whole = random.randint(-self.grid, self.grid + 1, shape).astype("f8")
            sample = math.prod(self.shape[self.kind == "input" :])  # in the first one: a larger batch begins with a smaller one
            whole.reshape(-1)[zlib.crc32(self.name.encode()) % sample] = self.grid
            return torch.as_tensor(whole * 2.0 ** math.floor(math.log2(self.scale / max(self.grid, 4))), dtype=torch.float64)
        x = random.uniform(0.25 if self.positive else -1, 1, shape) * self.scale
        return torch.as_tensor(numpy.round(x * 2**20) / 2**20, dtype=torch.float64)


class Statement:
    def __init__(self, name, op, args, attrs):
        self.name, self.op, self.args, self.attrs = name, op, list(args), dict(attrs)


class Program:
    def __init__(self, seed, batch):
        self.seed, self.batch = seed, batch
        self.leaves, self.statements = [], []
        self.updates = {}  # state -> name of a value
        self.loss = []  # names of scalars, which are added
        self.metrics, self.outputs, self.regions = [], [], []
        self.settings = {}
        self.on_ranks = False  # compiled for several, which share a batch
        self.on_stages = False  # … or have a part of the layers each
        self.samplewise = False  # the loss is a mean over samples, and the shapes follow the batch

    def copy(self):
        return copy.deepcopy(self)

    @property
    def parts(self):
        """The parts that a step takes its batch in."""
        return self.settings.get("accumulate", 1)

    def leaf(self, name):
        return next((leaf for leaf in self.leaves if leaf.name == name), None)

    def scales(self, statement):
        """Of a product of 8-bit floats (float8_product.py); None: it is none."""
        whole, own = self.settings.get("precision", "f32"), statement.attrs.get("precision")
        if statement.op not in PRODUCTS8 or not (own or whole).startswith("fp8"):
            return None
        return FIRST if "delayed" in whole else CURRENT

    @property
    def has_float8(self):
        return any(self.scales(s) for s in self.statements)

    @property
    def exact(self):
        """Does PyTorch compute the same?"""
        return all(OPERATIONS[s.op].exact for s in self.statements) and not {"sharpness", "prune"} & self.settings.keys()

    # ── as text ──
    def text(self, data=""):
        lines = [f"// seed {self.seed}", *sorted({d for s in self.statements if (d := OPERATIONS[s.op].definition)})]
        dims = lambda shape: ", ".join(map(str, shape))
        inputs = ", ".join(f"{i.name}: {i.dtype}[{dims(['B', *i.shape[1:]])}]" for i in self.leaves if i.kind == "input")
        lines.append(f"model Random({inputs}) {{")
        for leaf in self.leaves:
            if not leaf.hidden and leaf.kind == "param":
                lines.append(f"  param {leaf.name}: [{dims(leaf.shape)}] = {leaf.init}")
            elif not leaf.hidden and leaf.kind == "state":
                lines.append(f"  state {leaf.name}: {leaf.dtype}[{dims(leaf.shape)}]")
        starts, ends = {first for first, _ in self.regions}, {last for _, last in self.regions}
        for i, s in enumerate(self.statements):
            if i in starts:
                lines.append(f"  repeat r{i} in 0..1 {{")
            lines.append("  " * (1 + any(a <= i <= b for a, b in self.regions)) + f"{s.name} = {OPERATIONS[s.op].text(s.args, s.attrs)}")
            if i in ends:
                lines.append("  }")
        for state, value in self.updates.items():
            lines.append(f"  update {state} = {value}")
        lines.append(f"  loss = {' + '.join(self.loss)}")
        for i, name in enumerate(self.metrics):
            lines.append(f"  metric m{i} = {name}")
        for name in self.outputs:
            lines.append(f"  output {name}")
        lines.append("}")
        if data:
            lines.append(data)
        lines.append("train {\n  model = Random; batch = %d" % self.batch)
        lines += [f"  {key} = {value}" for key, value in self.settings.items()]
        zero = self.seed // 5 % 4  # of what each rank has its own part
        shares = f"data = 2; zero = {zero}" if zero else "data = any"
        ranks = [f"distributed {{ {shares}; bucket = 0.0005; sync_batch_norm = true }}"] if self.on_ranks else []
        ranks += ["distributed { pipeline = 2 }"] if self.on_stages else []
        return "\n".join(lines + ["}", *ranks]) + "\n"

    def names_used(self):
        return {n for s in self.statements for n in s.args} | set(self.loss + self.metrics + self.outputs) | set(self.updates.values())

    # ── in PyTorch ──
    def leaf_values(self, rows=None):
        return {leaf.name: leaf.values(self.seed, rows) for leaf in self.leaves}

    def evaluate(self, values, training=True, watch=None):
        """The value of every name; of a state of a layer, what a training step leaves. watch(statement, arguments, value) is called for each statement."""
        known, rounds = dict(values), not training or "quantize" not in self.settings  # in the first step
        for s in self.statements:
            args = [known[n] for n in s.args]
            attrs = dict(s.attrs, training=training, scales=self.scales(s), rounds=rounds)
            value = OPERATIONS[s.op].meaning(args, attrs)
            if watch:
                watch(s, args, value)
            known[s.name] = value
            if training and OPERATIONS[s.op].states:
                known.update((s.args[i], new.detach()) for i, new in OPERATIONS[s.op].states(args, attrs).items())
        return known

    def gradients(self, rows=None, values=None, training=True, exact=None):
        """(value of the loss, gradients of the params by name, all values). exact.see: is shown all of them (float8_product.Exact)."""
        values = dict(values or self.leaf_values(rows))
        params = [leaf.name for leaf in self.leaves if leaf.kind == "param"]
        for name in params:
            values[name] = values[name].clone().requires_grad_()
        known = self.evaluate(values, training, exact and exact.see)
        loss = sum(known[n] for n in self.loss)
        found = torch.autograd.grad(loss, [values[n] for n in params], allow_unused=True) if loss.requires_grad else [None] * len(params)
        return loss.item(), {n: torch.zeros_like(values[n]) if g is None else g for n, g in zip(params, found)}, known

    def write_values(self, path):
        """What the driver reads: a line for each leaf: its name and its elements, those of an input part by part."""
        with open(path, "w") as file:
            for name, value in self.leaf_values(self.batch * self.parts).items():
                numbers = " ".join(repr(v) if isinstance(v, float) else str(int(v)) for v in value.reshape(-1).tolist())
                file.write(f"{name} {value.numel()} {numbers}\n")
