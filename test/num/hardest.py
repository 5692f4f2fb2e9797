"""Training on the k hardest samples of a batch: a step is that of these samples alone, and an evaluation is that of all."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
block Net()(x: [B, 6]) { return Linear(3, name="out")(tanh(Linear(8, name="h")(x))) }
model M(x: f32[B, 6], y: i32[B]) {
  net = Net(name="net")
  LOSS
  metric accuracy = accuracy(net(x), y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("vx.npy", "vy.npy") }
train { batch = %d; steps = 1; optimizer = sgd(lr=0.5) }
"""
PLAIN = "loss = mean(cross_entropy(net(x), y))"
TWICE = "all = cross_entropy(net(x), y)\n  loss = mean(cross_entropy(net(hardest_rows(all, 4, x)), hardest_rows(all, 4, y)))"
ONCE = "loss = mean(hardest(cross_entropy(net(x), y), 4))"


class Hardest(support.Case):
    def trained(self, loss, batch, x, y):
        for name, value in {"x": x, "y": y, "vx": self.x, "vy": self.y}.items():
            numpy.save(self.path(name + ".npy"), value)
        artifact = self.compile(MODEL.replace("LOSS", loss) % batch)
        support.run("ftrun", artifact, "--no-shuffle", "--init", "w", "--save", "new", "--log-jsonl", "log", "--set", "train.log.every=1", cwd=self.folder)
        lines = support.read_jsonl(self.path("log"))
        os.remove(self.path("log"))
        return support.read_safetensors(self.path("new")), lines

    def test_a_step_is_that_of_the_chosen(self):
        random = numpy.random.default_rng(4)
        self.x, self.y = random.standard_normal((12, 6)).astype("f4"), random.integers(0, 3, 12).astype("i4")
        w = {"net.h.weight": (8, 6), "net.h.bias": (8,), "net.out.weight": (3, 8), "net.out.bias": (3,)}
        w = {name: random.standard_normal(shape).astype("f4") for name, shape in w.items()}
        support.write_safetensors(self.path("w"), w)
        h = numpy.tanh(self.x.astype("f8") @ w["net.h.weight"].T + w["net.h.bias"]) @ w["net.out.weight"].T + w["net.out.bias"]
        losses = numpy.log(numpy.exp(h).sum(1)) - h[numpy.arange(12), self.y]
        chosen = numpy.argsort(-losses)[:4]
        theirs, plain = self.trained(PLAIN, 4, self.x[chosen], self.y[chosen])
        for loss in (TWICE, ONCE):
            ours, lines = self.trained(loss, 12, self.x, self.y)
            for name in w:
                self.assertGreater(abs(ours[name] - w[name]).max(), 1e-3)
                numpy.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=f"{loss} {name}")
            for mine, other in zip(lines, plain):
                self.assertAlmostEqual(mine["loss"], other["loss"], places=5)
            self.assertAlmostEqual(lines[0]["loss"], losses[chosen].mean(), places=5)

    def test_what_is_refused(self):
        source = MODEL.replace("LOSS", ONCE)
        with open(self.path("m.ft"), "w") as file:
            file.write(source % 3)
        self.fails(1, "hardest: k must be from 1 to the 3 losses, not 4", "ftc", self.path("m.ft"), "-o", self.path("m.so"))
        with open(self.path("m.ft"), "w") as file:
            file.write(source % 12)
        self.fails(1, "this one relates samples to each other", "ftc", self.path("m.ft"), "-o", self.path("m.so"), "--set", "train.accumulate=2")


if __name__ == "__main__":
    support.main()
