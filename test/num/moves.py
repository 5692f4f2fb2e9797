"""Dear values that are read in another order than they are made in: an activation, a move, a reduction over rows or
columns, and another reader of the same value, in shapes with equally many elements by accident. Values and gradients,
and what prediction gives, against PyTorch in float64, on the processor and in the simulator."""
import os
import sys

import numpy
import ops
import support
import torch
import torch.nn.functional as F

ACTIVATIONS = {"tanh": torch.tanh, "exp": torch.exp, "sigmoid": torch.sigmoid, "gelu": F.gelu, "silu": F.silu,
               "softplus": F.softplus, "erf": torch.erf, "sin": torch.sin}
SHAPES = [(2, 3, 2), (4, 4, 4), (1, 2, 3), (3, 2, 6), (2, 6, 1), (8, 2, 16)]


def windows(x):
    a, b, c = x.shape
    return x.reshape(a, b // 2, 2, c).permute(1, 0, 2, 3).reshape(b // 2 * a, 2 * c)


MOVES = {  # of x with three dimensions, the middle one even or 3
    "transpose({})": lambda x: x.transpose(1, 2),
    "permute({}, (2, 0, 1))": lambda x: x.permute(2, 0, 1),
    "permute({}, (1, 0, 2))": lambda x: x.permute(1, 0, 2),
    'rearrange({}, "a b c -> b (c a)")': lambda x: x.permute(1, 2, 0).flatten(1),
    "reshape(transpose({}), SHAPE)": lambda x: x.transpose(1, 2).reshape(x.shape),
    "concat([({})[:, 1:], ({})[:, :1]], axis=1)": lambda x: torch.roll(x, -1, 1),
    "pad(({})[:, :1], low=(0, 1, 0), high=(0, 0, 0))": lambda x: F.pad(x[:, :1], (0, 0, 1, 0)),
    "pad(({})[:, :-1], low=(0, 1, 0), high=(0, 0, 0), value=0.5)": lambda x: F.pad(x[:, :-1], (0, 0, 1, 0), value=0.5),
    "({})[:, ::2]": lambda x: x[:, ::2],
    "concat([{}, 2 * {}], axis=2)": lambda x: torch.cat([x, 2 * x], 2),
}
REDUCTIONS = {
    "softmax({})": lambda x: x.softmax(-1),
    "layer_norm({}, eps=1.0)": lambda x: F.layer_norm(x, x.shape[-1:], eps=1.0),  # of two or three values: a small eps amplifies
    "({} - mean({}, axis=0, keepdims=true))": lambda x: x - x.mean(0, keepdim=True),
    "max({}, axis=-1)": lambda x: x.amax(-1),
    "softmax({}, axis=0)": lambda x: x.softmax(0),
    "logsumexp({})": lambda x: x.logsumexp(-1),
    "({} * sum(exp({}), axis=1, keepdims=true))": lambda x: x * x.exp().sum(1, keepdim=True),
    "var({}, axis=-1, unbiased=false)": lambda x: x.var(-1, unbiased=False),
}
READERS = {  # y: the case so far, v: the activation
    "{y}": lambda y, v: y,
    "{y} + mean({v})": lambda y, v: y + v.mean(),
    "{y} * sum({v} * {v})": lambda y, v: y * (v * v).sum(),
}


draw = numpy.random.RandomState(1)


def one_of(choices):
    return list(choices)[draw.randint(len(choices))]


def combined():
    (act, f), (move, g) = one_of(ACTIVATIONS.items()), one_of(MOVES.items())
    (reduction, h), (reader, r) = one_of(REDUCTIONS.items()), one_of(READERS.items())
    shape = one_of(SHAPES)
    v = f"{act}(x + w)"
    moved = move.replace("{}", v).replace("SHAPE", str(list(shape)))
    text = reader.replace("{y}", reduction.replace("{}", moved)).replace("{v}", v)
    function = lambda x, w: r(h(g(f(x + w))), f(x + w))
    return text, function, {"x": ops.uniform(*shape, low=-0.5, high=0.5), "w": ops.distinct(*shape)}


CASES = [combined() for _ in range(95)]

# One value in two shapes of as many elements, asked for at the same places along the axes: these are other elements.
for make, function, arguments in (
        ("broadcast_to(w, [6, 4])", lambda w: w.expand(6, 4), {"w": ops.uniform(6, 1)}),
        ("concat([w, x], axis=1)", lambda w, x: torch.cat([w, x], 1), {"w": ops.uniform(6, 1), "x": ops.uniform(6, 3)})):
    CASES.append((f"reshape({make}, 2, 12)[:, :6] * reshape({make}, 3, 8)[:2, :6]",
                  lambda *values, f=function: f(*values).reshape(2, 12)[:, :6] * f(*values).reshape(3, 8)[:2, :6], arguments))

# 60,000 classes of each pixel: longer than any buffer. (The image's gradient is a sum of 60,000 terms that cancel.)
MANY = 60_000
CASES.append(("mean(cross_entropy(permute(conv2d(stop_gradient(x), w) + reshape(b, [1, 60000, 1, 1]), (0, 2, 3, 1)), t))",
              lambda x, w, b, t: F.cross_entropy(F.conv2d(x.detach(), w, b), t),
              {"x": ops.uniform(1, 2, 1, 2), "w": ops.uniform(MANY, 2, 1, 1), "b": ops.uniform(MANY), "t": ops.integers(MANY, 1, 1, 2)}))


class Moves(ops.Compared):
    def test_what_is_known(self):
        start = (numpy.arange(6, dtype=numpy.float32) / 4).reshape(1, 2, 3)
        value = lambda x: torch.tanh(x).transpose(1, 2).softmax(-1).max()
        self.assertAlmostEqual(value(torch.from_numpy(start)).item(), 0.6536561, places=6)
        self.group([("max(softmax(transpose(tanh(x))))", value, {"x": start})])


for first in range(0, len(CASES), ops.GROUP):
    setattr(Moves, f"test_cases_{first:03d}", lambda self, first=first: self.group(CASES[first : first + ops.GROUP]))


class MovesOnSim(Moves):
    """The same cases, the PTX of which runs in the simulator."""

    artifact, device = "model.ptx", "sim"


class Predicted(support.Case):
    """A value that is turned, and read also where it is not, or elsewhere: kernels without a reduction."""

    EXPRESSIONS = {
        "u + concat([u[:, 1:], u[:, :1]], axis=1)": lambda u: u + numpy.roll(u, -1, 1),
        "u + pad(u[:, 1:], low=(0, 0, 0), high=(0, 1, 0))": lambda u: u + numpy.pad(u[:, 1:], ((0, 0), (0, 1), (0, 0))),
        "u + reshape(transpose(u), [B, 45, 37])": lambda u: u + u.transpose(0, 2, 1).reshape(u.shape),
        "u + u[:, :, :1]": lambda u: u + u[:, :, :1],
    }

    def predicted(self, name, *device):
        x = ops.uniform(1, 37, 45)
        outputs = [f"o{k}" for k in range(len(self.EXPRESSIONS))]
        lines = [f"  {o} = {e}\n  output {o}\n" for o, e in zip(outputs, self.EXPRESSIONS)]
        artifact = self.compile("model Turned(x: f32[B, 37, 45], y: f32[B]) {\n  param p: [1] = ones\n  loss = mean(mse(p * y, y))\n"
                                "  u = transpose(x) * 2\n" + "".join(lines) + '}\ndata D { train = npy("x.npy", "y.npy") }\n'
                                "train { model = Turned; data = D; batch = 1; optimizer = sgd(lr=1.0); eval every 0 epochs }\n", name=name)
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), numpy.zeros(1, numpy.float32))
        weights = self.path("w.safetensors")
        support.run("ftrun", artifact, "--data", self.folder, "--save", weights, "--steps", 0, *device)
        for output, (expression, function) in zip(outputs, self.EXPRESSIONS.items()):
            with self.subTest(expression):
                support.run("ftrun", "predict", artifact, "--weights", weights, "--input", f"x={self.path('x.npy')}",
                            "--output", f"{output}={self.path('o.npy')}", *device)
                numpy.testing.assert_array_equal(numpy.load(self.path("o.npy")), function(2 * x.transpose(0, 2, 1)))

    def test_cpu(self):
        self.predicted("model.so")

    def test_sim(self):
        self.predicted("model.ptx", "--device", "sim")


if __name__ == "__main__":
    support.main()
