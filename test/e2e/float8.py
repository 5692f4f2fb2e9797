"""Training in fp8 follows an emulation in PyTorch step by step, on the processor and in the simulator: operands of products are scaled by the largest
of their tensor and rounded to e4m3, gradients to e5m2, as docs/language.md says; all else as bf16's classes. Rounding is that of test/num/float8.py,
from the formats' definition, which is compared with ml_dtypes there.

What differs is the order of sums. Where that falls on the other side of a rounding to bf16, and this on the other side of one to e5m2, an element of
a gradient differs by an eighth: none does in the MLP, some do behind attention. Bounds are for the loss and for the gradient as a whole; an emulation
without 8 bits lies beyond them."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path[:0] = [os.path.join(os.path.dirname(__file__), part) for part in ("..", os.path.join("..", "num"))]
import float8
import support

STEPS, BATCH, RATE, LEAST = 5, 16, 0.3, 2.0**-100


def scaled(x, name):
    """x rounded as it is scaled, and 1 / scale, in f32 as ft computes them."""
    largest = numpy.float32(float8.FORMATS[name][2])
    scale = largest / numpy.maximum(numpy.abs(x.detach().numpy()).max(), numpy.float32(LEAST))
    return torch.from_numpy(float8.nearest(name, x.detach().numpy() * scale)), float(numpy.float32(1) / scale)


def bf16(x):
    return x.to(torch.bfloat16).float()


class Product8(torch.autograd.Function):
    """x @ transpose(w); dx is rounded to bf16, dw keeps its f32 sums."""

    @staticmethod
    def forward(context, x, w):
        context.x, context.w = scaled(x, "e4m3"), scaled(w, "e4m3")
        (a, inverse), (b, other) = context.x, context.w
        return a @ b.T * float(numpy.float32(inverse) * numpy.float32(other))

    @staticmethod
    def backward(context, gradient):
        (x, of_x), (w, of_w), (dy, of_dy) = context.x, context.w, scaled(gradient, "e5m2")
        dx = bf16(dy @ w * float(numpy.float32(of_dy) * numpy.float32(of_w)))
        rows = dy.reshape(-1, dy.shape[-1])
        return dx, rows.T @ x.reshape(-1, x.shape[-1]) * float(numpy.float32(of_dy) * numpy.float32(of_x))


class Bf16(torch.autograd.Function):
    """Both directions, or the value alone."""

    @staticmethod
    def forward(context, x, both):
        context.both = both
        return bf16(x)

    @staticmethod
    def backward(context, gradient):
        return bf16(gradient) if context.both else gradient, None


class Attention(torch.autograd.Function):
    """Causal, f32 within, operands and results of bf16; backward reads the rounded result, as FlashAttention does."""

    @staticmethod
    def forward(context, q, k, v):
        scores = (q @ k.transpose(-1, -2) / 4).masked_fill(torch.ones(12, 12).triu(1) > 0, -numpy.inf)
        p = scores.softmax(-1)
        o = bf16(p @ v)
        context.save_for_backward(q, k, v, p, o)
        return o

    @staticmethod
    def backward(context, gradient):
        q, k, v, p, o = context.saved_tensors
        gradient = bf16(gradient)
        ds = p * (gradient @ v.transpose(-1, -2) - (gradient * o).sum(-1, keepdim=True)) / 4
        return bf16(ds @ k), bf16(ds.transpose(-1, -2) @ q), bf16(p.transpose(-1, -2) @ gradient)


def linear8(x, p, name):
    y = Product8.apply(x, p[name + ".weight"])
    return Bf16.apply(y + Bf16.apply(p[name + ".bias"], False), False)


def linear16(x, p, name):
    return Bf16.apply(F.linear(Bf16.apply(x, True), Bf16.apply(p[name + ".weight"], False), Bf16.apply(p[name + ".bias"], False)), True)


def mlp(p, x, linear):
    h = F.gelu(linear(F.relu(linear(x, p, "fc1")), p, "fc2"))
    return linear(h, p, "fc3")


MLP = """model M(x: f32[B, 20], label: i32[B]) {
  h = gelu(Linear(24, name="fc2")(relu(Linear(33, name="fc1")(x))))
  loss = mean(cross_entropy(Linear(10, name="fc3")(h), label))
}
data D { train = npy("x.npy", "label.npy") }
train { data = D; batch = 16; optimizer = sgd(lr=0.3); precision = fp8; log { every = 1 }; eval = none }
"""
GPT = """model M(x: i32[B, 12], label: i32[B, 12]) {
  param table: [29, 32] = normal(0.5)
  h = embed(table, x)
  repeat i in 0..2 as layer {
    q, k, v = split(Linear(96, name="qkv")(LayerNorm(name="norm1")(h)), 3, axis=-1)
    q = rearrange(q, "b t (h d) -> b h t d", h=2)
    k = rearrange(k, "b t (h d) -> b h t d", h=2)
    v = rearrange(v, "b t (h d) -> b h t d", h=2)
    h = h + Linear(32, name="out")(rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)"))
    h = h + Linear(32, name="down")(gelu(Linear(64, name="up")(LayerNorm(name="norm2")(h))))
  }
  loss = mean(cross_entropy(Linear(29, name="head", precision=bf16)(h), label))
}
data D { train = npy("x.npy", "label.npy") }
train { data = D; batch = 16; optimizer = sgd(lr=0.3); precision = fp8; log { every = 1 }; eval = none }
"""


def gpt(p, x, linear):
    h = p["table"][x.long()]
    for i in range(2):
        at = f"layer.{i}."
        q, k, v = linear(F.layer_norm(h, (32,), p[at + "norm1.weight"], p[at + "norm1.bias"]), p, at + "qkv").split(32, -1)
        q, k, v = (y.reshape(len(x), 12, 2, 16).transpose(1, 2) for y in (q, k, v))
        h = h + linear(Attention.apply(q, k, v).transpose(1, 2).reshape(len(x), 12, 32), p, at + "out")
        h = h + linear(F.gelu(linear(F.layer_norm(h, (32,), p[at + "norm2.weight"], p[at + "norm2.bias"]), p, at + "up")), p, at + "down")
    return linear16(h, p, "head")


def start_of(shapes, seed):
    random = numpy.random.default_rng(seed)
    start = {}
    for name, shape in shapes.items():
        around = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        start[name] = (around + random.standard_normal(shape) * 0.7 / numpy.sqrt(shape[-1])).astype("f4")
    return start


MLP_SHAPES = {"fc1.weight": (33, 20), "fc1.bias": (33,), "fc2.weight": (24, 33), "fc2.bias": (24,), "fc3.weight": (10, 24), "fc3.bias": (10,)}
GPT_SHAPES = {"table": (29, 32), "head.weight": (29, 32), "head.bias": (29,)}
for i in range(2):
    for name, out, size in (("qkv", 96, 32), ("out", 32, 32), ("up", 64, 32), ("down", 32, 64)):
        GPT_SHAPES |= {f"layer.{i}.{name}.weight": (out, size), f"layer.{i}.{name}.bias": (out,)}
    for name in ("norm1", "norm2"):
        GPT_SHAPES |= {f"layer.{i}.{name}.weight": (32,), f"layer.{i}.{name}.bias": (32,)}


def step_of(model, start, x, label, linear):
    """The loss and the gradients of one step."""
    p = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in start.items()}
    logits = model(p, torch.from_numpy(x), linear)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), torch.from_numpy(label).long().reshape(-1))
    return loss.item(), {name: g.numpy() for name, g in zip(p, torch.autograd.grad(loss, list(p.values())))}


def apart(ours, theirs):
    """Of losses, and of all gradients together, relative."""
    off = sum(numpy.square(ours[1][name] - g, dtype="f8").sum() for name, g in theirs[1].items())
    return numpy.array([abs(ours[0] - theirs[0]) / theirs[0], numpy.sqrt(off / sum(numpy.square(g, dtype="f8").sum() for g in theirs[1].values()))])


class Float8(support.Case):
    def step(self, artifact, device, start, x, label):
        support.write_safetensors(self.path("start"), start)
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("label.npy"), label)
        support.run("ftrun", artifact, "--data", self.folder, "--no-shuffle", "--steps", 1, "--init", self.path("start"), "--device", device,
                    "--save", self.path("end"), "--log-jsonl", self.path("log"))
        end = support.read_safetensors(self.path("end"))
        loss = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line][0]
        return loss, {name: (start[name] - end[name]) / RATE for name in start}

    def follow(self, source, model, shapes, x, label, near, near_sim):
        """Each step from where the emulation was, so that differences do not grow over the steps."""
        targets = [(self.compile(source, *flags, name=name), device) for name, device, flags in
                   (("m.so", "cpu", ()), ("u.so", "cpu", ("--disable=fuse",)), ("m.ptx", "sim", ()))]
        start, most = start_of(shapes, 5), numpy.zeros((4, 2))
        for i in range(STEPS):
            rows = slice(i * BATCH, (i + 1) * BATCH)
            theirs = step_of(model, start, x[rows], label[rows], linear8)
            steps = [self.step(artifact, device, start, x[rows], label[rows]) for artifact, device in targets]
            steps.append(step_of(model, start, x[rows], label[rows], linear16))
            most = numpy.maximum(most, [apart(step, theirs) for step in steps])
            start = {name: value - numpy.float32(RATE) * theirs[1][name] for name, value in start.items()}
        print("cpu, without fusion, sim, emulated bf16: loss and gradient apart\n", most, flush=True)
        self.assertTrue((most[:2] < near).all())
        self.assertTrue((most[2] < near_sim).all())
        self.assertTrue((most[3] > near_sim).all())

    def test_mlp(self):
        x = numpy.random.default_rng(4).standard_normal((STEPS * BATCH, 20)).astype("f4")
        self.follow(MLP, mlp, MLP_SHAPES, x, x[:, :10].argmax(1).astype("i4"), (1e-5, 1e-4), (1e-5, 1e-4))

    def log_of(self, *arguments):
        support.run("ftrun", *arguments, "--data", self.folder, "--no-shuffle", "--log-jsonl", self.path("log"))
        return [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line]

    def test_parts_stops_and_evaluations(self):
        """A run that stops and goes on is that without a stop, to the bit; accumulate and recompute; an evaluation scales by its own batch."""
        x = numpy.random.default_rng(4).standard_normal((STEPS * BATCH, 20)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("label.npy"), x[:, :10].argmax(1).astype("i4"))
        support.write_safetensors(self.path("start"), start_of(MLP_SHAPES, 5))
        source = MLP.replace("train = npy", 'valid = npy("x.npy", "label.npy"); train = npy').replace("eval = none", "eval every 5 steps")
        ends = {}
        for name, flags in {"plain": (), "parts": ("train.batch=8", "train.accumulate=2"), "again": ("train.recompute=pointwise",)}.items():
            made = self.compile(source, *(item for flag in flags for item in ("--set", flag)), name=name + ".so")
            whole = self.log_of(made, "--init", self.path("start"), "--steps", STEPS, "--save", self.path("whole"))
            self.log_of(made, "--init", self.path("start"), "--steps", 2, "--set", f"train.checkpoint.dir={self.path(name)}")
            self.log_of(made, "--resume", self.path(name), "--steps", STEPS, "--save", self.path("resumed"))
            ends[name] = support.read_safetensors(self.path("whole"))
            resumed = support.read_safetensors(self.path("resumed"))
            for key, value in ends[name].items():
                numpy.testing.assert_array_equal(value, resumed[key])
            self.assertTrue(numpy.isfinite(whole).all())
        for key, value in ends["plain"].items():
            numpy.testing.assert_array_equal(value, ends["again"][key])
            self.assertLess(numpy.abs(ends["parts"][key] - value).max(), 0.1)  # each part has scales of its own
        loss, _ = step_of(mlp, ends["plain"], x[:BATCH], x[:BATCH, :10].argmax(1).astype("i4"), linear8)
        numpy.save(self.path("x.npy"), x[:BATCH])
        numpy.save(self.path("label.npy"), x[:BATCH, :10].argmax(1).astype("i4"))
        said = support.run("ftrun", "eval", self.path("plain.so"), "--weights", self.path("whole"), "--data", self.folder).stdout
        self.assertAlmostEqual(float(said.split("loss")[1].split()[0]), loss, places=4)

    def test_not_finite_is_seen(self):
        """Saturation hides no infinity: its scale is 0, and all becomes NaN."""
        x = numpy.ones((BATCH, 20), "f4")
        x[3, 4] = numpy.inf
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("label.npy"), numpy.zeros(BATCH, "i4"))
        self.fails(1, "the loss of step 1 is NaN", "ftrun", self.compile(MLP), "--data", self.folder)

    def test_refused(self):
        for flags in (("distributed.data=2",), ("distributed.data=any",), ("distributed.tensor=2",), ("distributed.pipeline=2", "train.accumulate=2")):
            with open(self.path("m.ft"), "w") as file:
                file.write(MLP)
            self.fails(1, "precision = fp8 scales a tensor by the largest of all its numbers", "ftc", self.path("m.ft"), "-o", self.path("r.so"),
                       *(item for flag in flags for item in ("--set", flag)))
        self.fails(1, "parameters=bf16 goes with precision = bf16, not with fp8", "ftc", self.path("m.ft"), "-o", self.path("r.so"), "--set", "train.parameters=bf16")

    def test_gpt(self):
        """On a GPU attention's weights are of bf16 within its products."""
        x = numpy.random.default_rng(4).integers(0, 29, (STEPS * BATCH, 12)).astype("i4")
        self.follow(GPT, gpt, GPT_SHAPES, x, (x * 3 + 1) % 29, (2e-4, 0.05), (1e-3, 0.08))


if __name__ == "__main__":
    support.main()
