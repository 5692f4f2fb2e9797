"""Convolutions by kernels/conv_x86.c, kernels/grouped_x86.c and kernels/winograd_x86.c against numpy, bit for bit: operands are small whole numbers, whose sums f32
holds exactly, halves and quarters of them, too; Winograd's tiles of 4 x 4 results, which divide by 4225, to a few units in the last place of the largest result. Random sizes, strides, padding, dilation down and epilogues, transposed convolutions (gradients of images)
with and without a loop nest of their own, gradients of images and weights in a training; on the registers of this machine and on those of AVX2. Deployed
models have no other kernels for convolutions; in trainings oneDNN makes some."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

BATCH = 4
ROUNDING = 3e-6  # of the largest result; 2.4e-6 is the most in these cases


def has_rounding(flags, w):
    """Whether a convolution by these weights may be made of tiles of 4 x 4."""
    return not any("winograd" in flag for flag in flags) and w.shape[2:] == (3, 3) and w.shape[0] % 16 + w.shape[1] % 16 == 0


def convolution(x, w, stride, padding, dilation):
    """In f64. x: [n, c, h, w], w: [o, c, kh, kw]; padding: top, left, bottom, right."""
    top, left, bottom, right = padding
    x = numpy.pad(x.astype("f8"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    size = [(x.shape[2 + d] - (w.shape[2 + d] - 1) * dilation[d] - 1) // stride[d] + 1 for d in (0, 1)]
    y = 0
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = x[:, :, i * dilation[0] :, j * dilation[1] :][:, :, :: stride[0], :: stride[1]][:, :, : size[0], : size[1]]
            y = y + numpy.einsum("nchw,oc->nohw", part, w[:, :, i, j].astype("f8"), optimize=True)
    return y


def grouped(x, w, groups, *arguments):
    """Of channels in groups."""
    parts = zip(numpy.split(x, groups, 1), numpy.split(w, groups, 0))
    return numpy.concatenate([convolution(x, w, *arguments) for x, w in parts], 1)


def transposed(x, w, padding, dilation):
    """Of stride 1: what F.conv_transpose2d does. w: [c, o, kh, kw]."""
    turned = w[:, :, ::-1, ::-1].swapaxes(0, 1)
    reach = [(w.shape[2 + d] - 1) * dilation[d] - padding[d] for d in (0, 1)]
    return convolution(x, turned, (1, 1), (*reach, *reach), dilation)


class Convolutions(support.Case):
    def sizes(self, random):
        one_of = lambda *values: int(random.choice(values))
        if random.random() < 0.4:  # Winograd's: whole vectors of channels, 3 x 3
            channels = one_of(16, 16, 32, 48, 80, 112, 128), one_of(16, 32, 48, 64, 80, 96, 160)
            return channels[0], one_of(3, 4, 5, 11, 29, 38, 42), one_of(3, 4, 6, 7, 15, 16, 33, 70, 131), channels[1], (3, 3), (1, 1)
        kernel = one_of(1, 1, 2, 3, 3, 5), one_of(1, 1, 2, 3, 3, 4, 7)
        dilation = one_of(1, 1, 2, 3) if kernel[0] > 1 else 1, 1
        height = (kernel[0] - 1) * dilation[0] + one_of(1, 2, 5, 9, 20)
        return (one_of(1, 1, 2, 3, 5, 16, 17, 40), height, kernel[1] - 1 + one_of(1, 2, 6, 7, 13, 14, 15, 29), one_of(1, 3, 15, 16, 17, 31, 48, 65, 80, 130), kernel,
                dilation)

    def sizes_in_groups(self, random):
        """Channels of a group, in and out; kernel, dilation; groups."""
        one_of = lambda *values: int(random.choice(values))
        kernel, dilation = (one_of(1, 2, 3, 3, 3, 5), one_of(1, 2, 3, 3, 3, 7)), (one_of(1, 1, 2, 3), one_of(1, 1, 2))
        size = [(kernel[d] - 1) * dilation[d] + one_of(1, 2, 5, 7, 8, 13, 30, *([90, 150] if d else [])) for d in (0, 1)]
        ins, each = (1, 1) if random.random() < 0.5 else (one_of(1, 2, 3, 4, 8, 20), one_of(1, 2, 3, 4, 5, 8, 16, 20, 32))
        return ins, *size, each, kernel, dilation, one_of(1, 2, 3, 5, 8, 15, 16, 17, 32, 40, 66) if ins * each < 100 else one_of(1, 2, 3)

    def model(self, random, count, is_grouped=False):
        """Text, inputs, weights and results; each case has an epilogue or none."""
        inputs, params, lines, values, weights, wanted = [], [], [], {}, {}, {}
        whole = lambda *shape: random.integers(-4, 5, shape).astype("f4")
        for i in range(count):
            if is_grouped:
                c, height, width, o, kernel, dilation, groups = self.sizes_in_groups(random)
            else:
                c, height, width, o, kernel, dilation, groups = *self.sizes(random), 1
            is_transposed = i % 4 == 3 and not is_grouped
            is_winograd = kernel == (3, 3) and dilation == (1, 1) and c % 16 + o % 16 == 0
            stride = (1, 1) if is_transposed or is_winograd else (int(random.integers(1, 4)), int(random.integers(1, 4)))
            padding = [int(random.integers(0, (kernel[d] - 1) * dilation[d] + 1)) for d in (0, 1)]
            o *= groups
            x, w, b = whole(BATCH, c * groups, height, width), whole(*((c, o) if is_transposed else (o, c)), *kernel), whole(o, 1, 1)
            if is_transposed:
                y = transposed(x, w, padding, dilation)
            else:
                y = grouped(x, w, groups, stride, (*padding, *padding), dilation)
            call = f"conv_transpose2d(x{i}, w{i}" if is_transposed else f"conv2d(x{i}, w{i}, stride=[{stride[0]}, {stride[1]}]"
            call += f", padding=[{padding[0]}, {padding[1]}], dilation=[{dilation[0]}, {dilation[1]}]" + (f", groups={groups})" if groups > 1 else ")")
            if i % 3 == 1:
                call, y = f"relu({call} + b{i})", numpy.maximum(y + b, 0)
            elif i % 3 == 2:
                call, y = f"({call} - b{i}) * 0.5 + mean(x{i}, axis=[2, 3], keepdims=true)[:, :1]", (y - b) * 0.5 + x[:, :1].mean((2, 3), keepdims=True)
            inputs.append((f"x{i}", x.shape[1:]))
            params += [(f"w{i}", w.shape), (f"b{i}", b.shape)]
            values[f"x{i}"], weights[f"w{i}"], weights[f"b{i}"] = x, w, b
            lines += [f"y{i} = {call}", f"output y{i}"]
            wanted[f"y{i}"] = y
        text = (f"model M(z: f32[B, 1]{''.join(f', {name}: f32[B, {str(list(shape))[1:-1]}]' for name, shape in inputs)}) {{\n" +
                "".join(f"  param {name}: {list(shape)} = zeros\n" for name, shape in params) + "".join(f"  {line}\n" for line in lines) +
                "  loss = mean(z)\n}\n" + 'data D { train = npy("z.npy"' + "".join(f', "{name}.npy"' for name, _ in inputs) +
                f') }}\ntrain {{ batch = {BATCH}; epochs = 1; optimizer = sgd(lr=0.1); eval = none }}\n')
        return text, values, weights, wanted

    def assert_convolution(self, result, y, is_rounded):
        if is_rounded:
            numpy.testing.assert_allclose(result, y, rtol=0, atol=ROUNDING * max(1, numpy.abs(y).max()))
        else:
            numpy.testing.assert_array_equal(result, y.astype("f4"))

    def check(self, seed, *flags, is_grouped=False):
        text, values, weights, wanted = self.model(numpy.random.default_rng(seed), 24, is_grouped)
        artifact = self.compile(text, *flags)
        support.write_safetensors(self.path("w.safetensors"), weights)
        arguments = []
        for name, value in {"z": numpy.zeros((BATCH, 1), "f4"), **values}.items():
            numpy.save(self.path(f"{name}.npy"), value)
            arguments += ["--input", f"{name}={self.path(name + '.npy')}"]
        for name in wanted:
            arguments += ["--output", f"{name}={self.path('out_' + name + '.npy')}"]
        first = {}
        for threads in ("1", "3"):
            support.run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), "--threads", threads, *arguments)
            for i, (name, y) in enumerate(wanted.items()):
                with self.subTest(seed=seed, case=[line for line in text.split("\n") if f" y{i} =" in line], x=values[f"x{i}"].shape, threads=threads):
                    result, is_rounded = numpy.load(self.path(f"out_{name}.npy")), has_rounding(flags, weights[f"w{i}"])
                    if i % 3 == 2 and not is_rounded:  # a mean is no whole number
                        numpy.testing.assert_allclose(result, y, rtol=2e-6, atol=2e-6)
                    else:
                        self.assert_convolution(result, y, is_rounded)
                    numpy.testing.assert_array_equal(result, first.setdefault(name, result))  # any number of threads gives the same bits

    def gradients(self, seed, *flags):
        """After a step of sgd(lr=1) from zero gradients of f(images * s, w) are what s and w have lost."""
        random = numpy.random.default_rng(seed)
        whole = lambda *shape: random.integers(-3, 4, shape).astype("f4")
        inputs, params, terms, values, weights, wanted = [], [], [], {}, {}, {}
        for i in range(12):
            c, height, width, o, kernel, dilation = self.sizes(random)
            padding = [int(random.integers(0, (kernel[d] - 1) * dilation[d] + 1)) for d in (0, 1)]
            x, w, s = whole(BATCH, c, height, width), whole(o, c, *kernel), whole(c, height, width)
            y = convolution(x * s, w, (1, 1), (*padding, *padding), dilation)
            slope = whole(*y.shape)
            seen = numpy.pad((x * s).astype("f8"), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
            dw = numpy.zeros(w.shape)
            for a in range(kernel[0]):
                for b in range(kernel[1]):
                    part = seen[:, :, a * dilation[0] : a * dilation[0] + y.shape[2], b * dilation[1] : b * dilation[1] + y.shape[3]]
                    dw[:, :, a, b] = numpy.einsum("nohw,nchw->oc", slope, part, optimize=True)
            wanted[f"w{i}"] = w - dw
            wanted[f"s{i}"] = s - (transposed(slope, w, padding, dilation) * x).sum(0)
            values[f"x{i}"], values[f"g{i}"], weights[f"w{i}"], weights[f"s{i}"] = x, slope, w, s
            inputs += [(f"x{i}", x.shape[1:]), (f"g{i}", y.shape[1:])]
            params += [(f"w{i}", w.shape), (f"s{i}", s.shape)]
            terms.append(f"sum(conv2d(x{i} * s{i}, w{i}, padding=[{padding[0]}, {padding[1]}], dilation=[{dilation[0]}, 1]) * g{i})")
        text = (f"model M({', '.join(f'{name}: f32[B, {str(list(shape))[1:-1]}]' for name, shape in inputs)}) {{\n" +
                "".join(f"  param {name}: {list(shape)} = zeros\n" for name, shape in params) + f"  loss = {' + '.join(terms)}\n}}\n" +
                "data D { train = npy(" + ", ".join(f'"{name}.npy"' for name, _ in inputs) + ") }\n" +
                f"train {{ batch = {BATCH}; steps = 1; optimizer = sgd(lr=1); eval = none }}\n")
        artifact = self.compile(text, *flags)
        support.write_safetensors(self.path("w.safetensors"), weights)
        for name, value in values.items():
            numpy.save(self.path(f"{name}.npy"), value)
        first = {}
        for threads in ("1", "3"):
            support.run("ftrun", artifact, "--data", self.path(""), "--init", self.path("w.safetensors"), "--save", self.path("r.safetensors"), "--threads", threads)
            result = support.read_safetensors(self.path("r.safetensors"))
            for name, value in wanted.items():
                with self.subTest(seed=seed, name=name, term=terms[int(name[1:])], x=values[f"x{name[1:]}"].shape, threads=threads):
                    self.assert_convolution(result[name], value, has_rounding(flags, weights[f"w{name[1:]}"]))
                    numpy.testing.assert_array_equal(result[name], first.setdefault(name, result[name]))

    def test_rounding(self):
        """Errors of tiles of 4 x 4 and 2 x 2 beside those of plain sums in f32, as kernels/winograd_host.h has them: root mean squares."""
        random = numpy.random.default_rng(9)
        root = lambda difference: numpy.sqrt(numpy.mean(difference.astype("f8") ** 2))
        for channels, kind in ((16, "about 0"), (16, "rectified"), (64, "about 0"), (64, "rectified"), (64, "far from 0"), (128, "rectified")):
            x = random.standard_normal((4, channels, 20, 20)).astype("f4")
            x = numpy.maximum(x, 0) if kind == "rectified" else x + numpy.float32(3 * (kind == "far from 0"))
            g = random.standard_normal((4, 16, 20, 20)).astype("f4")
            w = (random.standard_normal((16, channels, 3, 3)) / numpy.sqrt(9 * channels)).astype("f4")
            seen, slopes, plain = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), numpy.zeros((16, channels, 3, 3), "f4"), numpy.zeros(g.shape, "f4")
            exact_slopes = numpy.zeros(slopes.shape)
            for i, j in numpy.ndindex(3, 3):
                part = seen[:, :, i : i + 20, j : j + 20]
                exact_slopes[:, :, i, j] = numpy.einsum("nohw,nchw->oc", g.astype("f8"), part.astype("f8"), optimize=True)
                for c in range(channels):
                    plain += part[:, None, c] * w[None, :, c, i, j, None, None]
                for n, a, b in numpy.ndindex(4, 20, 20):
                    slopes[:, :, i, j] += g[n, :, a, b, None] * part[n, None, :, a, b]
            exact = convolution(x, w, (1, 1), (1,) * 4, (1, 1))
            text = (f"model M(x: f32[B, {channels}, 20, 20], g: f32[B, 16, 20, 20]) {{\n  param w: [16, {channels}, 3, 3] = zeros\n  y = conv2d(x, w, padding=1)\n"
                    '  output y\n  loss = sum(y * g)\n}\ndata D { train = npy("x.npy", "g.npy") }\n'
                    "train { batch = 4; steps = 1; optimizer = sgd(lr=1); eval = none }\n")
            numpy.save(self.path("x.npy"), x)
            numpy.save(self.path("g.npy"), g)
            support.write_safetensors(self.path("w.safetensors"), {"w": w})
            support.write_safetensors(self.path("zeros.safetensors"), {"w": numpy.zeros_like(w)})
            for flags, most, most_slopes in (((), 3, 2), (("--disable=winograd4",), 1, 1), (("--disable=winograd",), 1.1, 1.1)):
                artifact = self.compile(text, *flags)
                support.run("ftrun", artifact, "--data", self.path(""), "--init", self.path("zeros.safetensors"), "--save", self.path("r.safetensors"))
                support.run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), "--input", f"x={self.path('x.npy')}", "--input", f"g={self.path('g.npy')}",
                            "--output", f"y={self.path('y.npy')}")
                y, w_slopes = numpy.load(self.path("y.npy")), -support.read_safetensors(self.path("r.safetensors"))["w"]
                with self.subTest(channels=channels, kind=kind, flags=flags):
                    self.assertLess(root(y - exact), most * root(plain - exact))
                    self.assertLess(root(w_slopes - exact_slopes), most_slopes * root(slopes - exact_slopes))

    def test_gradients(self):
        self.gradients(1)
        self.gradients(2, "--cpu", "x86-64-v3")
        self.gradients(3, "--disable=winograd")
        self.gradients(1, "--disable=winograd4")
        self.gradients(2, "--cpu", "x86-64-v3", "--disable=winograd4")

    def test_deployed(self):
        for seed in range(3):
            self.check(seed, "--inference")

    def test_avx2(self):
        self.check(7, "--inference", "--cpu", "x86-64-v3")

    def test_groups(self):
        self.check(20, "--inference", is_grouped=True)
        self.check(21, "--inference", is_grouped=True)
        self.check(22, "--inference", "--cpu", "x86-64-v3", is_grouped=True)
        self.check(23, "--inference", "--cpu", "x86-64", is_grouped=True)
        self.check(24, is_grouped=True)

    def test_training_artifacts(self):
        self.check(5)
        self.check(5, "--disable=winograd4")
        self.check(6, "--cpu", "x86-64-v3")
        self.check(6, "--cpu", "x86-64-v3", "--disable=winograd4")


if __name__ == "__main__":
    support.main()
