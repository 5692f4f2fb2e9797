"""Large products on the CPU, whose operands are packed (kernels/gemm_x86.c): the gradients of whole programs against PyTorch in float64, on each
level of x86-64 that this machine has. Sizes are odd; operands are transposed, shared, masked, batched; there are second readers and second losses.
Functions are smooth: where a slope jumps, a rounded number may fall to the other side."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

BATCH, WIDTH, HIDDEN = 523, 197, 260
RATE = 2.0**20  # one step of sgd is so many times the gradient
NEAR = {"f32": 3e-5, "bf16": 3e-2, "fp16": 4e-3}  # sums in another order; roundings to fewer bits
LINEAR = {"up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}


def linear(w, name, x):
    return torch.nn.functional.linear(x, w[name + ".weight"], w[name + ".bias"])


# name: (the model's text, its loss in PyTorch)
PROGRAMS = {
    "a residual block and a second loss on the hidden layer": (
        """h = gelu(Linear({hidden}, name="up")(x))
  r = x + Linear({width}, name="down")(h)
  loss = mean((r - y) ** 2) + 0.1 * mean(h * h)""",
        lambda w, x, y: (lambda h: ((x + linear(w, "down", h) - y) ** 2).mean() + 0.1 * (h * h).mean())(
            torch.nn.functional.gelu(linear(w, "up", x)))),
    "a product of a tensor with itself, turned": (
        """h = Linear({hidden}, name="up")(x)
  g = transpose(h) @ h
  r = Linear({width}, name="down")(h)
  loss = mean((r - y) ** 2) + 1e-4 * mean(g * g)""",
        lambda w, x, y: (lambda h: ((linear(w, "down", h) - y) ** 2).mean() + 1e-4 * ((h.T @ h) ** 2).mean())(linear(w, "up", x))),
    "a mask, a turned result with another reader, softmax": (
        """h = where(y > 0, x, 0.5 * x)
  u = Linear({hidden}, name="up")(h)
  t = transpose(u)
  r = Linear({width}, name="down")(softmax(u))
  loss = mean((r - y) ** 2) + mean(tanh(t[3:40, 1:])) + mean(sigmoid(t))""",
        lambda w, x, y: (lambda u: ((linear(w, "down", torch.softmax(u, -1)) - y) ** 2).mean() + torch.tanh(u.T[3:40, 1:]).mean()
                         + torch.sigmoid(u).mean())(linear(w, "up", torch.where(y > 0, x, 0.5 * x)))),
    "a layer applied twice": (
        """h = tanh(Linear({hidden}, name="up")(x))
  down = Linear({width}, name="down")
  up = down(gelu(h))
  loss = mean((down(h) + up - y) ** 2) + mean(silu(up))""",
        lambda w, x, y: (lambda h: (lambda up: ((linear(w, "down", h) + up - y) ** 2).mean() + torch.nn.functional.silu(up).mean())(linear(w, "down", torch.nn.functional.gelu(h))))(
            torch.tanh(linear(w, "up", x)))),
    "sums of many samples by many, more than a part of k": (
        """h = Linear({hidden}, name="up")(x)
  s = (h @ transpose(h)) * 0.001
  r = Linear({width}, name="down")(s @ h)
  loss = mean((r - y) ** 2)""",
        lambda w, x, y: (lambda h: ((linear(w, "down", (h @ h.T) * 0.001 @ h) - y) ** 2).mean())(linear(w, "up", x))),
}


class Packed(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(5)
        for name in ("x", "y"):
            numpy.save(self.path(name + ".npy"), random.randn(BATCH, WIDTH).astype(numpy.float32))
        self.weights = {name + part: (random.randn(*(shape if part == ".weight" else shape[:1])) * 0.1).astype(numpy.float32)
                        for name, shape in LINEAR.items() for part in (".weight", ".bias")}
        support.write_safetensors(self.path("start.safetensors"), self.weights)

    def ours(self, body, precision, *flags):
        source = f"""model M(x: f32[B, {WIDTH}], y: f32[B, {WIDTH}]) {{
  {body.format(width=WIDTH, hidden=HIDDEN)}
}}
data D {{ train = npy("x.npy", "y.npy") }}
train {{ model = M; data = D; batch = {BATCH}; precision = {precision}; seed = 3; optimizer = sgd(lr={RATE}); eval every 0 epochs }}
"""
        scale = ["--set", "train.loss_scale=64"] if precision == "fp16" else []  # so that no gradient overflows in the only step
        artifact = self.compile(source, *flags, *scale)
        if "x86-64-v4" in flags:
            with open(artifact, "rb") as file:
                self.assertIn(b"_pack", file.read())
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--steps", 1, "--no-shuffle", "--threads", 2,
                    "--save", self.path("end.safetensors"))
        end = support.read_safetensors(self.path("end.safetensors"))
        return {name: (self.weights[name].astype(numpy.float64) - end[name]) / RATE for name in self.weights}

    def theirs(self, loss):
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in self.weights.items()}
        x, y = (torch.tensor(numpy.load(self.path(name)), dtype=torch.float64) for name in ("x.npy", "y.npy"))
        loss(w, x, y).backward()
        return {name: value.grad.numpy() for name, value in w.items()}

    def check(self, number, name):
        """With FT_TURN half of the ways to compile it, of each precision."""
        body, loss = PROGRAMS[name]
        wanted = self.theirs(loss)
        ways = [["--cpu", level] for level in support.levels()] + [["--disable=fuse"], ["--disable=amx,dpbf16"], ["--disable=amx,widened"]]
        cases = [(precision, near, flags) for precision, near in NEAR.items() for flags in ways]
        for precision, near, flags in (case for i, case in enumerate(cases) if support.has_its_turn(i + number, 2)):
            got = self.ours(body, precision, *flags)
            for key, value in wanted.items():
                error = numpy.abs(got[key] - value).max() / numpy.abs(value).max()
                self.assertLess(error, near, f"{name}: {key}, {precision}, {' '.join(flags)}")


for number, name in enumerate(PROGRAMS):
    setattr(Packed, f"test_{number}", lambda self, number=number, name=name: self.check(number, name))

if __name__ == "__main__":
    support.main()
