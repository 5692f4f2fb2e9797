"""What the samples of a batch are to each other, against PyTorch in float64: the loss of a split that is evaluated in other batches, and the losses and
weights of trainings with parts of a batch and ranks, are those of all samples together, or it is said that they are not. The models say it in ways that
are easily missed: what is the same for each sample, what numbers the samples, sequences that come before samples."""
import json
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 3], t: f32[B, 4, 3]) {
  param w: [3] = constant(0.7)
  y = x * w
  s = t * w
  %s
}
data D { train = npy("x.npy", "t.npy"); valid = npy("xv.npy", "tv.npy") }
train { batch = %d; steps = 2; optimizer = sgd(lr=0.05); eval = none; log { every=1 steps } }
"""
# what, lines, the same in PyTorch of x, t, w; ALONE: samples are related to each other, which is refused or warned of
ALONE = "alone"
CASES = [
    ("a parameter for each sample", "loss = mean(y * y) + mean(square(broadcast_to(w, [B, 3])))", lambda y, s, w: (y * y).mean() + (w * w).mean()),
    ("… in a sum", "q = expand(unsqueeze(w, 0), B, -1); loss = mean(mse(y, q)) + sum(q) / B", lambda y, s, w: ((y - w) ** 2).mean() + w.sum()),
    ("… in tiles", "q = tile(unsqueeze(w, 0), [B, 1]); loss = mean(mse(y, q)) + sum(q * q) / B", lambda y, s, w: ((y - w) ** 2).mean() + (w * w).sum()),
    ("a mean for each sample", "q = broadcast_to(mean(y, axis=0), [B, 3]); loss = mean(y * y) + mean(q)", lambda y, s, w: (y * y).mean() + y.mean()),
    ("sequences first", 'q = transpose(s, 1, 0, 2) @ (f32(iota([3, 3])) - 1); loss = mean(square(sum(q, axis=0)))',
     lambda y, s, w: ((s @ (torch.arange(3.0).double() - 1).repeat(3, 1)).sum(1) ** 2).mean()),
    ("steps and samples in one", 'q = reshape(reshape(transpose(s, 1, 0, 2), 4 * B, 3) * 2, 4, B, 3); loss = mean(square(sum(q, axis=0)))',
     lambda y, s, w: ((2 * s).sum(1) ** 2).mean()),
    ("numbers of steps", "loss = mean(square(sum(s * f32(iota([B, 4, 1], axis=1)), axis=1)))",
     lambda y, s, w: ((s * torch.arange(4.0).double()[:, None]).sum(1) ** 2).mean()),
    ("numbers of samples", "loss = mean(y * f32(iota([B, 3], axis=0)))", ALONE),
    ("… alone", "loss = mean(y * y) + mean(f32(iota([B])))", ALONE),
    ("the first half", "loss = mean(where(iota([B, 3], axis=0) < 2, y, 0))", ALONE),
    ("all before a sample", "loss = mean(square(f32(iota([B, B], axis=0) >= iota([B, B], axis=1)) @ y))", ALONE),
    ("pairs", "q = broadcast_to(unsqueeze(y, 0), [B, B, 3]); loss = mean(q * q)", ALONE),
    ("pairs, turned", "q = broadcast_to(unsqueeze(y, 1), [B, B, 3]); loss = mean(q * q)", ALONE),
]


class Divided(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(5)
        self.x, self.t = random.standard_normal((12, 3)).astype("f4"), random.standard_normal((12, 4, 3)).astype("f4")
        for name, value in (("x", self.x), ("t", self.t), ("xv", self.x[:7]), ("tv", self.t[:7])):
            numpy.save(self.path(name + ".npy"), value)
        support.write_safetensors(self.path("w"), {"w": numpy.full(3, 0.7, "f4")})

    def build(self, lines, batch, *flags):
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL % (lines, batch))
        return support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"), *flags, check=False)

    def lines(self, *words):
        log = self.path("log")
        if os.path.exists(log):
            os.remove(log)
        support.run("ftrun", *words, "--data", self.folder, "--log-jsonl", log)
        return [line["loss"] for line in map(json.loads, open(log)) if "loss" in line]

    def test_evaluations(self):
        for what, lines, meaning in CASES:
            for batch in (4, 3, 1):
                with self.subTest(what, batch=batch):
                    done = self.build(lines, batch)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    is_told = "relates the samples" in done.stderr
                    if meaning is ALONE:
                        self.assertTrue(is_told or batch == 1, done.stderr)
                        continue
                    self.assertFalse(is_told, done.stderr)
                    x, t = (torch.tensor(v[:7], dtype=torch.float64) for v in (self.x, self.t))
                    w = torch.full((3,), float(numpy.float32(0.7)), dtype=torch.float64)
                    loss = self.lines("eval", self.path("m.so"), "--weights", self.path("w"))[-1]
                    self.assertAlmostEqual(loss, float(meaning(x * w, t * w, w)), delta=2e-5 * max(1, abs(loss)))

    def expected(self, meaning):
        w, losses = torch.full((3,), float(numpy.float32(0.7)), dtype=torch.float64, requires_grad=True), []
        for step in range(2):
            x, t = (torch.tensor(v[6 * step : 6 * step + 6], dtype=torch.float64) for v in (self.x, self.t))
            loss = meaning(x * w, t * w, w)
            gradient, = torch.autograd.grad(loss, w)
            losses.append(float(loss.detach()))
            w = (w - 0.05 * gradient).detach().requires_grad_()
        return losses, w.detach().numpy()

    def test_trainings(self):
        """Six samples an update: in two or six parts, or on two ranks."""
        for what, lines, meaning in CASES:
            for batch, flag, on in ((3, "train.accumulate=2", ()), (1, "train.accumulate=6", ()), (3, "distributed.data=2", ("--ranks", "2"))):
                with self.subTest(what, flag=flag):
                    done = self.build(lines, batch, "--set", flag)
                    if done.returncode:
                        self.assertIn("the loss must be a mean or sum over the samples", done.stderr)
                        self.assertTrue(meaning is ALONE or "mean for each" in what, done.stderr)
                        continue
                    self.assertTrue(meaning is not ALONE or batch == 1, done.stderr)
                    if meaning is ALONE:
                        continue
                    losses = self.lines(self.path("m.so"), "--no-shuffle", "--save", self.path("after"), *on)
                    want, w = self.expected(meaning)
                    numpy.testing.assert_allclose(losses, want, rtol=2e-5, atol=1e-6)
                    numpy.testing.assert_allclose(support.read_safetensors(self.path("after"))["w"], w, rtol=2e-5, atol=1e-6)


if __name__ == "__main__":
    support.main()
