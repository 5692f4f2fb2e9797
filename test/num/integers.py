"""Products of integers: pass integers and kernels/integer_x86.c against numpy's integer products, bit for bit. Odd sizes, numbers at the ends of
their range, signed and unsigned of 2 to 8 bits, transposed and batched, with scales for all, for rows and for columns; by every kind of
instruction that this machine has, and by the GPU's in the simulator, with and without fusion (with FT_TURN a third of these variants). What is not an integer (NaN, a FakeQuant that has seen nothing) is computed
as it is."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.default_rng(23)
BATCH = 2


def span(bits, signed):
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def rounded(x, scale, bits, signed):
    """What fake_quant rounds to, in its arithmetic."""
    with numpy.errstate(over="ignore", invalid="ignore"):
        v = x * (numpy.float32(1) / numpy.asarray(scale, "f4"))
        return numpy.clip(numpy.rint(v), *span(bits, signed))


def operand(shape, scale, bits, signed, kind):
    """Of kind "ends" all numbers are the least or the largest, or but the largest; else some lie outside of the range, too."""
    low, high = span(bits, signed)
    if kind == "ends":
        n = random.choice([low, high], shape, p=[0.8, 0.2] if signed else [0.1, 0.9])
    elif kind == "least":
        n = numpy.full(shape, low if signed else high)
    elif kind == "most":
        n = numpy.full(shape, high)
    else:
        n = random.uniform(low - 2, high + 2, shape)
    return (n * scale).astype("f4")


# m, k, n; is the second operand a parameter, or one for each sample; first: bits, signed; second: bits, signed; turned; kinds
CASES = [(1, 1, 1, True, 8, True, 8, True, "", "any"), (3, 5, 7, True, 8, False, 8, True, "", "any"), (7, 64, 16, True, 8, True, 8, True, "t", "ends"),
         (13, 33, 17, False, 8, True, 8, True, "", "ends"), (5, 31, 70, False, 8, False, 8, False, "", "most"), (29, 66, 33, False, 8, True, 8, False, "t", "any"),
         (6, 130, 48, True, 8, False, 8, True, "t", "least"), (2, 19, 65, True, 4, True, 4, False, "", "any"), (50, 15, 130, True, 2, True, 2, True, "t", "any"),
         (1, 1024, 100, True, 8, True, 8, True, "t", "least"), (9, 257, 5, False, 8, False, 8, True, "T", "any"), (4, 48, 12, False, 6, False, 7, False, "TT", "any")]


# input channels, height, width; output channels; kernel; stride; padding; dilation; first signed; second: bits; kind
CONVS = [(1, 9, 8, 5, (3, 3), (1, 1), (1, 1), (1, 1), False, 8, "any"), (3, 11, 7, 17, (3, 2), (2, 1), (0, 2), (1, 1), True, 8, "least"), (5, 6, 19, 33, (1, 1), (1, 3), (0, 0), (1, 1), True, 4, "ends"),
         (32, 6, 5, 64, (3, 3), (1, 1), (1, 1), (1, 1), False, 8, "most"), (6, 13, 9, 70, (4, 5), (3, 2), (3, 4), (2, 1), True, 8, "any"), (2, 5, 4, 3, (5, 4), (1, 1), (0, 0), (1, 1), True, 2, "any"),
         (1, 40, 17, 2, (7, 3), (1, 1), (6, 2), (5, 1), True, 8, "any"), (4, 6, 6, 6, (3, 3), (1, 1), (1, 1), (1, 2), True, 8, "any")]
BY_F32 = 7  # dilated across: left to oneDNN on the CPU
# groups; then the same
GROUPED = [(2, 32, 7, 6, 12, (3, 3), (1, 1), (1, 1), (1, 1), True, 8, "any"), (3, 60, 5, 9, 15, (2, 3), (1, 2), (1, 2), (2, 1), False, 8, "most"),
           (4, 64, 6, 6, 64, (3, 3), (2, 2), (1, 1), (1, 1), False, 4, "ends"), (6, 6, 8, 7, 12, (3, 3), (1, 1), (1, 1), (1, 1), True, 8, "any"),
           (2, 128, 4, 5, 6, (3, 3), (1, 1), (1, 1), (1, 1), False, 8, "most"), (1, 70, 5, 4, 9, (3, 3), (1, 1), (1, 1), (1, 1), False, 8, "most")]  # sums that f32 does not add
LEAST_OF_A_GROUP = 16  # channels: with fewer, groups are in f32 everywhere


def drawn_windows(count):
    """More of those, drawn by FT_TEST_SEED."""
    draw = numpy.random.default_rng(int(os.environ.get("FT_TEST_SEED", "1")))
    while count:
        groups = int(draw.choice([1, 1, 1, 2, 3]))
        c, o = groups * int(draw.integers(1, 41)), groups * int(draw.integers(1, 41))
        kernel, stride, padding, dilation = (tuple(int(n) for n in draw.integers(*ends, 2)) for ends in ((1, 5), (1, 4), (0, 4), (1, 3)))
        size = tuple(int(n) for n in draw.integers(1, 14, 2))
        if all(size[d] + 2 * padding[d] > (kernel[d] - 1) * dilation[d] for d in (0, 1)):
            count -= 1
            yield groups, c, *size, o, kernel, stride, padding, dilation, bool(draw.integers(2)), 8, "any"


def integer_conv(x, w, stride, padding, dilation, dtype="i8"):
    x = numpy.pad(x.astype(dtype), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    kernel = w.shape[2:]
    size = [(x.shape[2 + d] - (kernel[d] - 1) * dilation[d] - 1) // stride[d] + 1 for d in (0, 1)]
    y = 0
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = x[:, :, i * dilation[0] :, j * dilation[1] :][:, :, :: stride[0], :: stride[1]][:, :, : size[0], : size[1]]
            y = y + numpy.einsum("nchw,oc->nohw", part, w[:, :, i, j].astype(dtype))
    return y.astype("f4")


# input channels, height, width; output channels; kernel; stride; padding; first signed; then a pooling: window, padding, stride; what else
POOLS = [(1, 28, 28, 32, (3, 3), (1, 1), (1, 1), True, (2, 2), (0, 0), (2, 2), "relu"), (32, 14, 14, 64, (3, 3), (1, 1), (1, 1), False, (2, 2), (0, 0), (2, 2), "relu"),
         (5, 17, 61, 70, (2, 3), (1, 1), (0, 1), True, (3, 2), (0, 0), (3, 2), "none"), (3, 9, 11, 17, (3, 3), (1, 1), (1, 1), True, (2, 2), (0, 0), (2, 2), "negative"),
         (4, 21, 8, 5, (3, 2), (2, 1), (1, 0), True, (1, 4), (0, 0), (1, 4), "constant"), (3, 13, 12, 33, (3, 3), (1, 1), (1, 1), False, (2, 2), (0, 0), (2, 2), "another"),
         (2, 12, 12, 16, (3, 3), (1, 1), (1, 1), True, (3, 3), (1, 1), (2, 2), "relu"), (6, 10, 110, 9, (1, 1), (1, 1), (0, 0), True, (4, 4), (0, 0), (4, 4), "none"),
         (3, 11, 11, 8, (3, 3), (1, 1), (1, 1), True, (5, 5), (0, 0), (5, 5), "relu")]


class Integers(support.Case):
    flags, has_channels_last, artifact, device = [], True, "model.so", []
    takes_any_window = False

    def compiled(self, inputs, lines, params=()):
        """A model with an output for each case, and its artifact."""
        text = (f"model M(z: f32[B, 1]{''.join(f', {name}: f32[B, {str(list(shape))[1:-1]}]' for name, shape in inputs)}) {{\n" +
                "".join(f"  param {name}: {list(shape)} = zeros\n" for name, shape in params) + "".join(f"  {line}\n" for line in lines) +
                "  loss = mean(z)\n}\n" + 'data D { train = npy("z.npy"' + "".join(f', "{name}.npy"' for name, _ in inputs) +
                f') }}\ntrain {{ batch = {BATCH}; epochs = 1; optimizer = sgd(lr=0.1); eval = none }}\n')
        return self.compile(text, *self.flags, name=self.artifact)

    def artifact_path(self):
        return self.path(self.artifact)

    def predict(self, artifact, inputs, weights, outputs):
        support.write_safetensors(self.path("w.safetensors"), weights)
        numpy.save(self.path("z.npy"), numpy.zeros((BATCH, 1), "f4"))
        arguments = ["--input", f"z={self.path('z.npy')}"]
        for name, value in inputs.items():
            numpy.save(self.path(f"{name}.npy"), value)
            arguments += ["--input", f"{name}={self.path(name + '.npy')}"]
        for name in outputs:
            arguments += ["--output", f"{name}={self.path('out_' + name + '.npy')}"]
        support.run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), *arguments, *self.device)
        return {name: numpy.load(self.path(f"out_{name}.npy")) for name in outputs}

    def test_products(self):
        inputs, params, lines, values, weights, wanted = [], [], [], {}, {}, {}
        for i, (m, k, n, is_param, bits_a, signed_a, bits_b, signed_b, turned, kind) in enumerate(CASES):
            scale_a, scale_b = (0.03125, 0.25) if i % 2 else random.uniform(0.01, 0.1, 2).astype("f4")
            a = operand((BATCH, m, k) if turned[:1] != "T" else (BATCH, k, m), scale_a, bits_a, signed_a, kind)
            b_shape = (n, k) if turned in ("t", "TT") else (k, n)
            b = operand(b_shape if is_param else (BATCH, *b_shape), scale_b, bits_b, signed_b, kind)
            inputs.append((f"a{i}", a.shape[1:]))
            values[f"a{i}"] = a
            if is_param:
                params.append((f"b{i}", b.shape))
                weights[f"b{i}"] = b
            else:
                inputs.append((f"b{i}", b.shape[1:]))
                values[f"b{i}"] = b
            if i % 2 == 0:
                params += [(f"sa{i}", (1,)), (f"sb{i}", (1,))]
                weights |= {f"sa{i}": numpy.array([scale_a]), f"sb{i}": numpy.array([scale_b])}
            left = f"fake_quant(a{i}, {scale_a if i % 2 else f'sa{i}'}, bits={bits_a}, signed={str(signed_a).lower()})"
            right = f"fake_quant(b{i}, {scale_b if i % 2 else f'sb{i}'}, bits={bits_b}, signed={str(signed_b).lower()})"
            if turned[:1] == "T":
                left = f"transpose({left}, [0, 2, 1])"
            if turned in ("t", "TT"):
                right = f"transpose({right}{'' if is_param else ', [0, 2, 1]'})"
            lines.append(f"y{i} = {left} @ {right}")
            lines.append(f"output y{i}")
            n_a, n_b = (rounded(*of).astype("i8") for of in ((a, scale_a, bits_a, signed_a), (b, scale_b, bits_b, signed_b)))
            if turned[:1] == "T":
                n_a = n_a.swapaxes(-1, -2)
            if turned in ("t", "TT"):
                n_b = n_b.swapaxes(-1, -2)
            wanted[f"y{i}"] = ((n_a @ n_b).astype("f4") * numpy.float32(scale_a)) * numpy.float32(scale_b)
        got = self.predict(self.compiled(inputs, lines, params), values, weights, list(wanted))
        for i, (name, y) in enumerate(wanted.items()):
            with self.subTest(case=CASES[i]):
                numpy.testing.assert_array_equal(got[name], y)
                self.assertTrue(numpy.any(y))
        weights["b1"][2, 5] = numpy.nan  # of a scale that does not become NaN with it: a column that is none, and no others
        again = self.predict(self.artifact_path(), values, weights, ["y1"])["y1"]
        wanted["y1"][..., 5] = numpy.nan
        numpy.testing.assert_array_equal(again, wanted["y1"])

    def test_layer(self):
        """QuantLinear: a scale for each column, one that was observed, bias, relu, and another layer behind it."""
        k, hidden, n = 45, 70, 10
        text = [f'h = relu(QuantLinear({hidden}, bias=false, name="f")(x))', f'y = QuantLinear({n}, signed_input=false, bias=false, name="g")(h)', "output h", "output y"]
        x = random.normal(0, 1, (BATCH, k)).astype("f4")
        x[0, 3], x[1, 4], x[1, 5] = numpy.inf, -numpy.inf, 1e30
        weights = {"f.weight": random.normal(0, 1, (hidden, k)).astype("f4"), "g.weight": random.normal(0, 1, (n, hidden)).astype("f4"),
                   "f.input.max_abs": numpy.array([2.5], "f4"), "g.input.max_abs": numpy.array([31], "f4")}
        weights["f.weight"][7] = 0
        artifact = self.compiled([("x", (k,))], text)

        def layer(name, x, high, signed):
            weight = weights[name + ".weight"]
            scale_b = numpy.maximum(numpy.abs(weight).max(1), numpy.float32(1.1754944e-38 * 127)) / numpy.float32(127)
            scale_a = weights[name + ".input.max_abs"][0] / numpy.float32(high)
            n_a, n_b = rounded(x, scale_a, 8, signed), rounded(weight, scale_b[:, None], 8, True)
            return ((n_a.astype("i8") @ n_b.astype("i8").T).astype("f4") * scale_a) * scale_b
        got = self.predict(artifact, {"x": x}, weights, ["h", "y"])
        h = numpy.maximum(layer("f", x, 127, True), 0)
        numpy.testing.assert_array_equal(got["h"], h)
        numpy.testing.assert_array_equal(got["y"], layer("g", h, 255, False))
        x = random.normal(0, 1, (BATCH, k)).astype("f4")
        x[1, k - 1] = numpy.nan
        got = self.predict(artifact, {"x": x}, weights, ["h", "y"])
        self.assertTrue(numpy.all(numpy.isfinite(got["y"][0])))
        self.assertTrue(numpy.all(numpy.isnan(got["y"][1])))
        weights["f.weight"][40, 2] = numpy.nan
        got = self.predict(artifact, {"x": x[:1].repeat(BATCH, 0)}, weights, ["h", "y"])
        self.assertEqual(list(numpy.nonzero(numpy.isnan(got["h"]).any(0))[0]), [40])
        self.assertTrue(numpy.all(numpy.isnan(got["y"])))

    def test_observed(self):
        """Both operands have ranges that were observed, so neither is certain; a row and a column with a NaN are no integers, and no others suffer."""
        m, k, n = 21, 83, 19
        x, y = random.normal(0, 1, (BATCH, m, k)).astype("f4"), random.normal(0, 1, (BATCH, k, n)).astype("f4")
        weights = {"f.max_abs": numpy.array([2.5], "f4"), "g.max_abs": numpy.array([1.5], "f4")}
        artifact = self.compiled([("x", (m, k)), ("y", (k, n))], ['p = FakeQuant(name="f")(x) @ FakeQuant(name="g", bits=7)(y)', "output p"])
        x[1, 4, 7], y[0, 8, 2] = numpy.nan, numpy.nan
        got = self.predict(artifact, {"x": x, "y": y}, weights, ["p"])["p"]
        scales = numpy.float32(2.5) / numpy.float32(127), numpy.float32(1.5) / numpy.float32(63)
        wanted = ((rounded(x, scales[0], 8, True).astype("f8") @ rounded(y, scales[1], 7, True).astype("f8")).astype("f4") * scales[0]) * scales[1]
        if self.artifact.endswith(".so"):  # there some neighbours of a column that is none are computed in f32, too
            numpy.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)
            numpy.testing.assert_array_equal(got[1], wanted[1])
        else:
            numpy.testing.assert_array_equal(got, wanted)
        self.assertEqual((numpy.isnan(got[0]).sum(), numpy.isnan(got[1]).sum()), (m, n))
        got = self.predict(artifact, {"x": x, "y": y}, {"f.max_abs": numpy.zeros(1, "f4"), "g.max_abs": numpy.zeros(1, "f4")}, ["p"])["p"]
        numpy.testing.assert_allclose(got, x.astype("f8") @ y.astype("f8"), rtol=1e-4, atol=1e-4)
        x = numpy.abs(numpy.nan_to_num(numpy.rint(x * 100)))  # whole, but above the range
        y = numpy.nan_to_num(numpy.rint(y * 20))
        got = self.predict(artifact, {"x": x, "y": y}, {"f.max_abs": numpy.zeros(1, "f4"), "g.max_abs": numpy.zeros(1, "f4")}, ["p"])["p"]
        numpy.testing.assert_array_equal(got, x.astype("i8") @ y.astype("i8"))
        for broken in ("f", "g"):  # a range that is no number is not passed over as one that has seen nothing
            states = weights | {broken + ".max_abs": numpy.full(1, numpy.nan, "f4")}
            self.assertTrue(numpy.isnan(self.predict(artifact, {"x": x, "y": y}, states, ["p"])["p"]).all(), broken)

    def test_no_product(self):
        """Rounded values that no product takes: number times scale, and a difference that is NaN stays where it is not what a gradient goes through."""
        x = random.normal(0, 3, (BATCH, 5, 37)).astype("f4")
        x[0, 2, :12] = 0, -0.0, numpy.nan, numpy.inf, -numpy.inf, 3e38, -3e38, 1e-42, 0.125, 0.375, 31.75, 32
        s = numpy.array([0.25, 3e-3, 1, 1e-30, 0.5], "f4")
        weights = {"s": s, "f.max_abs": numpy.array([2.5], "f4"), "g.max_abs": numpy.zeros(1, "f4"), "h.max_abs": numpy.array([7.25], "f4")}
        lines = ["a = fake_quant(x, 0.25)", "b = fake_quant(x, s, axis=1, bits=5)", 'c = FakeQuant(name="f")(x)', 'd = FakeQuant(name="g")(x)',
                 'e = relu(FakeQuant(name="h", signed=false)(x) * 2 + 1)', "h = clamp(round(x * 4), -128, 127) * 0.25 + (x - x)"]
        artifact = self.compiled([("x", (5, 37))], lines + [f"output {name}" for name in "abcdeh"], [("s", (5,))])
        with numpy.errstate(all="ignore"):
            fake = lambda scale, bits, signed: (rounded(x, scale, bits, signed) * scale).astype("f4")
            wanted = {"a": fake(numpy.float32(0.25), 8, True), "b": fake(s[:, None], 5, True), "c": fake(numpy.float32(2.5) / numpy.float32(127), 8, True), "d": x}
            e = fake(numpy.float32(7.25) / numpy.float32(255), 8, False) * numpy.float32(2) + numpy.float32(1)
            wanted |= {"e": numpy.where(e > 0, e, numpy.where(numpy.isnan(e), e, 0)), "h": wanted["a"] + (x - x)}
        for name, y in self.predict(artifact, {"x": x}, weights, list(wanted)).items():
            numpy.testing.assert_array_equal(y, wanted[name], err_msg=name)

    def test_limits(self):
        """Sums next to 2^31, in one product and, where rows are few, in parts; and those of long rows are exact."""
        lines, inputs, params, values, weights, wanted = [], [], [], {}, {}, {}
        for i, (m, k, n, signed_a, signed_b) in enumerate(((2, 33025, 3, False, False), (3, 65536, 2, True, True), (1, 65521, 5, False, True))):
            a = numpy.full((BATCH, m, k), 255 if not signed_a else -128, "f4")
            b = numpy.full((n, k), 255 if not signed_b else 127, "f4")
            a[:, -1], b[-1] = random.integers(0, 100, k), random.integers(0, 100, k)
            inputs.append((f"a{i}", (m, k)))
            params.append((f"b{i}", (n, k)))
            values[f"a{i}"], weights[f"b{i}"] = a / numpy.float32(2), b / numpy.float32(2)
            lines += [f"y{i} = fake_quant(a{i}, 0.5, signed={str(signed_a).lower()}) @ transpose(fake_quant(b{i}, 0.5, signed={str(signed_b).lower()}))", f"output y{i}"]
            wanted[f"y{i}"] = (a.astype("i8") @ b.astype("i8").T).astype("f4") / numpy.float32(4)
        got = self.predict(self.compiled(inputs, lines, params), values, weights, list(wanted))
        for name, y in wanted.items():
            numpy.testing.assert_array_equal(got[name], y)

    def test_convolutions(self):
        inputs, params, lines, values, weights, wanted = [], [], [], {}, {}, {}
        for i, (c, height, width, o, kernel, stride, padding, dilation, signed, bits, kind) in enumerate(CONVS):
            scale_a, scale_b = random.uniform(0.01, 0.1), random.uniform(0.01, 0.1, o).astype("f4")
            x = operand((BATCH, c, height, width), scale_a, 8, signed, kind)
            w = operand((o, c, *kernel), scale_b[:, None, None, None], bits, True, kind)
            inputs.append((f"x{i}", x.shape[1:]))
            params += [(f"w{i}", w.shape), (f"s{i}", (1,)), (f"t{i}", (o,))]
            values[f"x{i}"], weights[f"w{i}"], weights[f"s{i}"], weights[f"t{i}"] = x, w, numpy.array([scale_a], "f4"), scale_b
            lines += [f"y{i} = conv2d(fake_quant(x{i}, s{i}, signed={str(signed).lower()}), fake_quant(w{i}, t{i}, bits={bits}, axis=0), stride=[{stride[0]}, {stride[1]}], "
                      f"padding=[{padding[0]}, {padding[1]}], dilation=[{dilation[0]}, {dilation[1]}])", f"output y{i}"]
            wanted[f"y{i}"] = integer_conv(rounded(x, scale_a, 8, signed), rounded(w, scale_b[:, None, None, None], bits, True), stride, padding, dilation) * numpy.float32(scale_a) * scale_b[:, None, None]
        artifact = self.compiled(inputs, lines, params)
        got = self.predict(artifact, values, weights, list(wanted))
        for i, (name, y) in enumerate(wanted.items()):
            with self.subTest(case=CONVS[i]):
                self.assertTrue(numpy.any(y))
                if (i == BY_F32 and not self.takes_any_window) or not self.has_channels_last:
                    numpy.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5 * numpy.abs(y).max())
                else:
                    numpy.testing.assert_array_equal(got[name], y)
        values["x3"][1, 2, 3, 1] = numpy.nan  # reaches the 3 x 3 places around it, and no others
        nans = numpy.isnan(self.predict(artifact, values, weights, ["y3"])["y3"])
        self.assertTrue(numpy.all(nans[1, :, 2:5, 0:3]))
        self.assertEqual(nans.sum(), 9 * 64)

    def test_groups(self):
        """Those of 16 channels and more are of integers on a GPU; others, and on the CPU all, agree to rounding."""
        inputs, params, lines, values, weights, wanted = [], [], [], {}, {}, {}
        cases = GROUPED + list(drawn_windows(8))
        for i, (groups, c, height, width, o, kernel, stride, padding, dilation, signed, bits, kind) in enumerate(cases):
            scale_a, scale_b = random.uniform(0.01, 0.1), random.uniform(0.01, 0.1, o).astype("f4")
            x = operand((BATCH, c, height, width), scale_a, 8, signed, kind)
            w = operand((o, c // groups, *kernel), scale_b[:, None, None, None], bits, True, kind)
            inputs.append((f"x{i}", x.shape[1:]))
            params += [(f"w{i}", w.shape), (f"s{i}", (1,)), (f"t{i}", (o,))]
            values[f"x{i}"], weights[f"w{i}"], weights[f"s{i}"], weights[f"t{i}"] = x, w, numpy.array([scale_a], "f4"), scale_b
            lines += [f"y{i} = conv2d(fake_quant(x{i}, s{i}, signed={str(signed).lower()}), fake_quant(w{i}, t{i}, bits={bits}, axis=0), stride=[{stride[0]}, {stride[1]}], "
                      f"padding=[{padding[0]}, {padding[1]}], dilation=[{dilation[0]}, {dilation[1]}], groups={groups})", f"output y{i}"]
            n, m = rounded(x, scale_a, 8, signed), rounded(w, scale_b[:, None, None, None], bits, True)
            sums = numpy.concatenate([integer_conv(a, b, stride, padding, dilation) for a, b in zip(numpy.split(n, groups, 1), numpy.split(m, groups, 0))], 1)
            wanted[f"y{i}"] = sums * numpy.float32(scale_a) * scale_b[:, None, None]
        got = self.predict(self.compiled(inputs, lines, params), values, weights, list(wanted))
        for i, (name, y) in enumerate(wanted.items()):
            with self.subTest(case=cases[i]):
                self.assertTrue(i >= len(GROUPED) or numpy.any(y))
                if not self.takes_any_window or 1 < cases[i][0] > cases[i][1] // LEAST_OF_A_GROUP:
                    numpy.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5 * numpy.abs(y).max())
                else:
                    numpy.testing.assert_array_equal(got[name], y)

    def test_weights_without_sign(self):
        """And images that are the same for all samples of a batch; and values of weights that are not certain, being observed."""
        x, w = operand((BATCH, 20, 6, 5), 0.5, 8, True, "ends"), operand((7, 20, 3, 3), 0.25, 8, False, "most")
        lines = ["y = conv2d(fake_quant(x, 0.5), fake_quant(w, 0.25, signed=false), padding=1)", "output y",
                 'z = conv2d(fake_quant(x, 0.5), FakeQuant(name="f")(w), padding=1)', "output z"]
        artifact = self.compiled([("x", x.shape[1:])], lines, [("w", w.shape)])
        n = rounded(x, 0.5, 8, True)
        wanted = {"y": integer_conv(n, rounded(w, 0.25, 8, False), (1, 1), (1, 1), (1, 1)) * numpy.float32(0.125)}
        w[3, 4, 1, 2] = 31.75  # the largest but one
        for largest in (31.75, 0):
            got = self.predict(artifact, {"x": x}, {"w": w, "f.max_abs": numpy.array([largest], "f4")}, ["y", "z"])
            scale = numpy.float32(0.25)
            z = integer_conv(n, rounded(w, scale, 8, True) if largest else w / scale, (1, 1), (1, 1), (1, 1), "f8") * numpy.float32(0.5) * scale
            check = numpy.testing.assert_array_equal if largest and self.has_channels_last else lambda a, b: numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3)
            check(got["z"], z.astype("f4"))
            self.assertTrue(numpy.any(got["y"]))
        w[3, 4, 1, 2] = 255 * 0.25
        got = self.predict(artifact, {"x": x}, {"w": operand(w.shape, 0.25, 8, False, "most"), "f.max_abs": numpy.ones(1, "f4")}, ["y"])
        (numpy.testing.assert_array_equal if self.takes_any_window else lambda a, b: numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3))(got["y"], wanted["y"])

    def test_sums_of_channels(self):
        """Of a convolution's result, over all places of all images: exact, as the numbers are small; another reader has the result itself."""
        x, w = operand((BATCH, 16, 6, 5), 0.5, 4, True, "any"), operand((8, 16, 3, 3), 0.25, 4, True, "any")
        lines = ["y = conv2d(fake_quant(x, 0.5, bits=4), fake_quant(w, 0.25, bits=4), padding=1)", "z = maximum(y, sum(y, axis=[0, 2, 3], keepdims=true))", "output z"]
        got = self.predict(self.compiled([("x", x.shape[1:])], lines, [("w", w.shape)]), {"x": x}, {"w": w}, ["z"])
        y = integer_conv(rounded(x, 0.5, 4, True), rounded(w, 0.25, 4, True), (1, 1), (1, 1), (1, 1)) * numpy.float32(0.125)
        numpy.testing.assert_array_equal(got["z"], numpy.maximum(y, y.sum((0, 2, 3), keepdims=True)))

    def test_pooled(self):
        """The largest of windows of a convolution's results, which the kernel gives where windows do not overlap: with bias and activation or
        without, beside another reader of the convolution, of other scales, and where some numbers are not whole."""
        inputs, params, lines, values, weights = [], [], [], {}, {}
        for i, (c, height, width, o, kernel, stride, padding, signed, window, pool, step, reader) in enumerate(POOLS):
            scale_a, scale_b = random.uniform(0.01, 0.1), random.uniform(0.01, 0.1, o).astype("f4")
            inputs.append((f"x{i}", (c, height, width)))
            params += [(f"w{i}", (o, c, *kernel)), (f"b{i}", (o,)), (f"s{i}", (1,))]
            values[f"x{i}"] = operand((BATCH, c, height, width), scale_a, 8, signed, "any")
            weights |= {f"w{i}": operand((o, c, *kernel), scale_b[:, None, None, None], 8, True, "any"), f"b{i}": random.normal(0, 1, o).astype("f4"), f"s{i}": numpy.array([scale_a], "f4")}
            first = {"constant": "0.05", "negative": f"s{i}"}.get(reader, f"maximum(s{i}, 1e-9)")
            second = f"quant_scale(w{i}, axis=0)"
            lines += [f"c{i} = conv2d(fake_quant(x{i}, {first}, signed={str(signed).lower()}), fake_quant(w{i}, {second}, axis=0), stride={list(stride)}, padding={list(padding)})",
                      f"p{i} = max_pool2d(c{i}, {list(window)}, stride={list(step)}, padding={list(pool)})",
                      f"y{i} = " + {"relu": f"relu(p{i} + reshape(b{i}, [1, {o}, 1, 1]))"}.get(reader, f"p{i}"), f"output y{i}"]
            if reader == "another":
                lines += [f"z{i} = max(c{i}, axis=[1, 2, 3])", f"output z{i}"]
        weights["s3"] = -weights["s3"]
        artifact = self.compiled(inputs, lines, params)

        def wanted():
            out = {}
            for i, (c, height, width, o, kernel, stride, padding, signed, window, pool, step, reader) in enumerate(POOLS):
                scale_a = numpy.float32(0.05) if reader == "constant" else weights[f"s{i}"][0]
                w = weights[f"w{i}"]
                scale_b = numpy.abs(w).max((1, 2, 3)) / numpy.float32(127)
                n, m = rounded(values[f"x{i}"], scale_a, 8, signed), rounded(w, scale_b[:, None, None, None], 8, True)
                y = integer_conv(n, m, stride, padding, (1, 1), "f8") * scale_a * scale_b[:, None, None]
                if reader == "another":
                    out[f"z{i}"] = y.max((1, 2, 3))
                y = numpy.pad(y, ((0, 0), (0, 0), (pool[0],) * 2, (pool[1],) * 2), constant_values=-numpy.inf)
                size = [(y.shape[2 + d] - window[d]) // step[d] + 1 for d in (0, 1)]
                y = numpy.stack([y[:, :, h :: step[0], v :: step[1]][:, :, : size[0], : size[1]] for h in range(window[0]) for v in range(window[1])]).max(0)
                out[f"y{i}"] = numpy.maximum(y + weights[f"b{i}"][:, None, None], 0) if reader == "relu" else y
            return out

        def check(exact=True):
            want = wanted()
            got = self.predict(artifact, values, weights, list(want))
            for name, y in want.items():
                with self.subTest(case=POOLS[int(name[1:])], output=name):
                    if exact and self.has_channels_last:
                        numpy.testing.assert_array_equal(got[name], y)
                    else:
                        numpy.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5 * numpy.nan_to_num(numpy.abs(y)).max())

        check()
        for i, (c, height, width, *_) in enumerate(POOLS):  # one row of an image is not of integers, and one of weights
            values[f"x{i}"][1, c // 2, height // 2, width // 3] = numpy.nan
            weights[f"w{i}"][2 % len(weights[f"w{i}"]), 0, 0, 0] = numpy.nan
        check(exact=False)

    def test_nothing_observed(self):
        """Before a FakeQuant has seen anything its values are not rounded."""
        k, n = 37, 35
        x = random.normal(0, 1, (BATCH, k)).astype("f4")
        weights = {"f.weight": random.normal(0, 1, (n, k)).astype("f4"), "f.input.max_abs": numpy.zeros(1, "f4")}
        got = self.predict(self.compiled([("x", (k,))], [f'y = QuantLinear({n}, bias=false, name="f")(x)', "output y"]), {"x": x}, weights, ["y"])
        scale = (numpy.abs(weights["f.weight"]).max(1) / numpy.float32(127))[:, None]
        numpy.testing.assert_allclose(got["y"], x @ (rounded(weights["f.weight"], scale, 8, True) * scale).T, rtol=1e-5, atol=1e-5)
        x = random.normal(0, 1, (BATCH, 3, 9, 8)).astype("f4")
        weights = {"f.weight": random.normal(0, 1, (5, 3, 3, 2)).astype("f4"), "f.input.max_abs": numpy.zeros(1, "f4")}
        got = self.predict(self.compiled([("x", (3, 9, 8))], ['y = QuantConv2d(5, [3, 2], stride=2, padding=[2, 1], bias=false, name="f")(x)', "output y"]), {"x": x}, weights, ["y"])
        scale = (numpy.abs(weights["f.weight"]).max((1, 2, 3)) / numpy.float32(127))[:, None, None, None]
        wanted = integer_conv(x, rounded(weights["f.weight"], scale, 8, True), (2, 2), (2, 1), (1, 1), "f8") * scale[:, :, 0]
        numpy.testing.assert_allclose(got["y"], wanted, rtol=1e-4, atol=1e-5)


@support.in_turns(0, 3)
class IntegersWithoutVnni(Integers):
    flags = ["--disable=vnni"]


@support.in_turns(1, 3)
class IntegersOfAvx2(Integers):
    flags = ["--cpu", "x86-64-v3"]


@support.in_turns(2, 3)
class IntegersPortable(Integers):
    flags = ["--cpu", "x86-64"]


class IntegersNotPooled(Integers):
    """The pass looks at poolings only: the other programs become the same code."""

    flags = ["--disable=integer_pools"]

    def setUp(self):
        if self._testMethodName != "test_pooled":
            self.skipTest("no pooling")
        super().setUp()


@support.in_turns(1, 3)
class IntegersPlain(Integers):
    flags = ["--disable=fuse,simplify,simplify2"]


class IntegersOfGpu(Integers):
    """Its convolutions are of f32."""

    flags, has_channels_last, artifact, device = [], True, "model.ptx", ["--device", "sim"]
    takes_any_window = True


@support.in_turns(2, 3)
class IntegersBesideLibrary(IntegersOfGpu):
    """cuBLASLt in place of kernels, where it may be: not of these products, which stand alone here."""

    flags = ["--disable=fuse,simplify,simplify2"]

    def setUp(self):
        super().setUp()
        os.environ["FT_CUBLASLT"] = "library"
        self.addCleanup(os.environ.pop, "FT_CUBLASLT")


@support.in_turns(0, 3)
class IntegersOfGpuPlain(IntegersOfGpu):
    flags = ["--disable=fuse,simplify,simplify2,index32"]


@support.in_turns(2, 3)
class IntegersOfHopper(IntegersOfGpu):
    flags = ["--gpu", "sm_90a"]


@support.in_turns(0, 3)
class IntegersOfOneDnn(Integers):
    """Images as they come: oneDNN has the convolutions, in f32."""

    flags, has_channels_last = ["--disable=layout"], False


if __name__ == "__main__":
    support.main()
