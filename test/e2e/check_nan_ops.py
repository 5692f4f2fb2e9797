"""ftrun --check=nan within convolutions, pooling, attention, tables and norms, in the update, in fp16 and over several ranks: numbers
that are not finite are planted, and the operation, its layer and its line must be named, whatever the kernels are."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

# a line with // HERE is the one to be named; {rest} is data and recipe
REST = """
data D {{ train = npy("{x}.npy", "{y}.npy"); shuffle = false }}
train {{ batch = 4; seed = 5; schedule = constant
  optimizer = {optimizer}
}}
"""
IMAGES = "model M(x: f32[B, 2, 6, 6], y: i32[B]) {\n"
TOKENS = "model M(x: i32[B, 5], y: i32[B, 5]) {\n"
ROWS = "model M(x: f32[B, 6], y: f32[B, 3]) {\n"
CLASSES = '  loss = mean(cross_entropy(Linear(3, name="head")(flatten(f, 1)), y))\n}\n'
WORDS = '  loss = mean(cross_entropy(Linear(11, name="head")(f), y))\n}\n'
SQUARES = "  loss = mean((p - y) * (p - y))\n}\n"

CASES = {  # model, data, optimizer, what is said in f32, … in fp16 where it is another operation or line
    "conv": (IMAGES + '  c = Conv2d(4, 3, padding=1, name="c1")(x * 1e38) // HERE\n  f = MaxPool2d(2)(c)\n' + CLASSES, "img lab", "sgd(lr=0.01)",
             "comes from conv (conv2d) of layer c1, forward: ", "comes from cast to f16"),
    "grad": (IMAGES + '  c = Conv2d(4, 3, padding=1, groups=2, stride=2, name="c1")(x)\n  s = sqrt(c - stop_gradient(c)) // HERE\n'
             '  f = AvgPool2d(2)(Conv2d(3, 2, padding=1, name="c2")(MaxPool2d(2, stride=1)(s)))\n' + CLASSES, "img lab", "sgd(lr=1)", "comes from div (sqrt), backward", None),
    "norm": (IMAGES + '  c = Conv2d(4, 3, name="c1")(x * 0)\n  f = relu(BatchNorm(eps=0.0, name="bn")(c)) // HERE\n' + CLASSES, "img lab", "sgd(lr=1)",
             "comes from rsqrt of layer bn, forward: Inf", None),
    "scores": (TOKENS + '  h = Embedding(11, 8, name="wte")(x)\n  q = reshape(Linear(8, name="q")(h) * 1e25, [B, 2, 5, 4])\n'
               '  f = reshape(attention(q, q, reshape(h, [B, 2, 5, 4]), causal=true), [B, 5, 8]) // HERE\n' + WORDS, "tok tgt", "adam(lr=0.01)",
               "comes from attention", "comes from cast to f16"),
    "masked": (TOKENS + '  h = Embedding(11, 8, name="wte")(x)\n  m = where(x > 9, 0.0, -inf)\n'
               '  a = softmax(h @ transpose(h) + reshape(m, [B, 1, 5]), axis=-1) // HERE\n  f = a @ h\n' + WORDS, "tok tgt", "adam(lr=0.01)",
               "comes from sub (softmax), forward: NaN", None),
    "table": (TOKENS + '  h = Embedding(11, 8, name="wte")(x)\n  f = sqrt(h - stop_gradient(h)) // HERE\n' + WORDS, "tok tgt", "adam(lr=0.01)",
              "comes from div (sqrt), backward", None),
    "product": (ROWS + '  param w: [6, 3] = ones\n  p = (x * 2e38) @ w // HERE\n  loss = mean((abs(p) * 1e-38 - y) * 1e-3)\n}\n', "x y", "sgd(lr=1)",
                "comes from dot of layer w, forward: Inf", "comes from cast to f16"),
    "rate": (ROWS + '  p = Linear(3, name="fc2")(x)\n' + SQUARES, "x y", "sgd(lr=1e39) // HERE", "in the update of the parameters", None),
    "eps": (ROWS + '  p = Linear(3, name="fc2")(x * where(arange(6) > 2, 1.0, 0.0))\n' + SQUARES, "x y", "adamw(lr=0.1, eps=0, weight_decay=0) // HERE",
            "comes from div (adamw), in the update of the parameters, parameter fc2.weight at [0,0]: NaN", None),
}
LINES_OF_HALF = {"conv": 2, "scores": 3, "product": 3}  # where what overflows first is


class CheckNanOps(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(7)
        arrays = {"x": random.uniform(0.5, 1.5, (16, 6)).astype("f4"), "y": random.normal(size=(16, 3)).astype("f4"),
                  "img": random.uniform(0.5, 1.5, (16, 2, 6, 6)).astype("f4"), "lab": random.integers(0, 3, 16).astype("i4"),
                  "tok": random.integers(0, 9, (16, 5)).astype("i4"), "tgt": random.integers(0, 11, (16, 5)).astype("i4")}
        self.x = arrays["x"]
        for name, values in arrays.items():
            numpy.save(self.path(name + ".npy"), values)

    def build(self, model, data, optimizer, *flags, name="m.so"):
        x, y = data.split()
        self.source = model + REST.format(x=x, y=y, optimizer=optimizer)
        return self.compile(self.source, *flags, name=name)

    def check(self, artifact, *flags, code=1):
        done = support.run("ftrun", artifact, "--data", self.folder, "--threads", 1, "--check=nan", "--epochs", 40, *flags, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def line(self):
        return 1 + next(i for i, line in enumerate(self.source.splitlines()) if "// HERE" in line)

    def test_operations(self):
        turn = 0
        for name, (model, data, optimizer, says, says_half) in CASES.items():
            for precision in ("f32", "bf16", "fp16"):
                turn += 1  # fused or not, by turns
                flags = ["--set", "train.precision=" + precision] + ["--disable=fuse"] * (turn % 2)
                said = self.check(self.build(model, data, optimizer, *flags))
                half = precision == "fp16" and says_half
                line = LINES_OF_HALF[name] if half else self.line()
                with self.subTest(name=name, flags=flags, said=said):
                    self.assertIn(f"model.ft:{line}: the first value that is not finite ", said)
                    self.assertIn(says_half if half else says, said)
                    if name == "conv" and not half:
                        self.assertRegex(said, r"the sum of (8|12|18) products, the largest \S+ \* \S+")
                    if name == "scores" and not half:
                        self.assertRegex(said, r"as \d+ of its \d scores are not finite")
                        self.assertRegex(said, r"scores of that row: of 5 keys \d are not hidden")
                    if name == "eps":
                        self.assertIn("made of 0 divided by 0", said)
                        self.assertTrue("adamw.v, train.beta2, train.eps: 0 there" in said or "--disable=fuse" in flags)

    def test_overflow_is_named_when_asked_for(self):
        model = ROWS + '  h = relu(Linear(8, name="fc1")(x)) * 1000\n  p = Linear(3, name="fc2")(h)\n  loss = mean((p - y) * (p - y)) // HERE\n}\n'
        artifact = self.build(model, "x y", "adam(lr=0.01)", "--set", "train.precision=fp16")
        self.check(artifact, code=0)
        said = self.check(artifact, "--check=overflow")
        self.assertIn(f"step 1: {self.path('model.ft')}:{self.line()}: the first value that is not finite comes from cast to f16 of layer loss, backward", said)
        self.assertIn("the largest f16 is 65504", said)
        self.assertIn("because of it the step is skipped, at a loss scale of 65536", said)

    def test_ranks(self):
        """The rank that it comes from, also where others were given the number, and the sample."""
        model = ROWS + '  h = Linear(8, name="fc1")(x)\n  r = rsqrt(x) // HERE\n  p = Linear(3, name="fc2")(h) + sum(r, axis=1, keepdims=true)\n' + SQUARES
        self.x[13, 4] = 0  # with two ranks in the second step, rank 1's second sample
        numpy.save(self.path("x.npy"), self.x)
        modes = {"distributed.data=2": "on rank 1", "distributed.zero=3 distributed.data=2": "on rank 1", "distributed.tensor=2": "on rank 0",
                 "distributed.pipeline=2 train.accumulate=2": "on rank ", "distributed.data=2 train.accumulate=2 train.precision=bf16": "on rank 1"}
        for mode, rank in modes.items():
            artifact = self.build(model, "x y", "adam(lr=0.01)", *[word for key in mode.split() for word in ("--set", key)])
            said = self.check(artifact, "--ranks", 2)
            self.assertIn(f"model.ft:{self.line()}: the first value that is not finite comes from rsqrt, forward: Inf at [", said, mode)
            self.assertIn(rank, said, mode)
        self.x[13, 4] = numpy.nan
        numpy.save(self.path("x.npy"), self.x)
        artifact = self.build(model, "x y", "adam(lr=0.01)", "--set", "distributed.pipeline=2", "--set", "distributed.data=2", "--set", "train.accumulate=2")
        said = self.check(artifact, "--ranks", 4)
        self.assertIn("step 1: the data: input x is not finite before anything is computed: NaN at [5,4]", said)
        self.assertIn("it is sample 13 of " + self.path("x.npy"), said)

    def test_labels_of_what_pooling_goes_before(self):
        """Bias and relu are done behind the pooling, and are still the convolution's."""
        artifact = self.build(IMAGES + '  f = MaxPool2d(2)(relu(Conv2d(4, 3, name="c1")(x)))\n' + CLASSES, "img lab", "sgd(lr=1)")
        info = support.run("ftrun", "info", artifact).stdout
        self.assertRegex(info, r"c1 forward and backward: .*max_pool2d \+ bias \+ relu")
        self.assertRegex(info, r"c1 backward: relu' \+ bias'")

    def test_what_is_between_parameters(self):
        """Moments of no parameter may be NaN: neither --check nor a training of ranks that have a part each minds."""
        model = ROWS + '  p = Linear(3, name="fc2")(x)\n' + SQUARES
        self.check(self.build(model, "x y", "adam(lr=0.001, eps=0)"), code=0)
        artifact = self.build(model, "x y", "adam(lr=0.001, eps=0)", "--set", "distributed.data=2", "--set", "distributed.zero=2")
        self.check(artifact, "--ranks", 2, code=0)
        support.run("ftrun", artifact, "--data", self.folder, "--ranks", 2, "--threads", 1, "--epochs", 1)


if __name__ == "__main__":
    support.main()
