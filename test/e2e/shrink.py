"""`ftrun shrink`: a network without its dead channels predicts what the whole one predicts, on every kind of graph that the pass knows;
what cannot go stays, or is refused with a sentence. The weights are random, so that a channel too many or in another's place is seen."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

TRAIN = """
data Data { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 4; epochs = 1; seed = 5; eval = none; optimizer = sgd(lr=0.01) }
"""
IMAGES = "model M(x: f32[B, 3, 8, 8], y: i32[B]) {\n%s\n  loss = mean(cross_entropy(z, y))\n  output z\n}" + TRAIN
random = numpy.random.RandomState(11)


class Shrink(support.Case):
    def setUp(self):
        super().setUp()
        self.inputs(random.randn(8, 3, 8, 8).astype("f4"), random.randint(0, 5, 8).astype("i4"))

    def inputs(self, x, y):
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), y)

    def weights(self, source, dead, *flags):
        """Random ones, but for what `dead` says: name, dimension: indices."""
        with open(self.path("big.ft"), "w") as f:
            f.write(source)
        file, artifact = self.path("w.safetensors"), self.path("big.so")
        support.run("ftc", self.path("big.ft"), "-o", artifact, *flags)
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", file)
        tensors = support.read_safetensors(file)
        for name, value in tensors.items():
            value = random.randn(*value.shape) * 0.5
            tensors[name] = (numpy.abs(value) + 0.5 if name.endswith("running_var") else value).astype("f4")
        for (name, axis), indices in dead.items():
            index = [slice(None)] * tensors[name].ndim
            index[axis] = indices
            tensors[name][tuple(index)] = 0
        support.write_safetensors(file, tensors)
        return artifact, file

    def predicted(self, artifact, weights):
        out = self.path("out.npy")
        support.run("ftrun", "predict", artifact, "--weights", weights, "--input", f"x={self.path('x.npy')}", "--output", out)
        return numpy.load(out)

    def assert_same(self, big, weights, small, left):
        values = []
        for source, file in ((big, weights), (small, left)):
            support.run("ftc", source, "-o", self.path("same.so"))
            values.append(self.predicted(self.path("same.so"), file))
        self.assertGreater(numpy.abs(values[0]).max(), 1e-3)
        numpy.testing.assert_allclose(values[1], values[0], rtol=2e-5, atol=2e-5 * numpy.abs(values[0]).max())

    def shrunk(self, source, dead, widths, flags=(), more=()):
        """Shrinks, compares, and returns what was said and the small weights."""
        artifact, file = self.weights(source, dead, *flags)
        small = self.path("small.ft")
        done = support.run("ftrun", "shrink", self.path("big.ft"), "--weights", file, "-o", small, *flags, *more)
        found = {m[1]: (int(m[2]), int(m[3])) for m in re.finditer(r"^(\S+) +(\d+) +(\d+)$", done.stdout, re.M)}
        self.assertEqual(found, widths, done.stdout + done.stderr)
        big = self.predicted(artifact, file)
        support.run("ftc", small, "-o", self.path("small.so"))
        left = self.predicted(self.path("small.so"), self.path("small.safetensors"))
        self.assertGreater(numpy.abs(big).max(), 1e-3)
        numpy.testing.assert_allclose(left, big, rtol=2e-5, atol=2e-5 * numpy.abs(big).max())
        return done.stdout + done.stderr, support.read_safetensors(self.path("small.safetensors"))

    def kept(self, source, dead, words):
        """Nothing can go."""
        _, file = self.weights(source, dead)
        small = self.path("small.ft")
        self.fails(1, words, "ftrun", "shrink", self.path("big.ft"), "--weights", file, "-o", small)
        self.assertFalse(os.path.exists(small))

    CHANNELS = {(f"{layer}.{name}", 0): channels
                for layer, names, channels in (("a", ("weight", "bias"), [1, 4]), ("n", ("weight", "bias"), [1, 4]),
                                               ("b", ("weight", "bias"), [0, 5, 6]), ("h", ("weight", "bias"), [2, 3, 9]))
                for name in names}
    PLAIN = IMAGES % """
  v = max_pool2d(relu(BatchNorm(name="n")(Conv2d(6, 3, padding=1, name="a")(x))), 2)
  v = avg_pool2d(relu(Conv2d(7, 3, padding=1, name="b")(v)), 2)
  v = dropout(gelu(Linear(10, name="h")(flatten(v, from=1))), 0.3)
  z = Linear(5, name="o")(v)"""

    def test_channels(self):
        said, left = self.shrunk(self.PLAIN, self.CHANNELS, {"a": (6, 4), "b": (7, 4), "h": (10, 7)})
        self.assertEqual(left["b.weight"].shape, (4, 4, 3, 3))
        self.assertEqual(left["h.weight"].shape, (7, 4 * 2 * 2))
        self.assertEqual(left["n.running_mean"].shape, (4,))
        self.assertIn("parameters: ", said)
        # it goes on training, and can be shrunk again
        support.run("ftrun", self.path("small.so"), "--data", self.folder, "--init", self.path("small.safetensors"), "--steps", 2, "--save", self.path("on.safetensors"))
        again = support.read_safetensors(self.path("on.safetensors"))
        again["b.weight"][2] = 0
        again["b.bias"][2] = 0
        support.write_safetensors(self.path("on.safetensors"), again)
        support.run("ftrun", "shrink", self.path("small.ft"), "--weights", self.path("on.safetensors"), "-o", self.path("tiny.ft"))
        with open(self.path("tiny.ft")) as f:
            self.assertIn('widths = "a=4 b=3 h=7"', f.read())

    def test_consumers(self):
        """A channel that nobody reads goes, whatever it is; one that is 0 and read through a sigmoid is 1/2."""
        source = IMAGES % """
  v = sigmoid(Conv2d(6, 3, name="a")(x))
  v = sigmoid(Linear(9, name="b")(flatten(v, from=1)))
  z = Linear(5, name="o")(v)"""
        dead = {("a.weight", 0): [3], ("a.bias", 0): [3], ("o.weight", 1): [0, 7], ("b.weight", 1): list(range(36, 72))}
        self.shrunk(source, dead, {"a": (6, 5), "b": (9, 7)})

    def test_residual(self):
        source = IMAGES % """
  v = relu(Conv2d(6, 3, padding=1, name="stem")(x))
  repeat i in 0..2 as r {
    w = relu(BatchNorm(name="n1")(Conv2d(8, 3, padding=1, bias=false, name="c1")(v)))
    v = relu(v + BatchNorm(name="n2")(Conv2d(6, 3, padding=1, bias=false, name="c2")(w)))
  }
  z = Linear(5, name="o")(mean(v, axis=[2, 3]))"""
        dead = {}
        for r, channels in ((0, [1, 2, 5]), (1, [7])):
            for name in ("c1.weight", "n1.weight", "n1.bias"):
                dead[f"r.{r}.{name}", 0] = channels
        for name in ("c2.weight", "n2.weight", "n2.bias"):
            dead[f"r.0.{name}", 0] = [3]  # the sum needs it
        self.shrunk(source, dead, {"r.0.c1": (8, 5), "r.1.c1": (8, 7)})
        for name in ("stem.weight", "stem.bias", "r.1.c2.weight", "r.1.n2.weight", "r.1.n2.bias"):
            dead[name, 0] = [3]  # all that is added there is 0
        self.shrunk(source, dead, {"stem": (6, 5), "r.0.c1": (8, 5), "r.0.c2": (6, 5), "r.1.c1": (8, 7), "r.1.c2": (6, 5)})

    def test_concat_and_shared(self):
        source = IMAGES % """
  a = relu(Conv2d(4, 3, padding=1, name="a")(x))
  b = relu(Conv2d(5, 1, name="b")(x))
  same = Conv2d(9, 1, bias=false, name="same")
  v = concat([a, b], axis=1)
  v = relu(same(relu(same(v))))
  z = Linear(5, name="o")(flatten(v, from=1))"""
        dead = {(f"{layer}.{name}", 0): c for layer, c in (("a", [2]), ("b", [0, 4])) for name in ("weight", "bias")}
        dead["same.weight", 0] = [2, 4]  # of what it reads itself: channels 2 and 4 of its input too
        dead["o.weight", 1] = list(range(2 * 64, 3 * 64)) + list(range(4 * 64, 5 * 64))
        self.shrunk(source, dead, {"a": (4, 3), "b": (5, 4), "same": (9, 7)})

    def test_grouped(self):
        grouped = IMAGES % """
  v = relu(Conv2d(6, 3, padding=1, name="a")(x))
  v = relu(Conv2d(6, 3, padding=1, groups=%s, name="g")(v))
  z = Linear(5, name="o")(flatten(v, from=1))"""
        dead = {(f"{layer}.{name}", 0): [1, 4] for layer in "ag" for name in ("weight", "bias")}
        self.kept(grouped % 2, dead, "nothing of")
        self.shrunk(grouped % 6, dead, {"a": (6, 4), "g": (6, 4)})  # one group for each channel

    def test_transposed(self):
        source = IMAGES % """
  v = relu(Conv2d(6, 3, stride=2, padding=1, name="a")(x))
  v = relu(ConvTranspose2d(5, 3, stride=2, name="t")(v))
  z = Linear(5, name="o")(flatten(v, from=1))"""
        dead = {("a.weight", 0): [5], ("a.bias", 0): [5], ("t.weight", 1): [0, 3], ("t.bias", 0): [0, 3]}
        self.shrunk(source, dead, {"a": (6, 5), "t": (5, 3)})

    GPT = """
hyper D: int = 16
hyper L: int = 1
block Attention()(x: [B, T, D]) {
  q, k, v = split(Linear(3 * D, bias=false, name="qkv")(x), 3, axis=-1)
  q = rope(rearrange(q, "b t (h d) -> b h t d", %s))
  k = rope(rearrange(k, "b t (h d) -> b h t d", %s))
  v = rearrange(v, "b t (h d) -> b h t d", %s)
  y = rearrange(attention(q, k, v, causal=true, dropout=0.1), "b h t d -> b t (h d)")
  return Linear(D, bias=false, name="out")(y)
}
block FeedForward()(x: [B, T, D]) {
  h = gelu(Linear(4 * D, bias=false, name="up")(x), approximate="tanh")
  g, u = split(Linear(2 * D, name="gate")(h), 2, axis=-1)
  return Linear(D, bias=false, name="down")(silu(g) * u)
}
model M(x: i32[B, T=12], y: i32[B, T]) {
  v = Embedding(50, D, name="e")(x)
  repeat i in 0..L as l {
    v = v + Attention(name="a")(RMSNorm(name="n1")(v))
    v = v + FeedForward(name="f")(RMSNorm(name="n2")(v))
  }
  z = Linear(50, name="o")(v)
  loss = mean(cross_entropy(z, y))
  output z
}
""" + TRAIN

    def test_gpt(self):
        self.inputs(random.randint(0, 50, (8, 12)).astype("i4"), random.randint(0, 50, (8, 12)).astype("i4"))
        heads = list(range(4, 8))  # head 1 of 4 features
        dead = {("l.0.a.out.weight", 1): heads, ("l.1.f.up.weight", 0): [0, 9, 63], ("l.1.f.gate.weight", 0): [3, 9, 19, 25],
                ("l.1.f.gate.bias", 0): [3, 9, 19, 25]}
        said, left = self.shrunk(self.GPT % (3 * ("d=4",)), dead, {"l.0.a.qkv": (48, 36), "l.1.f.up": (64, 61), "l.1.f.gate": (32, 28)}, ("-D", "L=2"))
        self.assertEqual(left["l.0.a.out.weight"].shape, (16, 12))
        with open(self.path("small.ft")) as f:
            self.assertIn("hyper L: int = 2", f.read())
        # with the number of heads written, too
        widths = {"l.0.a.qkv": (48, 36), "l.0.a:h": (4, 3), "l.1.f.up": (64, 61), "l.1.f.gate": (32, 28)}
        self.shrunk(self.GPT % (3 * ("h=4",)), dead, widths, ("-D", "L=2"))
        # once more, of the small one
        small, file = self.path("small.ft"), self.path("small.safetensors")
        tensors = support.read_safetensors(file)
        tensors["l.0.a.out.weight"][:, :4] = 0
        tensors["l.1.a.out.weight"][:, 8:] = 0
        support.write_safetensors(self.path("again.safetensors"), tensors)
        support.run("ftrun", "shrink", small, "--weights", self.path("again.safetensors"), "-o", self.path("tiny.ft"))
        with open(self.path("tiny.ft")) as f:
            self.assertIn('"l.0.a:h=2 l.1.a:h=2 l.0.a.qkv=24 l.1.a.qkv=24 l.1.f.up=61 l.1.f.gate=28"', f.read())
        self.assert_same(small, self.path("again.safetensors"), self.path("tiny.ft"), self.path("tiny.safetensors"))
        # one of the three is written as features: it says nothing, and is what is left
        self.shrunk(self.GPT % ("h=4", "d=4", "h=4"), dead, widths, ("-D", "L=2"))

    def test_rounds(self):
        """A round of a repeat that adds 0 is left out; with another order of residual and norm, or a loss that sees it, it stays."""
        blocks = """
  v = relu(Conv2d(6, 3, padding=1, name="stem")(x))
  repeat i in 0..4 as r {
    w = relu(BatchNorm(name="n1")(Conv2d(8, 3, padding=1, bias=false, name="c1")(v)))
    v = relu(v + dropout(BatchNorm(name="n2")(Conv2d(6, 3, padding=1, bias=false, name="c2")(w)), 0.1))
  }
  z = Linear(5, name="o")(mean(v, axis=[2, 3]))"""
        dead = {}
        for r in (1, 2):
            for name in ("c2.weight", "n2.weight", "n2.bias"):
                dead[f"r.{r}.{name}", 0] = list(range(6))
        said, left = self.shrunk(IMAGES % blocks, dead, {})
        for r in range(4):
            self.assertEqual(f"r.{r}.c1.weight" in left, r not in (1, 2))
            self.assertEqual(f"r.{r}.n1.running_mean" in left, r not in (1, 2))
        self.assertRegex(said, r"(?m)^r\.1 +left out\nr\.2 +left out$")
        support.run("ftrun", self.path("small.so"), "--data", self.folder, "--init", self.path("small.safetensors"), "--steps", 2)
        # --stay of a layer in it; and one more, of the small program
        small = self.path("small.ft")
        said, left = self.shrunk(IMAGES % blocks, dead, {"r.1.c1": (8, 1)}, (), ("--stay", "r.1.c2"))
        self.assertIn("r.1.c2.weight", left)
        tensors = support.read_safetensors(self.path("small.safetensors"))
        for name in ("c2.weight", "n2.weight", "n2.bias"):
            tensors[f"r.3.{name}"][:] = 0
        support.write_safetensors(self.path("again.safetensors"), tensors)
        support.run("ftrun", "shrink", small, "--weights", self.path("again.safetensors"), "-o", self.path("tiny.ft"))
        with open(self.path("tiny.ft")) as f:
            self.assertIn('"r.2=0 r.3=0 r.1=0"', f.read())
        self.assert_same(small, self.path("again.safetensors"), self.path("tiny.ft"), self.path("tiny.safetensors"))
        # relu of the branch itself, not of the sum; and a sum that is not what was there before
        self.shrunk(IMAGES % blocks.replace("relu(v + dropout(", "v + relu(dropout("), dead, {})
        scaled = blocks.replace("relu(v + ", "relu(2 * v + ")
        said, left = self.shrunk(IMAGES % scaled, dead, {f"r.{r}.c1": (8, 1) for r in (1, 2)})
        self.assertNotIn("left out", said)

    def test_rounds_of_a_gpt(self):
        """Both branches of a round are 0, or one of them only."""
        self.inputs(random.randint(0, 50, (8, 12)).astype("i4"), random.randint(0, 50, (8, 12)).astype("i4"))
        dead = {("l.1.a.out.weight", 0): list(range(16)), ("l.1.f.down.weight", 0): list(range(16)),
                ("l.2.a.out.weight", 0): list(range(16))}
        said, left = self.shrunk(self.GPT % (3 * ("h=4",)), dead, {"l.2.a:h": (4, 1), "l.2.a.qkv": (48, 12)}, ("-D", "L=4"))
        self.assertRegex(said, r"(?m)^l\.1 +left out$")
        self.assertNotIn("l.1.n1.weight", left)
        whole, small = (sum(t.size for t in tensors.values()) for tensors in (support.read_safetensors(self.path("w.safetensors")), left))
        self.assertIn(f"parameters: {whole} to {small}, ", said)
        self.assertEqual(left["l.2.a.out.weight"].shape, (16, 4))

    def test_stay_and_settings(self):
        self.shrunk(self.PLAIN, self.CHANNELS, {"b": (7, 4)}, ("--set", "train.batch=8"), ("--stay", "h", "--stay", "a"))
        with open(self.path("small.ft")) as f:
            self.assertIn("batch = 8;", f.read())
        _, file = self.weights(self.PLAIN, self.CHANNELS)
        self.fails(1, "there is no layer 'hh'", "ftrun", "shrink", self.path("big.ft"), "--weights", file, "-o", self.path("s.ft"), "--stay", "hh")

    def test_nothing_left(self):
        """One channel stays of a layer that is dead."""
        dead = {(f"b.{name}", 0): list(range(7)) for name in ("weight", "bias")}
        self.shrunk(self.PLAIN, dead, {"a": (6, 1), "b": (7, 1)})

    def test_rounded(self):
        """The scale of weights that are rounded together is that of the largest: what they read stays, and it is said what to do."""
        quantised = IMAGES % """
  v = relu(Linear(10, name="h")(flatten(x, from=1)))
  z = QuantLinear(5, name="o"%s)(v)"""
        dead = {("h.weight", 0): [1, 4], ("h.bias", 0): [1, 4]}
        words = "nothing of .*big.ft can go: layers are rounded, as 'o', .* shrink the network first"
        _, file = self.weights(quantised % "", dead)
        said = self.fails(1, "", "ftrun", "shrink", self.path("big.ft"), "--weights", file, "-o", self.path("small.ft"))
        self.assertRegex(said.stderr, words)
        self.assertFalse(os.path.exists(self.path("small.ft")))
        # by a setting, of another layer than the one that shrinks
        plain = IMAGES % """
  v = relu(Conv2d(6, 3, name="a")(x))
  v = relu(Linear(10, name="h")(flatten(v, from=1)))
  z = Linear(5, name="o")(v)"""
        said, _ = self.shrunk(plain, {**dead, ("a.weight", 0): [3], ("a.bias", 0): [3]}, {"a": (6, 5)}, ("--set", "train.quantize=o=w8"))
        self.assertIn("note: layers that are rounded, as 'o', may keep channels that are 0: shrink the network first, then quantise it", said)
        # the setting names a layer of a round that goes
        rounds = IMAGES % """
  v = relu(Conv2d(6, 3, padding=1, name="a")(x))
  repeat i in 0..2 as r { v = v + BatchNorm(name="n")(Conv2d(6, 3, padding=1, name="c")(v)) }
  z = Linear(5, name="o")(flatten(v, from=1))"""
        rounds = rounds.replace("eval = none;", 'eval = none; quantize = "r.1.c=w8";')
        _, file = self.weights(rounds, {("r.1.n.weight", 0): list(range(6)), ("r.1.n.bias", 0): list(range(6))})
        self.fails(1, "has layers that are rounded: shrink the network first", "ftrun", "shrink", self.path("big.ft"), "--weights", file, "-o", self.path("small.ft"))

    def test_depends_on_width(self):
        source = IMAGES % """
  v = Linear(10, name="h")(flatten(x, from=1))
  v = relu(v / sqrt(v.shape[1]))
  z = Linear(5, name="o")(v)"""
        dead = {("h.weight", 0): [1], ("h.bias", 0): [1]}
        self.kept(source, dead, "depends on a width by more than its shape")
        typed = IMAGES % """
  v = reshape(relu(Linear(10, name="h")(flatten(x, from=1))), [B, 10])
  z = Linear(5, name="o")(v)"""
        self.kept(typed, dead, "h keeps channels that are 0: with 9 outputs in place of 10 the program does not compile")
        summed = IMAGES % """
  v = relu(LayerNorm(name="n")(Linear(10, name="h")(flatten(x, from=1))))
  z = Linear(5, name="o")(v)"""
        self.kept(summed, dead, "nothing of")

    def test_refused(self):
        artifact, file = self.weights(self.PLAIN, self.CHANNELS)
        big, small = self.path("big.ft"), self.path("s.ft")
        other = self.path("other.safetensors")
        tensors = support.read_safetensors(file)
        for change, words in (({"a.weight": None}, "the weights have no 'a.weight'"), ({"a.bias": numpy.zeros(7, "f4")}, "'a.bias' is f32[6] in the program")):
            support.write_safetensors(other, {n: v for n, v in {**tensors, **change}.items() if v is not None})
            self.fails(1, words, "ftrun", "shrink", big, "--weights", other, "-o", small)
        for words, *line in (
            ("shrink makes a smaller .ft file", artifact, "--weights", file, "-o", small),
            ("shrink makes a smaller .ft file", big, "--weights", file, "-o", self.path("s.so")),
            ("needs --weights", big, "-o", small),
            ("would write over the program", big, "--weights", file, "-o", big),
        ):
            self.fails(2, words, "ftrun", "shrink", *line)
        os.rename(file, self.path("s.safetensors"))
        self.fails(1, "would be written over", "ftrun", "shrink", big, "--weights", self.path("s.safetensors"), "-o", small)
        # by whatever path
        os.symlink(self.folder, self.path("here"))
        self.fails(1, "would be written over", "ftrun", "shrink", big, "--weights", self.path("here/s.safetensors"), "-o", small)
        self.fails(2, "would write over the program", "ftrun", "shrink", big, "--weights", self.path("s.safetensors"), "-o", self.path("here/big.ft"))
        with open(big) as f:
            self.assertEqual(f.read(), self.PLAIN)

    def test_widths(self):
        def refused(widths, words):
            self.fails(1, words, "ftc", self.path("big.ft"), "-o", self.path("big.so"), "--set", f"train.widths={widths}")
        with open(self.path("big.ft"), "w") as f:
            f.write(self.PLAIN)
        done = support.run("ftc", self.path("big.ft"), "--summary", "--set", "train.widths=a=3, h=4")
        self.assertIn("f32[4,3,8,8]", done.stdout)
        refused("c=3", "there is no layer 'c'")
        refused("n=3", "there is no layer 'n'")
        refused("a=0", "a width is a whole number from 1: 'a=0'")
        refused("a=3x", "a width is a whole number from 1: 'a=3x'")
        refused("a:x=3", "'a:x' is neither a parameter")
        refused("a:out=0", "a width is a whole number from 1: 'a:out=0'")
        refused("r.1=0", "a width is a whole number from 1: 'r.1=0'; 0 is for a round")
        refused("a", "no layer with a width: 'a'")
        refused("a=3 a=4", "given twice: 'a=4'")


if __name__ == "__main__":
    support.main()
