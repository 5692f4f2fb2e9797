"""Approximate functions on the simulator, with errors as large as hardware may make (FT_SIM_ROUNDING): every number of bf16, against
float64. The sum of a function's value and a zero is given out as f32, so that no rounding to 16 bits hides the error. And
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
    "tanh": (numpy.tanh, 0, lambda x: 2.0**-18),
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

    def values(self, function, x, zero, *flags):
        numpy.save(self.path("x.npy"), numpy.stack([x, numpy.full_like(x, zero)], axis=-1))
        artifact = self.compile(SOURCE.format(function=function), *flags, name="model.ptx")
        support.run("ftrun", artifact, "--device", "sim", "--steps", 1, "--data", self.folder, "--save", self.path("w"), cwd=self.folder)
        support.run("ftrun", "predict", artifact, "--device", "sim", "--weights", self.path("w"), "--input", "x=" + self.path("x.npy"), "--output",
                    self.path("y.npy"), cwd=self.folder)
        with open(artifact) as file:
            return numpy.load(self.path("y.npy")).astype(numpy.float64), file.read()

    def test_errors(self):
        x = all_of_bf16()
        for name, (function, zero, bound) in FUNCTIONS.items():
            for seed in SEEDS:
                os.environ["FT_SIM_ROUNDING"] = str(seed)
                got, ptx = self.values(name, x, zero)
                self.assertIn("ex2.approx", ptx)
                with numpy.errstate(all="ignore"):
                    expected = function(x.astype(numpy.float64))
                    normal = numpy.isfinite(expected) & (abs(expected) >= 2.0**-125) & (abs(expected) < 2.0**127)
                    error = abs(got - expected)[normal] / abs(expected[normal])
                    worst = (error / (bound(x.astype(numpy.float64)) * numpy.ones(len(x)))[normal]).max()
                print(f"{name}, seed {seed}: error 2^{numpy.log2(error.max()):.2f}, {worst:.2f} of the bound", file=sys.stderr)
                with self.subTest(name, seed=seed):
                    self.assertLessEqual(worst, 1)
                    self.assertTrue((numpy.isnan(got) == numpy.isnan(expected)).all())
                    small = abs(expected) < 2.0**-125
                    self.assertTrue((abs(got[small]) <= 2.0**-124).all())
                    large = expected >= 2.0**127
                    self.assertTrue((got[large] >= 2.0**126).all())

    def test_exact_math(self):
        x = numpy.linspace(-4, 4, 1024, dtype=numpy.float32)
        for name, (_, zero, _) in FUNCTIONS.items():
            _, ptx = self.values(name, x, zero, "--exact-math")
            self.assertNotIn(".approx", ptx)
        self.fails(2, "--exact-math is for a GPU", "ftc", self.path("model.ft"), "--exact-math", "-o", self.path("model.so"))


if __name__ == "__main__":
    support.main()
