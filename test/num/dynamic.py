"""Dynamic quantisation: each row of inputs rounded to the scale of its own largest number. fake_quant_rows and its gradient against PyTorch's quantiser;
products by rounded weights, with scales for outputs, for groups and one, in evaluation against numpy's sums of whole numbers in f64: of one row to many, of
tensors of rows, with rows of zeros, NaN and infinite numbers, by every kind of instruction that this machine has, in bf16, and in the simulator. Of the same
kernels, inputs with an observed range."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.default_rng(31)
f4 = numpy.float32
# name; output features; input features; bits; how many share a scale (0: all of an output, -1: all); bits of inputs
LAYERS = [("a", 70, 96, 4, 32, 8), ("b", 33, 77, 8, 0, 8), ("c", 130, 88, 4, 11, 8), ("d", 5, 64, 2, -1, 8), ("e", 9, 40, 8, 8, 5), ("f", 300, 520, 3, 8, 8),
          ("g", 17, 600, 7, 300, 8), ("h", 48, 1030, 4, 515, 8), ("i", 64, 36, 8, 9, 8), ("j", 12, 48, 8, 16, 12)]


def span(bits):
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def step_of(largest, bits):
    return numpy.maximum(largest, f4(1.1754944e-38) * f4(span(bits)[1])) / f4(span(bits)[1])


def whole(x, scale, bits):
    with numpy.errstate(over="ignore", invalid="ignore"):
        return numpy.clip(numpy.rint(x * (f4(1) / scale)), *span(bits))


def weights_of(w, bits, group):
    """Rounded weights [out, in], in f64."""
    parts = w.reshape(1 if group < 0 else -1, w.size if group < 0 else group or w.shape[1])
    scale = step_of(numpy.abs(parts).max(1), bits)[:, None]
    return (whole(parts, scale, bits).astype("f8") * scale).reshape(w.shape)


def rows_of(x, bits):
    """Rounded inputs, in f64."""
    with numpy.errstate(invalid="ignore"):
        scale = step_of(numpy.abs(x).max(-1, keepdims=True), bits)
        return whole(x, scale, bits).astype("f8") * scale


def form(bits, group, input_bits):
    return f"bits={bits}, input_bits={input_bits}" + (f", group={group}" if group > 0 else ", per_tensor=true" if group else "")


class Rows(support.Case):
    """On the processor, with AVX-512 where it is."""

    flags, artifact, device, batches = [], "m.so", [], (1, 2, 4, 7, 103)
    turn = None

    def setUp(self):
        if self.turn is not None and not support.has_its_turn(self.turn):
            self.skipTest("another day's")
        super().setUp()

    def layers(self, batch, kind="f32[B, {k}]", *flags):
        """The artifact of all layers."""
        inputs = ", ".join(f"x{name}: {kind.format(k=k)}" for name, _, k, *_ in LAYERS)
        lines = "".join(f'  y{name} = QuantLinear({n}, {form(bits, group, input_bits)}, dynamic=true, name="{name}")(x{name})\n  output y{name}\n'
                        for name, n, k, bits, group, input_bits in LAYERS)
        return self.compile(f"model M({inputs}) {{\n{lines}  loss = mean(ya)\n}}\ndata D {{ train = npy(" + ", ".join(f'"x{name}.npy"' for name, *_ in LAYERS) +
                            f") }}\ntrain {{ batch = {batch}; optimizer = sgd(lr=0.1); eval = none }}\n", *self.flags, *flags, name=self.artifact)

    def check(self, artifact, x, error=2e-6, relative=0.0, wide=2e-6):
        """wide: the error of inputs of more than 8 bits."""
        weights = {f"{name}.weight": random.normal(0, 1, (n, k)).astype("f4") for name, n, k, *_ in LAYERS}
        weights |= {f"{name}.bias": random.normal(0, 0 if relative else 1, n).astype("f4") for name, n, *_ in LAYERS}  # what is rounded before it is added has no bound
        weights["a.weight"][3, 32:64] = 0  # a group of zeros
        weights["h.weight"][5], weights["h.weight"][6] = -7, 7  # the largest sums: 6 beside 7, so that the whole numbers are these
        weights["h.weight"][5:7, ::515] = 6
        weights["c.weight"][2] *= 1e-30 if relative else 1e-38  # subnormal numbers
        got = self.predict(artifact, x, weights, [f"y{name}" for name, *_ in LAYERS], *self.device)
        for name, _, _, bits, group, input_bits in LAYERS:
            w, rows, bias = weights_of(weights[f"{name}.weight"], bits, group).T, rows_of(x[f"x{name}"], input_bits), weights[f"{name}.bias"]
            with self.subTest(layer=name, rows=rows.shape), numpy.errstate(invalid="ignore"):
                want, size = rows @ w + bias, numpy.abs(rows) @ numpy.abs(w) + numpy.abs(bias)
                fine = numpy.isfinite(want)
                numpy.testing.assert_array_equal(numpy.isfinite(got[f"y{name}"]), fine)
                over = numpy.abs(got[f"y{name}"] - want)[fine] - (error if input_bits <= 8 else wide) * size[fine] - relative * numpy.abs(want)[fine]
                self.assertLessEqual(over.max(initial=0), 0, name)

    def inputs(self, *shape):
        x = {f"x{name}": random.normal(0, 1, (*shape, k)).astype("f4") for name, _, k, *_ in LAYERS}
        x["xh"][-1] = 3
        for value in x.values():
            value.reshape(-1, value.shape[-1])[:] *= numpy.exp2(random.integers(-20, 20, (value.size // value.shape[-1], 1))).astype("f4")
        return x

    def test_layers(self):
        for batch in support.of_this_turn(self.batches, 3):
            x = self.inputs(batch)
            if batch > 1:
                x["xa"][1] = 0
                x["xb"][0, 5], x["xc"][-1, 3], x["xf"][-1, 7] = numpy.nan, numpy.inf, -numpy.inf
            if batch > 100:
                x["xa"][99, 95], x["xg"][3, 599] = numpy.nan, numpy.inf
            self.check(self.layers(batch), x)

    def test_tensors(self):
        """Rows within samples."""
        self.check(self.layers(3, "f32[B, 2, 5, {k}]"), self.inputs(3, 2, 5))

    def test_observed(self):
        """An observed range: before anything was observed inputs are as they are, whole numbers too, then whole numbers times one scale."""
        text = ('model M(x: f32[B, 64]) {\n  y = QuantLinear(40, bits=4, group=16, bias=false, name="f")(x)\n  z = QuantLinear(9, bits=4, group=16, signed_input=false, bias=false, name="u")(relu(x))\n'
                "  output y\n  output z\n  loss = mean(y) + mean(z)\n}\n" 'data D { train = npy("x.npy") }\ntrain { batch = 9; optimizer = sgd(lr=0.1); eval = none }\n')
        artifact = self.compile(text, *self.flags, name=self.artifact)
        x, w, u = random.normal(0, 1, (9, 64)).astype("f4"), random.normal(0, 1, (40, 64)).astype("f4"), random.normal(0, 1, (9, 64)).astype("f4")
        x[4, 3] = 30  # beyond the range
        for largest, first in ((0, x), (0, numpy.rint(x * 60)), (2.5, x)):
            if first is not x:
                first[2, 5] = 150
            states = {name: numpy.array([largest], "f4") for name in ("f.input.max_abs", "u.input.max_abs")}
            got = self.predict(artifact, {"x": first}, {"f.weight": w, "u.weight": u, **states}, ["y", "z"], *self.device)
            for name, of, most, low in (("y", w, 127, -128), ("z", u, 255, 0)):
                rows, scale = first if name == "y" else numpy.maximum(first, 0), f4(largest) / f4(most)
                rows = numpy.clip(numpy.rint(rows * (f4(1) / scale)), low, most).astype("f8") * scale if largest else rows.astype("f8")
                w_rounded = weights_of(of, 4, 16).T
                self.assertTrue(numpy.all(numpy.abs(got[name] - rows @ w_rounded) <= 2e-6 * (numpy.abs(rows) @ numpy.abs(w_rounded))), (name, largest))

    def test_moved(self):
        """Rows that are taken apart or turned before they are multiplied."""
        lines = ["y = reshape(reshape(fake_quant_rows(x), [-1, 16]) @ a, [-1, 24])", "z = flatten(fake_quant_rows(v), from=1) @ b", 'r = transpose(fake_quant_rows(rearrange(t, "b k m -> k (b m)"))) @ a',
                 'u = rearrange(r, "(b m) n -> b m n", m=7)', "s = transpose(fake_quant_rows(t), [0, 2, 1]) @ a", "o = fake_quant_rows(x) @ c"]
        groups = {"a": (16, 12, 8), "b": (60, 12, 10), "c": (32, 12, 16)}  # features, outputs, how many share a scale
        lines = [f"{name} = transpose(reshape(fake_quant(reshape(w{name}, [{k * n // group}, {group}]), quant_scale(reshape(w{name}, [{k * n // group}, {group}]), 4, axis=0), 4, axis=0), [{n}, {k}]))"
                 for name, (k, n, group) in groups.items()] + lines
        text = ("model M(x: f32[B, 32], v: f32[B, 3, 20], t: f32[B, 16, 7]) {\n" + "".join(f"  param w{name}: [{n}, {k}] = zeros\n" for name, (k, n, _) in groups.items()) +
                "".join(f"  {line}\n" for line in lines) + "  output y\n  output z\n  output u\n  output s\n  output o\n  loss = mean(x)\n}\n" +
                'data D { train = npy("x.npy", "v.npy", "t.npy") }\ntrain { batch = 6; optimizer = sgd(lr=0.1); eval = none }\n')
        artifact = self.compile(text, *self.flags, name=self.artifact)
        w = {f"w{name}": random.normal(0, 1, (n, k)).astype("f4") for name, (k, n, _) in groups.items()}
        x = {name: (random.normal(0, 1, shape) * numpy.exp2(random.integers(-9, 9, (*shape[:-1], 1)))).astype("f4") for name, shape in (("x", (6, 32)), ("v", (6, 3, 20)), ("t", (6, 16, 7)))}
        got = self.predict(artifact, x, w, ["y", "z", "u", "s", "o"], *self.device)
        a, b, c = (weights_of(w[f"w{name}"], 4, group).T for name, (_, _, group) in groups.items())
        turned = rows_of(x["t"].transpose(1, 0, 2).reshape(16, 42), 8).reshape(16, 6, 7).transpose(1, 2, 0)
        for name, left, right in (("y", rows_of(x["x"], 8).reshape(-1, 16), a), ("z", rows_of(x["v"], 8).reshape(6, 60), b), ("u", turned, a),
                                  ("s", rows_of(x["t"], 8).transpose(0, 2, 1), a), ("o", rows_of(x["x"], 8), c)):
            want, size = left @ right, numpy.abs(left) @ numpy.abs(right)
            self.assertTrue(numpy.all(numpy.abs(got[name].reshape(want.shape) - want) <= 2e-6 * size), name)


class RowsWithoutVnni(Rows):
    turn = 0
    flags = ["--disable=vnni"]


class RowsOfAvx2(Rows):
    turn = 1
    flags = ["--cpu", "x86-64-v3"]


class RowsPortable(Rows):
    turn = 2
    flags = ["--cpu", "x86-64"]


class RowsPlain(Rows):
    """Without fusion, and weights packed in each run."""

    turn = 3
    flags = ["--disable=fuse,simplify,simplify2,prepare,layout,storage"]


class RowsInFloats(Rows):
    turn = 4
    flags = ["--disable=integers"]


class RowsOnSim(Rows):
    """The PTX in the simulator."""

    artifact, device, batches = "m.ptx", ["--device", "sim"], (1, 13, 37)


class RowsOfBf16(support.Case):
    """In bf16 inputs and results are rounded, and what is between is as in f32: weights and rows stay whole numbers."""

    def test_bf16(self):
        for batch, flags in ((1, []), (5, []), (103, []), (9, ["--disable=vnni"]), (9, ["--disable=rounded"])):
            rows = Rows("test_layers")
            rows.folder, rows.flags = self.folder, ["--set", "train.precision=bf16", *flags]
            x = {name: (value.view("u4") & 0xFFFF0000).view("f4") for name, value in rows.inputs(batch).items()}
            rows.check(rows.layers(batch), x, 2e-6 if "--disable=rounded" not in flags else 2**-7, 2**-8, 2**-7)


class Trained(support.Case):
    """Values, gradients and some steps of training as PyTorch makes them."""

    target, device = "m.so", []

    def test_values_and_gradients(self):
        x = (random.normal(0, 1, (6, 5, 11)) * numpy.exp2(random.integers(-9, 9, (6, 5, 1)))).astype("f4")
        x[2, 3], x[1, 1, 4] = 0, x[1, 1].max()
        scale = step_of(numpy.abs(x).max(-1), 8).reshape(-1)
        x_t = torch.from_numpy(x.copy()).requires_grad_()
        y = torch.fake_quantize_per_channel_affine(x_t.reshape(30, 11), torch.from_numpy(scale), torch.zeros(30, dtype=torch.int32), 0, -128, 127).reshape(6, 5, 11)
        (y * torch.arange(1.0, 12)).sum().backward()
        numpy.save(self.path("z.npy"), numpy.zeros((1, 1), "f4"))
        text = ("model M(z: f32[B, 1]) {\n  param x: [6, 5, 11] = zeros\n  state q: [6, 5, 11] = zeros\n  y = fake_quant_rows(x)\n  update q = y\n"
                "  loss = 0 * mean(z) + sum(y * f32(iota([6, 5, 11], axis=2) + 1))\n}\n" 'data D { train = npy("z.npy") }\ntrain { batch = 1; epochs = 1; optimizer = sgd(lr=1.0); eval = none }\n')
        support.write_safetensors(self.path("start.safetensors"), {"x": x})
        support.run("ftrun", self.compile(text, name=self.target), "--data", self.folder, "--init", self.path("start.safetensors"), "--init-missing", "keep",
                    "--save", self.path("end.safetensors"), *self.device)
        end = support.read_safetensors(self.path("end.safetensors"))
        numpy.testing.assert_array_equal(end["q"], y.detach().numpy())
        numpy.testing.assert_allclose(x - end["x"], x_t.grad.numpy(), atol=1e-6 * numpy.abs(x).max())

    def test_training(self):
        data = (random.normal(0, 1, (20, 3, 24)) * numpy.exp2(random.integers(-3, 3, (20, 3, 1)))).astype("f4")
        numpy.save(self.path("x.npy"), data)
        w, b = random.uniform(-0.5, 0.5, (7, 24)).astype("f4"), random.uniform(-1, 1, 7).astype("f4")
        support.write_safetensors(self.path("start.safetensors"), {"f.weight": w, "f.bias": b})
        text = ('model M(x: f32[B, 3, 24]) {\n  y = QuantLinear(7, bits=4, group=8, dynamic=true, name="f")(x)\n  loss = mean(y * y + y)\n}\n'
                'data D { train = npy("x.npy") }\ntrain { batch = 5; epochs = 1; optimizer = sgd(lr=0.1); eval = none }\n')
        support.run("ftrun", self.compile(text, name=self.target), "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"),
                    "--no-shuffle", *self.device)
        end = support.read_safetensors(self.path("end.safetensors"))
        self.assertEqual(set(end), {"f.weight", "f.bias"})
        weight, bias = (torch.from_numpy(value.copy()).requires_grad_() for value in (w, b))
        for step in range(4):
            x = torch.from_numpy(data[step * 5 :][:5]).reshape(15, 24)
            rows = torch.fake_quantize_per_channel_affine(x, torch.from_numpy(step_of(x.abs().amax(1).numpy(), 8)), torch.zeros(15, dtype=torch.int32), 0, -128, 127)
            groups = weight.reshape(-1, 8)
            scale = groups.detach().abs().amax(1) / 7
            rounded = torch.fake_quantize_per_channel_affine(groups, scale, torch.zeros(21, dtype=torch.int32), 0, -8, 7).reshape(7, 24)
            y = rows @ rounded.T + bias
            for tensor, gradient in zip((weight, bias), torch.autograd.grad((y * y + y).mean(), (weight, bias))):
                tensor.data -= 0.1 * gradient
        numpy.testing.assert_allclose(end["f.weight"], weight.detach().numpy(), rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(end["f.bias"], bias.detach().numpy(), rtol=1e-4, atol=1e-5)


class TrainedOnSim(Trained):
    target, device = "m.ptx", ["--device", "sim"]


if __name__ == "__main__":
    support.main()
