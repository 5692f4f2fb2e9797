"""ftrun --find-lr against the same procedure in torch: the rates, each step's loss, its smoothed value, where the test ends and
what it suggests, for several optimisers and schedules; nothing is left behind; its plots; what it refuses."""
import os
import re
import sys
import xml.etree.ElementTree

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 6], y: f32[B, 2]) {
  loss = mean((Linear(2, name="b")(tanh(Linear(16, name="a")(x))) - y) ** 2)
}
data D { train = npy("x.npy", "y.npy") }
train { batch = 16; epochs = 3; seed = 5; accumulate = PARTS
  optimizer = OPTIMIZER; schedule = SCHEDULE
  checkpoint { dir = "runs"; every = 1 steps }
}
"""


class FindLr(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        self.x = random.standard_normal((160, 6)).astype("f4")
        self.y = (self.x @ random.standard_normal((6, 2)) + 3).astype("f4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)

    def build(self, optimizer="adam(lr=0.5)", schedule="constant", parts=1):
        return self.compile(MODEL.replace("OPTIMIZER", optimizer).replace("SCHEDULE", schedule).replace("PARTS", str(parts)))

    def find(self, artifact, *flags):
        done = support.run("ftrun", artifact, "--find-lr", "--no-shuffle", "--init", "w", "--log-jsonl", "log", *flags, cwd=self.folder)
        return done.stdout, support.read_jsonl(self.path("log"))

    def by_torch(self, make, low, high, steps, batch):
        """As Lightning's lr_find: an exponential range, the mean with bias correction, the end at four times the lowest, the steepest fall, but only up
        to the lowest point: behind it weights are ruined, and the loss falls back from a peak."""
        weights = support.read_safetensors(self.path("w"))
        a, b = torch.nn.Linear(6, 16), torch.nn.Linear(16, 2)
        for layer, name in ((a, "a"), (b, "b")):
            layer.weight.data = torch.tensor(weights[name + ".weight"])
            layer.bias.data = torch.tensor(weights[name + ".bias"])
        optimizer = make([*a.parameters(), *b.parameters()])
        x, y = torch.tensor(self.x), torch.tensor(self.y)
        rows, mean, best = [], 0, None
        for i, lr in enumerate(numpy.geomspace(low, high, steps)):
            for group in optimizer.param_groups:
                group["lr"] = float(lr)
            at = i * batch % (len(x) // batch * batch)
            loss = torch.mean((b(torch.tanh(a(x[at:at + batch]))) - y[at:at + batch]) ** 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not torch.isfinite(loss):
                break
            mean = 0.98 * mean + 0.02 * loss.item()
            rows.append((float(lr), loss.item(), mean / (1 - 0.98 ** (i + 1))))
            if best is not None and rows[-1][2] > 4 * best:
                break
            best = min(best, rows[-1][2]) if best is not None else rows[-1][2]
        lowest = int(numpy.argmin([row[2] for row in rows]))
        falls = numpy.gradient([row[2] for row in rows][10:min(len(rows) - 1, lowest + 1)])
        return rows, rows[10 + int(numpy.argmin(falls))][0] if falls.min() < 0 else None

    def test_as_torch_does(self):
        cases = (("sgd(lr=0.5)", lambda p: torch.optim.SGD(p, lr=1.0), "constant", 1, (1e-6, 100, 120)),
                 ("sgd(lr=0.5, momentum=0.9)", lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9), "cosine(warmup=20, final=0.2)", 1, (1e-5, 1, 60)),
                 ("adam(lr=0.5)", lambda p: torch.optim.Adam(p), "onecycle", 2, (1e-7, 10, 100)),
                 ("adamw(lr=0.5, weight_decay=0.1)", lambda p: torch.optim.AdamW(p, weight_decay=0.1), "wsd(warmup=5)", 1, (1e-4, 3, 80)),
                 ("sgd(lr=0.5)", lambda p: torch.optim.SGD(p, lr=1.0), "step(every=7)", 1, (1e-3, 0.2, 40)),
                 ("sgd(lr=0.5)", lambda p: torch.optim.SGD(p, lr=1.0), "exponential(every=9, warmup=4)", 1, (1e-3, 0.2, 40)),
                 ("sgd(lr=0.5)", lambda p: torch.optim.SGD(p, lr=1.0), "linear(warmup=4)", 1, (1e-3, 0.2, 40)))
        ends = set()
        for optimizer, make, schedule, parts, (low, high, steps) in cases:
            with self.subTest(optimizer=optimizer, schedule=schedule):
                artifact = self.build(optimizer, schedule, parts)
                support.run("ftrun", artifact, "--steps", "0", "--save", "w", "--set", "train.checkpoint.dir=", cwd=self.folder)
                said, have = self.find(artifact, "--lr-range", f"{low}:{high}", "--steps", str(steps))
                want, suggested = self.by_torch(make, low, high, steps, 16 * parts)
                rows = [row for row in have if "loss" in row]
                ends.add(len(want) == steps)
                self.assertEqual(len(rows), len(want), said[-1500:])
                for row, (lr, loss, smoothed) in zip(rows, want):
                    self.assertAlmostEqual(row["lr"] / lr, 1, 12)
                    for value, wanted in ((row["loss"], loss), (row["smoothed"], smoothed)):
                        self.assertLess(abs(value - wanted), 3e-4 * max(1, abs(wanted)), (row, loss, smoothed))
                self.assertAlmostEqual(have[-1]["suggested_lr"] / suggested, 1, 12)
                self.assertIn(f"suggestion: --set train.lr={suggested:.3g}, where", said)
                self.assertEqual("the test ended where the training diverges" in said, len(want) < steps or len(rows) < steps)
        self.assertEqual(ends, {True, False})

    def test_leaves_nothing(self):
        artifact = self.build()
        support.run("ftrun", artifact, "--steps", "0", "--save", "w", "--set", "train.checkpoint.dir=", cwd=self.folder)
        before = open(self.path("w"), "rb").read()
        self.find(artifact, "--plot", "plot.svg")
        self.assertEqual(sorted(os.listdir(self.folder)), ["log", "model.ft", "model.so", "plot.svg", "w", "x.npy", "y.npy"])
        self.assertEqual(open(self.path("w"), "rb").read(), before)
        said = support.run("ftrun", self.path("model.ft"), "--find-lr", "--set", "train.batch=8", cwd=self.folder).stdout
        self.assertIn("suggestion: --set train.lr=", said)

    def test_plots(self):
        artifact = self.build()
        support.run("ftrun", artifact, "--steps", "0", "--save", "w", "--set", "train.checkpoint.dir=", cwd=self.folder)
        said, rows = self.find(artifact, "--plot", "plot.svg", "--lr-range", "1e-6:1")
        space = "{http://www.w3.org/2000/svg}"
        root = xml.etree.ElementTree.parse(self.path("plot.svg")).getroot()
        lines = root.findall(space + "polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [len(rows) - 1] * 2)
        for line in lines:
            for point in line.get("points").split():
                x, y = map(float, point.split(","))
                self.assertTrue(69 <= x <= 631 and 39 <= y <= 361, point)
        texts = [text.text for text in root.findall(space + "text")]
        self.assertTrue({"1e-6", "1e-3", "1e0"} <= set(texts), texts)
        self.assertIn(f"suggested: {rows[-1]['suggested_lr']:.3g}", texts)
        smoothed = [row["smoothed"] for row in rows if "loss" in row]
        shown = re.findall(r"^ *(\S*) \|(.*)$", said, re.M)
        self.assertEqual(len(shown), 16)
        low = min(smoothed)
        top = max(smoothed[:smoothed.index(low)])  # where it diverges, it may leave the picture
        self.assertAlmostEqual(float(shown[0][0]), top + (top - low) / 4, 2)
        self.assertAlmostEqual(float(shown[-1][0]), low, 2)
        self.assertTrue(all(len(line) == 64 for _, line in shown))

    def test_what_is_refused(self):
        artifact = self.build()
        for flags, code, needle in ((["--find-lr", "--lr-range", "1"], 1, "--lr-range 1: expected two rates such as 1e-7:10"),
                                    (["--find-lr", "--lr-range", "0:1"], 1, "expected two rates"), (["--find-lr", "--lr-range", "1:nan"], 1, "expected two rates"),
                                    (["--find-lr", "--lr-range", "2:1"], 1, "expected two rates"), (["--find-lr", "--steps", "1"], 1, "from 2 to"),
                                    (["--find-lr", "--save", "w"], 1, "leaves nothing behind"), (["--plot", "p.svg"], 2, "--plot goes with --find-lr"),
                                    (["--lr-range", "1:2"], 2, "--lr-range goes with --find-lr"), (["--find-lr", "--ranks", "2"], 2, "runs as one process"),
                                    (["--find-lr", "--plot", "no/p.svg"], 3, "--plot: cannot write no/p.svg")):
            self.fails(code, needle, "ftrun", artifact, *flags, cwd=self.folder)
        numpy.save(self.path("x.npy"), numpy.full((160, 6), numpy.nan, "f4"))
        self.fails(1, "the loss of the first step is not finite, at train.lr=1e-07", "ftrun", artifact, "--find-lr", cwd=self.folder)
        numpy.save(self.path("x.npy"), self.x[:9])
        numpy.save(self.path("y.npy"), self.y[:9])
        self.fails(1, "9 samples do not fill one batch of 16", "ftrun", artifact, "--find-lr", cwd=self.folder)


if __name__ == "__main__":
    support.main()
