"""`ftrun quantize --smooth`: weights before a layer that take in the factors of its input. The function in f32 stays the same to rounding; factors, and what has
them, against formulas in numpy; the network is that without factors; what is before other readers, gelu, residual branches or outputs stays as it is."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

BLOCK = """model M(x: f32[B, T=5, 12], y: i32[B]) {
  h = Linear(16, name="in")(x)
  n = LayerNorm(name="ln1")(h)
  q = Linear(16, name="q")(n)
  k = Linear(16, bias=false, name="k")(n)
  v = Linear(16, name="v")(n)
  a = attention(rearrange(q, "b t (h d) -> b h t d", h=2), rearrange(k, "b t (h d) -> b h t d", h=2), rearrange(v, "b t (h d) -> b h t d", h=2))
  h = h + Linear(16, name="proj")(rearrange(a, "b h t d -> b t (h d)"))
  m = RMSNorm(name="ln2")(h)
  h = h + Linear(16, name="down")(silu(Linear(24, name="gate")(m)) * Linear(24, name="up")(m))
  m = LayerNorm(name="ln3")(h)
  h = h + Linear(16, name="wide2")(dropout(relu(Linear(30, name="wide1")(m)), 0.2))
  z = Linear(4, name="out")(mean(leaky_relu(LayerNorm(name="ln4")(h)), axis=1))
  loss = mean(cross_entropy(z, y))
  output z
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""
IMAGES = """model M(x: f32[B, 3, 8, 8], y: i32[B]) {
  v = relu(BatchNorm(name="bn")(Conv2d(6, 3, padding=1, name="a")(x)))
  v = max_pool2d(v, 2)
  v = relu(Conv2d(8, 3, padding=1, name="b")(v))
  v = leaky_relu(Conv2d(8, 3, padding=1, groups=4, name="c")(v))
  v = Conv2d(8, (3, 1), padding=(1, 0), bias=false, name="d")(avg_pool2d(v, 2))
  z = Linear(4, name="out")(flatten(v, from=1))
  loss = mean(cross_entropy(z, y))
  output z
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""
# layers, and the weights that have their factors
FOLDED = {("q", "k", "v"): ("ln1.weight", "ln1.bias"), ("gate", "up"): ("ln2.weight",), ("down",): ("up.weight", "up.bias"),
          ("wide1",): ("ln3.weight", "ln3.bias"), ("wide2",): ("wide1.weight", "wide1.bias"), ("out",): ("ln4.weight", "ln4.bias")}
SMALL = """model M(x: f32[B, 12], y: i32[B]) {
  BODY
  loss = mean(cross_entropy(z, y))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""


class QuantizeFold(support.Case):
    def model(self, text, *shape):
        """Writes model and data, some features of which are large, and random weights."""
        random = numpy.random.default_rng(5)
        size = numpy.exp(random.standard_normal(shape[1:]) * 1.5)
        weights = self.untrained(text, random.standard_normal(shape) * size, random.integers(0, 4, shape[0]))
        for name, value in weights.items():
            if "num_batches" in name:
                continue
            weights[name] = (random.standard_normal(value.shape) * 0.4).astype("f4")
            if "running_var" in name or re.match(r"(ln\d|bn)\.weight", name):  # of norms some features are far larger than others
                weights[name] = numpy.exp(3 * weights[name])
        support.write_safetensors(self.path("w.safetensors"), weights)
        return weights

    def quantize(self, *flags, out="q"):
        done = support.run("ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path(out + ".ft"), *flags)
        with open(self.path(out + ".ft")) as file:
            return done.stdout, support.read_safetensors(self.path(out + ".safetensors")), file.read()

    def predict(self, source, weights, *flags, outputs=("z",)):
        support.run("ftc", self.path(source), "-o", self.path("p.so"), *flags)
        support.run("ftrun", "predict", self.path("p.so"), "--weights", self.path(weights), "--input", f"x={self.path('x.npy')}", "--output", self.path("z.npy"))
        return numpy.load(self.path("z.npy"))

    def folds(self, said):
        """Readers -> weights, of each line; and the layers whose inputs are multiplied, with the reason."""
        lines = re.findall(r"(?m)^smoothing: the factors of (.*) are in (.*)$", said)
        kept = dict(re.findall(r"(?m)^smoothing: the input of (\S+) is multiplied by its factors: (.*)$", said))
        return {tuple(readers.split(", ")): tuple(weights.split(", ")) for readers, weights in lines}, kept

    def inputs(self, layers):
        """The largest |x| of each feature that layers read, by ftc --taps."""
        support.run("ftc", self.path("m.ft"), "-o", self.path("t.so"), "--taps", "*")
        support.run("ftrun", "predict", self.path("t.so"), "--weights", self.path("w.safetensors"), "--input", f"x={self.path('x.npy')}",
                    *[word for name in layers for word in ("--output", f"in.0.{name}={self.path(name + '.npy')}")])
        return {name: numpy.abs(numpy.load(self.path(name + ".npy"))) for name in layers}

    def test_function_and_factors(self):
        w = self.model(BLOCK, 64, 5, 12)
        plain = self.predict("m.ft", "w.safetensors")
        said, q, text = self.quantize("--layers", "*=w16a16", "--smooth", 0.5)
        folds, kept = self.folds(said)
        self.assertEqual(folds, FOLDED)
        self.assertEqual(set(kept), {"in", "proj"})
        self.assertIn("in=w16a16f q=w16a16 k=w16a16 v=w16a16 proj=w16a16f gate=w16a16 up=w16a16 down=w16a16 wide1=w16a16 wide2=w16a16u", text)
        self.assertEqual({name for name in q if "input_factor" in name}, {"in.input_factor", "proj.input_factor"})
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), plain, rtol=2e-3, atol=2e-3 * numpy.abs(plain).max())
        # the same in f32, by the factors of the formula: those of layers that read the same are of the largest weights of all of them
        read = self.inputs([name for readers in folds for name in readers])
        changed = dict(w)
        for readers, weights in folds.items():
            x = numpy.max([read[name].reshape(-1, read[name].shape[-1]).max(0) for name in readers], 0).astype("f8")
            s = numpy.sqrt(x / numpy.max([numpy.abs(w[name + ".weight"]).max(0) for name in readers], 0))
            for name in weights:
                changed[name] = (changed[name] / s.reshape([-1] + [1] * (changed[name].ndim - 1))).astype("f4")
            for name in readers:
                changed[name + ".weight"] = (changed[name + ".weight"] * s).astype("f4")
        support.write_safetensors(self.path("c.safetensors"), changed)
        numpy.testing.assert_allclose(self.predict("m.ft", "c.safetensors"), plain, rtol=2e-5, atol=2e-5 * numpy.abs(plain).max())
        for name in (*changed,):
            if name.split(".")[0] not in ("in", "proj"):
                numpy.testing.assert_allclose(q[name], changed[name], rtol=1e-5, atol=4e-5 * numpy.abs(changed[name]).max(), err_msg=name)
        for readers in folds:
            self.assertEqual(len({q[name + ".input.max_abs"].tobytes() for name in readers}), 1)
        # training goes on from there
        support.run("ftrun", self.path("q.ft"), "--data", self.folder, "--init", self.path("q.safetensors"), "--steps", 2)
        support.run("ftrun", "deploy", self.path("q.ft"), "--weights", self.path("q.safetensors"), "-o", self.path("d.so"))

    def test_eight_bits(self):
        """Beside factors that multiply, and none; integers are what rounded values give; whole numbers of rows that take in factors are those without."""
        self.model(BLOCK, 64, 5, 12)
        plain, errors = self.predict("m.ft", "w.safetensors"), {}
        for way, flags in (("none", ()), ("kept", ("--smooth", 0.5, "--keep-factors")), ("folded", ("--smooth", 0.5)), ("gptq", ("--smooth", 0.5, "--gptq")),
                           ("mse", ("--smooth", 0.5, "--weight-scale", "mse", "--observer", "percentile", "--percentile", 100))):
            said, q, text = self.quantize(*flags)
            got = self.predict("q.ft", "q.safetensors")
            errors[way] = numpy.square(got - plain).sum()
            self.assertEqual("f " in text.split("quantize =")[1], way != "none")
            # the ratio is that of outputs which have the factors in them, too
            ratios = {name: float(ratio) for name, ratio in re.findall(r"(?m)^(\S+) +w8a8\S* .* (\S+) dB$", said)}
            self.assertGreater(min(ratios.values()), 8 if way == "none" else 15, said)
            numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors", "--disable=integers"), got, rtol=1e-4, atol=1e-4 * numpy.abs(plain).max())
            for cpu in support.of_this_turn(("x86-64", "x86-64-v3"), 1):
                numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors", "--cpu", cpu), got, rtol=1e-5, atol=1e-5 * numpy.abs(plain).max())
        for way in ("folded", "gptq", "mse"):
            self.assertLess(errors[way], 0.5 * errors["none"], errors)
        self.assertLess(errors["folded"], 2 * errors["kept"], errors)
        self.quantize("--keep-factors", "--smooth", 0.5, out="kept")
        self.assertEqual(self.folds(self.quantize("--keep-factors", "--smooth", 0.5)[0])[0], {})

    def test_nothing_more_at_run_time(self):
        """Where all factors are taken in, the program is the one without smoothing, to the letter."""
        body = 'h = LayerNorm(name="ln")(x)\n  z = Linear(4, name="out")(relu(Linear(16, name="fc")(h)))\n  output z'
        self.model(SMALL.replace("BODY", body), 64, 12)
        said, q, text = self.quantize("--smooth", 0.5)
        self.assertEqual(text, self.quantize(out="plain")[2])
        self.assertEqual(set(q), set(support.read_safetensors(self.path("plain.safetensors"))))
        self.assertEqual(self.folds(said)[0], {("fc",): ("ln.weight", "ln.bias"), ("out",): ("fc.weight", "fc.bias")})

    def test_images(self):
        w = self.model(IMAGES, 32, 3, 8, 8)
        plain = self.predict("m.ft", "w.safetensors")
        said, q, text = self.quantize("--layers", "*=w16a16", "--smooth", 0.5)
        folds, kept = self.folds(said)
        self.assertEqual(folds, {("b",): ("bn.weight", "bn.bias"), ("d",): ("c.weight", "c.bias")})
        self.assertEqual(set(kept), {"a", "out"})  # the convolution in groups is not smoothed
        numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), plain, rtol=2e-3, atol=2e-3 * numpy.abs(plain).max())
        for name, of in (("bn.weight", "b"), ("c.bias", "d")):
            s = w[name] / q[name]
            size = numpy.abs(w[of + ".weight"]).max((0, 2, 3))
            x = self.inputs([of])[of].max((0, 2, 3))
            numpy.testing.assert_allclose(s, numpy.sqrt(x / size), rtol=1e-4)

    def test_not_folded(self):
        plain = {"fc": 'Linear(16, name="fc")', "out": 'Linear(4, name="out")', "ln": 'LayerNorm(name="ln")'}
        cases = (
            ("z = OUT(gelu(FC(x)))", "out", "gelu"),
            ("z = OUT(sigmoid(FC(x)))", "out", "sigmoid before it gives no multiple"),
            ("z = OUT(clamp(FC(x), -1, 1))", "out", ""),
            ("z = OUT(relu6(FC(x)))", "out", ""),
            ("z = OUT(relu(FC(x) + 1))", "out", ""),
            ("z = OUT(elu(FC(x)))", "out", ""),
            ("h = FC(x)\n  z = OUT(relu(h)) + mean(h, axis=1, keepdims=true)", "out", "reads what is before it, too"),
            ("h = FC(x)\n  h = h + relu(Linear(16, name=\"up\")(h))\n  z = OUT(h)", "up", "reads what is before it, too"),
            ("h = LN(x)\n  z = OUT(h)\n  output h", "out", "'h' is what is before it"),
            ("h = LN(x)\n  z = OUT(h) + Linear(4, name=\"other\")(h)", "out", "other.weight reads the same and is not smoothed"),
            ("h = LN(x)\n  z = OUT(h) + Linear(4, name=\"weights\")(h)", "out", "weights.weight reads the same and is not smoothed"),
            ("param own: [16, 12] = normal(1)\n  z = OUT(relu(x @ transpose(own))) + 0.1 * mean(square(own))", "out", "reads own, too"),
            ("f = FC\n  z = OUT(relu(f(x))) + mean(f(2 * x), axis=1, keepdims=true)", "out", ""),
            ("h = layer_norm(x)\n  z = OUT(h)", "out", ""),
            ("h = FC(x)\n  z = OUT(reshape(reshape(h, [B, 4, 4]) * ones([1, 4, 1]), [B, 16]))", "out", ""),
            ("h = FC(x)\n  z = OUT(reshape(relu(reshape(h, [16, B])), [B, 16]))", "out", "several dimensions"),
            ("h = FC(x)\n  z = OUT(where(h > 1, h, 0.1 * h))", "out", "reads what is before it, too"),
            ("h = FC(x)\n  z = OUT(h * h)", "out", ""),
            ("h = FC(x)\n  z = OUT(softmax(h))", "out", ""),
            ("h = relu(FC(x))\n  z = OUT(h)\n  if training { z = z + 0.01 * mean(h) }", "out", "reads what is before it, too"),
            ("h = reshape(LN(x), [B, 3, 4])\n  z = OUT(reshape(transpose(h, [0, 2, 1]), [B, 12]))", "out", "several dimensions"),
        )
        for body, layer, why in support.of_this_turn(cases, 2):
            with self.subTest(body):
                for name, block in plain.items():
                    body = body.replace(name.upper(), block)
                text = SMALL.replace("BODY", body + ("" if "output" in body else "\n  output z"))
                self.model(text, 64, 12)
                before = self.predict("m.ft", "w.safetensors")
                more = ("--layers", "weights=w8") if "weights" in body else ("--stay", "other") if "other" in body else ()
                said, q, _ = self.quantize("--layers", "*=w16a16", *more, "--smooth", 0.5)
                folds, kept = self.folds(said)
                self.assertIn(layer, kept, said)
                self.assertIn(why, kept[layer])
                self.assertIn(layer + ".input_factor", q)
                self.assertFalse(any(layer in readers for readers in folds))
                numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), before, rtol=2e-2 if "weights" in body else 2e-3, atol=(2e-2 if "weights" in body else 2e-3) * numpy.abs(before).max())

    def test_folded_through(self):
        """What gives a multiple of what it reads, whatever it looks like."""
        plain = {"fc": 'Linear(16, name="fc")', "out": 'Linear(4, name="out")', "ln": 'LayerNorm(name="ln")'}
        cases = (
            ("z = OUT(maximum(FC(x), 0))", ("fc.weight", "fc.bias")),
            ("f = FC\n  z = OUT(relu(f(x)) + relu(f(2 * x)))", ("fc.weight", "fc.bias")),
            ("z = OUT(abs_relu(FC(x)))", ("fc.weight", "fc.bias")),
            ("z = OUT(3 * relu(FC(x)) / 7)", ("fc.weight", "fc.bias")),
            ("z = OUT(-leaky_relu(FC(x), 0.3))", ("fc.weight", "fc.bias")),
            ("z = OUT(relu(FC(x)) - Linear(16, bias=false, name=\"more\")(x))", ("fc.weight", "fc.bias", "more.weight")),
            ("z = OUT(FC(x) * sigmoid(Linear(16, name=\"gate\")(x)))", ("fc.weight", "fc.bias")),
            ("z = OUT(sigmoid(Linear(16, name=\"gate\")(x)) * FC(x))", ("fc.weight", "fc.bias")),
            ("z = OUT(relu(FC(x)) * tanh(FC2(x)) * sigmoid(FC3(x)))", ("fc.weight", "fc.bias")),
            ("h = transpose(reshape(relu(FC(x)), [B, 1, 16]), [1, 0, 2])\n  z = reshape(OUT(h), [B, 4])", ("fc.weight", "fc.bias")),
            ("z = OUT(batch_norm_of(FC(x)))", ("bn.weight", "bn.bias")),
            ("h = relu(FC(x))\n  z = OUT(h) + Linear(4, name=\"too\")(h)", ("fc.weight", "fc.bias")),
        )
        for body, weights in support.of_this_turn(cases, 2):
            with self.subTest(body):
                body = body.replace("FC2", 'Linear(16, name="fc2")').replace("FC3", 'Linear(16, name="fc3")').replace("batch_norm_of", 'BatchNorm(name="bn")')
                for name, block in plain.items():
                    body = body.replace(name.upper(), block)
                text = SMALL.replace("BODY", body + "\n  output z")
                self.model("fn abs_relu(x) { return where(x > 0, x, where(0 >= x, 0, x)) }\n" + text, 64, 12)
                before = self.predict("m.ft", "w.safetensors")
                said, q, _ = self.quantize("--layers", "*=w16a16", "--smooth", 0.5)
                folds, _ = self.folds(said)
                self.assertEqual(set(folds.get(("out", "too") if "too" in body else ("out",), ())), set(weights), said)
                numpy.testing.assert_allclose(self.predict("q.ft", "q.safetensors"), before, rtol=2e-3, atol=2e-3 * numpy.abs(before).max())

    def test_refused(self):
        self.model(SMALL.replace("BODY", 'z = Linear(4, name="out")(x)\n  output z'), 64, 12)
        self.fails(2, "--keep-factors is for --smooth", "ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"),
                   "-o", self.path("q.ft"), "--keep-factors")


if __name__ == "__main__":
    support.main()
