"""Quantisers against PyTorch's: fake_quant's values bit for bit and its gradients as torch.fake_quantize_per_*_affine and Esser et al. define
them, at ties and ends of the range too; QuantLinear and QuantConv2d trained and evaluated beside the same made of PyTorch's functions; on
the processor with and without fusion, and the PTX in the simulator."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.default_rng(11)
STEPS, BATCH, RATE = 4, 5, 0.1


def values(*shape, scale):
    """Ones in and out of the range, half of them on a multiple of half a scale that is a power of two."""
    x = random.uniform(-200, 200, shape) * scale
    return numpy.where(random.random(shape) < 0.5, numpy.round(x / scale * 2) / 2 * scale, x).astype("f4")


CASES = []  # x; scale; bits; axis; signed
for bits, axis, signed in ((8, None, True), (8, None, False), (4, None, True), (8, 0, True), (4, 1, True), (2, -1, False), (16, None, True)):
    shape = (6, 7, 3)
    wanted = 1 if axis is None else shape[axis]
    scale = numpy.exp2(random.integers(-6, 3, wanted)).astype("f4")
    if bits == 16:
        scale = random.uniform(0.01, 0.1, wanted).astype("f4")
    by = scale.reshape([-1 if k == (axis or 0) % 3 else 1 for k in range(3)]) if axis is not None else scale
    CASES.append((values(*shape, scale=by * 2.0 ** (bits - 8)), scale, bits, axis, signed))


def span(bits, signed):
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def torch_quant(x, scale, bits, axis=None, signed=True):
    low, high = span(bits, signed)
    if axis is None:
        return torch._fake_quantize_learnable_per_tensor_affine(x, scale, torch.zeros(1), low, high, 1.0)
    return torch._fake_quantize_learnable_per_channel_affine(x, scale, torch.zeros(len(scale)), axis % x.dim(), low, high, 1.0)


def layer_of(kind, weight, bias, x, state, bits, signed, group, training, rounds=True, observes=True):
    """PyTorch's observers by their formulas, its quantisers and layers; without `rounds` and `observes` as after disable_fake_quant and disable_observer."""
    low, high = span(8, signed)
    if training and (observes or state is None):
        now = x.detach().abs().max()
        state = now if state is None else state + numpy.float32(0.01) * (now - state)
    if not rounds:
        return (F.linear(x, weight, bias) if kind == "linear" else F.conv2d(x, weight, bias, padding=1)), state
    x = torch.fake_quantize_per_tensor_affine(x, float(state / high), 0, low, high)
    rows = weight.reshape(-1, group) if group else weight
    top = span(bits, True)[1]
    scale = rows.detach().abs().flatten(1).amax(1) / top
    w = torch.fake_quantize_per_channel_affine(rows, scale, torch.zeros(len(scale), dtype=torch.int32), 0, -top - 1, top).reshape(weight.shape)
    return (F.linear(x, w, bias) if kind == "linear" else F.conv2d(x, w, bias, padding=1)), state


# name; layer; PyTorch's kind; weight's shape; a sample's shape; bits; signed; group
LAYERS = [("a", 'QuantLinear(4, name="a")', "linear", (4, 6), (6,), 8, True, None), ("b", 'QuantLinear(5, bits=4, group=4, signed_input=false, name="b")', "linear", (5, 8), (8,), 4, False, 4),
          ("c", 'QuantConv2d(4, 3, padding=1, name="c")', "conv", (4, 3, 3, 3), (3, 5, 5), 8, True, None)]


class Quantisers(support.Case):
    """On the processor."""

    target, device, flags = "m.so", "cpu", []

    def train(self, text, start, *flags):
        artifact = self.compile(text, *self.flags, name=self.target)
        support.write_safetensors(self.path("start.safetensors"), start)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--init-missing", "keep", "--save", self.path("end.safetensors"), "--no-shuffle",
                    "--device", self.device, "--log-jsonl", self.path("log"), *flags, timeout=300)
        return artifact, support.read_safetensors(self.path("end.safetensors"))

    def test_values_and_gradients(self):
        lines, start = [], {}
        for i, (x, scale, bits, axis, signed) in enumerate(CASES):
            lines.append(f"  param x{i}: {list(x.shape)} = zeros\n  param s{i}: [{len(scale)}] = ones\n  state q{i}: {list(x.shape)} = zeros\n"
                         f"  y{i} = fake_quant(x{i}, s{i}, bits={bits}{'' if axis is None else f', axis={axis}'}, signed={str(signed).lower()})\n"
                         f"  l = l + sum(y{i} * f32(iota({list(x.shape)}, axis=1) + 1))\n  update q{i} = y{i}")
            start |= {f"x{i}": x, f"s{i}": scale}
        numpy.save(self.path("z.npy"), numpy.zeros((1, 1), "f4"))
        text = ("model M(z: f32[B, 1]) {\n  l = 0 * mean(z)\n" + "\n".join(lines) + "\n  loss = l\n}\n" +
                'data D { train = npy("z.npy") }\ntrain { batch = 1; epochs = 1; optimizer = sgd(lr=1.0); eval = none }\n')
        end = self.train(text, start)[1]
        for i, (x, scale, bits, axis, signed) in enumerate(CASES):
            with self.subTest(bits=bits, axis=axis, signed=signed):
                x_t, s_t = torch.from_numpy(x.copy()).requires_grad_(), torch.from_numpy(scale.copy()).requires_grad_()
                y = torch_quant(x_t, s_t, bits, axis, signed)
                (y * torch.arange(1, x.shape[1] + 1)[:, None]).sum().backward()
                got = end[f"q{i}"]
                numpy.testing.assert_array_equal(got, y.detach().numpy())
                self.assertGreater(len(numpy.unique(got)), 2)
                numpy.testing.assert_allclose(x - end[f"x{i}"], x_t.grad.numpy(), rtol=1e-5, atol=4e-5 * numpy.abs(x).max())
                numpy.testing.assert_allclose(scale - end[f"s{i}"], s_t.grad.numpy(), rtol=1e-4, atol=1e-4 * float(s_t.grad.abs().max()))

    def test_switched_values(self):
        """fake_quant with a learned step size, fake_quant_rows, fake_float8 and a matrix: before the step all is as without them."""
        x = random.uniform(-1, 1, (8, 6)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        start = {"w": random.uniform(-0.5, 0.5, (6, 4)).astype("f4"), "s": numpy.full(1, 0.02, "f4"), "v": random.uniform(-0.5, 0.5, (4, 3)).astype("f4")}

        def text(recipe, rounds=True):
            a, c, d = ("fake_quant(x, s)", "fake_quant_rows(h, 4)", 'fake_float8(h, 0.5, "e5m2")') if rounds else ("(x + 0 * s)", "h", "h")
            return (f"model M(x: f32[B, 6]) {{\n  param s: [1] = ones\n  param w: [6, 4] = zeros\n  param v: [4, 3] = zeros\n  h = {a} @ w\n  y = ({c} + {d}) @ v\n  loss = mean(y * y)\n}}\n"
                    f'data D {{ train = npy("x.npy") }}\ntrain {{ batch = 4; epochs = 4; optimizer = sgd(lr=0.1); eval = none; {recipe} }}\n')

        def run(recipe, rounds=True, steps=8, *flags):
            return self.train(text(recipe, rounds), start, "--steps", steps, *flags)[1]

        plain = run("", rounds=False)
        before, then = run('quantize = after(8 steps, "v=w4")'), run('quantize = after(0.625, "v=w4")')
        for name in ("w", "v", "s"):
            numpy.testing.assert_allclose(before[name], plain[name], rtol=1e-6, atol=1e-7)
        numpy.testing.assert_array_equal(before["s"], start["s"])
        # five steps without, and three that go on from there with all of it
        start |= {name: run("", False, 5)[name] for name in ("w", "v", "s")}
        numpy.save(self.path("x.npy"), numpy.concatenate([x[4:], x[:4]]))
        rest = run('quantize = "v=w4"', True, 3)
        for name in ("w", "v", "s"):
            numpy.testing.assert_allclose(then[name], rest[name], rtol=2e-5, atol=1e-6)
        self.assertGreater(abs(then["s"][0] - 0.02), 1e-5)

    def test_layers(self):
        self.layers("", 0, STEPS)

    def test_switched(self):
        """Rounding begins in the middle, and ranges stay from a step on: as steps, as a share of all, and by --set."""
        self.layers("quantize = after(2 steps, observe=3 steps)", 2, 3)
        self.layers("quantize = after(0.3, observe=0.1)", 1, STEPS)  # 1.2 of 4 steps; 0.4, which is no step, and so nothing ends
        self.layers("quantize = after(0.1, observe=0.3)", 0, 1, "--set", "train.quantize.after=3")
        self.layers("quantize = after(0, observe=1 step)", 0, 1)

    def layers(self, recipe, begins, ends, *flags):
        begins = 3 if flags else begins
        inputs, files, lines, start, data = [], [], [], {}, {}
        for name, layer, kind, weight, shape, bits, signed, group in LAYERS:
            inputs.append(f"x{name}: f32[B, {', '.join(map(str, shape))}]")
            files.append(f'"{name}.npy"')
            lines.append(f"  y{name} = {layer}(x{name})\n  l = l + mean(y{name} * y{name} + y{name})\n  output y{name}")
            data[name] = random.uniform(-1 if signed else 0, 3, (STEPS * BATCH, *shape)).astype("f4") * (1 + numpy.arange(STEPS * BATCH) // BATCH).reshape(-1, *[1] * len(shape)).astype("f4")
            numpy.save(self.path(f"{name}.npy"), data[name])
            start |= {f"{name}.weight": random.uniform(-0.5, 0.5, weight).astype("f4"), f"{name}.bias": random.uniform(-1, 1, weight[:1]).astype("f4")}
        text = (f"model M({', '.join(inputs)}) {{\n  l = 0.0\n" + "\n".join(lines) + "\n  loss = l\n}\n" +
                f"data D {{ train = npy({', '.join(files)}) }}\ntrain {{ batch = {BATCH}; epochs = 1; optimizer = sgd(lr={RATE}); eval = none; {recipe} }}\n")
        artifact, end = self.train(text, start, *flags)
        arguments = [word for name, *_ in LAYERS for word in ("--input", f"x{name}={self.path(name + '.npy')}", "--output", f"y{name}={self.path('y' + name + '.npy')}")]
        support.run("ftrun", "predict", artifact, "--weights", self.path("end.safetensors"), *arguments, "--device", self.device)
        for name, layer, kind, _, _, bits, signed, group in LAYERS:
            with self.subTest(layer=layer, recipe=recipe):
                weight, bias = (torch.from_numpy(start[f"{name}.{what}"].copy()).requires_grad_() for what in ("weight", "bias"))
                state = None
                for step in range(STEPS):
                    x = torch.from_numpy(data[name][step * BATCH :][:BATCH])
                    y, state = layer_of(kind, weight, bias, x, state, bits, signed, group, True, step >= begins, step < ends)
                    for tensor, gradient in zip((weight, bias), torch.autograd.grad((y * y + y).mean(), (weight, bias))):
                        tensor.data -= RATE * gradient
                self.assertEqual({key for key in end if key.startswith(name + ".")}, {f"{name}.weight", f"{name}.bias", f"{name}.input.max_abs"})
                numpy.testing.assert_allclose(end[f"{name}.input.max_abs"], [float(state)], rtol=1e-6)
                for what, tensor in (("weight", weight), ("bias", bias)):
                    numpy.testing.assert_allclose(end[f"{name}.{what}"], tensor.detach().numpy(), rtol=1e-4, atol=1e-4)
                trained = [torch.from_numpy(end[f"{name}.{what}"]) for what in ("weight", "bias")]
                y, _ = layer_of(kind, *trained, torch.from_numpy(data[name]), torch.tensor(end[f"{name}.input.max_abs"][0]), bits, signed, group, False)
                # float32 sums in another order; a value on a tie may be rounded the other way
                numpy.testing.assert_allclose(numpy.load(self.path(f"y{name}.npy")), y.numpy(), rtol=1e-5, atol=2e-5 * float(y.abs().max()))


class QuantisersPlain(Quantisers):
    """Without fusion."""

    flags = ["--disable=fuse"]


class QuantisersOnSim(Quantisers):
    """The PTX in the simulator."""

    target, device = "m.ptx", "sim"


if __name__ == "__main__":
    support.main()
