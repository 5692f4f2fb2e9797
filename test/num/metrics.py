"""Metrics of a whole split against scikit-learn: counts, precision, recall, F1, AUC, R2; with ties, classes that are not there, samples
that do not count, a rest that fills no batch, averaged weights and several ranks."""
import os
import sys
import warnings

import numpy
import sklearn.metrics as oracle

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

CLASSES = 4
MODEL = """
model M(s: f32[B, 4], y: i32[B], z: i32[B, 3], t: f32[B], u: f32[B], g: i32[B]) {
  param w: [4] = ones
  logits = s * w
  all = stack([logits, logits * 0.5, logits + 1], axis=1)
  loss = mean(cross_entropy(logits, y) + 0.1 * (t - u) ** 2)
  metric confusion = confusion(logits, y)
  metric kept = confusion(all, z, ignore=-1)
  metric precision_each = precision(logits, y, average="none")
  metric recall_each = recall(logits, y, average="none")
  metric f1_each = f1(logits, y, average="none")
  metric precision = precision(logits, y)
  metric recall = recall(logits, y)
  metric f1 = f1(logits, y)
  metric f1_micro = f1(logits, y, average="micro")
  metric f1_weighted = f1(logits, y, average="weighted")
  metric f1_kept = f1(all, z, ignore=-1)
  metric f1_binary = f1(s[:, 0], g, average="binary")
  metric accuracy = accuracy(logits, y)
  metric accuracy_kept = accuracy(all, z, ignore=-1)
  metric top2 = topk_accuracy(logits, y, k=2)
  metric top2_kept = topk_accuracy(all, z, k=2, ignore=-1)
  metric ppl = perplexity(cross_entropy(logits, y))
  metric r2 = r2(u, t)
  metric r = correlation(u, t)
  metric auc = auc(s[:, 0], g)
  metric auc_one = auc(logits[:, 1], y == 1)
  metric auc_rest = auc(logits, y)
  metric auc_kept = auc(all, z, ignore=-1)
  metric mean_by_class = sum(unsqueeze(t, 1) * one_hot(y, 4), axis=0) / B
}
data D { train = npy("s.npy", "y.npy", "z.npy", "t.npy", "u.npy", "g.npy"); valid = npy("s.npy", "y.npy", "z.npy", "t.npy", "u.npy", "g.npy") }
train { batch = %d; optimizer = sgd(lr=0.1) }
"""


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def expected(w, s, y, z, t, u, g):
    """Scores are products that f32 has exactly, so that rounding makes and breaks no ties; the rest is in float64."""
    logits = s * w
    rows = numpy.stack([logits, logits * numpy.float32(0.5), logits + numpy.float32(1)], 1).reshape(-1, CLASSES)
    keep = z.reshape(-1) != -1
    kept, true = rows[keep], z.reshape(-1)[keep]
    chosen, labels, all_classes = logits.argmax(-1), y, list(range(CLASSES))
    each = {"labels": all_classes, "average": None, "zero_division": 0}
    macro = {"average": "macro", "zero_division": 0}
    top2 = lambda l, k: (numpy.argsort(-l, -1, kind="stable")[:, :2] == k[:, None]).any(1).mean()
    nll = -numpy.log(softmax(logits.astype("f8"))[numpy.arange(len(y)), y])
    area = lambda l, k: oracle.roc_auc_score(k, l) if len(set(k)) == 2 else numpy.nan
    rest = lambda l, k: numpy.mean([area(l[:, c], k == c) for c in all_classes])
    return {
        "confusion": oracle.confusion_matrix(labels, chosen, labels=all_classes),
        "kept": oracle.confusion_matrix(true, kept.argmax(-1), labels=all_classes),
        "precision_each": oracle.precision_score(labels, chosen, **each), "recall_each": oracle.recall_score(labels, chosen, **each),
        "f1_each": oracle.f1_score(labels, chosen, **each), "precision": oracle.precision_score(labels, chosen, **macro),
        "recall": oracle.recall_score(labels, chosen, **macro), "f1": oracle.f1_score(labels, chosen, **macro),
        "f1_micro": oracle.f1_score(labels, chosen, average="micro"), "f1_weighted": oracle.f1_score(labels, chosen, average="weighted", zero_division=0),
        "f1_kept": oracle.f1_score(true, kept.argmax(-1), **macro), "f1_binary": oracle.f1_score(g, s[:, 0] > 0, zero_division=0),
        "accuracy": oracle.accuracy_score(labels, chosen), "accuracy_kept": oracle.accuracy_score(true, kept.argmax(-1)),
        "top2": top2(logits, y), "top2_kept": top2(kept, true), "ppl": numpy.exp(nll.mean()),
        "r2": oracle.r2_score(t.astype("f8"), u.astype("f8")) if len(t) > 1 else float(t[0] == u[0]), "r": numpy.corrcoef(t.astype("f8"), u.astype("f8"))[0, 1],
        "auc": area(s[:, 0], g), "auc_one": area(logits[:, 1], y == 1), "auc_rest": rest(logits, y), "auc_kept": rest(kept, true),
        "mean_by_class": (t[:, None] * numpy.eye(CLASSES)[y]).mean(0),
    }


class Split(support.Case):
    artifact, device = "model.so", "cpu"

    def data(self, count, classes=CLASSES, **change):
        random = numpy.random.default_rng(count + classes)
        s = numpy.round(random.permuted(numpy.tile(numpy.arange(4), (count, 1)), axis=1) + random.integers(0, 2, (count, 1)) * 4.0 - 3.5, 1)
        z = random.integers(0, classes, (count, 3))
        z[random.random((count, 3)) < 0.4] = -1
        z[0, 0] = 0
        t = 1000 + random.standard_normal(count)
        arrays = {"s": s, "y": random.integers(0, classes, count), "z": z, "t": t, "u": t + 0.5 * random.standard_normal(count),
                  "g": random.integers(0, 2, count)}
        arrays.update(change)
        for name, value in arrays.items():
            arrays[name] = value.astype("f4" if value.dtype.kind == "f" else "i4")
            numpy.save(self.path(name + ".npy"), arrays[name])
        return arrays

    def evaluate(self, artifact, *flags, weights="w.safetensors"):
        if os.path.exists(self.path("log")):
            os.remove(self.path("log"))
        self.said = support.run("ftrun", "eval", artifact, "--weights", self.path(weights), "--data", self.folder, "--device", self.device,
                                "--log-jsonl", self.path("log"), *flags).stdout
        return support.read_jsonl(self.path("log"))[-1]

    def compare(self, ours, theirs, message, prefix=""):
        for name, value in theirs.items():
            with self.subTest(name, message=message):
                got = numpy.array(ours[prefix + name], "f8")  # null: NaN
                close = 2e-6 if name in ("ppl", "mean_by_class") else 1e-8
                numpy.testing.assert_allclose(got, numpy.array(value, "f8"), rtol=close, atol=close, err_msg=f"{name} {message}")


class Metrics(Split):
    SIZES = {16: [1, 15, 16, 17, 203], 7: [5, 23], 1: [3]}

    def test_whole_split(self):
        w = numpy.array([1, 2, 0.5, 1], "f4")
        support.write_safetensors(self.path("w.safetensors"), {"w": w})
        for batch, sizes in self.SIZES.items():
            artifact = self.compile(MODEL % batch, name=self.artifact)
            for size in sizes:
                for classes in (CLASSES, 3):  # of the last class there is no sample; it may be chosen
                    data = self.data(size, classes)
                    with numpy.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        theirs = expected(w, **data)
                    self.compare(self.evaluate(artifact), theirs, f"{size} samples of {classes} classes at batch {batch}")


class MetricsOnSim(Metrics):
    """The same, of the PTX in the simulator."""

    artifact, device = "model.ptx", "sim"
    SIZES = {16: [1, 33]}


class More(Split):
    def test_training_logs_both_weights(self):
        """Tables and AUCs of the weights and of their average; a training step has neither, and rules follow an AUC."""
        data = self.data(40)
        text = (MODEL % 8).replace("optimizer = sgd(lr=0.1)",
                                   "optimizer = sgd(lr=0.3); ema = 0.5; epochs = 2; log { every = 1 steps }; checkpoint { dir = \"runs\"; best = max(valid.ema_auc_rest) }")
        artifact = self.compile(text)
        done = support.run("ftrun", artifact, "--log-jsonl", "log", "--save", "w.safetensors", "--save-ema", "ema.safetensors", cwd=self.folder)
        lines = support.read_jsonl(self.path("log"))
        last = [line for line in lines if line.get("eval")][-1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for prefix, file in (("", "w.safetensors"), ("ema_", "ema.safetensors")):
                self.compare(last, expected(support.read_safetensors(self.path(file))["w"], **data), file, prefix)
        steps = [line for line in lines if not line.get("eval")]
        self.assertTrue(all("f1" in line and "auc" not in line and "confusion" not in line and "f1_each" not in line for line in steps))
        self.assertTrue(os.path.exists(self.path("runs", "best.safetensors")))
        table = "\n".join("    " + "  ".join(f"{n:>{len(str(numpy.max(last['confusion'])))}}" for n in [i, *row]) for i, row in enumerate(last["confusion"]))
        self.assertIn("  confusion:\n", done.stdout)
        self.assertIn(table, done.stdout)
        self.assertNotRegex(done.stdout, r"step .* auc nan")

    def test_a_class_alone_has_no_auc(self):
        support.write_safetensors(self.path("w.safetensors"), {"w": numpy.ones(4, "f4")})
        self.data(20, g=numpy.ones(20, "i4"))
        line = self.evaluate(self.compile(MODEL % 8))
        self.assertIsNone(line["auc"])
        self.assertTrue(line["nonfinite"])
        self.assertIn("auc nan", self.said)

    def test_counts_beyond_f32(self):
        """More than 2^24 of one kind: f32 would stop counting there."""
        source = """
model M(y: u8[B, 65536]) {
  param w: [1] = ones
  x = f32(y)
  logits = stack([0.5 - x, x - 0.5], axis=-1)
  loss = mean(w) + mean(x)
  metric confusion = confusion(logits, y)
  metric ones = sum(i64(y))
  metric precision = precision(logits, y, average="binary")
}
data D { train = npy("y.npy"); valid = npy("y.npy") }
train { batch = 300; optimizer = sgd(lr=0.1) }
"""
        y = numpy.ones((301, 65536), "u1")
        y[0, :7] = y[300, :4] = 0
        numpy.save(self.path("y.npy"), y)
        support.write_safetensors(self.path("w.safetensors"), {"w": numpy.ones(1, "f4")})
        line = self.evaluate(self.compile(source))
        self.assertEqual(line["confusion"], [[11, 0], [0, 301 * 65536 - 11]])
        self.assertEqual((line["ones"], line["precision"]), (301 * 65536 - 11, 1))

    def test_ranks_agree_with_one(self):
        support.write_safetensors(self.path("w.safetensors"), {"w": numpy.array([1, 2, 0.5, 1], "f4")})
        self.data(203)
        one = self.evaluate(self.compile(MODEL % 8))
        artifact = self.compile(MODEL % 8, "--set", "distributed.data=any", name="ranks.so")
        two = self.evaluate(artifact, "--ranks", 2)
        for name in one:
            if name in ("loss", "ppl", "r2", "r", "mean_by_class"):  # sums in another order
                numpy.testing.assert_allclose(one[name], two[name], rtol=2e-6, err_msg=name)
            else:
                self.assertEqual(one[name], two[name], name)


if __name__ == "__main__":
    support.main()
