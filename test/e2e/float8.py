"""Training in fp8 follows an emulation in PyTorch step by step, on the processor and in the simulator: operands of products are scaled by the largest
of their tensor and rounded to e4m3, gradients to e5m2, as docs/language.md says; all else as bf16's classes. On sm_89 products read their operands in 8 bits,
on sm_90a where all dimensions are multiples of 16. Rounding is that of test/num/float8.py,
from the formats' definition, which is compared with ml_dtypes there. This is an MLP, whose last layer is of bf16; float8_gpt.py has a GPT. An emulation without 8 bits lies far beyond the bounds."""
import os
import re
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


def linear8(x, p, name):
    y = Product8.apply(x, p[name + ".weight"])
    return Bf16.apply(y + Bf16.apply(p[name + ".bias"], False), False)


def linear16(x, p, name):
    return Bf16.apply(F.linear(Bf16.apply(x, True), Bf16.apply(p[name + ".weight"], False), Bf16.apply(p[name + ".bias"], False)), True)


def mlp(p, x, linear):
    h = F.gelu(linear(F.relu(linear(x, p, "fc1")), p, "fc2"))
    return linear16(h, p, "fc3")


MLP = """model M(x: f32[B, 20], label: i32[B]) {
  h = gelu(Linear(24, name="fc2")(relu(Linear(33, name="fc1")(x))))
  loss = mean(cross_entropy(Linear(10, name="fc3", precision=bf16)(h), label))
}
data D { train = npy("x.npy", "label.npy") }
train { data = D; batch = 16; optimizer = sgd(lr=0.3); precision = fp8; log { every = 1 }; eval = none }
"""
# all dimensions of products are multiples of 16; with the larger ones products go by wgmma
EVEN = MLP.replace("20]", "32]").replace("33", "48").replace("24", "32")
WIDE = MLP.replace("20]", "512]").replace("24", "512").replace("33", "1024").replace("batch = 16", "batch = 512")
BATCHED = """model M(x: f32[B, 32, 48]) {
  h = Linear(64, name="fc")(x)
  s = h @ transpose(h) / 64
  loss = mean(square(transpose(s) @ x))
}
data D { train = npy("x.npy") }
train { data = D; batch = 4; accumulate = 2; optimizer = sgd(lr=0.01); precision = fp8; log { every = 1 }; eval = none }
"""
CPU = ("m.so", "cpu", ()), ("u.so", "cpu", ("--disable=fuse",))
HOPPER = ("h.ptx", "sim", ("--gpu", "sm_90a")), ("n.ptx", "sim", ("--gpu", "sm_90a", "--disable=fp8_products")), ("t.ptx", "sim", ("--gpu", "sm_90a", "--disable=tma"))


def start_of(shapes, seed):
    random = numpy.random.default_rng(seed)
    start = {}
    for name, shape in shapes.items():
        around = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        start[name] = (around + random.standard_normal(shape) * 0.7 / numpy.sqrt(shape[-1])).astype("f4")
    return start


def mlp_shapes(first, second, third):
    return {"fc1.weight": (second, first), "fc1.bias": (second,), "fc2.weight": (third, second), "fc2.bias": (third,), "fc3.weight": (10, third), "fc3.bias": (10,)}


MLP_SHAPES = mlp_shapes(20, 33, 24)


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

    def follow(self, source, model, shapes, sizes, targets, near):
        """Each step from where the emulation was, so that differences do not grow over the steps. sizes: steps, and of a batch. With FT_TURN half of the targets."""
        targets = support.of_this_turn(targets, 2)
        steps, batch = sizes
        x = numpy.random.default_rng(4).standard_normal((steps * batch, shapes["fc1.weight"][1])).astype("f4")
        label = x[:, :10].argmax(1).astype("i4")
        artifacts = [(self.compile(source, *flags, name=name), device) for name, device, flags in targets]
        start, most = start_of(shapes, 5), numpy.zeros((len(targets) + 1, 2))
        for i in range(steps):
            rows = slice(i * batch, (i + 1) * batch)
            theirs = step_of(model, start, x[rows], label[rows], linear8)
            made = [self.step(artifact, device, start, x[rows], label[rows]) for artifact, device in artifacts]
            made.append(step_of(model, start, x[rows], label[rows], linear16))
            most = numpy.maximum(most, [apart(step, theirs) for step in made])
            start = {name: value - numpy.float32(RATE) * theirs[1][name] for name, value in start.items()}
        print(*(name for name, _, _ in targets), "and emulated bf16: loss and gradient apart\n", most, flush=True)
        self.assertTrue((most[:-1] < near).all())
        self.assertTrue((most[-1] > near).all())

    def test_mlp(self):
        targets = *CPU, ("m.ptx", "sim", ()), ("e.ptx", "sim", ("--gpu", "sm_89"))
        self.follow(MLP, mlp, MLP_SHAPES, (STEPS, BATCH), targets, (2e-6, 5e-6))

    def test_hopper(self):
        self.follow(EVEN, mlp, mlp_shapes(32, 48, 32), (STEPS, BATCH), (*CPU, *HOPPER), (2e-6, 5e-6))

    def test_hopper_wide(self):
        """Among a million values some lie so near a tie that sums in another order decide it."""
        self.assertEqual(self.products_of("h.ptx", "--gpu", "sm_90a", source=WIDE), ({"e4m3.e4m3", "e5m2.e4m3"}, True))
        with open(self.path("h.ptx")) as file:
            self.assertEqual(set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.f32\.(\w+\.\w+)", file.read())), {"e4m3.e4m3", "e5m2.e4m3"})
        self.follow(WIDE, mlp, mlp_shapes(512, 1024, 512), (2, 512), (*CPU, *HOPPER), (1e-5, 1e-3))

    def test_batched(self):
        """Products of a batch of matrices, of a value by itself, in both orders; the parts of a batch. As bf16 makes them."""
        numpy.save(self.path("x.npy"), numpy.random.default_rng(9).standard_normal((16, 32, 48)).astype("f4"))
        ends = []
        for name, device, flags in HOPPER:
            made = self.compile(BATCHED, *flags, name=name)
            if not ends:
                support.run("ftrun", made, "--data", self.folder, "--steps", 0, "--save", self.path("start"), "--device", device)
            losses = self.log_of(made, "--device", device, "--init", self.path("start"), "--steps", 2, "--save", self.path("end"))
            ends.append((losses, support.read_safetensors(self.path("end"))))
        start = support.read_safetensors(self.path("start"))
        for losses, end in ends:
            numpy.testing.assert_allclose(losses, ends[1][0], rtol=1e-5)
            for key, value in end.items():
                moved = ends[1][1][key] - start[key]
                self.assertLess(numpy.abs(value - ends[1][1][key]).max(), 1e-4 * numpy.abs(moved).max())

    def products_of(self, name, *flags, source=MLP):
        """The products of 8-bit floats in its PTX, by their formats; no others but the last layer's."""
        with open(self.compile(source, *flags, name=name)) as file:
            text = file.read()
        found = re.findall(r"(?:mma\.sync\.aligned\.m16n8k32\.row\.col|wgmma\.mma_async\.sync\.aligned\.m64n\d+k32)\.f32\.(\w+\.e\w+)", text)
        return set(found), "cvt.rn.satfinite.e4m3x2.f32" in text

    def test_who_multiplies_bytes(self):
        """sm_89, and sm_90a where the dimensions are even; not sm_90, where that is an emulation; nobody who leaves it out, and a layer of bf16 does not either."""
        self.assertEqual(self.products_of("e.ptx", "--gpu", "sm_89"), ({"e4m3.e4m3", "e5m2.e4m3"}, True))
        hopper = "--gpu", "sm_90a"
        self.assertEqual(self.products_of("h.ptx", *hopper, source=EVEN)[1], True)
        for flags in ((), ("--gpu", "sm_90"), ("--gpu", "sm_89", "--disable=fp8_products"), ("--gpu", "sm_89", "--set", "train.precision=bf16"),
                      (*hopper, "--disable=fp8_products"), (*hopper, "--disable=wgmma"), (*hopper, "--set", "train.precision=bf16")):
            self.assertEqual(self.products_of("n.ptx", *flags, source=EVEN if "sm_90a" in flags else MLP), (set(), False))
        self.assertEqual(self.products_of("o.ptx", *hopper), (set(), False))

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


if __name__ == "__main__":
    support.main()
