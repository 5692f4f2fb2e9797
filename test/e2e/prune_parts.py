"""`structure=head` and `structure=layer`: the masks are numpy's, a network that is shrunk behind them is the masked one, by numpy's own forward pass of
it too, and what has no heads or residual sums is refused with a sentence."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

TRAIN = """
data Data { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 4; epochs = 2; seed = 5; eval = none; optimizer = %s; prune = %s }
"""
ATTENTION = {
    "block": """  v = v + MultiheadAttention(4, causal=true, name="a")(LayerNorm(name="n1")(v))
    v = v + MultiheadAttention(4, bias=false, name="c")(v)""",
    "written": """  v = v + Own(name="a")(LayerNorm(name="n1")(v))
    v = v + Own(name="c")(v)""",
    "conv1d": """  v = v + Turned(name="a")(LayerNorm(name="n1")(v))
    v = v + Turned(name="c")(v)""",
}
GPT = """
hyper D: int = 32
block Own()(x: [B, T, D]) {
  q, k, v = split(Linear(3 * D, name="qkv")(x), 3, axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=4)
  k = rearrange(k, "b t (h d) -> b h t d", h=4)
  v = rearrange(v, "b t (h d) -> b h t d", h=4)
  return Linear(D, name="out_proj")(rearrange(attention(q, k, v, causal=true, dropout=0.1), "b h t d -> b t (h d)"))
}
block Conv1D(out: int)(x: [..., I]) {
  param weight: [I, out] = normal(0.2)
  param bias: [out] = zeros
  return x @ weight + bias
}
block Turned()(x: [B, T, D]) {
  q, k, v = split(Conv1D(3 * D, name="qkv")(x), 3, axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=4)
  k = rearrange(k, "b t (h d) -> b h t d", h=4)
  v = rearrange(v, "b t (h d) -> b h t d", h=4)
  return Conv1D(D, name="out_proj")(rearrange(attention(q, k, v), "b h t d -> b t (h d)"))
}
block FeedForward()(x) { return Linear(D, name="down")(gelu(Linear(4 * D, name="up")(x))) }
model M(x: i32[B, T=12], y: i32[B, T]) {
  v = Embedding(50, D, name="e")(x)
  repeat i in 0..3 as l {
  %s
    v = v + dropout(FeedForward(name="f")(LayerNorm(name="n2")(v)), 0.1)
  }
  z = Linear(50, name="o")(v)
  loss = mean(cross_entropy(z, y))
  output z
}
""" + TRAIN
IMAGES = """
model M(x: f32[B, 3, 8, 8], y: i32[B]) {
  v = relu(Conv2d(6, 3, padding=1, name="stem")(x))
  repeat i in 0..4 as r {
    w = relu(BatchNorm(name="n1")(Conv2d(8, 3, padding=1, name="c1")(v)))
    v = relu(v + BatchNorm(name="n2")(Conv2d(6, 3, padding=1, bias=false, name="c2")(w)))
  }
  z = Linear(5, name="o")(mean(v, axis=[2, 3]))
  loss = mean(cross_entropy(z, y))
  output z
}
""" + TRAIN
random = numpy.random.RandomState(7)


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Parts(support.Case):
    def tokens(self):
        numpy.save(self.path("x.npy"), random.randint(0, 50, (8, 12)).astype("i4"))
        numpy.save(self.path("y.npy"), random.randint(0, 50, (8, 12)).astype("i4"))

    def images(self):
        numpy.save(self.path("x.npy"), random.randn(8, 3, 8, 8).astype("f4"))
        numpy.save(self.path("y.npy"), random.randint(0, 5, 8).astype("i4"))

    def pruned(self, source, prune, optimizer="sgd(lr=0)"):
        """Random weights, and what a training makes of them."""
        with open(self.path("big.ft"), "w") as f:
            f.write(source % (optimizer, prune))
        start, end, artifact = self.path("start.safetensors"), self.path("end.safetensors"), self.path("big.so")
        support.run("ftc", self.path("big.ft"), "-o", artifact)
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", start)
        tensors = {n: (random.randn(*t.shape) * 0.3).astype("f4") for n, t in support.read_safetensors(start).items()}
        for name in tensors:
            if name.endswith("running_var"):
                tensors[name] = numpy.abs(tensors[name]) + 0.5
        support.write_safetensors(start, tensors)
        support.run("ftrun", artifact, "--data", self.folder, "--init", start, "--save", end)
        return tensors, support.read_safetensors(end)

    def predicted(self, source, weights):
        out = self.path("out.npy")
        support.run("ftrun", "predict", source, "--weights", weights, "--input", f"x={self.path('x.npy')}", "--output", out)
        return numpy.load(out)

    def shrunk(self, prunes=True):
        """What is said, the small weights, and that it is the masked network."""
        small = self.path("small.ft")
        done = support.run("ftrun", "shrink", self.path("big.ft"), "--weights", self.path("end.safetensors"), "-o", small)
        self.assertEqual("small.ft prunes by magnitude, as much again of what is left" in done.stderr, prunes)
        big = self.predicted(self.path("big.ft"), self.path("end.safetensors"))
        left = self.predicted(small, self.path("small.safetensors"))
        self.assertGreater(numpy.abs(big).max(), 1e-3)
        numpy.testing.assert_allclose(left, big, rtol=2e-5, atol=2e-5 * numpy.abs(big).max())
        support.run("ftrun", small, "--data", self.folder, "--init", self.path("small.safetensors"), "--steps", 1, "--set", "train.prune=none")
        return done.stdout, support.read_safetensors(self.path("small.safetensors"))

    def test_heads(self):
        self.tokens()
        names = [f"l.{i}.{a}.out_proj.weight" for i in range(3) for a in "ac"]
        for number, (kind, body) in enumerate(ATTENTION.items()):  # with FT_TURN in one of the scopes
            for scope in support.of_this_turn(("layer", "global") if number % 2 else ("global", "layer"), 2):
                with self.subTest(kind=kind, scope=scope):
                    start, end = self.pruned(GPT.replace("%s", body, 1), f"magnitude(sparsity=0.6, structure=head, begin=2, end=2, scope={scope})")
                    axis = 0 if kind == "conv1d" else 1
                    score = {n: numpy.abs(start[n].astype("f8")).mean(1 - axis).reshape(4, 8).mean(1) for n in names}
                    every = numpy.concatenate([score[n] for n in names])
                    for name in names:
                        if scope == "layer":
                            kept = numpy.argsort(-score[name])[:2]  # 4 - round(2.4)
                            alive = numpy.isin(numpy.arange(4), kept)
                        else:
                            alive = score[name] >= numpy.sort(every)[::-1][24 - 14 - 1]  # 24 - round(14.4)
                        mask = numpy.repeat(alive, 8)[:, None] if axis == 0 else numpy.repeat(alive, 8)[None]
                        self.assertTrue(numpy.array_equal(end[name], numpy.where(mask, start[name], 0)), name)
                    for name in start:
                        if name not in names:
                            self.assertTrue(numpy.array_equal(end[name], start[name]), name)
                    if scope == "layer":
                        said, left = self.shrunk()
                        self.assertEqual(len(re.findall(r"(?m)^l\.\d\.[ac]:h +4 +2$", said)), 6, said)
                        self.assertEqual(left["l.1.a.out_proj.weight"].shape, (16, 32) if axis == 0 else (32, 16))

    def test_a_block_by_numpy(self):
        """The small network's outputs are those of the masked weights, computed here."""
        self.tokens()
        numpy.save(self.path("x.npy"), random.randn(8, 12, 32).astype("f4"))
        source = """
model M(x: f32[B, T=12, E=32], y: i32[B, T]) {
  z = Linear(50, name="o")(MultiheadAttention(4, causal=true, name="a")(x))
  loss = mean(cross_entropy(z, y))
  output z
}
""" + TRAIN
        _, w = self.pruned(source, "magnitude(sparsity=0.5, structure=head, begin=1, end=1)", "sgd(lr=0.01)")
        said, left = self.shrunk()
        self.assertEqual(left["a.in_proj_weight"].shape, (48, 32))
        x = numpy.load(self.path("x.npy")).astype("f8")
        q, k, v = numpy.split(x @ w["a.in_proj_weight"].T.astype("f8") + w["a.in_proj_bias"], 3, axis=-1)
        q, k, v = (t.reshape(8, 12, 4, 8).transpose(0, 2, 1, 3) for t in (q, k, v))
        score = q @ k.transpose(0, 1, 3, 2) / numpy.sqrt(8)
        score = numpy.where(numpy.tril(numpy.ones((12, 12), bool)), score, -numpy.inf)
        y = (softmax(score) @ v).transpose(0, 2, 1, 3).reshape(8, 12, 32)
        z = (y @ w["a.out_proj.weight"].T + w["a.out_proj.bias"]) @ w["o.weight"].T + w["o.bias"]
        numpy.testing.assert_allclose(self.predicted(self.path("small.ft"), self.path("small.safetensors")), z, rtol=1e-4, atol=1e-5)

    def test_layers(self):
        """Half of the residual branches, those of the smallest mean magnitude: the last matrix, and the vectors beside it."""
        self.images()
        start, end = self.pruned(IMAGES, "magnitude(sparsity=0.5, structure=layer, begin=2, end=2)", "sgd(lr=0)")
        score = [numpy.abs(start[f"r.{i}.c2.weight"].astype("f8")).mean() for i in range(4)]
        gone = set(numpy.argsort(score)[:2])
        for name in start:
            round_ = int(name.split(".")[1]) if name.startswith("r.") else None
            is_of = round_ in gone and name.split(".")[2:] in (["c2", "weight"], ["n2", "weight"], ["n2", "bias"])
            if "running" not in name:
                self.assertTrue(numpy.array_equal(end[name], start[name] * (0 if is_of else 1)), name)
        said, left = self.shrunk()
        self.assertEqual({int(m) for m in re.findall(r"(?m)^r\.(\d) +left out$", said)}, gone)
        self.assertEqual({int(n.split(".")[1]) for n in left if n.startswith("r.")}, set(range(4)) - gone)

    def test_layers_of_a_gpt(self):
        self.tokens()
        start, end = self.pruned(GPT.replace("%s", ATTENTION["written"], 1), "magnitude(sparsity=0.7, structure=layer, begin=2, end=2)")
        names = [f"l.{i}.{a}" for i in range(3) for a in ("a.out_proj", "c.out_proj", "f.down")]
        score = [numpy.abs(start[n + ".weight"].astype("f8")).mean() for n in names]
        gone = {names[i] for i in numpy.argsort(score)[:6]}  # round(6.3)
        for name in start:
            is_of = name.rsplit(".", 1)[0] in gone
            self.assertTrue(numpy.array_equal(end[name], start[name] * (0 if is_of else 1)), name)
        said, left = self.shrunk()
        out = {i for i in range(3) if len([n for n in gone if n.startswith(f"l.{i}.")]) == 3}
        self.assertEqual({int(m) for m in re.findall(r"(?m)^l\.(\d) +left out$", said)}, out)
        # named ones only
        start, end = self.pruned(GPT.replace("%s", ATTENTION["written"], 1), 'magnitude(sparsity=1, structure=layer, begin=2, end=2) on "l.1.*"')
        zeros = {n.rsplit(".", 1)[0] for n in end if not end[n].any()}
        self.assertEqual(zeros, {"l.1.a.out_proj", "l.1.c.out_proj", "l.1.f.down"})
        # what the recipe names would not be there any more
        self.fails(1, "no trained matrix named behind `on`", "ftrun", "shrink", self.path("big.ft"), "--weights", self.path("end.safetensors"), "-o", self.path("small.ft"))
        with open(self.path("big.ft"), "w") as f:
            f.write(GPT.replace("%s", ATTENTION["written"], 1) % ("sgd", "none"))
        said, left = self.shrunk(prunes=False)
        self.assertRegex(said, r"(?m)^l\.1 +left out$")
        self.assertFalse([n for n in left if n.startswith("l.1.")])

    def test_rounded(self):
        """Of layers and matrices that are rounded, the same is pruned as without: weights of each kind of scales, inputs as they are, by a range, by rows."""
        cases = [(IMAGES, "layer", self.images, ("*=w8a8", "r.*=w8 r.2.*=w8tf")),
                 (GPT.replace("%s", ATTENTION["written"], 1), "layer", self.tokens, ("*=w4g8a8d",)),
                 (GPT.replace("%s", ATTENTION["written"], 1), "head", self.tokens, ("*=w8a8", "*=w8t", "*=w4g8a8d", "*.out_proj=w4g8")),
                 (GPT.replace("%s", ATTENTION["conv1d"], 1), "head", self.tokens, ("l.*.out_proj.weight=w4g8", "l.*.out_proj.weight=w8a8d"))]
        for number, (source, structure, inputs, forms) in enumerate(cases):
            inputs()
            start, end = self.pruned(source, f"magnitude(sparsity=0.6, structure={structure}, begin=2, end=2)")
            zeros = {name for name in end if not numpy.array_equal(end[name], start[name]) and "running" not in name}
            self.assertGreater(len(zeros), 1)
            for form in forms:
                with self.subTest(case=number, form=form):
                    support.run("ftrun", self.path("big.ft"), "--data", self.folder, "--set", f"train.quantize={form}", "--init", self.path("start.safetensors"),
                                "--init-missing", "keep", "--save", self.path("rounded.safetensors"))
                    rounded = support.read_safetensors(self.path("rounded.safetensors"))
                    for name in end:
                        if "running" not in name:
                            self.assertTrue(numpy.array_equal(rounded[name], end[name]), name)
        # arithmetic with other features, a residual stream, leaves no heads
        added = GPT.replace("%s", ATTENTION["written"], 1).replace('causal=true, dropout=0.1), "b h t d -> b t (h d)"))',
                                                                   'causal=true), "b h t d -> b t (h d)") + x)')
        self.tokens()
        with open(self.path("m.ft"), "w") as f:
            f.write(added % ("adam", "magnitude(structure=head)"))
        self.fails(1, "structure=head prunes nothing", "ftc", self.path("m.ft"), "-o", self.path("m.so"))

    def test_refused(self):
        self.tokens()

        def refused(source, prune, words):
            with open(self.path("m.ft"), "w") as f:
                f.write(source % ("adam", prune))
            self.fails(1, words, "ftc", self.path("m.ft"), "-o", self.path("m.so"))
        plain = GPT.replace("%s", "", 1)
        refused(plain, "magnitude(structure=head)", "structure=head prunes nothing: no trained matrix is multiplied with what attention(...) gives")
        refused(GPT.replace("%s", ATTENTION["block"], 1), 'magnitude(structure=head) on "*.down.weight"', "no trained matrix named behind `on` is")
        refused(plain.replace("v = v + dropout", "v = dropout"), "magnitude(structure=layer)", "structure=layer prunes nothing: no trained matrix is the last one")
        refused(plain.replace("v + dropout(FeedForward(name=\"f\")(LayerNorm(name=\"n2\")(v)), 0.1)", "v + sigmoid(FeedForward(name=\"f\")(v))"),
                "magnitude(structure=layer)", "structure=layer prunes nothing")
        refused(plain, "magnitude(structure=round)", "structure of prune is element, channel, head, layer, ")
        with open(self.path("m.ft"), "w") as f:
            f.write(plain % ("adam", "none"))
        support.run("ftrun", self.path("m.ft"), "--data", self.folder, "--steps", 0, "--save", self.path("m.safetensors"))
        self.fails(1, "what a head is, weights alone do not say", "ftrun", "sensitivity", self.path("m.ft"), "--weights", self.path("m.safetensors"), "--structure", "head",
                   "--data", self.folder)


if __name__ == "__main__":
    support.main()
