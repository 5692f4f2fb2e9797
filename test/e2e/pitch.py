"""Rows with a pitch (pass pitch): heads of many forms, over vocabularies of odd sizes, train on the simulator as they do on the processor,
where no row has a pitch, and as they do with --disable=pitch. Of each random head the losses of two steps and all weights are compared."""
import json
import os
import random
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

BATCH, LENGTH = 4, 12
WORDS = (65, 70, 129, 257, 515, 1601)  # of the last, a block has each row
TYPES = ("bf16", "fp16", "f32", "tf32")
GPUS = ("sm_80", "sm_90a")
HEADS = {  # lines of the model: from x[B, T, D] to a loss
    "tied": "logits = x @ transpose(w)\n  loss = mean(cross_entropy(logits, targets, ignore=-1))",
    "linear": 'loss = mean(cross_entropy(Linear(V, name="head")(x), targets, ignore=-1))',
    "smoothing": "loss = mean(cross_entropy(x @ transpose(w), targets, smoothing=0.1))",
    "soft cap": "loss = mean(cross_entropy(4 * tanh(x @ transpose(w) / 4), targets, ignore=-1))",
    "z loss": "logits = x @ transpose(w)\n  z = logsumexp(logits)\n  loss = mean(cross_entropy(logits, targets)) + 0.01 * mean(z * z)",
    "rows": "s = softmax(reshape(x, [B * T, D]) @ transpose(w))\n  y = s @ w + gelu(s @ w)\n  loss = mean(square(y)) + mean(cross_entropy(x @ transpose(w), targets))",
    "transposed": "s = tanh(x @ transpose(w))\n  g = transpose(reshape(s, [B * T, V])) @ reshape(x, [B * T, D])\n  loss = mean(square(g)) + mean(cross_entropy(s, targets))",
    "two": 'h = Linear(V, name="h")(x)\n  k = relu(h) @ w\n  loss = mean(square(k)) + mean(cross_entropy(h, targets))',
    "metric": "logits = x @ transpose(w)\n  loss = mean(cross_entropy(logits, targets))\n  metric accuracy = mean(argmax(logits) == targets)",
    "halves": "a, b = split(x, 2, axis=1)\n  loss = mean(cross_entropy(a @ transpose(w), targets[:, :T / 2])) + mean(cross_entropy(b @ transpose(w), targets[:, T / 2:]))",
}
MODEL = """hyper T: int = {length}
hyper D: int = {width}
hyper V: int = {words}
model M(tokens: i32[B, T], targets: i32[B, T]) {{
  param w: [V, D] = normal(0.5)
  x = embed(w, tokens)
  x = x + tanh(Linear(D, name="a")(x))
  {head}
}}
data D1 {{ train = tokens("train.bin", dtype=u16) }}
train {{ model = M; data = D1; batch = {batch}; accumulate = {parts}; seed = {seed}; precision = {type}; optimizer = sgd(lr={rate}); eval every 0 epochs; log {{ console; every = 1 steps }} }}
"""
CLASSES = """hyper N: int = {words}
fn planes(x) {{
  e = exp(x - max(x))
  return e / sum(e, axis=[1, 2], keepdims=true)
}}
model M(x: f32[B, 4, N], i: i32[B], y: i32[B]) {{
  param scale: [N] = normal(0.5)
  param table: [N, N] = normal(0.1)
  unused = 0 * (sum(scale) + sum(table))
  loss = mean(cross_entropy(Linear(5, name="b")({of}), y)) + unused
}}
data D {{ train = npy("x.npy", "i.npy", "y.npy") }}
train {{ model = M; data = D; batch = 32; seed = 1; precision = {type}; optimizer = sgd(lr=0.05); eval every 0 epochs; log {{ console; every = 1 steps }} }}
"""
ROWS = {  # [B, N] or so, read by a product
    "input": "x[:, 0]",
    "loop": "tanh(x[:, 1] * scale + 1)",
    "masked": "where(x[:, 0] > 0, x[:, 1], -x[:, 2])",
    "slice": "x[:, 2, 1:]",
    "concat": "concat([relu(x[:, 0]), x[:, 1, :70] * 2], axis=1)",
    "embed": "embed(table, i) * 2",
    "turned": "sum(gelu(transpose(reshape(transpose(x, [0, 2, 1]), [B, N, 4]), [0, 2, 1])), axis=[1])",
    "softmax": "softmax(x)[:, 1]",
    "planes": "planes(x)[:, 3]",
    "sums": "max(x, axis=[1]) - mean(x, axis=[1])",
    "batch norm": "relu(BatchNorm(name=\"n\")(x[:, 3]))",
}


TURNED = {
    "rows": """  h = Linear(129, name="a")(x)
  loss = mean(square(Linear(32, name="b")(h)))""",
    "rows within longer ones": """  h = Linear(129, name="a")(reshape(x, [B, 8, 8]))
  param w: [B, 32] = normal(0.1)
  param u: [32, 129] = normal(0.1)
  z = transpose(h, 1, 2, 0) @ w
  loss = mean(square(h @ transpose(stop_gradient(u)))) + mean(square(z)) + mean(u)""",
}


class Pitch(support.Case):
    def train(self, source, name, *flags):
        """(losses, weights)"""
        artifact, weights = self.path(name), self.path(name + ".safetensors")
        support.run("ftc", source, "-o", artifact, *flags)
        device = ["--device", "sim"] if name.endswith(".ptx") else []
        log = support.run("ftrun", artifact, *device, "--data", self.folder, "--steps", 2, "--save", weights).stdout
        return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", log)], support.read_safetensors(weights)

    def compare(self, found, wanted, limit, what):
        self.assertEqual(len(found[0]), len(wanted[0]), what)
        for a, b in zip(found[0], wanted[0]):
            self.assertLess(abs(a - b), limit * (1 + abs(b)), what)
        for name in wanted[1]:
            a, b = (numpy.asarray(weights[1][name], dtype=numpy.float64) for weights in (found, wanted))
            self.assertTrue(numpy.isfinite(a).all(), f"{what}: {name}")
            self.assertLess(numpy.abs(a - b).max(), limit * (1 + numpy.abs(b).max()), f"{what}: {name}")

    def test_heads(self):
        """Small steps where gradients are large, or rounded in another way (tf32 is f32 on the CPU), so that the rounding is as small in the weights."""
        seed = int(os.environ.get("FT_SEED", 3))
        count = int(os.environ.get("FT_PITCH_HEADS", 5))
        r = random.Random(seed)
        forms = sorted(HEADS)
        r.shuffle(forms)
        for i in range(count):
            form, words, type, gpu = forms[i % len(forms)], r.choice(WORDS), r.choice(TYPES), r.choice(GPUS)
            numbers = numpy.array([r.randrange(words) for _ in range(4000)], dtype=numpy.uint16)
            numbers.tofile(self.path("train.bin"))
            parts = r.choice((1, 1, 2))
            if form == "transposed":  # a function of sums over the samples, which ftc refuses with accumulate
                parts = 1
            text = MODEL.format(length=LENGTH, width=r.choice((16, 24, 40)), words=words, head=HEADS[form], batch=BATCH, parts=parts, seed=i, type=type, rate=0.02 if type == "tf32" or form == "two" else 0.5)
            what = f"head {i} of FT_SEED={seed}: {form}, {words} words, {type}, {gpu}"
            with self.subTest(what):
                source = self.path("model.ft")
                with open(source, "w") as file:
                    file.write(text)
                plan = support.run("ftc", source, "--emit=ir", "--stop-after=pitch", "--gpu", gpu).stdout
                self.assertRegex(plan, rf"[0-9],{words}:[0-9]+\]", what)
                with_pitch = self.train(source, "with.ptx", "--gpu", gpu)
                without = self.train(source, "without.ptx", "--gpu", gpu, "--disable=pitch")
                host = self.train(source, "host.so")
                rounding = {"f32": 2e-6, "tf32": 2e-3, "bf16": 2e-3, "fp16": 5e-4}[type]
                self.compare(with_pitch, without, 1e-5 if type == "tf32" else rounding, what)
                self.compare(with_pitch, host, rounding, what)

    def test_heads_of_8_bits(self):
        """On Hopper products of fp8 read their operands along k: their rows are padded, and those of what is transposed for them. The same
        values are multiplied in bf16, and on the processor; what differs is the order of sums, and so a tie that is rounded the other way."""
        seed = int(os.environ.get("FT_SEED", 3))
        r = random.Random(seed + 100)
        forms = sorted(HEADS)
        r.shuffle(forms)
        for i, form in enumerate(forms[: int(os.environ.get("FT_PITCH_HEADS", 3))]):
            words, length, parts = r.choice((257, 515, 1601)), r.choice((8, 12, 32 if form == "halves" else 33)), 1 if form == "transposed" else r.choice((1, 2))
            numpy.array([r.randrange(words) for _ in range(9000)], dtype=numpy.uint16).tofile(self.path("train.bin"))
            text = MODEL.format(length=length, width=r.choice((16, 32, 48)), words=words, head=HEADS[form], batch=BATCH, parts=parts, seed=i, type="fp8", rate=2)
            what = f"head {i} of FT_SEED={seed}: {form}, {words} words, {length} x {BATCH} rows, in {parts}"
            with self.subTest(what):
                source = self.path("model.ft")
                with open(source, "w") as file:
                    file.write(text)
                plan = support.run("ftc", source, "--emit=ir", "--stop-after=pitch", "--gpu", "sm_90a").stdout
                self.assertRegex(plan, rf"e4m3\[[0-9]+,{words}:[0-9]+\]", what)
                found = self.train(source, "with.ptx", "--gpu", "sm_90a")
                self.compare(found, self.train(source, "wide.ptx", "--gpu", "sm_90a", "--disable=fp8_products"), 5e-4, what)
                self.compare(found, self.train(source, "host.so"), 5e-4, what)

    def test_transposes_of_8_bits(self):
        """What is transposed for products of 8-bit floats: the same bits as element by element, and nothing is read between rows."""
        numpy.save(self.path("x.npy"), numpy.random.default_rng(6).standard_normal((320, 64)).astype(numpy.float32))
        for form, body in TURNED.items():
            source = self.path("model.ft")
            with open(source, "w") as file:
                file.write(f'model M(x: f32[B, 64]) {{\n{body}\n}}\ndata D {{ train = npy("x.npy") }}\n'
                           "train { model = M; data = D; batch = 160; optimizer = sgd(lr=1); precision = fp8 }\n")
            with self.subTest(form):
                losses, found = self.train(source, "model.ptx", "--gpu", "sm_90a")
                same, wanted = self.train(source, "plain.ptx", "--gpu", "sm_90a", "--disable=transpose_tiles")
                self.assertEqual(losses, same)
                for name in wanted:
                    self.assertEqual(found[name].tobytes(), wanted[name].tobytes(), name)

    def test_rows_that_other_kernels_make(self):
        """Rows with a pitch that a loop, a row or a column kernel writes, of operands without one: loops wrote some elements beside their rows."""
        words, random = 131, numpy.random.default_rng(5)
        numpy.save(self.path("x.npy"), random.standard_normal((64, 4, words)).astype(numpy.float32))
        numpy.save(self.path("i.npy"), random.integers(0, words, 64).astype(numpy.int32))
        numpy.save(self.path("y.npy"), random.integers(0, 5, 64).astype(numpy.int32))
        for number, (form, of) in enumerate(ROWS.items()):  # with FT_TURN in one of the types
            for type in support.of_this_turn(("bf16", "f32") if number % 2 else ("f32", "bf16"), 2):
                source = self.path("model.ft")
                with open(source, "w") as file:
                    file.write(CLASSES.format(words=words, of=of, type=type))
                gpu = GPUS[(number + (type == "f32")) % 2]
                host = self.train(source, "host.so")
                for disable in ("none", "fuse", "index32,transpose_tiles"):
                    with self.subTest(form=form, type=type, disable=disable, gpu=gpu):
                        flags = [] if disable == "none" else ["--disable=" + disable]
                        self.compare(self.train(source, "model.ptx", "--gpu", gpu, *flags), host, {"f32": 2e-6, "bf16": 2e-3}[type], form)

    def test_values(self):
        """What the runtime tells of values in memory: layers' means and deviations, and where a NaN comes from."""
        words = 129
        numpy.array([i * i % words for i in range(4000)], dtype=numpy.uint16).tofile(self.path("train.bin"))
        for name, head, flags in (("layers", HEADS["two"], ["--set", "train.log.layers=1"]),
                                  ("nan", "s = x @ transpose(w)\n  loss = mean(cross_entropy(s, targets)) + 0.01 * mean(sum(log(s + 3), axis=-1))", ["--check=nan"])):
            text = MODEL.format(length=LENGTH, width=16, words=words, head=head, batch=BATCH, parts=1, seed=1, type="bf16", rate=0.5)
            source, told = self.path("model.ft"), []
            with open(source, "w") as file:
                file.write(text)
            for disable in ("pitch", "tma"):
                artifact, log = self.path(name + ".ptx"), self.path(f"{name}-{disable}.jsonl")
                support.run("ftc", source, "-o", artifact, "--disable=" + disable)
                done = support.run("ftrun", artifact, "--device", "sim", "--data", self.folder, "--steps", 1, "--log-jsonl", log, *flags, check=False)
                with open(log) as file:
                    lines = [line for line in map(json.loads, file) if "activations" in line] if name == "layers" else [done.returncode, done.stderr]
                self.assertTrue(lines)
                for line in lines if name == "layers" else ():
                    line.pop("time")
                told.append(lines)
            with self.subTest(name):
                self.assertEqual(told[0], told[1])
                self.assertNotIn(f"{words}:", str(told[1]))


if __name__ == "__main__":
    support.main()
