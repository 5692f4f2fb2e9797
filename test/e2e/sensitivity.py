"""`ftrun sensitivity`: what it prunes is what a training with prune = magnitude prunes, what it says is what ftrun eval says of those weights;
its suggestion keeps the budget and is the best of a grid; the page; refusals."""
import json
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 3, 6, 6], y: i32[B]) {
  h = relu(BatchNorm(name="bn")(Conv2d(6, 3, padding=1, name="conv")(x)))
  h = relu(Linear(10, name="fc1")(flatten(h, from=1)))
  z = Linear(7, name="fc2")(h)
  loss = mean(cross_entropy(z, y))
  metric accuracy = mean(argmax(z, axis=-1) == y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 8; epochs = 20; seed = 5; eval = none; optimizer = adam(lr=0.01)%s }
"""
WEIGHTS = ["conv.weight", "fc1.weight", "fc2.weight"]
random = numpy.random.RandomState(3)


class Sensitivity(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), random.randn(61, 3, 6, 6).astype("f4"))  # the last batch is not whole
        numpy.save(self.path("y.npy"), random.randint(0, 7, 61).astype("i4"))
        self.artifact = self.compile(MODEL % "")
        self.weights = self.path("w.safetensors")
        support.run("ftrun", self.artifact, "--data", self.folder, "--save", self.weights)

    def scan(self, *flags, model=None):
        lines = self.path("scan.jsonl")
        done = support.run("ftrun", "sensitivity", model or self.artifact, "--data", self.folder, "--weights", self.weights, "--log-jsonl", lines, *flags)
        return done.stdout, support.read_jsonl(lines)

    def evaluated(self, weights):
        log = self.path("eval.jsonl")
        support.run("ftrun", "eval", self.artifact, "--data", self.folder, "--weights", weights, "--log-jsonl", log)
        return [line for line in support.read_jsonl(log) if line.get("eval")][-1]

    def magnitude(self, structure, share, on):
        """The weights as a training without a rate prunes them."""
        word = structure if structure.isalpha() else f'"{structure}"'
        share = "" if ":" in structure else f"sparsity={share}, "
        pruned = self.compile(MODEL % f'; prune = magnitude({share}begin=1, end=1, structure={word}) on "{on}"', name="pruned.so")
        out = self.path("pruned.safetensors")
        support.run("ftrun", pruned, "--data", self.folder, "--init", self.weights, "--set", "train.lr=0", "--steps", 1, "--save", out)
        tensors, before = support.read_safetensors(out), support.read_safetensors(self.weights)
        tensors.update({name: before[name] for name in before if "running" in name})
        support.write_safetensors(out, tensors)
        return out

    def test_prunes_as_a_training(self):
        for structure, shares in (("element", (0.3, 0.85)), ("channel", (0.5, 0.7)), ("4x5", (0.6,)), ("2:4", (0.5,))):
            flags = [] if ":" in structure else ["--sparsity", ",".join(map(str, shares))]
            flags += [] if structure != "channel" else ["--on", "*.weight"]  # fc2's are the outputs
            _, lines = self.scan("--structure", structure, *flags)
            base, lines = lines[0], [line for line in lines[1:] if line.get("parameter")]
            self.assertEqual([line["parameter"] for line in lines], [name for name in WEIGHTS for _ in shares])
            whole = self.evaluated(self.weights)
            self.assertEqual((base["loss"], base["accuracy"]), (self.rounded(whole["loss"]), self.rounded(whole["accuracy"])))
            for line in lines:
                with self.subTest(structure, line=line):
                    pruned = self.magnitude(structure, line["sparsity"], line["parameter"])
                    value = support.read_safetensors(pruned)[line["parameter"]]
                    self.assertEqual(line["zeros"], (value == 0).sum())
                    self.assertEqual(line["elements"], value.size)
                    found = self.evaluated(pruned)
                    self.assertEqual((line["loss"], line["accuracy"]), (self.rounded(found["loss"]), self.rounded(found["accuracy"])))

    def rounded(self, value):
        return float("%.9g" % value)

    def test_suggests(self):
        saved = self.path("saved.safetensors")
        out, lines = self.scan("--budget", "0.6", "--save", saved)
        together = {line["together"]: line for line in lines if "together" in line}
        after, before = support.read_safetensors(saved), support.read_safetensors(self.weights)
        zeros = sum((after[name] == 0).sum() for name in WEIGHTS)
        size = sum(after[name].size for name in WEIGHTS)
        self.assertEqual(together["suggested"]["zeros"], zeros)
        self.assertLessEqual(abs(zeros - 0.6 * size), 3)  # rounded once for each parameter
        for name in before:
            kept = after[name] != 0
            self.assertTrue(numpy.array_equal(after[name][kept], before[name][kept]))
            if name not in WEIGHTS:
                self.assertTrue(numpy.array_equal(after[name], before[name]), name)
        self.assertEqual(together["suggested"]["loss"], self.rounded(self.evaluated(saved)["loss"]))
        self.assertIn("as suggested: ", out)
        # of all ways to the budget, none has a smaller sum of losses than the suggested shares: two parameters on the grid, the third has the rest
        base = lines[0]["loss"]
        curves = {name: [(0, base)] + [(line["zeros"], line["loss"]) for line in lines if line.get("parameter") == name] for name in WEIGHTS}
        suggested = {m[1]: float(m[2]) for m in re.finditer(r"^(\S+\.weight) +(0\.\d+)$", out[out.index("suggested for"):], re.M)}

        def hull(name, share):  # the largest convex curve below the points
            at, points = share * after[name].size, curves[name]
            sums = [l for z, l in points if abs(z - at) < 1]
            sums += [l1 + (l2 - l1) * (at - z1) / (z2 - z1) for i, (z1, l1) in enumerate(points) for z2, l2 in points[i + 1:] if z1 <= at <= z2]
            return min(sums)
        mine = sum(hull(name, suggested[name]) for name in WEIGHTS)
        ways = [hull(one, a / after[one].size) + hull(two, b / after[two].size) + hull(rest, (0.6 * size - a - b) / after[rest].size)
                for one, two, rest in ((0, 1, 2), (0, 2, 1), (1, 2, 0)) for one, two, rest in [(WEIGHTS[one], WEIGHTS[two], WEIGHTS[rest])]
                for a, _ in curves[one] for b, _ in curves[two] if 0 <= 0.6 * size - a - b <= curves[rest][-1][0]]
        self.assertLessEqual(mine, min(ways) + 1e-3)

    def test_on(self):
        _, lines = self.scan("--on", "fc1.*", "--on", "fc2.weight", "--sparsity", "0.5")
        self.assertEqual([line["parameter"] for line in lines if line.get("parameter")], WEIGHTS[1:])

    def test_channels_of_the_outputs(self):
        """They cannot go, so they are no part of the budget; --on takes them all the same."""
        out, lines = self.scan("--structure", "channel", "--sparsity", "0.5,0.8", "--budget", "0.5")
        self.assertEqual([line["parameter"] for line in lines if line.get("parameter")], [name for name in WEIGHTS[:2] for _ in "12"])
        size = sum(support.read_safetensors(self.weights)[name].size for name in WEIGHTS[:2])
        self.assertEqual({line["elements"] for line in lines if "together" in line}, {size})
        done = support.run("ftrun", "sensitivity", self.artifact, "--data", self.folder, "--weights", self.weights, "--structure", "channel", "--sparsity", "0.5")
        self.assertIn("the channels of fc2.weight are the outputs of the model and stay", done.stderr)
        one = self.compile("""model M(x: f32[B, 3, 6, 6], y: i32[B]) { loss = mean(cross_entropy(Linear(7, name="fc")(flatten(x, from=1)), y)) }
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }""", name="one.so")
        support.run("ftrun", one, "--data", self.folder, "--epochs", "1", "--save", self.path("one.safetensors"))
        self.fails(1, "no channels but those of fc.weight, which are the outputs", "ftrun", "sensitivity", one, "--data", self.folder, "--weights",
                   self.path("one.safetensors"), "--structure", "channel")

    def test_page(self):
        page = self.path("page.html")
        _, lines = self.scan("-o", page, "--sparsity", "0.5,0.9")
        with open(page) as f:
            text = f.read()
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])["sensitivity"]
        self.assertEqual(data["numbers"], ["loss", "accuracy"])
        self.assertEqual([curve["name"] for curve in data["curves"]], WEIGHTS)
        own = [line for line in lines if line.get("parameter")]
        self.assertEqual([point for curve in data["curves"] for point in curve["points"]],
                         [[line["sparsity"], line["zeros"], [line["loss"], line["accuracy"]]] for line in own])
        self.assertIn("function showSensitivity", text)
        self.assertNotIn("http://", text.replace("http://www.w3.org/", ""))

    def test_refused(self):
        def refused(code, words, *flags):
            self.fails(code, words, "ftrun", "sensitivity", self.artifact, "--data", self.folder, *flags)
        weights = ["--weights", self.weights]
        refused(2, "needs --weights")
        refused(1, "expected up to 64 shares between 0 and 1 that rise", *weights, "--sparsity", "0.5,0.4")
        refused(1, "expected up to 64 shares", *weights, "--sparsity", "0.5,")
        refused(1, "expected up to 64 shares", *weights, "--sparsity", "1.5")
        refused(1, "expected shares", *weights, "--sparsity", "")
        refused(1, "--structure rows: expected element", *weights, "--structure", "rows")
        refused(1, "leave out --sparsity", *weights, "--structure", "2:4", "--sparsity", "0.5")
        refused(1, "--save writes what is suggested", *weights, "--structure", "2:4", "--save", self.path("s"))
        refused(1, "--budget 0.8: expected a share of all weights from 0 to 0.5", *weights, "--sparsity", "0.5", "--budget", "0.8")
        refused(2, "--budget", *weights, "--budget", "2")
        refused(1, "--on nothing.*: no parameter", *weights, "--on", "nothing.*")
        refused(1, "cannot write", *weights, "--sparsity", "0.5", "--log-jsonl", self.path("no/where.jsonl"))
        refused(1, "has no test data", *weights, "--split", "test")


if __name__ == "__main__":
    support.main()
