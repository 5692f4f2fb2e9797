"""What counts in a mean, against float64: a weighted tensor (by a mask, by weights, by cross_entropy's `ignore`) goes
through each operation, and through pairs of them, and is then reduced. The oracle carries the weight beside the value by
the rules that docs/language.md states, and reduces with plain sums. Elements of weight 0 are NaN and infinite."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

ROWS, COLUMNS, CLASSES = 4, 6, 3
random = numpy.random.RandomState(5)
MASK = random.uniform(size=(ROWS, COLUMNS)) < 0.6
MASK[:, 2] = True  # something counts in every row
WEIGHT = numpy.where(MASK, random.uniform(0.2, 3, MASK.shape), 0).astype("f4")
VALUE = random.uniform(-2, 2, MASK.shape).astype("f4")
VALUE[~MASK] = random.choice([numpy.nan, numpy.inf, -numpy.inf, 7], (~MASK).sum())
LOGITS = random.uniform(-2, 2, (ROWS, COLUMNS, CLASSES)).astype("f4")
TARGET = numpy.where(MASK, random.randint(0, CLASSES, MASK.shape), -1).astype("i4")
IDS = [3, 0, 0, 2]


class Weighted:
    def __init__(self, value, weight):
        self.value, self.weight = value, weight

    def map(self, function):
        return Weighted(function(self.value), self.weight)

    def move(self, function, fill=None):
        return Weighted(function(self.value), function(self.weight) if fill is None else fill(self.weight))


def ramp(x):
    """What RAMP is in the language: plain numbers of x's shape."""
    return (torch.arange(x.shape[-1], dtype=torch.float64) * 0.3 - 0.5).expand(x.shape)


RAMP = "(f32(iota({x}.shape, axis=-1)) * 0.3 - 0.5)"


def counted(x, axis=None, keep=True):
    axis = tuple(range(x.value.dim())) if axis is None else axis
    total = torch.where(x.weight != 0, x.value * x.weight, 0.0).sum(axis, keepdim=keep)
    return total / x.weight.sum(axis, keepdim=keep)


def beside(x, other, axis, first):
    ones = torch.ones_like(x.weight)
    pair = (x.value, other) if first else (other, x.value)
    weights = (x.weight, ones) if first else (ones, x.weight)
    return pair, weights


def join(function, first, axis):
    def run(x):
        pair, weights = beside(x, ramp(x.value), axis, first)
        return Weighted(function(pair, axis), function(weights, axis))
    return run


def most(x, axis):
    return torch.where(x.weight != 0, x.value, -torch.inf).amax(axis, keepdim=True)


both = lambda f: lambda x: x.map(lambda v: f(v, ramp(v)))
# name in the language -> the same for the oracle; the least rank it takes
OPS = [
    ("f32({x})", lambda x: x, 0),
    ("f64_and_back({x})", lambda x: x, 0),
    ("({x} + 1)", lambda x: x.map(lambda v: v + 1), 0),
    ("(0.5 - {x})", lambda x: x.map(lambda v: 0.5 - v), 0),
    ("(-{x})", lambda x: x.map(torch.neg), 0),
    ("abs({x})", lambda x: x.map(torch.abs), 0),
    ("tanh({x})", lambda x: x.map(torch.tanh), 0),
    ("({x} ** 2)", lambda x: x.map(torch.square), 0),
    ("sqrt(abs({x}))", lambda x: x.map(lambda v: v.abs().sqrt()), 0),
    ("clamp({x}, 0.1, 0.9)", lambda x: x.map(lambda v: v.clamp(0.1, 0.9)), 0),
    ("stop_gradient({x})", lambda x: x, 0),
    ("({x} * tanh({x}))", lambda x: x.map(lambda v: v * v.tanh()), 0),
    (f"({{x}} + {RAMP})", both(torch.add), 1),
    (f"({RAMP} + {{x}})", both(torch.add), 1),
    (f"({RAMP} * {{x}})", both(torch.mul), 1),
    (f"({{x}} - {RAMP}[0])", lambda x: x.map(lambda v: v - ramp(v)[0]), 2),
    (f"({RAMP} / (2 + abs({{x}})))", both(lambda v, y: y / (2 + v.abs())), 1),
    (f"(stack([{RAMP}, {RAMP}]) - {{x}})", lambda x: Weighted(torch.stack([ramp(x.value)] * 2) - x.value, x.weight.expand(2, *x.weight.shape)), 1),
    ("maximum({x}, 0.3)", lambda x: x.map(lambda v: v.clamp(min=0.3)), 0),
    (f"maximum({RAMP}, {{x}})", both(torch.maximum), 1),
    (f"minimum({{x}}, {RAMP})", both(torch.minimum), 1),
    (f"where({RAMP} > 0, {{x}}, 1)", both(lambda v, y: torch.where(y > 0, v, 1.0)), 1),
    (f"where({RAMP} > 0, {RAMP}, {{x}})", both(lambda v, y: torch.where(y > 0, y, v)), 1),
    (f"where({{x}} > 0.2, 2, {RAMP})", both(lambda v, y: torch.where(v > 0.2, 2.0, y)), 1),
    ("f32({x} > 0.3)", lambda x: x.map(lambda v: (v > 0.3).double()), 0),
    ("f32(i32(9.5 * tanh({x})))", lambda x: x.map(lambda v: torch.nan_to_num(9.5 * v.tanh()).trunc()), 0),
    ("{x}[1:3]", lambda x: x.move(lambda t: t[1:3]), 1),
    ("{x}[..., ::2]", lambda x: x.move(lambda t: t[..., ::2]), 1),
    ("{x}[0]", lambda x: x.move(lambda t: t[0]), 2),
    ("{x}[..., 2]", lambda x: x.move(lambda t: t[..., 2]), 2),
    ("transpose({x})", lambda x: x.move(lambda t: t.transpose(-1, -2)), 2),
    ("flatten({x})", lambda x: x.move(torch.flatten), 1),
    ("reshape({x}, -1, 2)", lambda x: x.move(lambda t: t.reshape(-1, 2)), 1),
    ("unsqueeze({x}, 1)", lambda x: x.move(lambda t: t.unsqueeze(1)), 1),
    ('rearrange({x}, "b t -> t b")', lambda x: x.move(torch.t), 2),
    ("broadcast_to({x}, [2] + {x}.shape)", lambda x: x.move(lambda t: t.expand(2, *t.shape)), 0),
    ("split({x}, 2, axis=-1)[1]", lambda x: x.move(lambda t: t.chunk(2, -1)[1]), 1),
    ("{x}[ids]", lambda x: x.move(lambda t: t[torch.tensor(IDS) % t.shape[0]]), 1),
    (f"stack([{{x}}, {RAMP}])", join(torch.stack, True, 0), 1),
    (f"stack([{RAMP}, {{x}}], axis=1)", join(torch.stack, False, 1), 1),
    (f"concat([{{x}}, {RAMP}], axis=-1)", join(torch.cat, True, -1), 1),
    ("concat([{x}, {x}])", lambda x: x.move(lambda t: torch.cat([t, t])), 1),
    ("pad({x}, low=(1, 0), high=(0, 2), value=0.5)", lambda x: x.move(lambda t: torch.nn.functional.pad(t, (0, 2, 1, 0), value=0.5), lambda w: torch.nn.functional.pad(w, (0, 2, 1, 0), value=1)), 2),
    ("({x} - mean({x}, axis=-1, keepdims=true))", lambda x: Weighted(x.value - counted(x, -1), x.weight), 1),
    ("({x} - max({x}, axis=0, keepdims=true))", lambda x: Weighted(x.value - most(x, 0), x.weight), 1),
    ("softmax({x})", lambda x: Weighted(softmax(x), x.weight), 1),
    ("layer_norm({x})", lambda x: Weighted(layer_norm(x), x.weight), 1),
    ("({x} * sum({x}, axis=-1, keepdims=true))", lambda x: x.map(lambda v: v * total(x, -1)), 1),
    (f"weighted({{x}}, {RAMP} > 0)", lambda x: Weighted(x.value, x.weight * (ramp(x.value) > 0)), 1),
    (f"weighted({{x}}, abs({RAMP}))", lambda x: Weighted(x.value, x.weight * ramp(x.value).abs().float().double()), 1),
    ("unweighted(where(isfinite({x}), {x}, 0))", lambda x: Weighted(torch.where(x.value.isfinite(), x.value, 0.0), torch.ones_like(x.weight)), 0),
]


def total(x, axis=None):
    kept = torch.where(x.weight != 0, x.value * x.weight, 0.0)
    return kept.sum() if axis is None else kept.sum(axis, keepdim=True)


def softmax(x):
    e = torch.exp(x.value - most(x, -1))
    return e / torch.where(x.weight != 0, e * x.weight, 0.0).sum(-1, keepdim=True)


def layer_norm(x):
    d = x.value - counted(x, -1)
    return d * torch.rsqrt(counted(Weighted(d * d, x.weight), -1) + 1e-5)


def variance(x, unbiased):
    d = x.value - counted(x)
    return total(Weighted(d * d, x.weight)) / (x.weight.sum() - unbiased)


REDUCTIONS = [
    ("mean({x})", lambda x: counted(x, keep=False)),
    ("sum({x})", lambda x: total(x)),
    ("max({x})", lambda x: most(x, tuple(range(x.value.dim()))).max()),
    ("-min({x})", lambda x: most(x.map(torch.neg), tuple(range(x.value.dim()))).max()),
    ("var({x})", lambda x: variance(x, 1)),
    ("std({x}, unbiased=false)", lambda x: variance(x, 0).sqrt()),
    ("f32(count({x}))", lambda x: x.weight.sum()),
    ("mean(mean({x}, axis=-1))", lambda x: counted(x, -1, False).mean() if x.value.dim() else x.value),
    ("sum(f32(argmax({x}, axis=-1)))", lambda x: torch.where(x.weight != 0, x.value, -torch.inf).argmax(-1).double().sum()),
]
SOURCES = {
    "weighted(v, w != 0)": lambda: Weighted(torch.tensor(VALUE).double(), torch.tensor(MASK).double()),
    "weighted(v, w)": lambda: Weighted(torch.tensor(VALUE).double(), torch.tensor(WEIGHT).double()),
    "cross_entropy(logits, t, ignore=-1)": lambda: Weighted(
        torch.nn.functional.cross_entropy(torch.tensor(LOGITS).double().flatten(0, 1), torch.tensor(TARGET).long().flatten(), ignore_index=-1, reduction="none").reshape(MASK.shape),
        torch.tensor(MASK).double()),
}
GROUP = 160


class Weights(support.Case):
    def expressions(self):
        """(text, value): all operations with all reductions, and a sample of pairs of operations."""
        plans = [([op], [reduction]) for op in OPS for reduction in REDUCTIONS]
        pairs = [([one, two], [REDUCTIONS[0], REDUCTIONS[1 + (i + k) % 8]]) for i, one in enumerate(OPS) for k, two in enumerate(OPS)]
        random.shuffle(pairs)
        for source, make in SOURCES.items():
            for ops, reductions in [([], REDUCTIONS)] + plans + pairs[: len(pairs) // 6]:
                text, value, fits = source, make(), True
                for op_text, function, rank in ops:
                    fits = fits and value.value.dim() >= rank and not ("pad" in op_text or "rearrange" in op_text) or fits and value.value.dim() == rank
                    fits = fits and not ("split" in op_text and value.value.shape[-1] % 2) and not ("-1, 2" in op_text and value.value.numel() % 2)
                    fits = fits and not ("1:3" in op_text and value.value.shape[0] < 3)
                    if not fits:
                        break
                    ids = str([i % (value.value.shape[0] if value.value.dim() else 1) for i in IDS])
                    text = op_text.format(x=text).replace("[ids]", f"[take({ids})]")
                    value = function(value)
                for reduction, function in reductions if fits else []:
                    if not ("argmax" in reduction and value.value.dim() == 0):
                        yield reduction.format(x=text), float(function(value))

    def check_group(self, group):
        names = [f"r{i}" for i in range(len(group))]
        lines = "\n".join(f"  {name} = {text}" for name, (text, _) in zip(names, group))
        source = f"""
fn f64_and_back(x) {{ return f32(f64(x)) }}
fn take(ids) {{
  index = iota([4]) * 0
  i = 0
  repeat k in 0..4 {{ index = where(iota([4]) == k, ids[k], index) }}
  return index
}}
model M(x: f32[B, 1], target: i32[B, {ROWS * COLUMNS}]) {{
  param v: [{ROWS}, {COLUMNS}] = zeros
  param w: [{ROWS}, {COLUMNS}] = zeros
  param logits: [{ROWS}, {COLUMNS}, {CLASSES}] = zeros
  t = reshape(target, {ROWS}, {COLUMNS})
{lines}
  loss = mean(x)
  output result = unsqueeze(stack([{", ".join(names)}]), 0)
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ batch = 1; optimizer = sgd(lr=1.0) }}
"""
        artifact = self.compile(source)
        numpy.save(self.path("x.npy"), numpy.zeros((1, 1), "f4"))
        numpy.save(self.path("t.npy"), TARGET.reshape(1, -1))
        support.write_safetensors(self.path("w.safetensors"), {"v": VALUE, "w": WEIGHT, "logits": LOGITS})
        support.run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), "--input", "x=" + self.path("x.npy"), "--input", "target=" + self.path("t.npy"), "--output", self.path("y.npy"))
        ours = numpy.load(self.path("y.npy"))[0]
        for (text, theirs), got in zip(group, ours):
            with self.subTest(text):
                numpy.testing.assert_allclose(got, theirs, rtol=3e-5, atol=3e-5, err_msg=text)

    def test_matrix(self):
        expressions = list(self.expressions())
        self.assertGreater(len(expressions), 2000)
        for first in support.of_this_turn(range(0, len(expressions), GROUP), 3):
            self.check_group(expressions[first : first + GROUP])

    def test_ends_of_integers(self):
        """The largest and least of what counts, up to the ends of each type: what does not count is never one of them."""
        source = """
model M(x: %(type)s[B, 4]) {
  param p: [1] = ones
  far = weighted(x, iota([B, 4], axis=1) > 0)
  largest = max(far, axis=1)
  least = min(far, axis=1)
  where_most = argmax(far, axis=1)
  where_least = argmin(far, axis=1)
  loss = mean(p)
  output largest; output least; output where_most; output where_least
}
train { batch = 2 }
"""
        support.write_safetensors(self.path("w"), {"p": numpy.ones(1, "f4")})
        for dtype, name in (("i32", "i4"), ("u8", "u1")):  # i64: constants end at 2^53, and ftc says so
            ends = numpy.iinfo(name)
            x = numpy.array([[0, ends.min, ends.min + 1, ends.min + 2], [0, ends.max - 2000, ends.max - 1500, ends.max - 1100]]).astype(name)
            if dtype == "u8":
                x[1] = [0, 255, 254, 253]
            x[:, 0] = [ends.max, ends.min]  # counts for nothing
            numpy.save(self.path("x.npy"), x)
            for target, device in (("m.so", "cpu"), ("m.ptx", "sim")):
                artifact = self.compile(source % {"type": dtype}, name=target)
                for output in ("largest", "least", "where_most", "where_least"):
                    support.run("ftrun", "predict", artifact, "--weights", self.path("w"), "--input", f"x={self.path('x.npy')}", "--output",
                                f"{output}={self.path('o.npy')}", "--device", device)
                    want = getattr(x[:, 1:], {"largest": "max", "least": "min", "where_most": "argmax", "where_least": "argmin"}[output])(axis=1)
                    want = want + 1 if output.startswith("where") else want
                    self.assertEqual(numpy.load(self.path("o.npy")).tolist(), want.tolist(), f"{dtype} {output} {target}")


if __name__ == "__main__":
    support.main()
