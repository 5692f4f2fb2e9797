"""Random programs, valid by construction: each statement is computed, in PyTorch, as it is added, and taken back if
its shape, its size or its values will not do (NNSmith, Liu et al. 2023: shapes are solved, values kept from where
functions are undefined). A program is a function of its seed.

What is likely is what compilers get wrong: expensive pointwise work, then a view, then a reduction; several readers;
sizes that are equal by accident; ones; broadcasts of either side; odd axes. `cores`: also what tensor cores take, 16 bits and
rows of 16 bytes, in products and attention."""
import math
import random

import torch

from functions import Functions
from further import Further
from layers import Layers
from moves import Moves
from operations import OPERATIONS
from program import Leaf, Program, Statement
from roots import Roots
from values import CLEAR, MOST_ELEMENTS, MOST_VALUE, Reject, Value
from wider import Wider


class Generator(Moves, Layers, Functions, Further, Wider, Roots):
    most_value = MOST_VALUE

    def __init__(self, seed, samplewise=None, cores=False):
        self.random = random.Random(seed)
        r = self.random
        batch = r.choice([1, 2, 2, 3, 4, 4, 6, 8])
        self.program = Program(seed, batch)
        self.program.samplewise = r.random() < 0.35 if samplewise is None else samplewise
        self.sizes = r.choice([[1, 2, 3, 6], [2, 4, 8], [1, 2, 3, 4, 5], [3, 3, 9], [2, 2, 4, 16], [1, 3, 5, 7], [4, 8, 16, 17], [1, 2, 65], [8, 8, 16], [8, 16, 24]])
        self.values, self.count, self.known = [], 0, {}
        self.cores, self.most = cores, 2 * MOST_ELEMENTS if cores else MOST_ELEMENTS
        has_functions = random.Random(seed * 41 + 3).random() < 0.4  # drawn apart: the other programs are what they were
        self.has_further = bool(self.REST) and random.Random(seed * 43 + 17).random() < 0.4
        self.has_wider = bool(self.EVERYDAY) and random.Random(seed * 53 + 5).random() < 0.4
        self.works = self.WORK + (self.CORES if cores else []) + (self.FUNCTIONS if has_functions else []) + (self.REST if self.has_further else []) + \
            (self.EVERYDAY if self.has_wider else [])
        if cores:
            self.sizes = r.choice([[8, 16], [8, 16, 24], [16, 32], [8, 16, 16, 3], [8, 24, 5], [16, 64], [8, 8, 40]])

    # ── building ──
    def name(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def leaf(self, kind, dtype, shape, batch=None, name=None, **more):
        if math.prod(shape) > self.most:
            raise Reject
        leaf = Leaf(kind, name or self.name({"input": "x", "param": "p", "state": "s"}[kind]), dtype, shape, **more)
        self.program.leaves.append(leaf)
        data = leaf.values(self.program.seed)
        self.known[leaf.name] = data
        value = Value(leaf.name, data, batch)
        if not leaf.hidden:
            self.values.append(value)
        return value

    def add(self, op, args, batch=None, kind="", keep=True, **attrs):
        """A statement, or Reject. batch: the axis of samples of the result."""
        what = OPERATIONS[op]
        tensors = [a.data for a in args]
        with torch.no_grad():
            try:
                data = what.meaning(tensors, dict(attrs, training=True))
            except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
                raise Reject from None
            if batch is not None and data.shape[batch] != self.program.batch:
                raise Reject
            if data.numel() > self.most or data.numel() == 0 or data.dim() > 7:
                raise Reject
            if data.is_floating_point() and not (data.isfinite().all() and 1e-5 < data.abs().max() < self.most_value):
                raise Reject
            if what.kink and not self.is_clear(op, what.kink, tensors, dict(attrs, training=True)):
                raise Reject
        for i, new in what.states(tensors, dict(attrs, training=True)).items() if what.states else ():
            args[i].data = new
        value = Value(self.name("v"), data, batch, kind)
        self.program.statements.append(Statement(value.name, op, [a.name for a in args], attrs))
        if keep:
            self.values.append(value)
        return value

    def is_clear(self, op, kink, tensors, attrs):
        """Far enough from where the function jumps?"""
        return kink(tensors, attrs) >= CLEAR

    # ── choosing ──
    def chance(self, p):
        return self.random.random() < p

    def size(self):
        return self.random.choice(self.sizes)

    def floats(self):
        return [v for v in self.values if v.is_float]

    def pick(self, rank=None):
        """Mostly what was made last, so that work comes in chains; else anything, so that values have several readers."""
        floats = [v for v in self.floats() if rank is None or v.rank == rank]
        if not floats:
            raise Reject
        return floats[-1] if self.chance(0.6) else self.random.choice(floats)

    def shape(self, count=None):
        """Of any rank; of this many elements, where a count is given."""
        if count is None:
            shape = [self.size() for _ in range(self.random.choice([1, 2, 2, 3, 3, 4]))]
            while math.prod(shape) > (1024 if self.cores else 256):
                shape.pop()
            return shape
        rank, shape = self.random.choice([1, 2, 2, 3, 3, 4]), []
        for _ in range(rank - 1):
            divisor = self.random.choice([d for d in range(1, min(count, 40) + 1) if count % d == 0])
            shape.append(divisor)
            count //= divisor
        shape.append(count)
        self.random.shuffle(shape)
        return shape

    def input(self, dtype, shape, **more):
        batch = 0 if self.program.samplewise else None
        return self.leaf("input", dtype, [self.program.batch, *shape], batch, **more)

    def some(self, shape):
        """A fresh float leaf."""
        if self.chance(0.45):
            return self.input("f32", shape[1:] if self.chance(0.5) else shape)
        return self.leaf("param", "f32", shape)

    def same_batch(self, *values):
        """The batch axis of a broadcast of these; Reject if samples would mix."""
        rank = max(v.rank for v in values)
        axes = {v.batch - v.rank for v in values if v.batch is not None}
        if not axes:
            return None
        if len(axes) > 1:
            raise Reject
        axis = axes.pop()
        if self.program.samplewise:
            for v in values:  # what has no samples must not be as long as the batch by accident
                if v.batch is None and v.rank >= -axis and v.shape[axis] != 1:
                    raise Reject
        return rank + axis

    def partner(self, x):
        """Something that broadcasts with x: any value that happens to fit, or a new param with some dimensions of x."""
        if self.chance(0.5):
            fits = []
            for v in self.floats():
                try:
                    shape = torch.broadcast_shapes(v.data.shape, x.data.shape)
                    self.same_batch(x, v)
                    if math.prod(shape) <= self.most:
                        fits.append(v)
                except (RuntimeError, Reject):
                    pass
            if fits:
                return self.random.choice(fits)
        shape = [1 if i == x.batch or self.chance(0.3) else n for i, n in enumerate(x.shape)]
        drop = self.random.randint(0, x.rank) if self.chance(0.5) else 0
        shape = shape[drop:] or [1]
        if self.chance(0.15):  # x is what is broadcast
            shape = [self.size() if n == 1 and i - len(shape) + x.rank != x.batch else n for i, n in enumerate(shape)]
        return self.leaf("param", "f32", shape)

    def binary(self, op, x, y):
        return self.add(op, [x, y], self.same_batch(x, y), "point")

    def tame(self, x, limit=2.0):
        """x, scaled if it is large."""
        most = x.data.abs().max().item()
        return self.add("mul_number", [x], x.batch, "point", value=round(limit / most, 3)) if most > limit else x

    # ── pointwise ──
    def expensive(self):
        r, x = self.random, self.pick()
        unary = lambda op, v=None: self.add(op, [v or x], x.batch, "expensive")
        number = lambda op, v, value: self.add(op, [v], x.batch, "expensive", value=value)
        choice = r.choice(["tanh", "sigmoid", "exp", "erf", "sin", "cos", "gelu", "gelu_tanh", "silu", "softplus", "elu", "expm1",
                           "log", "log1p", "sqrt", "rsqrt", "power", "over", "divide", "tanh", "exp", "sigmoid", "gelu"])
        if choice in ("exp", "expm1"):
            return unary(choice, self.tame(x))
        if choice in ("log", "sqrt", "rsqrt"):
            return unary(choice, number("add_number", unary("square"), r.choice([0.3, 0.5, 1.25])))
        if choice == "log1p":
            return unary(choice, unary("square"))
        if choice == "power":
            return number("power", number("add_number", unary("square"), 0.4), r.choice([0.5, 1.5, -0.5, 3, 2, -1]))
        if choice == "over":
            return number("over_number", number("add_number", unary("square"), 0.75), 1.5)
        if choice == "divide":
            other = self.partner(x)  # of fewer dimensions, perhaps
            y = self.add("add_number", [self.add("sin", [other], other.batch, "expensive")], other.batch, "expensive", value=1.75)
            return self.add("div", [x, y], self.same_batch(x, y), "point")
        return unary(choice)

    def cheap(self):
        r, x = self.random, self.pick()
        choice = r.choice(["relu", "abs", "leaky_relu", "hardtanh", "clamp", "neg", "square", "numbers", "numbers", "from", "round",
                           "stop", "sign", "f64", "bf16", "f16", "dropout", "relu"])
        if choice == "numbers":
            return self.add(r.choice(["add_number", "mul_number", "sub_number", "div_number"]), [x], x.batch, "point",
                            value=r.choice([0.5, 1.5, 2, 0.125, 3, 1, 0.7]))
        if choice == "from":
            return self.add("from_number", [x], x.batch, "point", value=r.choice([1, 0.5, 2]))
        if choice == "clamp":
            return self.add("clamp", [x], x.batch, "point", low=-0.6, high=r.choice([0.4, 0.9]))
        if choice == "round":
            return self.add(r.choice(["floor", "ceil", "round"]), [self.add("mul_number", [x], x.batch, "point", value=3)], x.batch, "point")
        if choice == "stop":
            return self.binary("add", x, self.add("stop_gradient", [x], x.batch, "point"))
        if choice == "f64":
            y = self.add("f64", [x], x.batch, "point", keep=False)
            y = self.add(r.choice(["tanh", "square", "neg", "sin"]), [y], x.batch, "point", keep=False)
            return self.add("f32", [y], x.batch, "point")
        if choice in ("bf16", "f16") and self.chance(0.6):
            raise Reject
        if choice == "dropout":
            return self.add("dropout", [x], x.batch, "point", p=r.choice([0.1, 0.5]))
        return self.add(choice, [x], x.batch, "point")

    def two(self):
        r, x = self.random, self.pick()
        y = self.partner(x)
        if self.chance(0.4):
            x, y = y, x
        choice = r.choice(["add", "sub", "mul", "add", "mul", "mul", "maximum", "minimum", "where", "where_number", "mask", "mse", "l1", "huber",
                           "bce_with_logits"])
        if choice in ("where", "where_number"):
            mask = self.binary(r.choice(["less", "greater", "at_least"]), x, y)
            if choice == "where":
                a, b = self.pick(), x
                if r.random() < 0.5:
                    a, b = b, a
                return self.add("where", [mask, a, b], self.same_batch(mask, a, b), "point")
            return self.add("where_number", [mask, x], self.same_batch(mask, x), "point", value=r.choice([0.0, 0.5, -1.0]))
        if choice == "mask":
            mask = self.add("above", [y], y.batch, "point", value=r.choice([0.1, -0.2, 0.0]))
            if self.chance(0.3):
                mask = self.add("not", [mask], y.batch, "point")
            return self.binary("mul", x, self.add("f32", [mask], y.batch, "point"))
        if choice in ("mse", "l1", "huber", "bce_with_logits") and x.shape != y.shape:
            raise Reject
        return self.binary(choice, x, y)

    # ── reductions and norms ──
    def axes_of(self, x):
        free = x.free()
        if not free:
            raise Reject
        axes = sorted(self.random.sample(free, self.random.choice([1, 1, 1, min(2, len(free)), len(free)])))
        if self.chance(0.3):
            axes = [a - x.rank for a in axes]
        return axes[0] if len(axes) == 1 and self.chance(0.7) else axes

    def without(self, x, axes, keep):
        axes = [a % x.rank for a in (axes if isinstance(axes, list) else [axes])]
        return x.batch if keep or x.batch is None else x.batch - sum(a < x.batch for a in axes)

    def reduce(self, x=None):
        x = x or self.pick()
        axes, keep = self.axes_of(x), self.chance(0.5)
        op = self.random.choice(["sum", "mean", "mean", "max", "max", "min", "prod", "var", "std", "logsumexp", "sum"])
        more = {}
        if op in ("var", "std"):
            more["unbiased"] = self.chance(0.5)
            if math.prod(x.shape[a] for a in (axes if isinstance(axes, list) else [axes])) < 2:
                raise Reject
        return self.add(op, [x], self.without(x, axes, keep), "reduce", axis=axes, keepdims=keep, **more)

    def rows(self, x=None):
        x = x or self.pick()
        op = self.random.choice(["softmax", "softmax", "log_softmax", "layer_norm", "layer_norm", "rms_norm"])
        axes = self.axes_of(x)
        if math.prod(x.shape[a] for a in (axes if isinstance(axes, list) else [axes])) < 2:
            raise Reject
        return self.add(op, [x], x.batch, "reduce", axis=axes)

    def arg(self):
        x = self.pick()
        if not x.free():
            raise Reject
        axis = self.random.choice(x.free())
        return self.add(self.random.choice(["argmax", "argmin"]), [x], self.without(x, axis, False), "reduce", axis=axis)

    # ── integers, states ──
    def lookup(self):
        count = self.size() + 1
        ids = self.input("i32", [self.size()] if self.chance(0.6) else [], scale=count)
        if self.chance(0.4):  # the loader does not know ids that are computed: embed checks them itself
            ids = self.add("turn", [ids], ids.batch, "point", keep=False, by=self.random.randint(1, count), count=count)
        if self.chance(0.3):
            return self.add("one_hot", [ids], ids.batch, "move", n=count)
        d = self.size()
        return self.layer(ids, "Embedding", {"weight": [count, d]}, ids.batch, count=count, dim=d)

    def spread(self):
        """A parameter, the same for each sample."""
        y = self.pick()
        if y.batch is None:
            raise Reject
        row = [self.size() for _ in range(self.random.choice([1, 1, 2]))]
        return self.add("to_samples", [self.leaf("param", "f32", row), y], 0, "move", row=row, samples=y.batch)

    def integer(self):
        """A flag made of integers chooses."""
        ids = self.input(self.random.choice(["i32", "i64", "u8"]), [self.size()], scale=7)
        mask = self.add("above", [ids], ids.batch, "point", keep=False, value=self.random.randint(1, 4))
        x = self.pick()
        return self.add("where_number", [mask, x], self.same_batch(mask, x), "point", value=0.25)

    def positions(self):
        x = self.pick()
        axes = [i for i in x.free()]
        if not axes:
            raise Reject
        shape = [1 if i == x.batch else n for i, n in enumerate(x.shape)]
        where = self.add("iota", [], None, "move", shape=shape, axis=self.random.choice(axes))
        wave = self.add("sin", [where], None, "expensive")
        return self.binary(self.random.choice(["add", "mul"]), x, wave)

    def state(self):
        x = self.pick()
        axes = x.free() if x.batch is None else None
        if self.chance(0.5) and x.free():
            axes = self.random.sample(x.free(), 1)
        if x.batch is not None:
            axes = sorted({x.batch, *(axes or [])})
        now = self.add("mean", [x], None, "reduce", keep=False, axis=axes, keepdims=True) if axes else x
        old = self.leaf("state", "f32", now.shape)
        now = self.add("stop_gradient", [now], None, "point", keep=False)
        new = self.add("add", [self.add("mul_number", [old], None, "point", keep=False, value=0.75),
                               self.add("mul_number", [now], None, "point", keep=False, value=0.25)], None, "point", keep=False)
        self.program.updates[old.name] = new.name
        return self.binary("sub", x, old)

    # ── motifs ──
    def motif(self):
        """Expensive work, a view or two, a reduction or norm over rows, and a way back or a gate."""
        y = self.expensive()
        for _ in range(self.random.choice([1, 1, 2])):
            y = self.move(y)
        y = self.rows(y) if self.chance(0.6) else self.reduce(y)
        if self.chance(0.4):
            other = self.pick()
            gate = self.add(self.random.choice(["silu", "sigmoid", "tanh"]), [other], other.batch, "expensive")
            y = self.binary("mul", y, gate)
        return y

    WORK = [("expensive", 16), ("cheap", 12), ("two", 14), ("move", 20), ("reduce", 8), ("rows", 9), ("arg", 1), ("product", 9), ("norm_layer", 4),
            ("conv", 6), ("pool", 3), ("attention", 4), ("lookup", 2), ("integer", 1), ("positions", 3), ("state", 2), ("motif", 20), ("spread", 4),
            ("network", 2), ("plain_attention", 1), ("long_rows", 1)]

    CORES = [("product", 30), ("attention", 20), ("conv", 6)]
    FUNCTIONS = [("function", 45)]
    REST = [("further", 60)]
    EVERYDAY = [("wider", 60)]

    def step(self):
        names, weights = zip(*self.works)
        last = self.values[-1].kind if self.values else ""
        favour = {"expensive": "move", "move": "reduce", "product": "expensive", "reduce": "two"}.get(last)
        if favour and self.chance(0.25):
            name = favour if favour != "reduce" or self.chance(0.4) else "rows"
        else:
            name = self.random.choices(names, weights)[0]
        return self.attempt(getattr(self, name))

    def attempt(self, work):
        """Runs it; what it did is taken back if it fails."""
        p = self.program
        mark = (len(p.leaves), len(p.statements), len(self.values), self.count, dict(p.updates))
        try:
            return work()
        except Reject:
            del p.leaves[mark[0] :], p.statements[mark[1] :], self.values[mark[2] :]
            self.count, p.updates = mark[3], mark[4]
            return None


def generate(seed, samplewise=None, cores=False):
    g = Generator(seed, samplewise, cores)
    r = g.random
    g.attempt(lambda: g.input("f32", g.shape()))
    g.attempt(lambda: g.leaf("param", "f32", g.shape()))
    if not g.values:
        g.leaf("param", "f32", [2])
    for _ in range(r.randint(1, 2) if cores else 0):
        g.attempt(g.attention if g.chance(0.4) else g.product)
    for _ in range(r.choice([1, 2, 3, 5, 7, 9, 12, 16] if not cores else [1, 2, 3, 4, 5, 7, 9])):
        g.step()
    g.finish()
    g.recipe()
    if g.has_further:
        g.metric()
    if g.has_wider:
        g.wider_recipe()
    return g.program
