"""Rows that a GPU's registers do not hold, of any length and with whatever is in them, on the simulator: softmax, its relatives,
layer norm and cross entropy, forward and backward, against float64 in numpy (f32), and against the same program on the processor
(bf16 and f16, whose roundings these share). Gradients are read as the step of a parameter that was 0."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

ROWS = 16  # of fewer, kernels make the sums and others the rest
# registers hold the first three; shared memory the next, whole or but for their end; most begin anywhere in 16 bytes
LENGTHS = (7, 1023, 4096, 5000, 5001, 16390, 33003, 50257)
MODEL = """model M(x: f32[B, N={length}], t: {target}) {{
  param v: [B, N] = zeros
  loss = {loss}
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {rows}; optimizer = sgd(lr=1); eval every 0 epochs }}
"""
HEAD = """model M(x: f32[B, E=16], t: i32[B]) {{
  loss = mean(cross_entropy(Linear({length}, bias=false, name="head")(x), t, ignore=-1))
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {rows}; precision = {precision}; optimizer = sgd(lr=100); eval every 0 epochs }}
"""


def softmax(x):
    with numpy.errstate(all="ignore"):
        e = numpy.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(-1, keepdims=True))


def of_softmax(x, t):
    p = softmax(x)
    with numpy.errstate(all="ignore"):
        return (p * t).sum(), p * (t - (p * t).sum(-1, keepdims=True))


def of_log_softmax(x, t):
    return (log_softmax(x) * t).sum(), t - softmax(x) * t.sum(-1, keepdims=True)


def of_norm(x, t):
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / numpy.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    y = centred * scale
    return (y * t).sum(), scale * (t - t.mean(-1, keepdims=True) - y * (y * t).mean(-1, keepdims=True))


def of_cross_entropy(x, t, smoothing=0):
    counts = t != -1
    wanted = numpy.full_like(x, smoothing / x.shape[-1])
    wanted[numpy.arange(len(t)), numpy.maximum(t, 0)] += 1 - smoothing
    losses = -(wanted * log_softmax(x)).sum(-1)
    part = (counts / counts.sum())[:, None]
    return (losses * part[:, 0]).sum(), part * (softmax(x) - wanted)


CASES = {  # loss, loss and gradient in numpy, is the target labels
    "softmax": ("sum(softmax(v + x) * t)", of_softmax, False),
    "log softmax": ("sum(log_softmax(v + x) * t)", of_log_softmax, False),
    "logsumexp": ("sum(logsumexp(v + x))", lambda x, t: ((x - log_softmax(x)).mean(-1).sum(), softmax(x)), False),
    "layer norm": ("sum(layer_norm(v + x) * t)", of_norm, False),
    "cross entropy": ("mean(cross_entropy(v + x, t, ignore=-1))", of_cross_entropy, True),
    "cross entropy, smoothed": ("mean(cross_entropy(v + x, t, smoothing=0.1))", lambda x, t: of_cross_entropy(x, t, 0.1), True),
}


class LongRows(support.Case):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(5)

    def step(self, source, x, t, target, *flags):
        """The loss of a step, and what is saved behind it."""
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("t.npy"), t)
        artifact = self.compile(source, *flags, name="model." + target)
        support.run("ftrun", artifact, "--device", "sim" if target == "ptx" else "cpu", "--steps", 1, "--no-shuffle", "--keep-going", "--data",
                    self.folder, "--set", "train.log.every=1", "--log-jsonl", self.path("log"), "--save", self.path("saved"), cwd=self.folder)
        losses = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")]
        os.remove(self.path("log"))
        return losses[0], {name: numpy.asarray(value) for name, value in support.read_safetensors(self.path("saved")).items()}

    def labels(self, length, ignored):
        labels = self.random.integers(0, length, ROWS).astype(numpy.int32)
        labels[0], labels[1] = length - 1, 0
        if ignored:
            labels[2] = -1
        return labels

    def check(self, name, length):
        loss, reference, has_labels = CASES[name]
        x = self.random.normal(size=(ROWS, length)).astype(numpy.float32) * 3
        t = self.labels(length, "ignore" in loss) if has_labels else self.random.normal(size=x.shape).astype(numpy.float32)
        source = MODEL.format(length=length, target="i32[B]" if has_labels else "f32[B, N]", loss=loss, rows=ROWS)
        got, saved = self.step(source, x, t, "ptx")
        expected, gradient = reference(x.astype(numpy.float64), t)
        scale = abs(gradient).max()
        error = abs(saved["v"] + gradient).max() / scale
        print(f"{name}, {length}: loss {got} for {expected:.7g}, gradient {error:.1e}", file=sys.stderr)
        with self.subTest(name, length=length):
            self.assertLess(abs(got - expected), 2e-6 * max(abs(expected), numpy.sqrt(length) * (not has_labels)))
            self.assertLess(error, 2e-6)

    def test_values(self):
        for index, name in enumerate(CASES):
            for length in LENGTHS[index % 2 :: 2] if index > 3 else LENGTHS[index % 3 :: 3]:
                self.check(name, length)

    def test_values_in_any_order_of_warps(self):
        os.environ["FT_SIM_SEED"] = "3"
        self.addCleanup(os.environ.pop, "FT_SIM_SEED", None)
        self.check("cross entropy", 5001)
        self.check("softmax", 16390)

    def test_infinities_and_nan(self):
        """A row may have -inf among its elements; of a row of them, or with inf or NaN, comes NaN, in its own place only."""
        for length in (1023, 5001):
            x = self.random.normal(size=(ROWS, length)).astype(numpy.float32)
            t = self.random.normal(size=x.shape).astype(numpy.float32)
            x[0, ::2], x[1], x[2, 7], x[3, length - 1] = -numpy.inf, -numpy.inf, numpy.nan, numpy.inf
            source = MODEL.format(length=length, target="f32[B, N]", loss=CASES["softmax"][0], rows=ROWS)
            _, saved = self.step(source, x, t, "ptx")
            _, gradient = of_softmax(x.astype(numpy.float64), t)
            self.assertTrue((numpy.isnan(saved["v"]) == numpy.isnan(gradient)).all())
            self.assertLess(numpy.nanmax(abs(saved["v"] + gradient)), 2e-6 * numpy.nanmax(abs(gradient)))

    def test_16_bits(self):
        """The gradient is written over the logits, which are 16 bits wide."""
        for precision, length, gpu in (("bf16", 1001, "sm_80"), ("bf16", 16001, "sm_80"), ("bf16", 5001, "sm_80"), ("bf16", 16390, "sm_90a"), ("fp16", 17001, "sm_90a")):
            x = self.random.normal(size=(ROWS, 16)).astype(numpy.float32)
            t = self.random.integers(-1, length, ROWS).astype(numpy.int32)
            source = HEAD.format(length=length, precision=precision, rows=ROWS)
            loss, saved = self.step(source, x, t, "ptx", "--gpu", gpu)
            expected, reference = self.step(source, x, t, "so")
            error = abs(saved["head.weight"] - reference["head.weight"]).max() / abs(reference["head.weight"]).max()
            print(f"{precision}, {length}: loss {loss} for {expected}, weights {error:.1e}", file=sys.stderr)
            with self.subTest(precision):
                self.assertLess(abs(loss - expected), 2e-6 * expected)
                self.assertLess(error, 1e-3)
                # elements numbered by 64 bits, as those of more than 2^30 are
                loss64, saved64 = self.step(source, x, t, "ptx", "--gpu", gpu, "--disable=index32")
                self.assertEqual(loss64, loss)
                self.assertTrue((saved64["head.weight"] == saved["head.weight"]).all())

    def test_more_than_2_to_the_31_elements(self):
        """Logits of 128 texts of 1024 tokens: 6.6e9 elements. Compiled, not run: what numbers them is run above."""
        def source(batch, length):
            return HEAD.format(length=length, precision="bf16", rows=batch)
        self.compile(source(32768, 50257), "--gpu", "sm_80", name="model.ptx")
        self.compile(source(131072, 50264), "--gpu", "sm_90a", name="model.ptx")
        with open(self.path("large.ft"), "w") as file:
            file.write(source(131072, 50264))
        self.fails(1, "an operand of this product has 2^31 elements or more", "ftc", self.path("large.ft"), "--gpu", "sm_80", "-o", self.path("large.ptx"))


if __name__ == "__main__":
    support.main()
