"""Evaluation against numpy in float64: loss and metrics of a whole split, whatever the batch and the rest that fills
none. Metrics are no means over samples: ratios, roots, variances, extremes, products, counts; targets are ignored."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 6], y: f32[B], t: i32[B], s: i32[B, 5]) {
  h = tanh(Linear(8, name="h")(x))
  p = squeeze(Linear(1, name="p")(h), axis=-1)
  logits = Linear(3, name="logits")(h)
  tokens = reshape(Linear(5 * 3, name="tokens")(h), B, 5, 3)
  each = cross_entropy(tokens, s, ignore=-1)
  flat = cross_entropy(reshape(tokens, B * 5, 3), reshape(s, B * 5), ignore=-1)
  ce = cross_entropy(logits, t)
  keep = f32(s != -1)
  hit = one_hot(argmax(logits, axis=-1), 3)
  is = one_hot(t, 3)
  tp = sum(hit * is, axis=0)
  e = p - y
  loss = sqrt(mean(e * e))
  metric ppl = exp(mean(ce))
  metric ignored = mean(each)
  metric ignored_flat = mean(flat + 1)
  metric by_sample = mean(sum(each, axis=1))
  metric guarded = sum(each) / maximum(sum(keep), 1)
  metric rare = sum(each * keep * f32(each > 2.5)) / maximum(sum(f32(each > 2.5) * keep), 1)
  metric r2 = 1 - sum(mse(p, y)) / sum((y - mean(y)) ** 2)
  metric deviation = std(e)
  metric features = mean(std(h, axis=0, unbiased=false))
  metric correlation = mean((p - mean(p)) * (y - mean(y))) / (std(p, unbiased=false) * std(y, unbiased=false))
  metric micro = 2 * sum(tp) / (sum(hit) + sum(is))
  metric macro = mean(2 * tp / maximum(sum(hit, axis=0) + sum(is, axis=0), 1))
  confusion = transpose(hit) @ is
  metric diagonal = sum(confusion * f32(iota([3, 3], axis=0) == iota([3, 3], axis=1))) / sum(confusion)
  metric worst = max(abs(e))
  metric least = min(transpose(h))
  metric all_below = prod(f32(e < 4))
  metric accuracy = mean(argmax(logits, axis=-1) == t)
  metric total = sum(y)
  metric by_hand = sum(y) / B
  metric by_shape = sum(e * e) / (e.shape[0] - 1)
  metric ones = sum(y) / sum(ones_like(y))
  metric counted = f32(sum(i32(t == 1)))
  metric log_sum = log(sum(exp(y)))
  metric both = mean(stack([e, y], axis=1))
  metric joined = mean(concat([e, y + 1]) ** 2)
  metric turned = mean(max(transpose(h), axis=0) * y)
  metric share = max(softmax(y, axis=0))
  metric seen = mean(attention(reshape(h, B, 1, 2, 4), reshape(h, B, 1, 2, 4), reshape(h, B, 1, 2, 4)))
  metric looked = mean(Embedding(4, 3, name="looked")(s + 1))
  metric seen_alone = mean(attention(reshape(h, B, 2, 4), reshape(h, B, 2, 4), reshape(h, B, 2, 4)))
  output p
}
data D { train = npy("x.npy", "y.npy", "t.npy", "s.npy"); valid = npy("x.npy", "y.npy", "t.npy", "s.npy") }
train { batch = %d; optimizer = sgd(lr=0.1) }
"""


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def oracle(w, x, y, t, s):
    linear = lambda name, v: v @ w[name + ".weight"].T + w[name + ".bias"]
    h = numpy.tanh(linear("h", x))
    p, logits, tokens = linear("p", h)[:, 0], linear("logits", h), linear("tokens", h).reshape(-1, 5, 3)
    nll = lambda l, k: -numpy.log(numpy.take_along_axis(softmax(l), k[..., None], -1))[..., 0]
    keep, ce, e = s != -1, nll(logits, t), p - y
    each = numpy.where(keep, nll(tokens, numpy.maximum(s, 0)), 0)
    hit, true = numpy.eye(3)[logits.argmax(-1)], numpy.eye(3)[t]
    tp = (hit * true).sum(0)
    b = h.reshape(-1, 2, 4)
    out = {
        "loss": numpy.sqrt((e * e).mean()), "ppl": numpy.exp(ce.mean()), "ignored": each.sum() / keep.sum(), "ignored_flat": each.sum() / keep.sum() + 1,
        "by_sample": each.sum(1).mean(), "guarded": each.sum() / max(keep.sum(), 1),
        "rare": each[each > 2.5].sum() / max((each > 2.5).sum(), 1),
        "r2": 1 - (e * e).sum() / ((y - y.mean()) ** 2).sum(), "deviation": e.std(ddof=1) if len(e) > 1 else numpy.nan, "features": h.std(0).mean(),
        "correlation": ((p - p.mean()) * (y - y.mean())).mean() / (p.std() * y.std()),
        "micro": 2 * tp.sum() / (hit.sum() + true.sum()), "macro": (2 * tp / numpy.maximum(hit.sum(0) + true.sum(0), 1)).mean(),
        "diagonal": tp.sum() / len(t), "worst": abs(e).max(), "least": h.min(), "all_below": float((e < 4).all()), "accuracy": (logits.argmax(-1) == t).mean(),
        "total": y.sum(), "by_hand": y.mean(), "by_shape": (e * e).sum() / (len(e) - 1) if len(e) > 1 else numpy.inf, "ones": y.mean(), "counted": (t == 1).sum(),
        "log_sum": numpy.log(numpy.exp(y).sum()), "both": (e.mean() + y.mean()) / 2, "joined": ((e**2).mean() + ((y + 1) ** 2).mean()) / 2,
        "turned": (h.max(1) * y).mean(), "share": (numpy.exp(y) / numpy.exp(y).sum()).max(),
        "looked": w["looked.weight"][s + 1].mean(),
        "seen": (softmax(b @ b.transpose(0, 2, 1) / 2) @ b).mean(),
        "seen_alone": (softmax(b @ b.transpose(0, 2, 1) / 2) @ b).mean(),  # one head, without a dimension for it
    }
    return out


class Evaluation(support.Case):
    artifact, device = "model.so", "cpu"
    SIZES = {64: [1, 2, 63, 64, 65, 128, 202], 7: [5, 23], 1: [1, 3]}

    def data(self, count, **change):
        random = numpy.random.default_rng(count)
        s = random.integers(0, 3, (count, 5))
        s[random.random((count, 5)) < 0.4] = -1
        s[0, 0] = 1
        arrays = {"x": random.standard_normal((count, 6)), "y": 2 * random.standard_normal(count) + 1, "t": random.integers(0, 3, count), "s": s}
        arrays.update(change)
        for name, value in arrays.items():
            arrays[name] = value.astype("f4" if value.dtype.kind == "f" else "i4")
            numpy.save(self.path(name + ".npy"), arrays[name])
        return arrays

    def weights(self):
        random = numpy.random.default_rng(0)
        sizes = {"h": (8, 6), "p": (1, 8), "logits": (3, 8), "tokens": (15, 8)}
        w = {f"{n}.{k}": random.standard_normal(v if k == "weight" else v[:1]).astype("f4") for n, v in sizes.items() for k in ("weight", "bias")}
        w["looked.weight"] = random.standard_normal((4, 3)).astype("f4")
        support.write_safetensors(self.path("w.safetensors"), w)
        return w

    def evaluate(self, artifact):
        log = self.path("log.jsonl")
        if os.path.exists(log):
            os.remove(log)
        self.said = support.run("ftrun", "eval", artifact, "--weights", self.path("w.safetensors"), "--data", self.folder, "--device", self.device, "--log-jsonl", log).stdout
        return support.read_jsonl(log)[-1]

    def model(self, batch):
        text = MODEL % batch
        if batch == 1:  # a deviation of one value is refused
            text = text.replace("  metric deviation = std(e)\n", "")
        return self.compile(text, name=self.artifact)

    def compare(self, ours, theirs, message):
        for name, value in theirs.items():
            with self.subTest(name, message=message):
                got = ours[name]
                got = {"NaN": numpy.nan, "Infinity": numpy.inf, "-Infinity": -numpy.inf, None: numpy.nan}.get(got, got) if not isinstance(got, float) else got
                numpy.testing.assert_allclose(float(got), value, rtol=2e-5, atol=2e-5, err_msg=f"{name} {message}")

    def test_whole_split(self):
        w = {k: v.astype("f8") for k, v in self.weights().items()}
        for batch, sizes in self.SIZES.items():
            artifact = self.model(batch)
            for size in sizes:
                data = self.data(size)
                with numpy.errstate(all="ignore"):
                    theirs = oracle(w, *(v.astype("f8") if v.dtype.kind == "f" else v for v in data.values()))
                if size == 1:  # 0/0 in one, rounding over rounding in the other
                    theirs = {k: v for k, v in theirs.items() if k not in ("r2", "correlation", "by_shape")}
                if batch == 1:
                    del theirs["deviation"]
                self.compare(self.evaluate(artifact), theirs, f"{size} samples at batch {batch}")

    def test_infinite_values_count_once(self):
        artifact = self.model(64)
        self.weights()
        for place, last in ((0, 65), (64, 65), (66, 67)):
            for value in (numpy.inf, -numpy.inf, numpy.nan):
                y = numpy.ones(last, "f4")
                y[place] = value
                self.data(last, y=y)
                line = self.evaluate(artifact)
                for name in ("total", "by_hand", "ones", "worst"):
                    shown = re.search(rf" {name} (\S+)", self.said).group(1)  # a JSON line has null for all three
                    self.assertEqual(float(shown).hex(), abs(float(value)).hex() if name == "worst" else float(value).hex(), (name, place, self.said))
                self.assertEqual(float(line["accuracy"]), float(line["accuracy"]))

    def test_lines_and_rules_see_the_split(self):
        """What training logs, what it keeps as the best, and what plateau follows."""
        self.weights()
        w = {k: v.astype("f8") for k, v in self.weights().items()}
        data = self.data(202)
        rule = "min(valid.ppl)"
        text = MODEL % 64
        text = text.replace("optimizer = sgd(lr=0.1)", f'steps = 3; optimizer = sgd(lr=0.3); schedule = plateau(patience=0, gamma=0.5, metric={rule}); eval every 1 step; checkpoint {{ dir = "{self.path("runs")}"; every = 1 step; best = {rule}; keep = 9 }}')
        artifact = self.compile(text, name=self.artifact)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("w.safetensors"), "--log-jsonl", self.path("log"), "--device", self.device, "--no-shuffle", "--allow-paths")
        lines = [line for line in support.read_jsonl(self.path("log")) if line.get("eval")]
        self.assertEqual(len(lines), 3)
        best = min(range(3), key=lambda i: lines[i]["ppl"])
        for i, line in enumerate(lines):
            name = next(f for f in os.listdir(self.path("runs")) if f.endswith(".safetensors") and f"{i + 1}." in f and "best" not in f)
            saved = {k: v.astype("f8") for k, v in support.read_safetensors(self.path("runs", name)).items() if k in w}
            self.compare(line, oracle(saved, *(v.astype("f8") if v.dtype.kind == "f" else v for v in data.values())), f"step {i + 1}")
        kept = support.read_safetensors(next(self.path("runs", f) for f in os.listdir(self.path("runs")) if "best" in f))
        for name in w:
            numpy.testing.assert_array_equal(kept[name], {k: v for k, v in support.read_safetensors(self.path("runs", next(f for f in os.listdir(self.path("runs")) if f"{best + 1}." in f and "best" not in f))).items()}[name])

    def test_predict_does_not_see_other_rows(self):
        artifact = self.model(64)
        w = {k: v.astype("f8") for k, v in self.weights().items()}
        data = self.data(70)
        support.run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), "--input", "x=" + self.path("x.npy"), "--output", self.path("p.npy"), "--device", self.device)
        h = numpy.tanh(data["x"] @ w["h.weight"].T + w["h.bias"])
        numpy.testing.assert_allclose(numpy.load(self.path("p.npy")), (h @ w["p.weight"].T + w["p.bias"])[:, 0], rtol=2e-5, atol=2e-5)

    def test_pairs_are_means_of_whole_batches(self):
        source = """
model M(x: f32[B, 4]) {
  param w: [4] = ones
  s = (x * w) @ transpose(x)
  loss = mean(cross_entropy(s, iota([B])))
}
data D { train = npy("x.npy"); valid = npy("x.npy") }
train { batch = 8; optimizer = sgd(lr=0.1) }
"""
        with open(self.path("pairs.ft"), "w") as file:
            file.write(source)
        done = support.run("ftc", self.path("pairs.ft"), "-o", self.path("pairs.so"))
        self.assertIn("this relates the samples of a batch to each other", done.stderr)
        x = numpy.random.default_rng(1).standard_normal((21, 4)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        support.write_safetensors(self.path("w.safetensors"), {"w": numpy.ones(4, "f4")})
        got = self.evaluate(self.path("pairs.so") if self.device == "cpu" else self.compile(source, name=self.artifact))
        each = [-numpy.log(softmax(b @ b.T).diagonal()).mean() for b in (x[:8].astype("f8"), x[8:16].astype("f8"))]
        self.assertAlmostEqual(got["loss"], numpy.mean(each), places=4)


class EvaluationOnSim(Evaluation):
    """The same, of the PTX in the simulator."""

    artifact, device = "model.ptx", "sim"
    SIZES = {64: [1, 65, 202]}


if __name__ == "__main__":
    support.main()
