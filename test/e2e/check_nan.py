"""ftrun --check=nan names the very operation that made a number which is not finite, its line, layer and operands, also
where it is one of many in a kernel: numbers planted in data, forward, backward, update and fp16, on the CPU and in the
simulator. What it says of operands is compared with numpy."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

# {body} stands on lines of its own; a line with // HERE is the one to be named
MODEL = """
block Risky()(t: [N, D]) {{
  {block}
}}
model M(x: f32[B, 6], y: f32[B, 3]) {{
  h = relu(Linear(8, name="fc1")(x))
  {body}
  loss = mean((p - y) * (p - y))
}}
data D {{ train = npy("x.npy", "y.npy"); shuffle = {shuffle} }}
train {{ batch = 4; seed = 5; optimizer = {optimizer}
  schedule = constant
  {more}
}}
"""
PLAIN = 'p = Linear(3, name="fc2")(h)'
DEVICES = (("m.so", "cpu"), ("m.ptx", "sim"))


class CheckNan(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(7)
        self.x = random.uniform(0.5, 1.5, (16, 6)).astype("f4")
        self.y = random.normal(size=(16, 3)).astype("f4")

    def model(self, body=PLAIN, block="return t", shuffle="false", optimizer="sgd(lr=0.01)", more="", flags=(), name="m.so"):
        self.source = MODEL.format(body=body, block=block, shuffle=shuffle, optimizer=optimizer, more=more)
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)
        return self.compile(self.source, *flags, name=name)

    def line(self):
        return 1 + next(i for i, line in enumerate(self.source.splitlines()) if "// HERE" in line)

    def check(self, artifact, *needles, device="cpu", flags=("--steps", 6)):
        done = self.fails(1, "is not finite", "ftrun", artifact, "--data", self.folder, "--device", device, "--threads", 1, "--check=nan", *flags)
        for needle in needles:
            self.assertIn(needle, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_data(self):
        self.x[10, 2] = numpy.nan
        for shuffle in ("false", "true"):
            said = self.check(self.model(shuffle=shuffle), "the data: input x is not finite", "sample 10 of " + self.path("x.npy"), "1 NaN")
            row, column = map(int, re.search(r"NaN at \[(\d+),(\d+)\] of f32\[4,6\]", said).groups())
            self.assertEqual(column, 2)
            if shuffle == "false":
                self.assertEqual(row, 2)
                self.assertIn("step 3: ", said)
        self.x[10, 2] = numpy.inf
        self.check(self.model(more="accumulate = 2", name="parts.so"), "step 2: ", "Inf at [2,2] of f32[4,6]", "sample 10 of " + self.path("x.npy"))

    def test_forward(self):
        self.x[9, 4] = 0
        for name, device in DEVICES:
            artifact = self.model(body="g = Risky(name=\"odd\")(x)\n  p = Linear(3, name=\"fc2\")(h) + mean(g)", block="return exp(log(t) * -2) // HERE", name=name)
            said = self.check(artifact, f"model.ft:{self.line()}: the first value that is not finite comes from", "[1,4] of f32[4,6]", "the loss", "step 3: ",
                              device=device)
            self.assertRegex(said, r"comes from (log|exp)")

    def test_the_operation_in_a_kernel(self):
        """log(0) between other pointwise work and a reduction: its operand's statistics are numpy's."""
        self.x[5, 1] = 0
        artifact = self.model(body='g = log(x * 2) // HERE\n  p = Linear(3, name="fc2")(h) + sum(g * g)')
        said = self.check(artifact, f"model.ft:{self.line()}: the first value that is not finite comes from log", "-Inf at [1,1] of f32[4,6], made of 0", "step 2: ", "forward")
        batch = self.x[4:8] * 2
        found = re.search(r"operand 0 of log, of x: 0 there; f32\[4,6\], min (\S+), max (\S+), mean (\S+), 0 NaN, 0 Inf", said)
        for text, want in zip(found.groups(), (batch.min(), batch.max(), batch.mean())):
            self.assertAlmostEqual(float(text), want, places=5)

    def test_backward(self):
        """sqrt(0) is finite, its slope is not."""
        self.x[6, 3] = 0
        for name, device in DEVICES:
            for more in ("", "recompute = pointwise", "accumulate = 2"):
                body = 'param w: [6] = ones\n  s = sqrt(x * w) // HERE\n  p = Linear(3, name="fc2")(h) + Linear(3, name="fc3")(s)'
                artifact = self.model(body=body, more=more, name=name)
                said = self.check(artifact, f"model.ft:{self.line()}: the first value that is not finite comes from", "in the gradient of that line", device=device)
                self.assertRegex(said, r"Inf at \[2,3\]|made of")
                if device == "sim":
                    break

    def test_update(self):
        """No gradient, and nothing that is added to its size: 0 / 0."""
        body = 'param w: [5] = ones\n  p = Linear(3, name="fc2")(h) + 0 * sum(w)'
        artifact = self.model(body=body, optimizer="adam(lr=0.01, eps=0) // HERE")
        self.check(artifact, "step 1: ", "comes from div", "in the update of the parameters, parameter ", "NaN at", "made of 0 divided by 0", "operand 1 of div, of", "adam.v", f"model.ft:{self.line()}:")

    def test_half(self):
        """Gradients that overflow once are the loss scale's affair; a loss that is not finite is none of its."""
        body = 'p = Linear(3, name="fc2")(h)'
        self.train_fine(self.model(body=body, more="precision = fp16(loss_scale=dynamic)", name="fine.so"))
        self.x *= 1e5
        artifact = self.model(body=body, more="precision = fp16(loss_scale=dynamic)")
        self.check(artifact, "step 1: ", "comes from cast to f16", "the largest f16 is 65504", flags=("--epochs", 60))

    def train_fine(self, artifact):
        done = support.run("ftrun", artifact, "--data", self.folder, "--threads", 1, "--check=nan", "--epochs", 10, "--save", self.path("checked"))
        support.run("ftrun", artifact, "--data", self.folder, "--threads", 1, "--epochs", 10, "--save", self.path("plain"))
        one, other = (support.read_safetensors(self.path(name)) for name in ("checked", "plain"))
        self.assertNotIn("finite", done.stdout + done.stderr)
        for name in one:
            self.assertEqual(one[name].tobytes(), other[name].tobytes(), name)

    def test_masks_are_meant(self):
        """An infinity of the program's own that a softmax takes away is not what is named."""
        self.x[9, 4] = 0
        body = 'a = softmax(where(x > 1, -inf, x), axis=-1)\n  g = log(x) // HERE\n  p = Linear(3, name="fc2")(h) + mean(a) + mean(g)'
        self.check(self.model(body=body), f"model.ft:{self.line()}: the first value that is not finite comes from log", "-Inf at [1,4]")


if __name__ == "__main__":
    support.main()
