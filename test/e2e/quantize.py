"""`ftrun quantize`: weights, scales and ranges against PyTorch's quantisers and formulas in numpy, GPTQ against an implementation by
elimination, SmoothQuant against the network it must not change; trained networks on real data; what is refused, with which words."""
import os
import re
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

SAMPLES, BATCH = 64, 8
LINEAR = """model M(x: f32[B, 12], y: i32[B]) {
  h = relu(Linear(16, name="fc1")(x))
  repeat i in 0..2 as block { h = h + Linear(16, bias=false, name="up")(h) }
  z = Linear(4, name="out")(h)
  loss = mean(cross_entropy(z, y))
  metric accuracy = mean(argmax(z, axis=-1) == y)
  output z
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""
IMAGES = """model M(x: f32[B, 3, 8, 8], y: i32[B]) {
  v = relu(Conv2d(6, 3, padding=1, stride=2, name="a")(x))
  v = relu(Conv2d(8, (3, 1), padding=(1, 0), bias=false, name="b")(v))
  z = Linear(4, name="out")(flatten(v, from=1))
  loss = mean(cross_entropy(z, y))
  output z
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""


def rounded(x, scale, bits=8, signed=True, axis=None):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    x = torch.from_numpy(numpy.ascontiguousarray(x))
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(x, float(scale), 0, low, high).numpy()
    scale = torch.from_numpy(numpy.ascontiguousarray(scale))
    return torch.fake_quantize_per_channel_affine(x, scale, torch.zeros(len(scale), dtype=torch.int32), axis, low, high).numpy()


def groups(weight, size):
    return weight.reshape(-1, size)


def largest_scale(rows, bits):
    return (numpy.abs(rows).reshape(len(rows), -1).max(1) / numpy.float32(2 ** (bits - 1) - 1)).astype("f4")


def gptq(weight, inputs, bits, group, ordered=False, damping=0.01):
    """By elimination of one variable after the other from the inverse (Frantar et al., section 3.2), not by its Cholesky factor."""
    w, x = weight.astype("f8"), inputs.astype("f8")
    columns = w.shape[1]
    hessian = x.T @ x
    hessian += numpy.eye(columns) * damping * numpy.mean(numpy.diag(hessian))
    inverse = numpy.linalg.inv(hessian)
    order = sorted(range(columns), key=lambda j: -(x[:, j] @ x[:, j])) if ordered else range(columns)
    scales = largest_scale(groups(weight, group), bits).reshape(len(w), -1).astype("f8")
    out = numpy.zeros_like(w)
    for step, j in enumerate(order):
        if not ordered and j % group == 0:
            scales[:, j // group] = largest_scale(w[:, j : j + group].astype("f4"), bits)
        scale = scales[:, j // group].astype("f4")
        out[:, j] = rounded(w[:, j].astype("f4")[:, None], scale, bits, axis=0)[:, 0]
        error = (w[:, j] - out[:, j]) / inverse[j, j]
        left = list(order)[step + 1 :]
        w[:, left] -= error[:, None] * inverse[j, left]
        inverse[numpy.ix_(left, left)] -= numpy.outer(inverse[left, j], inverse[j, left]) / inverse[j, j]
    return out.astype("f4"), scales.astype("f4")


def unpacked(tensors):
    """Whole numbers times their scales, as f32; both ways in which a file has them."""
    out = {}
    for name, value in tensors.items():
        if name.endswith("_shape"):
            continue
        if name.endswith(".weight_packed"):
            name, shape = name[: -len("_packed")], tensors[name.replace("_packed", "_shape")]
            columns = int(numpy.prod(shape[1:]))
            nibbles = value.view("u4")[:, :, None] >> (4 * numpy.arange(8, dtype="u4")) & 15
            value = (nibbles.reshape(len(value), -1)[:, :columns].astype("i4") - 8).reshape(shape).astype("i1")
        if value.dtype == numpy.int8:
            scale = tensors[name + "_scale"]
            rows = value.reshape(scale.size if scale.size > 1 else 1, -1)
            value = (rows.astype("f4") * scale.reshape(-1, 1)).reshape(value.shape)
        out[name] = value
    return out


class Quantize(support.Case):
    def model(self, text, x, classes=4):
        """Writes model and data, and random weights."""
        random = numpy.random.default_rng(5)
        weights = self.untrained(text, x, random.integers(0, classes, len(x)))
        for name, value in weights.items():
            weights[name] = (random.standard_normal(value.shape) * 0.4).astype("f4")
        support.write_safetensors(self.path("w.safetensors"), weights)
        return weights

    def linear(self, text=LINEAR, scale=None):
        x = numpy.random.default_rng(7).standard_normal((SAMPLES, 12)) * (1 if scale is None else scale)
        return self.model(text, x), x.astype("f4")

    def quantize(self, *flags, weights="w.safetensors", out="q.ft", source="m.ft"):
        done = support.run("ftrun", "quantize", self.path(source), "--data", self.folder, "--weights", self.path(weights), "-o", self.path(out), *flags)
        return done.stdout, unpacked(support.read_safetensors(self.path(out.replace(".ft", ".safetensors"))))

    def predict(self, source, weights, *flags):
        support.run("ftc", self.path(source), "-o", self.path("p.so"), *flags)
        support.run("ftrun", "predict", self.path("p.so"), "--weights", self.path(weights), "--input", f"x={self.path('x.npy')}", "--output", self.path("z.npy"))
        return numpy.load(self.path("z.npy"))

    @staticmethod
    def forward(w, x, inputs=None):
        """The LINEAR model, and what its layers read. inputs: how a layer's input is rounded, by name."""
        seen = {}

        def layer(name, x):
            seen[name] = x
            x = inputs(name, x) if inputs else x
            return x @ w[name + ".weight"].T + w.get(name + ".bias", numpy.float32(0))

        h = numpy.maximum(layer("fc1", x), 0)
        for i in range(2):
            h = h + layer(f"block.{i}.up", h)
        return layer("out", h), seen

    NAMES = ("fc1", "block.0.up", "block.1.up", "out")

    def test_linear(self):
        w, x = self.linear()
        said, q = self.quantize()
        plain, seen = self.forward(w, x)
        signed = {name: seen[name].min() < 0 for name in self.NAMES}
        self.assertEqual([signed[name] for name in self.NAMES], [True, False, True, True])
        for name in self.NAMES:
            scale = largest_scale(w[name + ".weight"], 8)
            numpy.testing.assert_array_equal(q[name + ".weight_scale"], scale)
            numpy.testing.assert_array_equal(q[name + ".weight"], rounded(w[name + ".weight"], scale, axis=0))
            numpy.testing.assert_allclose(q[name + ".input.max_abs"], [numpy.abs(seen[name]).max()], rtol=1e-6)
        with open(self.path("q.ft")) as file:
            text = file.read()
        self.assertIn('quantize = "fc1=w8a8 block.0.up=w8a8u block.1.up=w8a8 out=w8a8"', text)
        self.assertEqual(text.replace('; quantize = "fc1=w8a8 block.0.up=w8a8u block.1.up=w8a8 out=w8a8" }', " }"), LINEAR)

        def inputs(name, x):
            high = 127 if signed[name] else 255
            return rounded(x, q[name + ".input.max_abs"][0] / numpy.float32(high), signed=bool(signed[name]))

        got = self.predict("q.ft", "q.safetensors")
        want, _ = self.forward(q, x, inputs)
        numpy.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * numpy.abs(want).max())
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors", "--disable=integers"), got, rtol=1e-5, atol=1e-5 * numpy.abs(want).max())
        self.assertGreater(numpy.abs(got - plain).max(), 1e-3 * numpy.abs(plain).max())  # it is rounded
        for name in self.NAMES:
            self.assertRegex(said, rf"(?m)^{name} +w8a8u? +\S.* +[23456]\d\.\d dB$")
        # the last layer's ratio is that of the model's output
        ratio = 10 * numpy.log10((plain.astype("f8") ** 2).sum() / ((plain.astype("f8") - got) ** 2).sum())
        self.assertAlmostEqual(float(re.search(r"(?m)^out .* (\S+) dB$", said)[1]), ratio, delta=0.06)
        loss = re.search(r"(?m)^loss +(\S+) +(\S+)$", said)
        evaluated = support.run("ftrun", "eval", self.path("p.so"), "--data", self.folder, "--weights", self.path("q.safetensors"), "--log-jsonl", self.path("log"))
        self.assertAlmostEqual(float(loss[2]), support.read_log(self.path("log"))[-1]["loss"], delta=1e-5, msg=evaluated.stdout)

    def test_forms(self):
        """Patterns, the last of which counts; layers that stay; one scale for all; groups; weights alone."""
        w, x = self.linear()
        said, q = self.quantize("--layers", "*=w8a8", "--layers", "block.*=w4g8", "--layers", "out=w8ta8", "--stay", "fc*")
        self.assertNotIn("fc1.weight_scale", q)
        numpy.testing.assert_array_equal(q["fc1.weight"], w["fc1.weight"])
        for i in range(2):
            name = f"block.{i}.up"
            self.assertNotIn(name + ".input.max_abs", q)
            scale = largest_scale(groups(w[name + ".weight"], 8), 4)
            numpy.testing.assert_array_equal(q[name + ".weight_scale"], scale.reshape(16, 2))
            numpy.testing.assert_array_equal(q[name + ".weight"], rounded(groups(w[name + ".weight"], 8), scale, 4, axis=0).reshape(16, 16))
        scale = numpy.abs(w["out.weight"]).max() / numpy.float32(127)
        numpy.testing.assert_array_equal(q["out.weight_scale"], [scale])
        numpy.testing.assert_array_equal(q["out.weight"], rounded(w["out.weight"], scale))
        self.assertRegex(said, r"block.1.up +w4g8 ")
        want, _ = self.forward(q, x, lambda name, x: rounded(x, q["out.input.max_abs"][0] / numpy.float32(127)) if name == "out" else x)
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), want, rtol=1e-4, atol=1e-4)
        # again: those that are left; -D, --set and the file's own settings stay
        _, again = self.quantize(weights="q.safetensors", source="q.ft", out="r.ft")
        with open(self.path("r.ft")) as file:
            self.assertIn('quantize = "block.0.up=w4g8 block.1.up=w4g8 out=w8ta8 fc1=w8a8"', file.read())
        self.assertEqual(set(again) - set(q), {"fc1.weight_scale", "fc1.input.max_abs"})

    def test_ranges_that_are_none(self):
        """A range or a scale that is no finite number from 0 is refused by name, where weights are given; 0 is one that is to be found yet."""
        self.linear()
        self.quantize("--layers", "fc1=w8a8", "--layers", "out=w8a8")
        before = support.read_safetensors(self.path("q.safetensors"))
        support.run("ftc", self.path("q.ft"), "-o", self.path("p.so"))
        predict = ("ftrun", "predict", self.path("p.so"), "--input", f"x={self.path('x.npy')}", "--output", self.path("z.npy"), "--weights", self.path("bad.safetensors"))
        for name, value, words in (("out.input.max_abs", numpy.inf, "inf"), ("fc1.input.max_abs", numpy.nan, "nan"), ("fc1.input.max_abs", -1, "-1")):
            support.write_safetensors(self.path("bad.safetensors"), {**before, name: numpy.full_like(before[name], value)})
            words = rf"bad.safetensors: {name} holds {words}, which is no range of a rounded layer: a finite number from 0"
            self.fails(1, words, *predict)
            self.fails(1, words, "ftrun", self.path("p.so"), "--data", self.folder, "--init", self.path("bad.safetensors"), "--steps", "1")
        support.write_safetensors(self.path("bad.safetensors"), {**before, "out.input.max_abs": numpy.zeros(1, "f4")})
        support.run(*predict)

    def test_images(self):
        x = numpy.random.default_rng(7).standard_normal((SAMPLES, 3, 8, 8)).astype("f4")
        w = self.model(IMAGES, x)
        _, q = self.quantize()
        scale = largest_scale(w["b.weight"], 8)
        numpy.testing.assert_array_equal(q["b.weight"], rounded(w["b.weight"], scale, axis=0))

        def forward(w, rounding):
            v = torch.from_numpy(rounding("a", x))
            v = torch.relu(torch.nn.functional.conv2d(v, *(torch.from_numpy(w["a." + n]) for n in ("weight", "bias")), padding=1, stride=2))
            v = torch.from_numpy(rounding("b", v.numpy()))
            v = torch.relu(torch.nn.functional.conv2d(v, torch.from_numpy(w["b.weight"]), padding=(1, 0)))
            v = rounding("out", v.flatten(1).numpy())
            return v @ w["out.weight"].T + w["out.bias"]

        def inputs(name, x):
            return rounded(x, q[name + ".input.max_abs"][0] / numpy.float32(127 if name == "a" else 255), signed=name == "a")

        want = forward(q, inputs)
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), want, rtol=1e-3, atol=1e-3 * numpy.abs(want).max())
        # GPTQ takes the windows that a convolution sees
        seen = {}
        plain = forward(w, lambda name, x: seen.setdefault(name, x))
        _, g = self.quantize("--layers", "*=w4", "--gptq", out="g.ft")
        windows = torch.nn.functional.unfold(torch.from_numpy(seen["a"]), 3, padding=1, stride=2).transpose(1, 2).reshape(-1, 27).numpy()
        want_a, scales = gptq(w["a.weight"].reshape(6, 27), windows, 4, 27)
        self.assertGreater((g["a.weight"].reshape(6, 27) == want_a).mean(), 0.99)
        windows = torch.nn.functional.unfold(torch.from_numpy(seen["b"]), (3, 1), padding=(1, 0)).transpose(1, 2).reshape(-1, 18).numpy()
        self.assertGreater((g["b.weight"].reshape(8, 18) == gptq(w["b.weight"].reshape(8, 18), windows, 4, 18)[0]).mean(), 0.99)
        _, nearest = self.quantize("--layers", "*=w4", out="n.ft")
        error = [numpy.square(self.predict(f"{n}.ft", f"{n}.safetensors") - plain).sum() for n in "gn"]
        self.assertLess(error[0], error[1])
        # SmoothQuant by channels, but not of groups
        _, s = self.quantize("--layers", "*=w16a16", "--smooth", 0.5, "--keep-factors", out="s.ft")
        self.assertEqual(s["b.input_factor"].shape, (6,))
        numpy.testing.assert_allclose(self.predict("s.ft", "s.safetensors"), plain, rtol=1e-3, atol=1e-3 * numpy.abs(plain).max())

    def test_observers(self):
        w, x = self.linear()
        _, seen = self.forward(w, x)
        flags = ("--layers", "*=w8a8", "--observer")

        def ranges(q):
            return {name: q[name + ".input.max_abs"][0] for name in self.NAMES}

        average = {}
        for name in self.NAMES:
            a = numpy.float32(0)
            for now in numpy.abs(seen[name].reshape(-1, BATCH, seen[name].shape[-1])).max((1, 2)):
                a = a + numpy.float32(0.01) * (now - a) if a > 0 else now
            average[name] = a
        got = ranges(self.quantize(*flags, "average")[1])
        for name in self.NAMES:
            self.assertAlmostEqual(got[name] / average[name], 1, delta=1e-5)
        # a percentile is where a bin of 8192 ends
        for percent in (50, 90, 99.9):
            got = ranges(self.quantize(*flags, "percentile", "--percentile", percent)[1])
            for name in self.NAMES:
                values = numpy.sort(numpy.abs(seen[name]).ravel())
                want = values[int(numpy.ceil(percent / 100 * values.size)) - 1]
                self.assertLess(abs(got[name] - want), 2 * values[-1] / 8192, (percent, name))
        # of 100 parts of the largest that of the least error
        for form, high in (("w8a4", 7), ("w8a8", 127)):
            got = ranges(self.quantize("--layers", f"*={form}", "--observer", "mse")[1])
            for name in self.NAMES:
                values, signed = numpy.abs(seen[name]).ravel().astype("f8"), seen[name].min() < 0
                top = high if signed else 2 * high + 1

                def error(limit):
                    step = limit / top
                    return numpy.square(values - step * numpy.clip(numpy.round(values / step), 0, top)).sum()

                best = min(error(values.max() * k / 100) for k in range(1, 101))
                self.assertLess(error(got[name]), 1.01 * best, (form, name))
        self.assertLess(got["fc1"], numpy.abs(seen["fc1"]).max() * 1.0001)
        # scales of weights likewise
        _, q = self.quantize("--layers", "*=w4", "--weight-scale", "mse")
        for name in self.NAMES:
            rows = w[name + ".weight"]
            for row, scale, got in zip(rows, q[name + ".weight_scale"], q[name + ".weight"]):
                least = min(numpy.square(row - rounded(row, numpy.abs(row).max() * numpy.float32(k / 100) / numpy.float32(7), 4)).sum() for k in range(20, 101))
                self.assertLessEqual(numpy.square(row - got).sum(), least * 1.0001)
                numpy.testing.assert_array_equal(got, rounded(row, scale, 4))

    def test_gptq(self):
        mix = numpy.random.default_rng(9).standard_normal((12, 12))
        x = (numpy.random.default_rng(7).standard_normal((SAMPLES, 12)) @ mix).astype("f4")
        w = self.model(LINEAR, x)
        _, seen = self.forward(w, x)
        for form, bits, size, flags in (("w4", 4, None, ()), ("w4g4", 4, 4, ()), ("w3g4", 3, 4, ("--act-order",)), ("w4", 4, None, ("--act-order", "--damping", 0.1))):
            with self.subTest(form=form, flags=flags):
                _, q = self.quantize("--layers", f"*={form}", "--gptq", *flags)
                _, nearest = self.quantize("--layers", f"*={form}", out="n.ft")
                for name in self.NAMES:
                    weight, inputs = w[name + ".weight"], seen[name]
                    columns = weight.shape[1]
                    damping = flags[-1] if "--damping" in flags else 0.01
                    want, scales = gptq(weight, inputs, bits, size or columns, bool(flags), damping)
                    numpy.testing.assert_allclose(q[name + ".weight_scale"].ravel(), scales.ravel(), rtol=1e-4)
                    self.assertGreater(numpy.isclose(q[name + ".weight"], want, rtol=1e-4, atol=1e-6).mean(), 0.98)
                    error = [numpy.square(inputs @ (v[name + ".weight"] - weight).T).sum() for v in (q, nearest)]
                    self.assertLess(error[0], 0.9 * error[1])

    def test_smooth(self):
        """Inputs of which one feature is large: what is 16 bits wide must come out as before, what is 8 bits wide is better than without."""
        scale = numpy.ones(12)
        scale[3] = 60
        w, x = self.linear(scale=scale)
        plain, seen = self.forward(w, x)
        _, q = self.quantize("--layers", "*=w16a16", "--smooth", 0.5)
        for name in self.NAMES:
            s = numpy.sqrt(numpy.abs(seen[name]).max(0).astype("f8") / numpy.abs(w[name + ".weight"]).max(0))
            numpy.testing.assert_allclose(1 / q[name + ".input_factor"], s, rtol=1e-5)
            numpy.testing.assert_allclose(q[name + ".weight"], w[name + ".weight"] * s.astype("f4"), rtol=1e-2, atol=1e-3)
        got = self.predict("q.ft", "q.safetensors")
        numpy.testing.assert_allclose(got, plain, rtol=1e-3, atol=2e-3 * numpy.abs(plain).max())
        errors = []
        for flags in ((), ("--smooth", 0.5), ("--smooth", 0.5, "--observer", "percentile", "--percentile", 100), ("--smooth", 0.5, "--gptq")):
            self.quantize("--layers", "*=w8a8", *flags)
            errors.append(numpy.square(self.predict("q.ft", "q.safetensors") - plain).sum())
        self.assertLess(max(errors[1:]), 0.5 * errors[0], errors)

    def test_files(self):
        """Weights as whole numbers: what is read of them is what they are times their scales, everywhere that weights are read."""
        self.linear()
        _, q = self.quantize("--layers", "fc1=w8a8", "--layers", "block.*=w4g8", "--layers", "out=w3t")
        raw = support.read_safetensors(self.path("q.safetensors"))
        self.assertEqual({name: (str(value.dtype), value.shape) for name, value in raw.items() if "weight" in name and not name.startswith("block.1")}, {
            "fc1.weight": ("int8", (16, 12)), "fc1.weight_scale": ("float32", (16,)), "out.weight_packed": ("int32", (4, 2)), "out.weight_shape": ("int64", (2,)),
            "out.weight_scale": ("float32", (1,)), "block.0.up.weight_packed": ("int32", (16, 2)), "block.0.up.weight_shape": ("int64", (2,)), "block.0.up.weight_scale": ("float32", (16, 2))})
        got = self.predict("q.ft", "q.safetensors")
        support.write_safetensors(self.path("f32.safetensors"), q)
        numpy.testing.assert_array_equal(self.predict("q.ft", "f32.safetensors"), got)
        support.run("ftrun", self.path("p.so"), "--data", self.folder, "--init", self.path("q.safetensors"), "--steps", 0, "--save", self.path("back.safetensors"))
        back = support.read_safetensors(self.path("back.safetensors"))
        self.assertEqual(set(back), set(q))
        for name, value in q.items():
            numpy.testing.assert_array_equal(back[name], value)
        support.run("ftrun", "deploy", self.path("q.ft"), "--weights", self.path("q.safetensors"), "-o", self.path("d.so"))
        wrong = {"has no weight_scale beside it": {"out.weight_scale": None}, "has no weight_shape of I64": {"out.weight_shape": None}, "as many numbers as its weight_shape says": {"out.weight_shape": numpy.array([4, 17])},
                 "another number of scales": {"out.weight_scale": numpy.ones(3, "f4")}, "has a scale that is not finite": {"fc1.weight_scale": numpy.where(numpy.arange(16) == 3, numpy.nan, raw["fc1.weight_scale"]).astype("f4")},
                 "is not I32": {"out.weight_packed": raw["out.weight_packed"].astype("i8")},
                 "has scales that are not F32": {"fc1.weight_scale": raw["fc1.weight_scale"].astype("f8")}, "has a weight_shape that is none": {"out.weight_shape": numpy.array([4, -1])},
                 "is too large": {"out.weight_shape": numpy.array([4, 2**39, 2**39])}, "is there once more": {"out.weight": q["out.weight"]}}
        for words, changed in wrong.items():
            support.write_safetensors(self.path("wrong.safetensors"), {name: value for name, value in {**raw, **changed}.items() if value is not None})
            self.fails(1, words, "ftrun", "eval", self.path("p.so"), "--data", self.folder, "--weights", self.path("wrong.safetensors"))

    def test_shared(self):
        """A layer that is applied twice has one range for training to observe, so its inputs stay; layers without names cannot be meant."""
        text = LINEAR.replace('h = relu(Linear(16, name="fc1")(x))', 's = Linear(16, bias=false, name="s")\n  h = s(relu(s(relu(Linear(16, name="fc1")(x)))))')
        w, x = self.linear(text)
        plain = self.predict("m.ft", "w.safetensors")
        done = support.run("ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("q.ft"), "--gptq")
        self.assertIn("'s' is applied 2 times, so its inputs stay f32", done.stderr)
        self.assertRegex(done.stdout, r"(?m)^s +w8  ")
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), plain, atol=0.1 * numpy.abs(plain).max())
        done = support.run("ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("q.ft"), "--layers", "*=w8a8d")
        self.assertNotIn("applied", done.stderr)  # rows that say their range themselves need no observer
        self.assertRegex(done.stdout, r"(?m)^s +w8a8d +by row ")
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), plain, atol=0.1 * numpy.abs(plain).max())
        with open(self.path("m.ft"), "w") as file:
            file.write(text.replace(', name="fc1"', "").replace(', name="out"', ""))
        artifact = self.path("m.so")
        support.run("ftc", self.path("m.ft"), "-o", artifact)
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", self.path("w.safetensors"))
        self.fails(1, "'linear_1' has no name of its own", "ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("r.ft"))
        done = support.run("ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("r.ft"), "--stay", "linear*")
        self.assertEqual(done.stderr.count("this Linear has no name, by which it could be meant, and stays as it is"), 1, done.stderr)

    def test_precision(self):
        """What is computed in 16 bits gives f32 to look at."""
        w, x = self.linear()
        said, q = self.quantize("--set", "train.precision=bf16")
        for name in self.NAMES:
            numpy.testing.assert_array_equal(q[name + ".weight"], rounded(w[name + ".weight"], largest_scale(w[name + ".weight"], 8), axis=0))
        with open(self.path("q.ft")) as file:
            self.assertIn("precision = bf16", file.read())

    def test_setting(self):
        """train.quantize by hand: training with rounding, switched on and off by --set, from the weights of an ordinary training."""
        self.linear()
        quant = LINEAR.replace("Linear(16, name", "QuantLinear(16, name").replace("Linear(16, bias=false, name", "QuantLinear(16, bias=false, bits=4, group=8, input_bits=none, name")
        with open(self.path("written.ft"), "w") as file:
            file.write(quant)
        losses = []
        for source, flags in (("written.ft", ()), ("m.ft", ("--set", "train.quantize=fc1=w8a8 block.*=w4g8"))):
            support.run("ftrun", self.path(source), "--data", self.folder, "--init", self.path("w.safetensors"), "--init-missing", "keep", "--log-jsonl", self.path("log"), *flags)
            losses.append([line["loss"] for line in support.read_jsonl(self.path("log"))])
        self.assertEqual(*losses)
        for setting, words in (("fc9=w8", "there is no Linear or Conv2d 'fc9' left; did you mean 'fc1'?"), ("fc1=w1", "a rounded number has 2 to 16 bits: 'fc1=w1'"), ("fc1=8", "begins with w"),
                               ("fc1", "no layer with a form: 'fc1'"), ("fc1=w8 fc1=w4", "given twice"), ("fc1=w4g0", "a group has a number"), ("fc1=w8tg4", "do not go together"),
                               ("fc1=w8a8x", "a form is w8 or w4"), ("fc1=w4g5", "group=5 must divide the 12 input features")):
            self.fails(1, words, "ftc", self.path("m.ft"), "-o", self.path("x.so"), "--set", f"train.quantize={setting}")
        self.fails(1, "'fc1' is a QuantLinear already", "ftc", self.path("written.ft"), "-o", self.path("x.so"), "--set", "train.quantize=fc1=w8")

    def test_begun_by_resuming(self):
        """Rounding that begins in the middle of a training: from a checkpoint, moments and all, as PyTorch's AdamW goes on; its own checkpoints go on to the bit."""
        random = numpy.random.default_rng(4)
        x, y = random.standard_normal((48, 6)).astype("f4"), random.integers(0, 3, 48)
        text = 'model M(x: f32[B, 6], y: i32[B]) {\n  loss = mean(cross_entropy(Linear(3, name="fc2")(relu(Linear(16, name="fc1")(x))), y))\n}\ndata D { train = npy("x.npy", "y.npy"); shuffle = false }\n'
        self.untrained(text + 'train { batch = 16; seed = 5; optimizer = adamw(lr=0.01, weight_decay=0.1); eval = none; checkpoint { dir = "run"; every = 3 steps; keep = 9 } }\n', x, y)
        train = ("ftrun", self.path("m.ft"))
        support.run(*train, "--steps", 6, cwd=self.folder)
        rounded = ("--set", "train.quantize=*=w4a8")
        done = support.run(*train, *rounded, "--resume", "run/step-00000006.safetensors", "--steps", 12, "--save", "end", cwd=self.folder)
        self.assertIn("comes from a training without these layers' rounding, which begins now", done.stdout + done.stderr)
        again = support.run(*train, *rounded, "--resume", "run/step-00000009.safetensors", "--steps", 12, "--save", "again", cwd=self.folder)
        self.assertNotIn("begins now", again.stdout + again.stderr)
        end, again = support.read_safetensors(self.path("end")), support.read_safetensors(self.path("again"))
        for name, value in end.items():
            numpy.testing.assert_array_equal(value, again[name], err_msg=name)
        at = {k: torch.tensor(v).double() for k, v in support.read_safetensors(self.path("run", "step-00000006.safetensors")).items()}
        w = {k: at[k].clone().requires_grad_() for k in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")}
        optimizer, seen = torch.optim.AdamW(w.values(), lr=0.01, weight_decay=0.1), {}
        for k, v in w.items():
            optimizer.state[v] = {"step": torch.tensor(6.0), "exp_avg": at["@adamw.m." + k].clone(), "exp_avg_sq": at["@adamw.v." + k].clone()}

        def layer(name, h):
            largest = h.detach().abs().max().item()
            seen[name] = 0.99 * seen[name] + 0.01 * largest if name in seen else largest
            h = torch.fake_quantize_per_tensor_affine(h, seen[name] / 127, 0, -128, 127)
            scale = w[name + ".weight"].detach().abs().amax(1) / 7
            weight = torch.fake_quantize_per_channel_affine(w[name + ".weight"], scale.float(), torch.zeros(len(scale), dtype=torch.int32), 0, -8, 7)
            return torch.nn.functional.linear(h, weight, w[name + ".bias"])

        for step in range(6, 12):
            rows = slice(step % 3 * 16, step % 3 * 16 + 16)
            loss = torch.nn.functional.cross_entropy(layer("fc2", torch.relu(layer("fc1", torch.tensor(x[rows]).double()))), torch.tensor(y[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for name, value in w.items():
            numpy.testing.assert_allclose(end[name], value.detach().numpy(), atol=1e-4, err_msg=name)
        self.fails(1, "which this training does not have: it cannot go on exactly", *train, "--resume", "run/step-00000012.safetensors", "--steps", 13, cwd=self.folder)

    def test_switched(self):
        """`quantize = after(...)`: what is refused; the switch moved by --set, at the start and by a resumed run; a quantised program that keeps it."""
        self.linear()
        with open(self.path("m.ft")) as file:
            text = file.read()

        def run(recipe, *flags):
            with open(self.path("s.ft"), "w") as file:
                file.write(text.replace("seed = 3;", f"seed = 3; {recipe};"))
            support.run("ftrun", self.path("s.ft"), "--data", self.folder, "--save", self.path("end"), *flags)
            return {k: v for k, v in support.read_safetensors(self.path("end")).items() if k.endswith(".weight")}

        def same(a, b):
            return all(numpy.array_equal(a[k], b[k]) for k in a)

        plain, rounded, late = run("lr = 0.1"), run('quantize = "*=w4a8"'), run('quantize = after(5 steps, "*=w4a8")')
        self.assertEqual([same(plain, rounded), same(plain, late), same(rounded, late)], [False] * 3)
        self.assertTrue(same(late, run('quantize = "*=w4a8"', "--set", "train.quantize.after=0.6")))  # 4.8 of 8 steps
        self.assertTrue(same(rounded, run('quantize = after(5 steps, "*=w4a8")', "--set", "train.quantize.after=0")))
        self.assertTrue(same(plain, run('quantize = after(0.99, "*=w4a8", observe=1 step)')))
        checkpoints = ("--set", "train.checkpoint.dir=" + self.path("run"), "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=3")
        run('quantize = after(0.99, "*=w4a8")', "--stop-at", 3, *checkpoints)
        self.assertTrue(same(late, run('quantize = after(0.99, "*=w4a8")', "--resume", self.path("run"), "--set", "train.quantize.after=5")))
        run('lr = 0.1', "--stop-at", 3, *[flag.replace(self.path("run"), self.path("plain")) for flag in checkpoints])
        run('quantize = after(0, "*=w4a8", observe=1 step)', "--resume", self.path("plain"))  # layers that have seen nothing see one batch
        seen = support.read_safetensors(self.path("end"))["fc1.input.max_abs"]
        run('quantize = "*=w4a8"', "--resume", self.path("plain"))
        self.assertGreater(seen[0], 0)
        self.assertLess(seen[0], support.read_safetensors(self.path("end"))["fc1.input.max_abs"][0] * 2)
        support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"), "--set", "train.quantize=*=w4a8")
        self.fails(1, "the model was compiled without it", "ftrun", self.path("m.so"), "--data", self.folder, "--set", "train.quantize.after=0.5")
        self.fails(1, "-1 is less than 0", "ftrun", self.path("s.ft"), "--data", self.folder, "--set", "train.quantize.observe=-1")
        for recipe, words in (('after(1.5, "*=w8")', "a share of all steps below 1, such as 0.3, or a number of steps, such as 200 steps, not 1.5"),
                              ('after(2 epochs, "*=w8")', "not a duration"), ("after()", "after says when rounding begins, and of which layers"),
                              ('after(0.1, "*=w8", "b")', "after says when rounding begins"), ('after(0.1, "*=w8", until=3)', "after has no argument 'until'"),
                              ("after(0.1)", "nothing in this model is rounded"), ('after(0.1, "*=w8", observe=0.5)', "nothing in this model observes any"),
                              ('after(0.1, "*=w8", observe=-1)', "observe takes a share of all steps")):
            with open(self.path("bad.ft"), "w") as file:
                file.write(text.replace("seed = 3;", f"seed = 3; quantize = {recipe};"))
            self.fails(1, words, "ftc", self.path("bad.ft"), "-o", self.path("x.so"))
        for call in ("when_rounding(x, sum(x))", "when_rounding(x, x > 0)", "when_observing(sum(x), x)"):  # with and without the setting
            for recipe in ("lr = 0.1", "quantize = after(0.5)"):
                with open(self.path("bad.ft"), "w") as file:
                    file.write(text.replace("h = relu(", f"x = {call}\n  h = relu(").replace("seed = 3;", f"seed = 3; {recipe};"))
                self.fails(1, "() takes two tensors of one type and shape, not", "ftc", self.path("bad.ft"), "-o", self.path("x.so"))
        run('quantize = after(2 steps, "fc1=w8a8", observe=6 steps)')
        support.run("ftrun", "quantize", self.path("s.ft"), "--data", self.folder, "--weights", self.path("end"), "-o", self.path("q.ft"))
        with open(self.path("q.ft")) as file:
            self.assertRegex(file.read(), r'quantize = after\(2 steps, "fc1=w8a8 .*out=w8a8", observe=6 steps\)')

    def test_refused(self):
        w, x = self.linear()
        ft, weights, out = self.path("m.ft"), self.path("w.safetensors"), self.path("q.ft")
        base = ("ftrun", "quantize", ft, "--data", self.folder, "--weights", weights, "-o", out)
        self.fails(1, "there is no layer 'fc2'; did you mean 'fc1'?", *base, "--layers", "fc2=w8")
        self.fails(2, "expected PATTERN=FORM", *base, "--layers", "fc1")
        self.fails(2, "2 to 16 bits", *base, "--layers", "fc1=w99")
        self.fails(2, "follow from the calibration", *base, "--layers", "fc1=w8a8u")
        self.fails(2, "then a8, a8u or a8d", *base, "--layers", "fc1=w8a8ud")
        self.fails(2, "expected minmax, average, percentile or mse", *base, "--observer", "best")
        self.fails(2, "is for --gptq", *base, "--act-order")
        self.fails(2, "is for --observer percentile", *base, "--percentile", 99)
        self.fails(2, "--smooth", *base, "--smooth", 2)
        self.fails(2, "needs --weights", "ftrun", "quantize", ft, "-o", out)
        self.fails(2, "makes a quantised .ft file", "ftrun", "quantize", self.path("m.so"), "--weights", weights, "-o", out)
        self.fails(2, "makes a quantised .ft file", "ftrun", "quantize", ft, "--weights", weights, "-o", self.path("q.so"))
        self.fails(1, "would be written over", *base[:-1], ft)
        self.fails(1, "would be written over", *base[:-1], self.path("w.ft"))
        self.fails(1, "groups of 5 do not divide the 12 input features of 'fc1'", *base, "--layers", "fc1=w4g5")
        self.fails(1, "all layers stay as they are", *base, "--stay", "*")
        self.fails(1, "has no split 'test'", *base, "--split", "test")
        self.assertFalse(os.path.exists(out))
        broken = dict(w)
        broken["out.weight"] = w["out.weight"].copy()
        broken["out.weight"][1, 2] = numpy.nan
        support.write_safetensors(self.path("nan.safetensors"), broken)
        self.fails(1, "'out.weight' holds a number that is not finite, at element 18", *base[:6], self.path("nan.safetensors"), *base[7:])
        missing = {k: v for k, v in w.items() if k != "fc1.weight"}
        support.write_safetensors(self.path("less.safetensors"), missing)
        self.fails(1, "has no tensor 'fc1.weight'", *base[:6], self.path("less.safetensors"), *base[7:])
        wide = dict(w, **{"fc1.weight": numpy.zeros((16, 13), "f4")})
        support.write_safetensors(self.path("wide.safetensors"), wide)
        self.fails(1, "fc1.weight", *base[:6], self.path("wide.safetensors"), *base[7:])
        bad = x.copy()
        bad[5, 3] = numpy.inf
        numpy.save(self.path("x.npy"), bad)
        self.fails(1, "layer 'fc1' reads a number that is not finite", *base)
        numpy.save(self.path("x.npy"), x[:, :11])
        self.fails(1, "x.npy", *base)  # data of another shape
        numpy.save(self.path("x.npy"), x)
        self.assertFalse(os.path.exists(out))
        self.quantize()
        again = ("ftrun", "quantize", self.path("q.ft"), "--data", self.folder, "--weights", self.path("q.safetensors"), "-o", self.path("r.ft"))
        self.fails(1, "is quantised already", *again)
        none = LINEAR.replace('Linear(16, name="fc1")(x)', "x @ ones([12, 16])").replace('h + Linear(16, bias=false, name="up")(h)', "h").replace(
            'Linear(4, name="out")(h)', 'Embedding(4, 4, name="e")(y) + 0 * mean(h)')
        with open(self.path("none.ft"), "w") as file:
            file.write(none)
        self.fails(1, "the model has no Linear and no Conv2d", "ftrun", "quantize", self.path("none.ft"), "--data", self.folder, "--weights", weights, "-o", out)
        self.fails(1, "'e', Embedding, is no layer that is quantised", "ftrun", "quantize", self.path("none.ft"), "--data", self.folder, "--weights", weights, "-o", out, "--layers", "e=w8")


class RealData(support.Case):
    """Trained networks on real data: sizes, and what they lose."""

    def quantised(self, model, weights, *flags):
        out = self.path("q.ft")
        done = support.run("ftrun", "quantize", model, "--weights", self.path(weights), "-o", out, *flags, timeout=600)
        results = {m[1]: (float(m[2]), float(m[3])) for m in re.finditer(r"(?m)^(loss|accuracy|bits_per_byte) +(\S+) +(\S+)$", done.stdout)}
        size = [os.path.getsize(self.path(name)) for name in (weights, "q.safetensors")]
        return results, size

    def test_images(self):
        """8 bits: within half a point, in a quarter of the bytes; the file evaluates to what was said."""
        model = os.path.join(support.EXAMPLES, "fashion_cnn.ft")
        support.run("ftrun", model, "--steps", 300, "--save", self.path("w.safetensors"), timeout=600)
        for flags in ((), ("--observer", "mse", "--weight-scale", "mse"), ("--smooth", 0.5)):
            results, size = self.quantised(model, "w.safetensors", *flags)
            before, after = results["accuracy"]
            self.assertGreater(before, 0.8)
            self.assertGreater(after, before - 0.005, (flags, results))
            self.assertLess(size[1], 0.26 * size[0])
        support.run("ftrun", "eval", self.path("q.ft"), "--weights", self.path("q.safetensors"), "--log-jsonl", self.path("log"))
        self.assertAlmostEqual(support.read_log(self.path("log"))[-1]["accuracy"], after, delta=1e-6)

    def test_text(self):
        """Weights of 4 bits in a GPT over bytes: within 1 % of bits per byte, in a seventh of the bytes of these layers; GPTQ loses less."""
        licences = "/usr/share/common-licenses"
        text = b"".join(open(os.path.join(licences, name), "rb").read() for name in ("Apache-2.0", "Artistic", "GFDL-1.3", "GPL-1", "GPL-2", "GPL-3", "LGPL-2.1", "MPL-1.1", "MPL-2.0"))
        for name, part in (("train.txt", text[20000:]), ("valid.txt", text[:20000])):
            with open(self.path(name), "wb") as file:
                file.write(part)
        model = os.path.join(support.EXAMPLES, "gpt_bytes.ft")
        sizes = ("-D", "L=2", "-D", "D=64", "-D", "heads=2", "-D", "T=64")
        support.run("ftrun", model, *sizes, "--data", self.folder, "--save", self.path("w.safetensors"), timeout=600)
        lost = {}
        for bits in 4, 2:
            for flags in ((), ("--gptq",), ("--gptq", "--act-order", "--weight-scale", "mse")):
                results, size = self.quantised(model, "w.safetensors", *sizes, "--data", self.folder, "--layers", f"*=w{bits}g32", *flags)
                before, after = results["bits_per_byte"]
                self.assertLess(before, 4)
                lost[bits, flags] = after / before - 1
        self.assertLess(max(value for (bits, _), value in lost.items() if bits == 4), 0.01, lost)
        self.assertLess(lost[2, ("--gptq",)], 0.7 * lost[2, ()], lost)
        table = 256 * 64 * 4  # of bytes, which is no layer that is rounded
        self.assertLess(size[1] - table, (size[0] - table) / 5.5)


if __name__ == "__main__":
    support.main()
