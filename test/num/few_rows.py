"""Products of few rows by a matrix of bf16 or f16, or a large one of f32 (kernels/gemm_few_x86.c) against sums in f64 of the rounded operands: up to four rows and five, which
take the other way, matrices [k, n] and [n, k], a first operand [k, m], sizes around vectors and blocks, an epilogue, batches of products, AVX-512
and AVX2. The bound is that of a sum of f32 numbers, rounded once more. With one thread and with several the bits are the same."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """model M(x: f32[{x}], y: f32[{batch}]) {{
  param w: [{w}] = normal(1)
  z = {z}
  loss = mean(z)
  output z
}}
data D {{ train = npy("x.npy", "y.npy") }}
train {{ batch = {batch}; epochs = 1; optimizer = sgd(lr=0.1); precision = {precision}; eval = none }}
"""


def rounded(x, precision):
    if precision == "f32":
        return x.astype("f8")
    if precision == "fp16":
        return x.astype("f2").astype("f8")
    bits = numpy.ascontiguousarray(x, "f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).view("f4").astype("f8")


class FewRows(support.Case):
    def check(self, precision, x, w, z, want, cpus=("native", "x86-64-v3")):
        """want(x, w): the result in f64, and of the operands' sizes alone."""
        samples = x.shape[0]
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), numpy.zeros(samples, "f4"))
        support.write_safetensors(self.path("w.safetensors"), {"w": w})
        dims = [str(size) for size in x.shape[1:]]
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL.format(x=", ".join(["B", *dims]), w=", ".join(map(str, w.shape)), z=z, batch=samples, precision=precision))
        exact, size = want(rounded(x, precision), rounded(w, precision)), want(numpy.abs(x).astype("f8"), numpy.abs(w).astype("f8"))
        unit = {"bf16": 2.0**-8, "fp16": 2.0**-11, "f32": 0}[precision]  # the result is rounded to the operands' type
        bound = 2 * max(w.shape + x.shape) * 2.0**-24 * size + unit * numpy.abs(exact) + 2.0**-25
        for cpu in cpus:
            support.run("ftc", self.path("m.ft"), "--cpu", cpu, "-o", self.path("m.so"))
            results = []
            for threads in (1, 3):
                support.run("ftrun", "predict", self.path("m.so"), "--weights", self.path("w.safetensors"), "--input", f"x={self.path('x.npy')}", "--output", self.path("z.npy"), "--threads", threads)
                results.append(numpy.load(self.path("z.npy")))
            numpy.testing.assert_array_equal(*results)
            self.assertEqual(results[0].shape, exact.shape)
            wrong = numpy.abs(results[0] - exact) > bound
            self.assertFalse(wrong.any(), f"{precision} {cpu} {x.shape} {w.shape} {z}: {int(wrong.sum())} wrong, {numpy.abs(results[0] - exact).max()} off")

    def arrays(self, *shapes):
        random = numpy.random.default_rng(sum(sum(shape) for shape in shapes))
        return [random.standard_normal(shape).astype("f4") for shape in shapes]

    def test_sizes(self):
        cases = [(m, k, n) for m in (1, 2, 3, 4, 5) for k, n in ((7, 5), (64, 48), (768, 256), (33, 1000), (130, 17))]
        cases = [(number, *case) for number, case in enumerate(cases + [(1, 5000, 300), (4, 1, 129), (1, 65, 2049)])]
        for number, m, k, n in support.of_this_turn(cases, 2):
            for turned in (False, True):
                precision = ("bf16", "fp16")[(number + turned) % 2]
                with self.subTest(m=m, k=k, n=n, turned=turned, precision=precision):
                    x, w = self.arrays((m, k), (n, k) if turned else (k, n))
                    self.check(precision, x, w, "x @ transpose(w)" if turned else "x @ w", lambda x, w: x @ (w.T if turned else w), ("native", "x86-64-v3") if number % 3 == 0 else ("native",))

    def test_f32(self):
        """Of f32 only large matrices [n, k]."""
        for m, k, n in ((1, 1030, 515), (2, 600, 1000), (4, 257, 1999), (3, 4, 70000), (1, 200, 100)):
            with self.subTest(m=m, k=k, n=n):
                x, w = self.arrays((m, k), (n, k))
                self.check("f32", x, w, "x @ transpose(w)", lambda x, w: x @ w.T)

    def test_batches_and_epilogues(self):
        x, w = self.arrays((3, 4, 40), (40, 70))
        self.check("bf16", x[:, :2], w, "reshape(x[:, 0], [B, 40]) @ w", lambda x, w: x[:, 0] @ w)
        self.check("bf16", x, w, "transpose(transpose(x, [0, 2, 1]), [0, 2, 1]) @ w", lambda x, w: x @ w)
        # a product for each sample, of which both operands are computed
        self.check("bf16", x, w, "x @ transpose(x, [0, 2, 1])", lambda x, w: x @ x.swapaxes(1, 2))
        self.check("fp16", x, w, "transpose(x[:, :, :3], [0, 2, 1]) @ x", lambda x, w: x[:, :, :3].swapaxes(1, 2) @ x)
        x, w = self.arrays((2, 96), (96, 300))
        self.check("bf16", x, w, "relu(x @ w + 1)", lambda x, w: numpy.maximum(x @ w + 1, 0))


if __name__ == "__main__":
    support.main()
