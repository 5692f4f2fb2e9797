"""Values recomputed in backward: the same training, less memory; budgets are kept, at a cost that grows as they fall."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
hyper D: int = 32
hyper L: int = 3
block Attention()(x: [B, T, D]) {
  q, k, v = split(Linear(3 * D, name="qkv")(x), 3, axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=2)
  k = rearrange(k, "b t (h d) -> b h t d", h=2)
  v = rearrange(v, "b t (h d) -> b h t d", h=2)
  return Linear(D, name="out")(rearrange(attention(q, k, v, causal=true, dropout=0.3), "b h t d -> b t (h d)"))
}
block Layer()(x: [B, T, D]) {
  x = x + dropout(Attention(name="attn")(LayerNorm(name="ln1")(x)), 0.2)
  h = gelu(Linear(4 * D, name="up")(LayerNorm(name="ln2")(x)))
  return x + dropout(Linear(D, name="down")(h), 0.2)
}
model M(x: f32[B, T=24, I=5], y: i32[B]) {
  x = Linear(D, name="embed")(x)
  repeat i in 0..L as h { x = Layer(%(layer)s)(x) }
  logits = Linear(4, name="head")(mean(LayerNorm(name="ln")(x), axis=1))
  loss = mean(cross_entropy(logits, y))
}
data Samples { train = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 2; seed = 5; optimizer = sgd(lr=0.05, momentum=0.9); eval = none; %(recipe)s }
"""


UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def memory(*flags):
    """ftc --memory: bytes by row, and what it says of recomputation."""
    said = support.run("ftc", *flags, "--memory").stdout
    table = {row[:32].strip(): int(row[32:48]) for row in said.splitlines() if re.match(r".{32} +\d+ ", row)}
    cost = re.search(r"recompute: .* of (\d+) blocks?, products of (\d+); ([\d.]+) GFLOP a step more", said)
    return table, (int(cost[1]), int(cost[2]), float(cost[3])) if cost else (0, 0, 0.0)


class Recompute(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), random.standard_normal((40, 24, 5)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 40).astype("i4"))

    def source(self, layer="", recipe=""):
        with open(self.path("model.ft"), "w") as file:
            file.write(MODEL % dict(layer=layer, recipe=recipe))
        return self.path("model.ft")

    def train(self, *flags, layer="", recipe=""):
        artifact = self.compile(self.source(layer, recipe), *flags)
        support.run("ftrun", artifact, "--data", self.folder, "--set", "train.log.every=1", "--log-jsonl",
                    self.path("log"), "--save", self.path("weights"))
        losses = [line["loss"] for line in support.read_jsonl(self.path("log"))]
        return losses, support.read_safetensors(self.path("weights"))

    def assert_same(self, one, other, tolerance):
        if tolerance == 0:
            self.assertEqual(one[0], other[0])
        numpy.testing.assert_allclose(one[0], other[0], rtol=tolerance)
        for name in other[1]:
            numpy.testing.assert_allclose(one[1][name], other[1][name], rtol=tolerance, atol=tolerance, err_msg=name)

    def test_the_same_training(self):
        # row sums may be added in another order (docs/language.md), which a narrow type enlarges where it rounds
        # the other way
        for precision, tolerance in (("f32", 1e-4), ("bf16", 2e-2), ("fp16", 2e-3)):
            flags = ["--set", f"train.precision={precision}"]
            kept = self.train(*flags)
            self.assertEqual(len(kept[0]), 10)
            most, least = (memory(self.source(), *flags, "--set", f"train.recompute={r}")[0]["total"] for r in ("none", "block"))
            for recompute in ("gelu", "block", f"auto(budget={(most + least) // 2})"):
                with self.subTest(precision=precision, recompute=recompute):
                    self.assert_same(self.train(*flags, recipe=f"recompute = {recompute}"), kept, tolerance)

    def test_in_parts(self):
        kept = self.train(recipe="accumulate = 2")
        for recompute in ("pointwise", "block"):
            with self.subTest(recompute=recompute):
                self.assert_same(self.train(recipe=f"accumulate = 2; recompute = {recompute}"), kept, 1e-4)

    def test_single_layers(self):
        _, none = memory(self.source())
        self.assertEqual(none, (0, 0, 0.0))
        _, all_ = memory(self.source(recipe="recompute = block"))
        self.assertEqual(all_[:2], (3, 3))
        for layer, setting, want in (
            ('recompute="block" if i == 1 else none', "none", (1, 1)),
            ('recompute=none if i == 1 else "block"', "none", (2, 2)),
            ("recompute=gelu", "block", (3, 0)),
            ("recompute=none", "block", (0, 0)),
        ):
            with self.subTest(layer=layer):
                source = self.source(layer=layer, recipe=f"recompute = {setting}")
                self.assertEqual(memory(source)[1][:2], want)

    def test_gpt2(self):
        gpt2 = [os.path.join(support.EXAMPLES, "gpt2.ft"), "-D", "L=4", "-D", "T=256"]
        kept = "activations kept for backward"
        for target in ("cpu", "gpu"):
            with self.subTest(target=target):
                flags = gpt2 + (["--gpu", "sm_80"] if target == "gpu" else [])
                none, pointwise, block = (memory(*flags, "--set", f"train.recompute={r}")[0] for r in ("none", "pointwise", "block"))
                logits = 8 * 256 * 50257 * 4
                self.assertLess(pointwise[kept] - logits, 0.85 * (none[kept] - logits))
                # from block to block 768 floats a token, and one block's values at a time
                self.assertLess(block[kept] - logits, 8 * 256 * 768 * 4 * 12)
                self.assertLess(block["total"], pointwise["total"])
                self.assertLess(pointwise["total"], none["total"])

    def test_budgets(self):
        gpt2 = [os.path.join(support.EXAMPLES, "gpt2.ft"), "-D", "L=6", "-D", "T=256", "-D", "V=4096"]
        flags = [*gpt2, "--set", "train.recompute=auto", "--set"]
        most = memory(*gpt2)[0]["total"]
        said = self.fails(1, "the least that training can do with is", "ftc", *flags, "train.recompute.budget=1", "--memory")
        number, unit = re.search(r"do with is ([\d.]+) ([KMG]?i?B)", said.stderr).groups()
        least = (float(number) + 0.01) * UNITS[unit]
        before = 0
        works = set()
        for i in range(10):
            budget = int(most - (most - least) * i / 9)
            total, cost = memory(*flags, f"train.recompute.budget={budget}")
            self.assertLessEqual(total["total"], budget)
            self.assertGreaterEqual(cost[2], before, "less memory, less work")
            before = cost[2]
            works.add(before)
        self.assertEqual(memory(*flags, f"train.recompute.budget={most}")[1][2], 0)
        self.assertGreater(len(works), 6)

    def test_budgets_hold_for_the_passes_that_run(self):
        flags = [os.path.join(support.EXAMPLES, "gpt2.ft"), "-D", "L=2", "-D", "T=128", "-D", "V=1024", "--disable=fuse", "--set"]
        most, least = (memory(*flags, f"train.recompute={r}")[0]["total"] for r in ("none", "block"))
        budget = (most + least) // 2
        self.assertLess(memory(*flags[:-2])[0]["total"], budget)  # all passes would need nothing recomputed
        self.assertLessEqual(memory(*flags, "train.recompute=auto", "--set", f"train.recompute.budget={budget}")[0]["total"], budget)


if __name__ == "__main__":
    support.main()
