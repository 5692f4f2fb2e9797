"""examples/gpt_bytes.ft, with smaller dimensions, trained with `precision = fp8` equals an emulation step by step: on the processor, fused and not, and in
the simulator. Rounding is that of test/num/float8.py, which is compared with ml_dtypes there.

The emulation rounds where ft says that it rounds, and nothing else is approximate but f32 itself: sums here are exact, and rounded once. So a step
that starts at the device's own checkpoint ends where the device did, to f32's accuracy (NEAR), unless a value lies so near the middle between two
numbers of bf16, e4m3 or e5m2 (TIE) that f32's error decides. One such value changes all that is rounded after it, and a gradient by up to 1 %.
Therefore no bound is wide enough to hide it: if a step differs, the values near a tie are rounded the other way, one at a time, until it is equal. A
step that no tie explains fails. `test_planted` asks the same of emulations that are wrong in one place, which must not be explained.

Of delayed scaling a checkpoint has the scales of the next step and the largest numbers that they follow from. What is equal to the bit: the history is the one
before without its first step; the scales are Transformer Engine's function of the history (`next_scales`). To f32's accuracy: the largest numbers of this
step are those of the emulation's tensors, and the step is the emulation's with the scales of the checkpoint."""
import os
import sys

import numpy
import torch

sys.path[:0] = [os.path.join(os.path.dirname(__file__), part) for part in ("..", os.path.join("..", "num"))]
import float8
import support

T, D, HEADS, LAYERS, BATCH, STEPS = 16, 16, 2, 2, 2, 200 if os.environ.get("FT_SOAK") else 8
SETTINGS = [item for name in ("T", "D") for item in ("-D", f"{name}={globals()[name]}")] + ["-D", f"heads={HEADS}", "-D", f"L={LAYERS}", "--set", f"train.batch={BATCH}",
                                                                                         "--set", "train.precision=fp8"]
LEAST = numpy.float32(2.0**-100)
HISTORY, MARGIN = 3, 1
F32 = ["--disable=amx,dpbf16"]  # attention of bf16 is computed in f32, on every processor: products of pairs round its weights to bf16
BYTES, HOPPER = ["--gpu", "sm_89"], ["--gpu", "sm_90a"]  # products read their operands in 8 bits, in any order, and along k
DELAYED = ["--set", "train.fp8.scaling=delayed", "--set", f"train.fp8.history={HISTORY}", "--set", f"train.fp8.margin={MARGIN}"]
SCALES, LARGEST = "@float8.scale", "@float8.history"
OUTPUT = 4 * LAYERS  # the number of the last product
NEAR = 2e-6  # of all gradients together, relative: the moment holds a tenth of a gradient, and f32 has 6e-8
TIE = numpy.float32(2.0**-20)  # of a value: 16 times f32's rounding, for sums of up to 256 products
MOST_TIES = 3  # decided in one step
ATTENTION_SCALE = float(numpy.float32(1 / numpy.sqrt(D / HEADS)))


class Emulation:
    """One step. `flips` names values that are rounded the other way, by the number of the rounding and their place in it; `ties` are those near one.
    scales: of operands, weights and gradients, by product; None: current scaling. `largest`: what is largest in these."""

    def __init__(self, is_gpu, flips=(), defect=None, scales=None):
        self.is_gpu, self.flips, self.defect, self.ties, self.roundings = is_gpu, flips, defect, [], 0
        self.scales, self.largest = scales, numpy.zeros((OUTPUT + 1, 3), "f4")

    def round(self, nearest, x):
        y, low, high = nearest(x), nearest(x * (1 - TIE)), nearest(x * (1 + TIE))
        for at in numpy.flatnonzero(low != high):
            self.ties.append((self.roundings, at))
            if self.ties[-1] in self.flips:
                y.flat[at] = low.flat[at] if y.flat[at] == high.flat[at] else high.flat[at]
        self.roundings += 1
        return torch.from_numpy(y)

    def bf16(self, x):
        return self.round(lambda x: torch.from_numpy(x).bfloat16().float().numpy(), x.detach().numpy())

    def on_gpu(self, x):
        """What tensor cores read."""
        return self.bf16(x) if self.is_gpu else x

    def scaled(self, x, name, product, tensor):
        """x rounded as it is scaled, and 1 / scale, in f32."""
        x = x.detach().numpy()
        self.largest[product, tensor] = numpy.abs(x).max()
        scale = numpy.float32(float8.FORMATS[name][2]) / numpy.maximum(numpy.abs(x).max(), LEAST)
        if self.scales is not None:
            scale = self.scales[product, tensor if self.defect != "scale of another tensor" else 0]
        if self.defect == "scale":
            scale *= numpy.float32(0.99)
        return self.round(lambda x: float8.nearest(name, x), x * scale), numpy.float32(1) / scale


def sums(a, b):
    """a @ b, exact, rounded to f32."""
    return (a.double() @ b.double()).float()


class Product8(torch.autograd.Function):
    """x @ transpose(w), rounded to bf16. dx is too, unless nothing but a parameter's gradient is made of it; dw keeps its f32 sums."""

    @staticmethod
    def forward(context, x, w, e, product):
        (a, of_a), (b, of_b) = context.x, context.w = e.scaled(x, "e4m3", product, 0), e.scaled(w, "e4m3", product, 1)
        context.e, context.product = e, product
        return e.bf16(sums(a, b.T) * float(of_a * of_b))

    @staticmethod
    def backward(context, gradient):
        e, (x, of_x), (w, of_w) = context.e, context.x, context.w
        dy, of_dy = e.scaled(gradient, "e4m3" if e.defect == "e4m3" else "e5m2", context.product, 2)
        dx = sums(dy, w) * float(of_dy * of_w)
        of_dw = of_w if e.defect == "scale of another" else of_x
        dw = sums(dy.reshape(-1, dy.shape[-1]).T, x.reshape(-1, x.shape[-1])) * float(of_dy * of_dw)
        return dx if context.product == 0 and e.defect != "rounded gradient" else e.bf16(dx), dw, None, None


class Attention(torch.autograd.Function):
    """Causal; operands and results of bf16, and f32 within, but for what tensor cores read. Backward reads the rounded result."""

    @staticmethod
    def forward(context, q, k, v, e):
        scores = sums(q, k.transpose(-1, -2)).masked_fill(torch.ones(T, T).triu(1) > 0, -numpy.inf)
        p = torch.exp((scores - scores.amax(-1, keepdim=True)) * ATTENTION_SCALE)
        total = p.sum(-1, keepdim=True)
        o = e.bf16(sums(e.on_gpu(p), v) / total)
        context.save_for_backward(q, k, v, p / total, o)
        context.e = e
        return o

    @staticmethod
    def backward(context, gradient):
        q, k, v, p, o = context.saved_tensors
        e, across = context.e, lambda x: x.transpose(-1, -2)
        slope = sums(gradient, across(v)) - (gradient * o).sum(-1, keepdim=True)
        weights = e.on_gpu(p)
        dv = sums(across(weights), gradient)
        # the GPU's kernel of dk and dv goes on with the rounded weights, that of dq has no need to round them
        dk = sums(across(e.on_gpu((p if e.defect == "weights" else weights) * slope)), q) * ATTENTION_SCALE
        dq = sums(e.on_gpu(p * slope), k) * ATTENTION_SCALE
        return e.bf16(dq), e.bf16(dk), e.bf16(dv), None


class Rounded(torch.autograd.Function):
    """The value, not the gradient."""

    @staticmethod
    def forward(context, x, e):
        return e.bf16(x)

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def rope(x, e):
    half = x.shape[-1] // 2
    angle = torch.arange(T)[:, None] * torch.exp(torch.arange(half) * (-numpy.log(10000.0) / half))
    a, b = x.split(half, -1)
    return Rounded.apply(torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1), e)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def loss_of(p, text, following, e):
    x = p["bytes.weight"][text]
    for i in range(LAYERS):
        at = f"layer.{i}."
        qkv = Product8.apply(norm(x, p[at + "norm1.weight"]), p[at + "attention.qkv.weight"], e, 4 * i)
        q, k, v = (y.reshape(BATCH, T, HEADS, D // HEADS).transpose(1, 2) for y in qkv.split(D, -1))
        y = Attention.apply(rope(q, e), rope(k, e), v, e).transpose(1, 2).reshape(BATCH, T, D)
        x = x + Product8.apply(y, p[at + "attention.out.weight"], e, 4 * i + 1)
        h = gelu(Product8.apply(norm(x, p[at + "norm2.weight"]), p[at + "mlp.up.weight"], e, 4 * i + 2))
        x = x + Product8.apply(h, p[at + "mlp.down.weight"], e, 4 * i + 3)
    logits = Product8.apply(norm(x, p["norm.weight"]), p["bytes.weight"], e, OUTPUT)
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 256), following.reshape(-1))


def step_of(state, text, following, e):
    """The loss, the gradients' norm, and the gradients."""
    names = [name for name in state if not name.startswith("@")]
    p = {name: torch.from_numpy(state[name].copy()).requires_grad_() for name in names}
    loss = loss_of(p, text, following, e)
    made = [g.numpy().astype("f8") for g in torch.autograd.grad(loss, list(p.values()))]
    size = numpy.sqrt(sum(numpy.square(g).sum() for g in made))
    return loss.item(), size, dict(zip(names, made))


def next_scales(history, before):
    """`_default_sf_compute` of Transformer Engine (transformer_engine/pytorch/quantization.py), in f32; the larger range is of gradients."""
    largest = history.max(0)
    ends = numpy.array([float8.FORMATS["e4m3"][2]] * 2 + [float8.FORMATS["e5m2"][2]], "f4")
    with numpy.errstate(all="ignore"):
        scale = ends / largest / numpy.float32(2**MARGIN)
    scale = numpy.where(numpy.isfinite(largest) & (largest > 0), scale, before)
    return numpy.minimum(scale, numpy.finfo("f4").max)


def apart(ours, theirs):
    """Of all gradients together, relative."""
    off = sum(numpy.square(ours[name] - g).sum() for name, g in theirs.items())
    return numpy.sqrt(off / sum(numpy.square(g).sum() for g in theirs.values()))


def explain(ours, state, text, following, is_gpu, defect=None, most=MOST_TIES):
    """The emulation of the step that is nearest to `ours`, how far that is, how many ties were decided to come there, and the Emulation itself."""
    flips, scales = (), state.get(SCALES)
    emulation = Emulation(is_gpu, flips, defect, scales)
    made = step_of(state, text, following, emulation)
    best = made, apart(ours, made[2]), 0, emulation
    while best[1] > NEAR and len(flips) < most:
        found = None
        for tie in emulation.ties:
            if tie in flips:
                continue
            trial = Emulation(is_gpu, (*flips, tie), defect, scales)
            made = step_of(state, text, following, trial)
            if apart(ours, made[2]) < best[1]:
                best, found, trial_found = (made, apart(ours, made[2]), len(flips) + 1, trial), tie, trial
                if best[1] < NEAR:
                    break
        if not found:
            break
        flips, emulation = (*flips, found), trial_found
    return best


class Float8Gpt(support.Case):
    def setUp(self):
        super().setUp()
        with open(os.path.join(support.EXAMPLES, "gpt_bytes.ft")) as file:
            self.source = file.read().replace("eval every 1 epoch", "eval = none").replace("every = 50 steps", "every = 1").replace("warmup=50 steps, ", "")
        self.bytes = (numpy.random.default_rng(1).integers(0, 40, STEPS * BATCH * T + 1) ** 2 // 8).astype("u1")
        self.bytes.tofile(self.path("train.txt"))
        self.bytes.tofile(self.path("valid.txt"))

    def rows(self, step):
        at, size = (step - 1) * BATCH * T, BATCH * T
        return (torch.from_numpy(self.bytes[at + i : at + i + size].astype("i8").reshape(BATCH, T)) for i in (0, 1))

    def train(self, artifact, device):
        """The states before the first step and after each, and the lines of the log."""
        folder = self.path("states-" + os.path.basename(artifact))
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", self.path("start"), "--device", device)
        start = support.read_safetensors(self.path("start"))
        start |= {f"@adamw.{moment}.{name}": numpy.zeros_like(value) for name, value in start.items() for moment in "mv" if not name.startswith("@")}
        if SCALES in start:  # with the weights there are the scales alone
            start[LARGEST] = numpy.zeros((HISTORY, OUTPUT + 1, 3), "f4")
        support.run("ftrun", artifact, "--data", self.folder, "--device", device, "--no-shuffle", "--steps", STEPS, "--log-jsonl", self.path("log"), *(
            item for name, value in (("lr", 0.02), ("checkpoint.unit", "step"), ("checkpoint.keep", STEPS), ("checkpoint.dir", folder)) for item in ("--set", f"train.{name}={value}")))
        lines = [line for line in support.read_jsonl(self.path("log")) if "loss" in line]
        return [start] + [support.read_safetensors(os.path.join(folder, f"step-{step:08}.safetensors")) for step in range(1, STEPS + 1)], lines

    def gradient(self, before, after, norm):
        """As the moments have it, before it was clipped to a norm of 1."""
        clipped = {name: (after["@adamw.m." + name].astype("f8") - 0.9 * before["@adamw.m." + name]) / 0.1 for name in before if not name.startswith("@")}
        return {name: g * max(1, norm + 1e-6) for name, g in clipped.items()}

    def updates(self, before, after, step, rate, gradient, norm):
        """AdamW (Loshchilov and Hutter 2019), from the moments that the device has."""
        for name in (name for name in before if not name.startswith("@")):
            m, v, g = after["@adamw.m." + name].astype("f8"), after["@adamw.v." + name].astype("f8"), gradient[name] / max(1, norm + 1e-6)
            numpy.testing.assert_allclose(v, 0.99 * before["@adamw.v." + name] + 0.01 * g * g, rtol=1e-4, atol=1e-12)
            moved = m / (1 - 0.9**step) / (numpy.sqrt(v / (1 - 0.99**step)) + 1e-8)
            numpy.testing.assert_allclose(after[name], before[name] * (1 - rate * 0.1) - rate * moved, rtol=1e-5, atol=1e-6)

    def remembers(self, before, after, e):
        """The scales of the next step."""
        numpy.testing.assert_array_equal(after[LARGEST][:-1], before[LARGEST][1:])
        numpy.testing.assert_allclose(after[LARGEST][-1], e.largest, rtol=2e-5)
        numpy.testing.assert_array_equal(after[SCALES], next_scales(after[LARGEST], before[SCALES]))

    def steps(self, runs, *settings):
        """With FT_TURN half of the runs."""
        for name, device, flags in support.of_this_turn(runs, 2):
            states, lines = self.train(self.compile(self.source, *SETTINGS, *settings, *flags, name=name), device)
            for step in range(1, STEPS + 1):
                before, after, line = states[step - 1], states[step], lines[step - 1]
                ours = self.gradient(before, after, line["grad_norm"])
                (loss, size, _), off, ties, e = explain(ours, before, *self.rows(step), device == "sim")
                print(f"{name} step {step}: loss {line['loss']:.6f} {loss:.6f}, gradients apart {off:.1e}, ties {ties}", flush=True)
                with self.subTest(name, step=step):
                    self.assertLess(off, NEAR)
                    self.assertLess(abs(line["loss"] - loss), 2e-6 * loss)
                    self.assertLess(abs(line["grad_norm"] - size), 1e-5 * size)  # a sum of 17,000 squares in f32
                    self.updates(before, after, step, line["lr"], ours, line["grad_norm"])
                    if settings:
                        self.remembers(before, after, e)

    def test_current(self):
        self.steps((("m.so", "cpu", F32), ("u.so", "cpu", ("--disable=fuse,amx,dpbf16",)), ("m.ptx", "sim", ()), ("e.ptx", "sim", BYTES), ("h.ptx", "sim", HOPPER)))

    def test_delayed(self):
        self.steps((("g.ptx", "sim", HOPPER), ("d.so", "cpu", F32), ("v.so", "cpu", ("--disable=fuse,amx,dpbf16",)), ("d.ptx", "sim", ()), ("f.ptx", "sim", BYTES)), *DELAYED)

    def test_planted(self):
        """An emulation that is wrong in one place is found, whatever the ties; without a defect it is equal."""
        both = "scale", "e4m3", "scale of another", "rounded gradient", "weights"
        for name, settings, defects in support.of_this_turn((("m.ptx", (), both), ("d.ptx", DELAYED, (*both, "scale of another tensor"))), 2):
            states, lines = self.train(self.compile(self.source, *SETTINGS, *settings, name=name), "sim")
            ours = self.gradient(states[1], states[2], lines[1]["grad_norm"])
            for defect in (None, *defects):
                _, off, ties, _ = explain(ours, states[1], *self.rows(2), True, defect, 1)
                print(f"{name} planted {defect}: {off:.1e}, ties {ties}", flush=True)
                with self.subTest(defect):
                    self.assertTrue(off > 2 * NEAR if defect else off < NEAR)


if __name__ == "__main__":
    support.main()
