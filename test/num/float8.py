"""8-bit floats: round_e4m3 and round_e5m2 of every number of bf16, of the middles between two numbers of the format and their neighbours in f32, and
of random f32, to the bit, fused or not, on the processor and in the simulator; fake_float8's values and gradients.

What a number of the format is comes from its definition (OCP 8-bit Floating Point Specification, 2023): the codes are enumerated. That is compared
with PyPI's ml_dtypes, which scripts/float8-peers installs; where it cannot, that test is skipped."""
import os
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

numpy.seterr(invalid="ignore")  # NaN with its signal set is among the numbers

FORMATS = {"e4m3": (4, 3, 448), "e5m2": (5, 2, 57344)}  # bits of exponent and mantissa, the largest number


def codes(name):
    """The numbers of the format that are not negative, by code: every other one, by its place, is even."""
    exponent_bits, bits, largest = FORMATS[name]
    bias = 2 ** (exponent_bits - 1) - 1
    numbers = [2.0 ** (1 - bias - bits) * code if code < 2**bits else 2.0 ** ((code >> bits) - bias) * (1 + (code % 2**bits) / 2**bits) for code in range(128)]
    return numpy.array([x for x in numbers if x <= largest], "f8")


def nearest(name, x):
    """Of f32 or f64: the number of least distance, of two the even one; what is beyond the largest becomes it."""
    numbers = codes(name)
    size = numpy.abs(x.astype("f8"))
    above = numpy.clip(numpy.searchsorted(numbers, size), 0, len(numbers) - 1)
    below = numpy.maximum(above - 1, 0)
    up, down = numbers[above] - size, size - numbers[below]
    chosen = numpy.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    chosen = numpy.where(size >= numbers[-1], len(numbers) - 1, chosen)
    return numpy.where(numpy.isnan(x), numpy.nan, numpy.copysign(numbers[chosen], x)).astype(x.dtype)


def numbers_of(name):
    bf16 = (numpy.arange(2**16, dtype="u4") << 16).view("f4")
    middles = ((codes(name)[1:] + codes(name)[:-1]) / 2).astype("f4")
    around = numpy.concatenate([middles, numpy.nextafter(middles, numpy.float32(0)), numpy.nextafter(middles, numpy.float32(1e9)), codes(name).astype("f4")])
    largest = numpy.float32(FORMATS[name][2])
    beyond = largest * numpy.array([1, 1 + 2.0**-23, 1.03, 464 / 448, 61440 / 57344, 1.5, 3e38 / largest], "f4")
    random = numpy.random.default_rng(8)
    bits = random.integers(0, 2**32, 20000, dtype="u4").view("f4")
    spread = (random.standard_normal(20000) * 2.0 ** random.integers(-20, 20, 20000)).astype("f4")
    return numpy.concatenate([bf16, around, -around, beyond, -beyond, bits, spread])


def same(have, want):
    """Bit for bit, but for what a NaN holds."""
    bits = "u4" if have.dtype == numpy.float32 else "u8"
    return ((have.view(bits) == want.view(bits)) | (numpy.isnan(have) & numpy.isnan(want))).all()


class Formats(support.Case):
    def test_the_definition_is_that_of_ml_dtypes(self):
        python = support.peer_python("float8-peers")
        program = ("import sys, numpy, ml_dtypes\nnumpy.seterr(all='ignore')\nx = numpy.load(sys.argv[1])\n"
                   "numpy.save(sys.argv[1], numpy.clip(x, -float(sys.argv[2]), float(sys.argv[2])).astype(getattr(ml_dtypes, sys.argv[3])).astype('f4'))")
        for name, kind in (("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")):
            x, largest = numbers_of(name), FORMATS[name][2]
            numpy.save(self.path("x.npy"), x)
            subprocess.run([python, "-c", program, self.path("x.npy"), str(largest), kind], check=True)
            self.assertTrue(same(nearest(name, x), numpy.load(self.path("x.npy"))), name)

    def test_rounding(self):
        for name in FORMATS:
            x = numbers_of(name)
            x = x[: len(x) // 16 * 16].reshape(-1, 16)
            numpy.save(self.path("x.npy"), x)
            support.write_safetensors(self.path("one"), {"p": numpy.ones(1, "f4")})
            source = (f"model M(x: f32[B, 16]) {{\n  param p: [1] = ones\n  y = round_{name}(x)\n  output y\n  z = round_{name}(f64(x) * 1.0000000001)\n  output z\n"
                      f"  loss = sum(y * p)\n}}\ntrain {{ batch = {len(x)} }}\n")
            finer = nearest(name, x.astype("f8") * 1.0000000001)
            for flags, artifact, device in (((), "m.so", "cpu"), (("--disable=fuse",), "u.so", "cpu"), ((), "m.ptx", "sim")):
                made = self.compile(source, *flags, name=artifact)
                support.run("ftrun", "predict", made, "--weights", self.path("one"), "--input", f"x={self.path('x.npy')}", "--output",
                            f"y={self.path('y.npy')}", "--output", f"z={self.path('z.npy')}", "--device", device)
                with self.subTest(name, artifact=artifact):
                    self.assertTrue(same(numpy.load(self.path("y.npy")).ravel(), nearest(name, x).ravel()))
                    self.assertTrue(same(numpy.load(self.path("z.npy")).astype("f8").ravel(), finer.ravel()))

    def test_fake_float8(self):
        """One step of sgd at rate 1 from x: what is taken off is the gradient, the incoming one where it is within the range."""
        random = numpy.random.default_rng(9)
        x = (random.standard_normal((6, 7)) * 300).astype("f4")
        x[0, :4] = [448, -448, 463, 2e5]
        for name in FORMATS:
            for scale, text in ((1, "1"), (0.75, "f32(0.75) * sum(one)"), (numpy.float32(FORMATS[name][2]) / numpy.abs(x).max(), f'float8_scale(p, "{name}")')):
                source = (f"model M(one: f32[B, 1]) {{\n  param p: [6, 7] = ones\n  state q: [6, 7] = zeros\n  param w: [6, 7] = ones\n"
                          f'  y = fake_float8(p, {text}, format="{name}")\n  update q = y\n  loss = sum(y * stop_gradient(w)) + 0 * sum(w) + 0 * sum(one)\n}}\n'
                          'data D { train = npy("one.npy") }\ntrain { data = D; batch = 1; epochs = 1; optimizer = sgd(lr=1) }\n')
                w = random.uniform(-2, 2, (6, 7)).astype("f4")
                numpy.save(self.path("one.npy"), numpy.ones((1, 1), "f4"))
                support.write_safetensors(self.path("start"), {"p": x, "w": w})
                for artifact, device in (("m.so", "cpu"), ("m.ptx", "sim")):
                    made = self.compile(source, name=artifact)
                    support.run("ftrun", made, "--data", self.folder, "--init", self.path("start"), "--init-missing", "keep", "--save", self.path("end"), "--device", device)
                    end = support.read_safetensors(self.path("end"))
                    scaled = x * numpy.float32(scale)
                    with self.subTest(name, scale=text, artifact=artifact):
                        want = nearest(name, scaled) * (numpy.float32(1) / numpy.float32(scale))
                        numpy.testing.assert_array_equal(end["q"], want)
                        inside = numpy.abs(scaled) < {"e4m3": 464, "e5m2": 61440}[name]
                        numpy.testing.assert_array_equal(end["p"], x - numpy.where(inside, w, numpy.float32(0)))


if __name__ == "__main__":
    support.main()
