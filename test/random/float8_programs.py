"""Random programs with products of 8-bit floats: `precision = fp8`, with current and delayed scaling, of the whole program or of some layers.

Numbers are small whole numbers times a power of two, so that few bits are lost: a scale is a power of two where the largest number of a tensor is 7,
and where all numbers are 0 and ±1 any scale leaves them. Then most sums are exact, in any order, and so are the values that must come out
(noise_exact.h). 28 has more digits than e4m3, and halves: they are rounded to even. Most sizes are multiples of 16, as Hopper's products want them, and some are not.

One in seven has products of values rounded to whole numbers in place of that (`fake_quant`, by row, or with scales for groups), which evaluation makes of integers."""
import math

import torch
from generate import Generator
from operations import OPERATIONS
from values import CLEAR, Reject

MOST_ELEMENTS, MOST_VALUE = 3000, 500.0
# where these jump, and they are exact, a value lies on one side of it for everybody
DEFINED = {"relu", "abs", "leaky_relu", "hardtanh", "clamp", "maximum", "minimum", "less", "greater", "at_least", "above", "l1", "huber", "sign", "fake_quant",
           "fake_quant_rows", "fake_quant_groups"}
PLAIN = {"Linear", "SwiGLU"}


class Float8Generator(Generator):
    most_value = MOST_VALUE
    drops_scores = False
    WORK = [("product", 36), ("move", 22), ("plain", 16), ("two", 8), ("cheap", 4), ("expensive", 4), ("reduce", 5), ("rows", 3), ("norm_layer", 2), ("again", 8), ("layer_again", 6), ("whole", 3),
            ("attention", 2), ("conv", 2), ("lookup", 2), ("positions", 1), ("state", 2), ("motif", 2), ("swap", 6)]
    CORES = FUNCTIONS = REST = EVERYDAY = []

    def __init__(self, seed, samplewise=None):
        super().__init__(seed, samplewise, cores=True)
        r = self.random
        self.most = MOST_ELEMENTS
        self.program.batch = r.choice([2, 3, 3, 6, 7] if self.program.samplewise else [16, 16, 16, 32, 1, 2, 3, 8])  # samples are told by their number
        self.sizes = r.choice([[16], [16, 32], [16, 48], [16, 32, 16, 8], [16, 16, 20], [32, 24], [16, 5], [16, 16, 1], [17, 31, 16], [12, 4], [16, 160], [16, 16, 176]])  # sums of more than a panel
        self.grids = r.choice([[7], [7, 1], [1, 7, 7], [7, 28], [7, 5, 3], [1]])
        self.kind = r.choice(["current", "current", "delayed", "delayed", "layers", "layers of bf16", "whole numbers"])

    def leaf(self, kind, dtype, shape, batch=None, name=None, **more):
        if dtype == "f32" and not more.get("positive"):
            more["grid"] = self.random.choice(self.grids)
        return super().leaf(kind, dtype, shape, batch, name, **more)

    def is_clear(self, op, kink, tensors, attrs):
        far = kink(tensors, attrs)
        return far >= CLEAR or (far == 0 and op in DEFINED)

    def layer(self, x, block, params, batch, scale=None, **attrs):
        if block in PLAIN and self.kind.startswith("layers") and self.chance(0.8):
            attrs["precision"] = "fp8"
        elif block in PLAIN and self.chance(0.1):
            attrs["precision"] = self.random.choice(["bf16", "f32"])
        return super().layer(x, block, params, batch, scale, **attrs)

    def plain(self):
        """Work that rounds nothing."""
        x = self.pick()
        choice = self.random.choice(["relu", "relu", "abs", "neg", "double", "half", "add", "sub", "maximum", "stop", "mask"])
        if choice in ("double", "half"):
            return self.add("mul_number", [x], x.batch, "point", value={"double": 2, "half": 0.5}[choice])
        if choice in ("add", "sub", "maximum"):
            return self.binary(choice, x, self.partner(x))
        if choice == "stop":
            return self.binary("add", x, self.add("stop_gradient", [x], x.batch, "point"))
        if choice == "mask":
            mask = self.add("above", [x], x.batch, "point", value=self.random.choice([0.0, 0.125, -0.25]))
            return self.binary("mul", x, self.add("f32", [mask], x.batch, "point"))
        return self.add(choice, [x], x.batch, "point")

    def rounded(self, x):
        """To whole numbers of 8 or 4 bits times a scale, which may cut some off."""
        scale = 2.0 ** -self.random.choice([3, 4, 5, 6])
        return self.add("fake_quant", [x], x.batch, "point", scale=scale, bits=self.random.choice([8, 8, 4]), signed=self.chance(0.8))

    def rounded_rows(self, x):
        """To whole numbers by row, where the largest of each row is a power of two times the largest whole number, or 0."""
        x = self.add("hardtanh", [x], x.batch, "point") if self.chance(0.4) else x
        largest = x.data.abs().amax(-1) if x.rank and x.batch != x.rank - 1 else torch.tensor(math.nan)
        bits = [bits for bits in (4, 3, 2) if (torch.log2(largest[largest > 0] / (2 ** (bits - 1) - 1)) % 1 == 0).all()]
        if not bits or largest.isnan().any():
            raise Reject
        return self.add("fake_quant_rows", [x], x.batch, "point", bits=bits[0])

    def first_rounded(self, x):
        choice = self.random.choice(["plain", "one", "one", "rows", "rows"])
        return x if choice == "plain" else self.rounded(x) if choice == "one" else self.rounded_rows(x)

    def whole_groups(self):
        """A product by weights with several scales along what is summed up."""
        x = self.pick()
        fits = [g for g in (8, 16, 24, 80) if x.rank > 1 and x.shape[-1] % g == 0]
        if not fits or (x.batch is not None and x.batch >= x.rank - 1):
            raise Reject
        shape = [self.size(), x.shape[-1]]
        w = self.leaf("param", "f32", shape, scale=1 / math.sqrt(shape[1]))
        w = self.add("fake_quant_groups", [w], None, "point", groups=math.prod(shape) // self.random.choice(fits), bits=self.random.choice([4, 8]), scale=2.0 ** -self.random.choice([3, 4, 5]), shape=shape)
        return self.add("matmul_transposed", [self.first_rounded(x), w], x.batch, "product")

    def whole(self):
        """A product that evaluation on the CPU makes of integers."""
        if self.chance(0.4):
            return self.whole_groups()
        x = self.pick()
        if x.rank < 2 or (x.batch is not None and x.batch >= x.rank - 1):
            raise Reject
        w = self.leaf("param", "f32", [x.shape[-1], self.size()], scale=1 / math.sqrt(x.shape[-1]))
        w = self.rounded(w) if self.chance(0.9) else w
        return self.add("matmul", [self.first_rounded(x), w], x.batch, "product")

    def product(self):
        return self.whole() if self.kind == "whole numbers" and self.chance(0.7) else super().product()

    def layer_again(self):
        """One layer of two values, or of its own result."""
        x, bias = self.pick(), self.chance(0.5)
        if x.rank < 2 or x.batch == x.rank - 1:
            raise Reject
        k, name = x.shape[-1], self.name("f")
        out = k if self.chance(0.6) else self.size()
        attrs = {"out": out, "bias": bias, "name": name, **({"precision": "fp8"} if self.kind.startswith("layers") else {})}
        shapes = {"weight": [out, k], **({"bias": [out]} if bias else {})}
        leaves = [self.leaf("param", "f32", shape, name=f"{name}.{n}", hidden=True, scale=1 / math.sqrt(k)) for n, shape in shapes.items()]
        layer = self.add("declare", leaves, None, keep=False, **attrs)
        y = self.add("apply", [layer, x, *leaves], x.batch, "product", **attrs)
        fits = [v for v in self.floats() if v.rank >= 2 and v.shape[-1] == k and v.batch != v.rank - 1 and v.name != x.name]
        again = self.tame(y) if out == k and self.chance(0.5) else self.random.choice(fits) if fits else None
        if again is None:
            raise Reject
        return self.add("apply", [layer, again, *leaves], again.batch, "product", **attrs)

    def again(self):
        """A param that a product has read is read by another one, from either side, or in the other order."""
        x = self.pick()
        k = x.shape[-1] if x.rank > 1 else 0
        used = {a for s in self.program.statements for a in s.args}
        fits = [v for v in self.floats() if v.rank == 2 and v.batch is None and v.name in used and k in v.shape]
        if not fits or x.batch == x.rank - 1:
            raise Reject
        w = self.random.choice(fits)
        return self.tame(self.add("matmul" if w.shape[0] == k else "matmul_transposed", [x, w], x.batch, "product"), 64.0)

    def swap(self):
        """A product of what lies the other way."""
        x = self.pick(rank=self.random.choice([2, 3]))
        x = self.move_transpose(x)
        if x.batch is not None and x.batch >= x.rank - 1:
            raise Reject
        w = self.leaf("param", "f32", [x.shape[-1], self.size()], scale=1 / math.sqrt(x.shape[-1]))
        return self.add("matmul", [x, w], x.batch, "product")

    def recipe(self):
        super().recipe()
        r, s = self.random, self.program.settings
        x = r.random()
        if x < 0.6:
            s["optimizer"] = r.choice(["sgd(lr=0.0625)", "sgd(lr=0.0625)", "sgd(lr=0.5)", "sgd(lr=0.0625, momentum=0.5)"])
            for key in ("clip", "schedule"):
                s.pop(key, None)
        if self.kind == "delayed":
            s["precision"] = f"fp8(scaling=delayed, history={r.choice([1, 2, 2, 3, 16])}, margin={r.choice([0, 0, 0, 1, 2])})"
        else:
            s["precision"] = {"current": "fp8", "layers": "f32", "whole numbers": "f32"}.get(self.kind, "bf16")

    def has_product(self):
        """… of 8-bit floats, as far as one sees."""
        is_whole = self.kind in ("current", "delayed")
        return any(s.attrs.get("precision") == "fp8" or (is_whole and s.op in ("Linear", "SwiGLU", "matmul", "matmul_transposed")) for s in self.program.statements)


def generate(seed, samplewise=None):
    g = Float8Generator(seed, samplewise)
    r = g.random
    if r.random() < 0.4:
        g.attempt(lambda: g.leaf("param", "f32", [g.size(), g.size()]))
    g.attempt(lambda: g.input("f32", [g.size() for _ in range(r.choice([1, 1, 2]))]))
    for _ in range(r.randint(1, 2)):
        g.attempt(g.product)
    for _ in range(r.choice([0, 1, 2, 3, 4, 5, 7, 9])):
        g.step()
    for _ in range(30):
        if g.values and (g.has_product() or g.kind == "whole numbers"):
            break
        g.attempt(lambda: g.input("f32", [g.size()]))
        if g.floats():
            g.attempt(lambda: g.linear(g.random.choice(g.floats())))
    g.finish()
    g.recipe()
    return g.program
