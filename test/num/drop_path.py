"""Stochastic depth, against its definition in numpy with the random numbers that docs/ir.md says: which samples are left out, the gradient, parts of a
batch, going on after a stop, and evaluation, which leaves out nothing."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
import vision

SEED, P, BATCH, STEPS, RATE = 9, 0.4, 8, 3, 0.5
MODEL = """
model M(x: f32[B, 3, 4]) {
  param w: [3, 4] = ones
  y = drop_path(x * w, %s, mode="%s")
  STATES
  loss = mean(y * y)
}
data D { train = npy("x.npy"); valid = npy("x.npy") }
train { batch = %d; accumulate = %d; steps = 3; seed = 9; optimizer = sgd(lr=0.5); log { every = 1 steps } }
"""
SEEN = "state seen: f32[B, 3, 4]\n  update seen = y"


def kept(count, step):
    """Of the numbers 0 .. count-1 of a step: are they at or above P?"""
    words = [word for block in range((count + 3) // 4) for word in vision.philox((SEED, 0), (block, 0, step, 0))]
    return (numpy.array(words[:count]) >> 8) * 2.0**-24 >= P


def factors(mode, parts, step):
    """By sample of a step: 0 or 1 / (1 - P)."""
    size = BATCH // parts
    of = [kept(size if mode == "row" else 1, step * parts + part) for part in range(parts)]
    return numpy.concatenate([numpy.broadcast_to(k, size) for k in of]).reshape(BATCH, 1, 1) / (1 - P)


def trained(x, mode, parts):
    """w, the losses and what the last step has seen, in f64."""
    w, losses = numpy.ones((3, 4)), []
    for step in range(STEPS):
        f = factors(mode, parts, step)
        part = x[step * BATCH:(step + 1) * BATCH]
        y = f * part * w
        losses.append((y * y).mean())
        w = w - RATE * (2 * y * f * part).sum(0) / y.size
    return w, losses, y


class DropPath(support.Case):
    def setUp(self):
        super().setUp()
        self.x = numpy.random.default_rng(3).standard_normal((STEPS * BATCH, 3, 4)).astype("f4")
        numpy.save(self.path("x.npy"), self.x)

    def build(self, name, mode, parts=1, states="", p=P, flags=()):
        return self.compile((MODEL % (p, mode, BATCH // parts, parts)).replace("STATES", states), *flags, name=name)

    def train(self, artifact, *flags):
        log = self.path("log.jsonl")
        support.run("ftrun", artifact, "--no-shuffle", "--save", "w", "--log-jsonl", log, *flags, cwd=self.folder)
        lines = support.read_jsonl(log)
        os.remove(log)
        return support.read_safetensors(self.path("w")), lines

    def test_a_step_is_by_the_definition(self):
        forms = (((), "m.so", "cpu"), (("--disable=fuse",), "u.so", "cpu"), ((), "m.ptx", "sim"))
        for mode in ("row", "batch"):
            w, losses, y = trained(self.x.astype("f8"), mode, 1)
            for flags, name, device in forms:
                with self.subTest(mode=mode, flags=flags, device=device):
                    ours, lines = self.train(self.build(name, mode, states=SEEN, flags=flags), "--device", device)
                    numpy.testing.assert_allclose(ours["w"], w, rtol=1e-5)
                    numpy.testing.assert_allclose(ours["seen"], y, rtol=1e-5, atol=1e-6)
                    numpy.testing.assert_array_equal(ours["seen"] == 0, numpy.broadcast_to(factors(mode, 1, STEPS - 1) == 0, y.shape))
                    numpy.testing.assert_allclose([line["loss"] for line in lines if "lr" in line], losses, rtol=1e-5)

    def test_evaluation_leaves_out_nothing(self):
        artifact = self.build("m.so", "row")
        w, _ = self.train(artifact)
        support.run("ftrun", "eval", artifact, "--weights", "w", "--log-jsonl", "eval.jsonl", cwd=self.folder)
        (line,) = [line for line in support.read_jsonl(self.path("eval.jsonl")) if line.get("eval")]
        self.assertAlmostEqual(line["loss"] / ((self.x.astype("f8") * w["w"]) ** 2).mean(), 1, places=5)

    def test_parts_draw_apart_and_a_stop_changes_nothing(self):
        for mode in ("row", "batch"):
            for parts in (1, 2):
                artifact = self.build("m.so", mode, parts)
                whole, lines = self.train(artifact)
                w, losses, _ = trained(self.x.astype("f8"), mode, parts)
                numpy.testing.assert_allclose(whole["w"], w, rtol=1e-5, err_msg=f"{mode} {parts}")
                numpy.testing.assert_allclose([line["loss"] for line in lines if "lr" in line], losses, rtol=1e-5)
        self.train(artifact, "--steps", "1", "--set", "train.checkpoint.dir=kept")
        resumed, _ = self.train(artifact, "--resume", "kept")
        self.assertEqual(resumed["w"].tobytes(), whole["w"].tobytes())


if __name__ == "__main__":
    support.main()
