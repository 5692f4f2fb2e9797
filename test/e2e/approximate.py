"""Approximate functions on the CPU, and on the simulator with errors as large as hardware may make (FT_SIM_ROUNDING): every number of
bf16, against float64. The sum of a function's value and a zero is given out as f32, so that no rounding to 16 bits hides the error. And
ftc --exact-math has none of them."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
from scipy import special

SOURCE = """model M(x: f32[B, N=2]) {{
  param w: [1] = normal(1)
  y = sum({function}(f32(bf16(x))), axis=-1)
  output y
  loss = sum(w)
}}
data D {{ train = npy("x.npy") }}
train {{ model = M; data = D; batch = 1024; optimizer = sgd(lr=0.01); eval every 0 epochs }}
"""
# function: in numpy, an operand of which it is 0, and its relative error: kernels/approximate.h
FUNCTIONS = {
    "exp": (numpy.exp, -numpy.inf, lambda x: 2.0**-21 + abs(x) * 2.0**-23),
    "sigmoid": (special.expit, -numpy.inf, lambda x: 2.0**-21 + abs(x) * 2.0**-23),
    "tanh": (numpy.tanh, 0, lambda x: 2.0**-21),
    "erf": (special.erf, 0, lambda x: 2.0**-22),
}
SEEDS = (0, 1, 2, 3)


def all_of_bf16():
    bits = numpy.arange(1 << 16, dtype=numpy.uint32) << 16
    return bits.view(numpy.float32)


class Approximate(support.Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.pop, "FT_SIM_ROUNDING", None)

    def values(self, function, x, zero, *flags, end=".ptx"):
        numpy.save(self.path("x.npy"), numpy.stack([x, numpy.full_like(x, zero)], axis=-1))
        artifact = self.compile(SOURCE.format(function=function), *flags, name="model" + end)
        device = ["--device", "sim" if end == ".ptx" else "cpu"]
        support.run("ftrun", artifact, *device, "--steps", 1, "--data", self.folder, "--save", self.path("w"), cwd=self.folder)
        support.run("ftrun", "predict", artifact, *device, "--weights", self.path("w"), "--input", "x=" + self.path("x.npy"), "--output",
                    self.path("y.npy"), cwd=self.folder)
        return numpy.load(self.path("y.npy")).astype(numpy.float64), artifact

    def check(self, name, got, x, function, bound):
        with numpy.errstate(all="ignore"):
            expected = function(x.astype(numpy.float64))
            normal = numpy.isfinite(expected) & (abs(expected) >= 2.0**-125) & (abs(expected) < 2.0**127)
            error = abs(got - expected)[normal] / abs(expected[normal])
            worst = (error / (bound(x.astype(numpy.float64)) * numpy.ones(len(x)))[normal]).max()
        print(f"{name}: error 2^{numpy.log2(error.max()):.2f}, {worst:.2f} of the bound", file=sys.stderr)
        with self.subTest(name):
            self.assertLessEqual(worst, 1)
            self.assertTrue((numpy.isnan(got) == numpy.isnan(expected)).all())
            small = abs(expected) < 2.0**-125
            self.assertTrue((abs(got[small]) <= 2.0**-124).all())
            large = expected >= 2.0**127
            self.assertTrue((got[large] >= 2.0**126).all())

    def test_gpu(self):
        x = all_of_bf16()
        for name, (function, zero, bound) in FUNCTIONS.items():
            for seed in SEEDS:
                os.environ["FT_SIM_ROUNDING"] = str(seed)
                got, artifact = self.values(name, x, zero)
                with open(artifact) as file:
                    self.assertIn("ex2.approx", file.read())
                self.check(f"{name}, seed {seed}", got, x, function, bound)

    def test_cpu(self):
        x = all_of_bf16()
        for name, (function, zero, bound) in FUNCTIONS.items():
            exact, _ = self.values(name, x, zero, "--exact-math", end=".so")
            for cpu in ("x86-64-v3", "x86-64"):
                got, _ = self.values(name, x, zero, "--cpu", cpu, end=".so")
                self.assertTrue((got != exact).any())
                certain = (x == 0) | numpy.isinf(x)
                self.assertTrue((got[certain] == function(x[certain])).all())
                self.check(f"{name}, {cpu}", got, x, function, bound)

    def test_exact_math(self):
        x = numpy.linspace(-4, 4, 1024, dtype=numpy.float32)
        for name, (function, zero, _) in FUNCTIONS.items():
            _, artifact = self.values(name, x, zero, "--exact-math")
            with open(artifact) as file:
                self.assertNotIn(".approx", file.read())
            got, _ = self.values(name, x, zero, "--exact-math", end=".so")
            rounded = ((x.view(numpy.uint32) + 0x7FFF + (x.view(numpy.uint32) >> 16 & 1)) & 0xFFFF0000).view(numpy.float32)
            self.check(f"{name}, exact", got, rounded, function, lambda x: 2.0**-22)


if __name__ == "__main__":
    support.main()
