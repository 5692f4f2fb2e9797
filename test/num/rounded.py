"""Products by weights that were rounded, alone: pass integers and kernels/rounded_x86.c against numpy in f64. 2 to 8 bits; groups of odd and even
numbers that share a scale, and one for a column or for all; few rows, whole tiles and what is left of them; weights stored either way
round, batched, behind a convolution; by every kind of instruction that this machine has, with and without fusion. Numbers of texts that are
generated are those of an evaluation."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.default_rng(29)
# name; output features; input features; bits; how many share a scale (0: all of an output, -1: all)
LAYERS = [("a", 70, 96, 4, 32), ("b", 33, 77, 8, 0), ("c", 130, 33, 4, 11), ("d", 5, 64, 2, -1), ("e", 1, 1, 8, 0), ("f", 64, 520, 3, 8),
          ("g", 17, 600, 7, 300), ("h", 48, 1031, 4, 0), ("i", 200, 9, 8, 9)]


def span(bits):
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def rounded(w, scale, bits):
    """What fake_quant makes of w, in its arithmetic."""
    with numpy.errstate(over="ignore", invalid="ignore"):
        return numpy.clip(numpy.rint(w * (numpy.float32(1) / scale)), *span(bits)) * scale


def layer_rounded(w, bits, group):
    """What QuantLinear multiplies by, weights [out, in]."""
    if group < 0:
        scale = numpy.abs(w).max() / numpy.float32(span(bits)[1])
        return rounded(w, scale, bits)
    parts = w.reshape(-1, group or w.shape[1])
    scale = numpy.maximum(numpy.abs(parts).max(1), numpy.float32(1.1754944e-38) * span(bits)[1]) / numpy.float32(span(bits)[1])
    return rounded(parts, scale[:, None], bits).reshape(w.shape)


class Rounded(support.Case):
    flags, kernel, artifact, device, batches = [], b"rounded_run", "model.so", [], (1, 2, 3, 4, 5, 14, 103)
    turn = None  # of the other ways to compile, one of five each day

    def setUp(self):
        if self.turn is not None and not support.has_its_turn(self.turn):
            self.skipTest("another day's")
        super().setUp()

    def compiled(self, inputs, lines, batch, params=(), kernel=True):
        text = (f"model M({', '.join(f'{name}: f32[B, {str(list(shape))[1:-1]}]' for name, shape in inputs)}) {{\n" +
                "".join(f"  param {name}: {list(shape)} = zeros\n" for name, shape in params) + "".join(f"  {line}\n" for line in lines) +
                f"  loss = mean({inputs[0][0]})\n}}\n" + "data D { train = npy(" + ", ".join(f'"{name}.npy"' for name, _ in inputs) +
                f") }}\ntrain {{ batch = {batch}; epochs = 1; optimizer = sgd(lr=0.1); eval = none }}\n")
        artifact = self.compile(text, *self.flags, name=self.artifact)
        with open(artifact, "rb") as file:
            self.assertEqual(self.kernel in file.read(), kernel)
        return artifact

    def predict_on_device(self, artifact, inputs, weights, outputs):
        return self.predict(artifact, inputs, weights, outputs, *self.device)

    def near(self, got, x, w, bias=0):
        """x [..., k] by w [k, n] within some roundings of the sum of the sizes."""
        x, w = x.astype("f8"), w.astype("f8")
        self.assertTrue(numpy.all(numpy.isfinite(got)))
        self.assertEqual(got.shape, (x @ w).shape)
        self.assertLessEqual(numpy.max(numpy.abs(got - (x @ w + bias)) - 2e-6 * (numpy.abs(x) @ numpy.abs(w) + numpy.abs(bias))), 0)

    def test_layers(self):
        weights = {f"{name}.weight": random.normal(0, 1, (n, k)).astype("f4") for name, n, k, _, _ in LAYERS}
        weights |= {f"{name}.bias": random.normal(0, 1, n).astype("f4") for name, n, _, _, _ in LAYERS}
        weights["a.weight"][3, 32:64] = 0  # a group of zeros
        weights["c.weight"][2] *= 1e-38  # subnormal numbers
        weights["f.weight"][5] *= 1e30
        lines = []
        for name, n, k, bits, group in LAYERS:
            form = f"group={group}" if group > 0 else "per_tensor=true" if group < 0 else "bias=true"
            lines += [f'y{name} = relu(QuantLinear({n}, bits={bits}, input_bits=none, {form}, name="{name}")(x{name}))', f"output y{name}"]
        for batch in support.of_this_turn(self.batches, 2):
            artifact = self.compiled([(f"x{name}", (k,)) for name, _, k, _, _ in LAYERS], lines, batch)
            x = {f"x{name}": random.normal(0, 1, (batch, k)).astype("f4") for name, _, k, _, _ in LAYERS}
            got = self.predict_on_device(artifact, x, weights, [f"y{name}" for name, *_ in LAYERS])
            for name, n, k, bits, group in LAYERS:
                with self.subTest(batch=batch, layer=name):
                    w = layer_rounded(weights[f"{name}.weight"], bits, group).T.astype("f8")
                    sums = x[f"x{name}"].astype("f8") @ w + weights[f"{name}.bias"]
                    bound = 2e-6 * (numpy.abs(x[f"x{name}"]) @ numpy.abs(w) + numpy.abs(weights[f"{name}.bias"]))
                    self.assertTrue(numpy.all(numpy.abs(got[f"y{name}"] - numpy.maximum(sums, 0)) <= bound))
        weights["g.weight"][11, 301] = numpy.nan  # one output, and no other
        got = self.predict_on_device(artifact, x, weights, ["yg"])["yg"]
        self.assertEqual(list(numpy.nonzero(numpy.isnan(got).any(0))[0]), [11])
        self.assertTrue(numpy.isnan(got[:, 11]).all())

    def test_nonfinite(self):
        """Infinite values and NaN of the first operand, whatever its bits; and the largest and smallest numbers."""
        lines = ['y = QuantLinear(5, bits=4, input_bits=none, group=16, bias=false, name="f")(x)', "output y"]
        w = random.integers(-7, 8, (5, 32)).astype("f4")
        w[:, ::16] = 7
        for batch in (2, 9):
            x = random.normal(0, 1, (batch, 32)).astype("f4")
            x[0, 3], x[1, 2] = numpy.inf, 3.4e38
            x[-1, 20] = numpy.array(0x7F800001, "u4").view("f4")
            w[0, 3], w[1, 3], w[:, 2] = 2, 0, [1, 0, -1, 0.0, 1]
            x[1, 5] = 1e-38
            artifact = self.compiled([("x", (32,))], lines, batch)
            got = self.predict_on_device(artifact, {"x": x}, {"f.weight": w}, ["y"])["y"]
            with numpy.errstate(over="ignore", invalid="ignore"):
                want = x @ w.T
            numpy.testing.assert_array_equal(numpy.isnan(got), numpy.isnan(want))
            numpy.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
        self.assertTrue(numpy.isinf(want).any() and numpy.isnan(want).any())

    def test_one_row(self):
        """Of one row whole numbers are made, of 64 steps at most with a unit of their own: rows of which some numbers are large, or all are small,
        or one is none."""
        for bits, k, group in ((4, 96, 32), (8, 96, 32), (8, 130, 0), (4, 117, 9)):
            w = random.integers(-span(bits)[1], span(bits)[1] + 1, (70, k)).astype("f4")
            w[:, :: group or k] = span(bits)[1]
            w[::2, 5] = 0
            lines = [f'y = QuantLinear(70, bits={bits}, input_bits=none, group={group or k}, bias=false, name="f")(x)', "output y"]
            artifact = self.compiled([("x", (k,))], lines, 1)
            x = random.normal(0, 1, (7, k)).astype("f4")
            x[1, 5], x[2, ::3] = 1e5, 0
            x[3] *= 1e-28
            x[4] *= 1e-34
            x[5, 5], x[6, 70] = numpy.inf, numpy.nan
            for i, row in enumerate(x):
                got = self.predict_on_device(artifact, {"x": row[None]}, {"f.weight": w}, ["y"])["y"][0]
                with numpy.errstate(invalid="ignore"):
                    want, size = row.astype("f8") @ w.T, numpy.abs(row).astype("f8") @ numpy.abs(w).T
                whole = numpy.isfinite(want)
                numpy.testing.assert_array_equal(got[~whole], want[~whole])
                most = numpy.abs(row).max() * numpy.abs(w).sum(1) * 2.0**-30 if i == 1 else 0
                self.assertTrue(numpy.all(numpy.abs(got - want)[whole] <= (1e-6 * size + most)[whole]), f"row {i}, {bits} bits")

    def test_large(self):
        """Numbers whose product with a whole number is infinite, and with the weight is not."""
        for bits in (4, 8):
            lines = [f'y = QuantLinear(5, bits={bits}, input_bits=none, group=16, bias=false, name="f")(x)', "output y"]
            most = span(bits)[1]
            w = random.integers(-most, most + 1, (5, 32)).astype("f4")
            w[:, ::16] = most
            w /= 256
            for batch in (3, 130):
                x = random.normal(0, 1, (batch, 32)).astype("f4")
                x[:, 16], x[2, 9] = 3e37, -2e37
                got = self.predict_on_device(self.compiled([("x", (32,))], lines, batch), {"x": x}, {"f.weight": w}, ["y"])["y"]
                numpy.testing.assert_allclose(got, x.astype("f8") @ w.T.astype("f8"), rtol=1e-6)

    def test_forms(self):
        """Weights the other way round, a negative scale, -8 among the numbers, a first operand that is turned, a batch of products, a
        product that is turned, one whose weights something else reads too."""
        w = {"w": random.normal(0, 3, (40, 50)).astype("f4"), "s": numpy.array([-0.5], "f4"), "t": random.uniform(0.2, 0.7, 50).astype("f4"),
             "e": random.normal(0, 1, (3, 21, 40)).astype("f4")}
        w["w"][0] = -100  # -8, or 7 where the scale is negative
        lines = ["q = fake_quant(w, s, bits=4)", "y1 = x @ q", "c = fake_quant(w, t, bits=8, axis=1)", "y2 = x @ c",
                 'y3 = rearrange(transpose(rearrange(z, "b k m -> k (b m)")) @ c, "(b m) n -> b m n", m=7)', 'r = rearrange(v, "b e m k -> e (b m) k")',
                 'y4 = rearrange(r @ transpose(fake_quant(e, 0.25, bits=4), [0, 2, 1]), "e (b m) n -> b e m n", m=2)', "p = fake_quant(w, 0.5, bits=4)", "y5 = x @ p + sum(p)",
                 "y6 = transpose(transpose(c) @ transpose(x))", 'f = QuantLinear(6, bits=4, input_bits=none, group=9, bias=false, name="f")(flatten(MaxPool2d(2)(conv2d(i, k)), from=1))']
        lines += ["g = reshape(fake_quant(reshape(w, [200, 10]), a, bits=4, axis=0), [40, 50])", "y7 = x @ g"]  # groups across what is summed up
        w["a"] = random.uniform(0.2, 0.7, 200).astype("f4")
        lines += ['y8 = rearrange(rearrange(u, "b e k -> e b k") @ transpose(fake_quant(e, 0.25, bits=4), [0, 2, 1]), "e b n -> b e n")']
        outputs = ["y1", "y2", "y3", "y4", "y5", "y6", "y7", "y8", "f"]
        lines += [f"output {name}" for name in outputs]
        w |= {"k": random.normal(0, 1, (4, 3, 3, 3)).astype("f4"), "f.weight": random.normal(0, 1, (6, 36)).astype("f4")}
        inputs = [("x", (40,)), ("z", (40, 7)), ("v", (3, 2, 40)), ("i", (3, 8, 8)), ("u", (3, 40))]
        for batch in (1, 6):
            artifact = self.compiled(inputs, lines, batch, [(name, w[name].shape) for name in ("w", "s", "t", "e", "k", "a")])
            x = {name: random.normal(0, 1, (batch, *shape)).astype("f4") for name, shape in inputs}
            got = self.predict_on_device(artifact, x, w, outputs)
            c, p = rounded(w["w"], w["t"], 8), rounded(w["w"], numpy.float32(0.5), 4)
            self.near(got["y1"], x["x"], rounded(w["w"], w["s"], 4))
            self.near(got["y2"], x["x"], c)
            self.near(got["y6"], x["x"], c)
            self.near(got["y7"], x["x"], rounded(w["w"].reshape(200, 10), w["a"][:, None], 4).reshape(40, 50))
            self.near(got["y5"], x["x"], p, p.sum(dtype="f8"))
            self.near(got["y3"], x["z"].swapaxes(1, 2), c)
            self.near(got["y4"], x["v"], rounded(w["e"], numpy.float32(0.25), 4).swapaxes(1, 2))
            self.near(got["y8"][:, :, None], x["u"][:, :, None], rounded(w["e"], numpy.float32(0.25), 4).swapaxes(1, 2))
            self.assertTrue(numpy.all(numpy.isfinite(got["f"])))
            plain = self.compile_plain(artifact)
            numpy.testing.assert_allclose(got["f"], self.predict_on_device(plain, x, w, ["f"])["f"], rtol=1e-4, atol=1e-4)

    def compile_plain(self, artifact):
        """The same program without the pass."""
        with open(self.path("model.ft")) as file:
            return self.compile(file.read(), "--disable=rounded", *[flag for flag in self.flags if "disable" not in flag], name=self.artifact)

    def test_not(self):
        """No such products: values that are made of a batch, and groups of too few."""
        self.compiled([("x", (8,)), ("z", (6, 8))], ["y = z @ transpose(fake_quant(z, 0.25), [0, 2, 1])", "output y",
                                                     'v = QuantLinear(9, bits=4, input_bits=none, group=2, name="f")(x)', "output v"], 2, kernel=False)


class RoundedOfAvx2(Rounded):
    turn = 0
    flags = ["--cpu", "x86-64-v3"]


class RoundedWithoutVnni(Rounded):
    """One row as several are."""

    flags = ["--disable=vnni"]


class RoundedPortable(Rounded):
    turn = 1
    flags = ["--cpu", "x86-64"]


class RoundedPlain(Rounded):
    turn = 2
    flags = ["--disable=fuse,simplify,simplify2"]


class RoundedUnprepared(Rounded):
    turn = 3
    flags = ["--disable=prepare,layout,storage"]


class RoundedOfGpu(Rounded):
    """kernels/rounded_ptx.c, in the simulator."""

    kernel, artifact, device, batches = b"mma.sync.aligned.m16n8k16", "model.ptx", ["--device", "sim"], (1, 8, 13, 37)


class RoundedOfGpuPlain(RoundedOfGpu):
    turn = 4
    flags = ["--disable=fuse,simplify,simplify2,prepare,layout,storage"]


class RoundedNarrow(support.Case):
    """First operands of bf16 and f16: weights stay what fake_quant made of them, not rounded again, in groups of any length, by every kind of
    instruction. Only results are rounded, which a sum of terms that cancel is not much."""

    layers = [*(layer for layer in LAYERS if layer[2] >= 8), ("j", 130, 192, 8, 64), ("k", 48, 1030, 4, 0), ("l", 37, 90, 8, 18), ("m", 20, 60, 4, 12), ("n", 65, 512, 8, 32)]

    def check(self, precision, batch, *flags):
        inputs = ", ".join(f"x{name}: f32[B, {k}]" for name, _, k, _, _ in self.layers)
        lines = []
        for name, n, k, bits, group in self.layers:
            form = f"group={group}" if group > 0 else "per_tensor=true" if group < 0 else "group=none"
            lines.append(f'  y{name} = QuantLinear({n}, bits={bits}, input_bits=none, {form}, bias=false, name="{name}")(x{name})\n  output y{name}\n')
        text = (f"model M({inputs}) {{\n{''.join(lines)}  loss = mean(xa)\n}}\ndata D {{ train = npy(" +
                ", ".join(f'"x{name}.npy"' for name, *_ in self.layers) + f") }}\ntrain {{ batch = {batch}; optimizer = sgd(lr=0.1); eval = none }}\n")
        artifact = self.compile(text, "--set", f"train.precision={precision}", *flags)
        with open(artifact, "rb") as file:
            self.assertIn(b"rounded_run", file.read())
        weights = {f"{name}.weight": random.normal(0, 1, (n, k)).astype("f4") for name, n, k, _, _ in self.layers}
        x = {f"x{name}": random.normal(0, 1, (batch, k)).astype("f4") for name, _, k, _, _ in self.layers}
        x["xn"][0, 5], x["xk"][-1, 1029], x["xl"][-1, 89] = numpy.inf, numpy.nan, 3e4
        x["xj"][-1, 191] = 3e38 if precision == "bf16" and batch > 1 else 6e4  # times a whole number it is infinite; of one row it would be all there is of its group
        x = {name: (value.view("u4") & 0xFFFF0000).view("f4") if precision == "bf16" else value.astype("f2").astype("f4") for name, value in x.items()}
        got = self.predict(artifact, x, weights, [f"y{name}" for name, *_ in self.layers])
        for name, n, k, bits, group in self.layers:
            with self.subTest(layer=name, batch=batch), numpy.errstate(invalid="ignore", over="ignore"):
                w, left = layer_rounded(weights[f"{name}.weight"], bits, group).T.astype("f8"), x[f"x{name}"].astype("f8")
                want, size = left @ w, numpy.abs(left) @ numpy.abs(w)
                whole = numpy.isfinite(want) & (numpy.abs(want) < (3.3e38 if precision == "bf16" else 6e4))
                numpy.testing.assert_array_equal(numpy.isnan(got[f"y{name}"]), numpy.isnan(want))
                error = numpy.abs(got[f"y{name}"] - want)[whole] - (2**-8 if precision == "bf16" else 2**-10) * numpy.abs(want)[whole]
                self.assertTrue(numpy.all(error <= 4e-6 * size[whole]), name)

    def test_bf16(self):
        for batch in (1, 3, 14, 103):
            self.check("bf16", batch)

    def test_ways(self):
        for flags in (["--disable=dpbf16"], ["--cpu", "x86-64-v3"], ["--cpu", "x86-64"], ["--disable=fuse,simplify,simplify2"], ["--disable=prepare,layout,storage"]):
            self.check("bf16", 9, *flags)

    def test_fp16(self):
        for batch in (1, 14):
            self.check("fp16", batch)


TEXT = """
block Attention()(x: [B, T, D]) {
  q, k, v = split(QuantLinear(3 * D, bits=4, input_bits=none, group=16, bias=false, name="qkv")(x), 3, axis=-1)
  q = rope(rearrange(q, "b t (h d) -> b h t d", h=2))
  k = rope(rearrange(k, "b t (h d) -> b h t d", h=2))
  v = rearrange(v, "b t (h d) -> b h t d", h=2)
  return QuantLinear(D, bits=8, input_bits=none, name="out")(rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)"))
}
hyper T: int = 160
hyper D: int = 32
model Gpt(text: i32[B, T], next: i32[B, T]) {
  param bytes: [256, D] = normal(0.5)
  x = embed(bytes, text)
  repeat i in 0..2 as layer { x = x + Attention(name="attention")(RMSNorm(name="norm")(x)) }
  logits = QuantLinear(256, bits=4, input_bits=none, group=8, name="head")(x)
  loss = mean(cross_entropy(logits, next))
  if not training { output logits }
}
data Text { train = bytes("train.txt") }
train { batch = 4; epochs = 1; optimizer = adam(lr=0.01); eval = none }
"""


class Texts(support.Case):
    """One position at a time, and a prompt in runs of 64, by the same weights as whole windows."""

    def test_generate(self):
        with open(self.path("train.txt"), "wb") as file:
            file.write(bytes(random.choice(list(b"abc "), 3).tolist()) * 3000)
        for batch in (1, 3, 6):
            artifact = self.compile(TEXT, "--set", f"generate.batch={batch}")
            if batch == 1:
                support.run("ftrun", artifact, "--data", self.folder, "--steps", 12, "--save", self.path("w.safetensors"))
            texts = []
            for more in ([], ["--no-cache"]):
                done = support.run("ftrun", "generate", artifact, "--weights", self.path("w.safetensors"), "--prompt", "abc cab " * 9, "--tokens", 40,
                                   "--temperature", 0.7, "--samples", batch, *more)
                texts.append(done.stdout)
            self.assertEqual(*texts)
            self.assertGreater(len(set(texts[0])), 3)


if __name__ == "__main__":
    support.main()
