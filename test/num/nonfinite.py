"""Infinities and NaNs, on the CPU, fused or not, and in the simulator: the values of every pointwise function, values and
gradients of the reductions that follow exp and log are PyTorch's; topk_correct counts only what is among the k largest."""
import json
import os
import re
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

INF, NAN = float("inf"), float("nan")
ROWS = numpy.array([[-INF, -INF, -INF, -INF, -INF], [-INF, 1, 2, -INF, 0.5], [1, 2, 3, 4, 5], [-INF, -INF, -INF, -INF, 7],
                    [INF, 0, 1, 2, 3], [0, NAN, 1, 2, 3], [60, -60, 0, 1, 2], [-2, -3, -INF, -4, -5]], "f4")
TARGET = numpy.array([0, 1, 4, 4, 0, 2, 0, 2], "i4")
MODEL = """
model M(x: f32[B, 5], t: i32[B], w: f32[B, 1]) {
  param p: [B, 5] = zeros
  z = %(before)s(x + p)
  y = %(function)s
  loss = sum(%(sum)s * w)
  output y
}
data D { train = npy("x.npy", "t.npy", "w.npy") }
train { batch = 8; steps = 1; optimizer = sgd(lr=1); eval = none }
"""
CASES = {
    "logsumexp(z, keepdims=true)": lambda z, t: torch.logsumexp(z, -1, keepdim=True),
    "unsqueeze(logsumexp(z), -1)": lambda z, t: torch.logsumexp(z, -1, keepdim=True),
    "logsumexp(stack([z, z - 1], axis=1), axis=1)": lambda z, t: torch.logsumexp(torch.stack([z, z - 1], 1), 1),
    "softmax(z)": lambda z, t: torch.softmax(z, -1),
    "log_softmax(z)": lambda z, t: torch.log_softmax(z, -1),
    "unsqueeze(cross_entropy(z, t), -1)": lambda z, t: F.cross_entropy(z, t, reduction="none")[:, None],
}
# torch gives NaN as the gradient of a row of -inf in logsumexp though its value is a number; ours is 0, which recursions
# over log probabilities need. Everything else agrees, NaN for NaN.

FORMS = (((), "m.so", "cpu"), (("--disable=fuse",), "u.so", "cpu"), ((), "m.ptx", "sim"))
NUMBERS = [-INF, INF, NAN, 0, -0.0, 1e7, -1e7, 1e-42, -1e-42, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 88, -88, 104, -104]
POINTWISE = {f"{name}(x)": getattr(torch, name) for name in
             "exp expm1 log log1p sqrt rsqrt sin cos tanh sigmoid erf floor ceil round abs relu square".split()}
POINTWISE |= {f"{name}(x)": getattr(F, name) for name in "softplus silu elu leaky_relu gelu hardtanh".split()}
POINTWISE |= {f"f32(x {order} y)": lambda x, y, function=function: function(x, y) for order, function in
              {"<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge, "==": torch.eq, "!=": torch.ne}.items()}
POINTWISE |= {
    "sign(x)": lambda x: torch.where(x.isnan(), x, x.sign()),  # of NaN torch says 0
    "clamp(x, -1, 2)": lambda x: x.clamp(-1, 2), "-x": torch.neg, "f32(isfinite(x))": torch.isfinite, "x ** 0": lambda x: x**0,
    "x ** 2": lambda x: x**2, "x ** 3": lambda x: x**3, "x ** -1": lambda x: x**-1, "x ** 0.5": lambda x: x**0.5,
    "x - x": lambda x: x - x, "x / x": lambda x: x / x, "x * 0": lambda x: x * 0, "x + 0": lambda x: x + 0, "1 / x": lambda x: 1 / x,
    "where(x > 0, x, -1.0)": lambda x: torch.where(x > 0, x, -1.0), "maximum(x, y)": torch.maximum, "maximum(x, 0)": lambda x: torch.maximum(x, torch.zeros_like(x)), "minimum(x, y)": torch.minimum,
    "x + y": torch.add, "x - y": torch.sub, "x * y": torch.mul, "x / y": torch.div, "pow(x, y)": torch.pow,
    "where(x < y, x, y)": lambda x, y: torch.where(x < y, x, y), "where(x >= y, x, y)": lambda x, y: torch.where(x >= y, x, y),
}


def same(have, want, least=1e-6):
    """Equal to f32's rounding, with NaN and infinities in the same places."""
    have, want = numpy.asarray(have, "f8"), numpy.asarray(want, "f8")
    nan = numpy.isnan(want)
    close = numpy.isclose(have, want, 2e-5, least) | (nan & numpy.isnan(have))
    return close.all()


class Nonfinite(support.Case):
    def setUp(self):
        super().setUp()
        w = numpy.linspace(0.5, 1.5, 8, dtype="f4")[:, None]
        for name, value in (("x", ROWS), ("t", TARGET), ("w", w)):
            numpy.save(self.path(name + ".npy"), value)
        self.w = torch.tensor(w, dtype=torch.float64)

    def ours(self, source, flags, name, device):
        artifact = self.compile(source, *flags, name=name)
        support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("after"), "--steps", "1", "--no-shuffle", "--keep-going",
                    "--device", device)
        gradient = -support.read_safetensors(self.path("after"))["p"]
        support.write_safetensors(self.path("zero"), {"p": numpy.zeros((8, 5), "f4")})
        inputs = [item for key in "xtw" for item in ("--input", f"{key}={self.path(key)}.npy")]
        support.run("ftrun", "predict", artifact, "--weights", self.path("zero"), *inputs, "--output", self.path("y.npy"), "--device", device)
        return numpy.load(self.path("y.npy")), gradient

    def test_reductions(self):
        for function, reference in CASES.items():
            for before in ("", "2 * "):
                x = torch.tensor(ROWS, dtype=torch.float64, requires_grad=True)
                y = reference((2 if before else 1) * x, torch.tensor(TARGET, dtype=torch.int64))
                (y * self.w).sum().backward()
                want, gradient = y.detach().numpy(), x.grad.numpy()
                if function.startswith("logsumexp") or function.startswith("unsqueeze(logsumexp"):
                    gradient = numpy.where(numpy.isnan(gradient) & numpy.isneginf(ROWS), 0, gradient)
                source = MODEL % dict(before=before, function=function, sum="y")
                for flags, name, device in FORMS:
                    have, mine = self.ours(source, flags, name, device)
                    with self.subTest(function=before + function, name=name):
                        self.assertTrue(same(have, want), f"{have}\n{want}")
                        self.assertTrue(same(mine, gradient), f"{mine}\n{gradient}")

    def test_extremes(self):
        """Of rows with NaN the gradient of max and min goes to the NaNs, in equal shares, as that of torch.max of the row."""
        rows = numpy.array([[1, NAN, 2, NAN, 0], [1, 2, 2, 0, 2], [NAN] * 5, [INF, INF, 0, 1, -INF], [-INF] * 5, [NAN, INF, 1, 2, 3],
                            [-INF, NAN, -INF, 0, 1], [5, 4, 3, 2, 1]], "f4")
        numpy.save(self.path("x.npy"), rows)
        for function in ("max", "min"):
            x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
            y = torch.stack([getattr(row, function)() for row in x])[:, None]
            (y * self.w).sum().backward()
            source = MODEL % dict(before="", function=f"{function}(z, axis=-1, keepdims=true)", sum="y")
            for flags, name, device in FORMS:
                have, mine = self.ours(source, flags, name, device)
                with self.subTest(function=function, name=name):
                    self.assertTrue(same(have, y.detach().numpy()), f"{have}")
                    self.assertTrue(same(mine, x.grad.numpy()), f"{mine}\n{x.grad}")

    def test_topk_long(self):
        """A class of 64 bits is compared as it is."""
        source = """
model M(x: f32[B, 5], t: i64[B]) {
  param p: [1] = ones
  r = topk_correct(x, t, k=5)
  loss = mean(f32(r) * p)
  output r
}
train { batch = 5 }
"""
        numpy.save(self.path("x.npy"), numpy.ones((5, 5), "f4")), numpy.save(self.path("t.npy"), numpy.array([0, 4, 2**32, 2**32 + 4, -(2**32)]))
        support.write_safetensors(self.path("one"), {"p": numpy.ones(1, "f4")})
        for name, device in (("m.so", "cpu"), ("m.ptx", "sim")):
            artifact = self.compile(source, name=name)
            support.run("ftrun", "predict", artifact, "--weights", self.path("one"), "--input", f"x={self.path('x.npy')}", "--input",
                        f"t={self.path('t.npy')}", "--output", self.path("y.npy"), "--device", device)
            self.assertEqual(numpy.load(self.path("y.npy")).astype(int).tolist(), [1, 1, 0, 0, 0], name)

    def test_pointwise(self):
        x, y = (numpy.array(side, "f4") for side in zip(*[(a, b) for a in NUMBERS for b in NUMBERS]))
        wide = [torch.tensor(side, dtype=torch.float64) for side in (x, y)]
        source = f"""
model M(x: f32[B], y: f32[B]) {{
  param p: [1] = ones
  z = stack([{", ".join(POINTWISE)}], axis=1)
  loss = sum(z * p)
  output z
}}
train {{ batch = {len(x)} }}
"""
        for name, value in (("x", x), ("y", y)):
            numpy.save(self.path(name + ".npy"), value)
        support.write_safetensors(self.path("one"), {"p": numpy.ones(1, "f4")})
        for flags, name, device in FORMS:
            artifact = self.compile(source, *flags, name=name)
            inputs = [item for key in "xy" for item in ("--input", f"{key}={self.path(key)}.npy")]
            support.run("ftrun", "predict", artifact, "--weights", self.path("one"), *inputs, "--output", self.path("z.npy"), "--device", device)
            have = numpy.load(self.path("z.npy"))
            for i, (function, reference) in enumerate(POINTWISE.items()):
                with self.subTest(function=function, name=name), numpy.errstate(over="ignore"):
                    want = reference(*wide[: 2 if re.search(r"\by\b", function) else 1]).numpy().astype("f4")
                    self.assertTrue(same(have[:, i], want, 1e-37), f"{numpy.stack([x, y, have[:, i], want], 1).tolist()}")

    def test_states(self):
        """A state may begin with an infinity: the least and the largest of what has been seen."""
        source = """
model M(x: f32[B, 5], t: i32[B], w: f32[B, 1]) {
  param p: [5] = ones
  state least: f32[] = inf
  state most: f32[2] = constant(-inf)
  z = x * p
  loss = mean(where(most[0] == -inf and least == inf, z, 100))
  update least = minimum(least, min(z))
  update most = maximum(most, max(z))
}
data D { train = npy("x.npy", "t.npy", "w.npy") }
train { batch = 4; steps = 2; optimizer = sgd(lr=0); eval = none; log { every=1 steps } }
"""
        x = numpy.random.default_rng(3).standard_normal((8, 5)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        for flags, name, device in FORMS:
            artifact = self.compile(source, *flags, name=name)
            support.run("ftrun", artifact, "--data", self.folder, "--no-shuffle", "--save", self.path("after"), "--device", device,
                        "--log-jsonl", self.path("log"))
            after = support.read_safetensors(self.path("after"))
            self.assertEqual([after["least"], *after["most"]], [x.min(), x.max(), x.max()], name)
            losses = [line["loss"] for line in map(json.loads, open(self.path("log"))) if "loss" in line]
            self.assertTrue(numpy.allclose(losses, [x[:4].mean(), 100], 1e-5, 1e-6), f"{name}: {losses}")

    def test_topk(self):
        source = """
model M(x: f32[B, 5], t: i32[B], k: f32[B, 2]) {
  param p: [1] = ones
  r = topk_correct(x, t, k=2)
  loss = mean(f32(r) * p)
  output r
}
train { batch = 12 }
"""
        x = numpy.array([[1, 2, 3, 4, 5]] * 6 + [[NAN, 2, 3, 4, 5]] * 3 + [[NAN] * 5, [-INF] * 5, [INF, INF, 1, 2, 3]], "f4")
        t = numpy.array([4, 3, 2, 5, -1, 1000, 0, 4, 3, 2, 2, 2], "i4")
        #               in the row; a class that is not there; a NaN is no answer and goes ahead of others; ties are right
        want = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0]
        for name, value in (("x", x), ("t", t), ("k", numpy.zeros((12, 2), "f4"))):
            numpy.save(self.path(name + ".npy"), value)
        support.write_safetensors(self.path("one"), {"p": numpy.ones(1, "f4")})
        for flags, name, device in FORMS:
            artifact = self.compile(source, *flags, name=name)
            inputs = [item for key in "xtk" for item in ("--input", f"{key}={self.path(key)}.npy")]
            support.run("ftrun", "predict", artifact, "--weights", self.path("one"), *inputs, "--output", self.path("y.npy"), "--device", device)
            self.assertEqual(numpy.load(self.path("y.npy")).astype(int).tolist(), want, name)


if __name__ == "__main__":
    support.main()
