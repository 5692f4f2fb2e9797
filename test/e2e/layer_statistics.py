"""Statistics by layer (train.log.layers): of weights, gradients, updates and of what layers give, against PyTorch in float64 in every way of
training; and the training is the same to the bit with and without them."""
import glob
import json
import math
import os
import shutil
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

HAS_MPI = bool(shutil.which("mpirun")) and bool(glob.glob(os.path.join(support.BUILD, "**", "libft-mpi.so"), recursive=True))
MODEL = """
block Body()(x: [B, D]) {
  x = relu(Linear(25, name="fc1")(x))
  return LayerNorm(name="ln")(x + Linear(D, name="fc2")(x))
}
model M(x: f32[B, 25], y: i32[B]) {
  h = Body(name="body")(x)
  h = relu(Linear(16, name="neck")(h))
  loss = mean(cross_entropy(Linear(5, name="head")(h), y, ignore=0))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train {
  epochs = 1; seed = 5; eval = none; log { layers = 2 steps; grad_norm }
  optimizer = %s
  %s
}
"""
SGD = "sgd(lr=0.1, momentum=0.9)"
# optimizer, more of the recipe, static settings, flags of ftrun, tolerance against f32
WAYS = {
    "plain": (SGD, "batch = 8", [], [], 1e-4),
    "frozen": (SGD, 'batch = 8; freeze = "body.fc1.*"', [], [], 1e-4),
    "clip, average, recompute": (SGD, "batch = 8; clip = norm(0.05); ema = 0.9; recompute = block", [], [], 1e-4),
    "unfused": (SGD, "batch = 8", ["--disable=fuse"], [], 1e-4),
    "accumulate": (SGD, "batch = 2; accumulate = 4", [], [], 1e-4),
    "bf16": (SGD, "batch = 8; precision = bf16", [], [], 0.1),
    "fp16": (SGD, "batch = 4; accumulate = 2; precision = fp16", [], [], 0.1),
    "bf16 parameters": (SGD, "batch = 8; precision = bf16(parameters=bf16)", [], [], 0.1),
    "muon": ("muon(lr=0.02)", "batch = 8", [], [], 1e-4),
    "data": (SGD, "batch = 4", ["data=2"], ["--ranks", 2], 1e-4),
    "data, bf16, accumulate": (SGD, "batch = 2; accumulate = 2; precision = bf16", ["data=2"], ["--ranks", 2], 0.1),
    "zero 1, accumulate": (SGD, "batch = 2; accumulate = 2", ["data=2", "zero=1"], ["--ranks", 2], 1e-4),
    "zero 3": (SGD, "batch = 4", ["data=2", "zero=3"], ["--ranks", 2], 1e-4),
    "tensor": (SGD, "batch = 8", ["tensor=2"], ["--ranks", 2], 1e-4),
    "tensor, zero": (SGD, "batch = 4", ["tensor=2", "data=2", "zero=2"], ["--ranks", 4], 1e-4),
    "pipeline": (SGD, "batch = 4; accumulate = 2", ["pipeline=2"], ["--ranks", 2], 1e-4),
}
CNN = """
model C(image: f32[B, 3, 8, 8], label: i32[B]) {
  x = relu(BatchNorm(name="b1")(Conv2d(8, 3, padding=1, name="c1")(image)))
  x = relu(Conv2d(16, 3, name="c2")(x))
  loss = mean(cross_entropy(Linear(5, name="head")(flatten(x, from=1)), label))
}
data D { train = npy("i.npy", "y.npy"); shuffle = false }
train { batch = 8; seed = 5; optimizer = sgd(lr=0.1) }
"""
TRANSFORMER = """
block Layer()(x: [B, T, D]) {
  h = LayerNorm(name="ln1")(x)
  q = rearrange(Linear(D, name="q")(h), "b t (h d) -> b h t d", h=2)
  k = rearrange(Linear(D, name="k")(h), "b t (h d) -> b h t d", h=2)
  v = rearrange(Linear(D, name="v")(h), "b t (h d) -> b h t d", h=2)
  x = x + Linear(D, name="proj")(rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)"))
  return x + Linear(D, name="down")(relu(Linear(4 * D, name="up")(LayerNorm(name="ln2")(x))))
}
model G(tokens: i32[B, 6], next: i32[B, 6]) {
  x = Embedding(12, 8, name="wte")(tokens)
  repeat i in 0..2 as h { x = Layer()(x) }
  loss = mean(cross_entropy(Linear(12, name="head")(x), next))
}
data D { train = npy("t.npy", "t.npy"); shuffle = false }
train { batch = 8; seed = 5; optimizer = adamw(lr=0.01) }
"""


def sums(x):
    x = x.detach().double().flatten()
    return {"mean": x.mean(), "std": x.std(unbiased=False), "rms": (x * x).mean().sqrt(), "max": x.abs().max(), "zeros": (x == 0).double().mean(),
            "nonfinite": 0}


class LayerStatistics(support.Case):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(3)
        self.x, self.y = self.random.standard_normal((64, 25)).astype("f4"), self.random.integers(0, 5, 64).astype("i4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)

    def torch_steps(self, start, way):
        """What PyTorch has in steps 2 and 4, up to the optimizer's update, which is checked by what was saved."""
        weights = {k: torch.tensor(v).double().requires_grad_("frozen" not in way or not k.startswith("body.fc1")) for k, v in start.items()}
        optimizer = torch.optim.SGD([w for w in weights.values() if w.requires_grad], lr=0.1, momentum=0.9)
        linear = lambda name, h: F.linear(h, weights[name + ".weight"], weights[name + ".bias"])
        found = {}
        for step in range(1, 5):
            x, y = torch.tensor(self.x[8 * step - 8 : 8 * step]).double(), torch.tensor(self.y[8 * step - 8 : 8 * step]).long()
            v = {"body.fc1 dot": F.linear(x, weights["body.fc1.weight"]), "body.fc1 relu": F.relu(linear("body.fc1", x))}
            v["body.fc2 output"] = linear("body.fc2", v["body.fc1 relu"])
            v["body.fc2 dot"] = v["body.fc2 output"] - weights["body.fc2.bias"]
            v["body.fc2 add"] = v["body.fc1 relu"] + v["body.fc2 output"]
            v["body.ln output"] = F.layer_norm(v["body.fc2 add"], (25,), weights["body.ln.weight"], weights["body.ln.bias"])
            v["neck dot"] = F.linear(v["body.ln output"], weights["neck.weight"])
            v["neck relu"] = F.relu(linear("neck", v["body.ln output"]))
            v["head output"] = linear("head", v["neck relu"])
            v["head dot"] = v["head output"] - weights["head.bias"]
            optimizer.zero_grad()
            F.cross_entropy(v["head output"], y, ignore_index=0).backward()
            found[step] = {k: w.grad if w.grad is None else w.grad.clone() for k, w in weights.items()}, {k: sums(x) for k, x in v.items()}, {k: w.detach().clone() for k, w in weights.items()}
            if "clip" in way:
                torch.nn.utils.clip_grad_norm_(list(weights.values()), 0.05)
            optimizer.step()
            if "muon" in way:
                break  # of another rule only the first step is told here
        return found

    def run_way(self, name):
        optimizer, more, static, flags, tolerance = WAYS[name]
        words = [w for s in static for w in ([s] if s.startswith("-") else ["--set", "distributed." + s])]
        artifact = self.compile(MODEL % (optimizer, more), *words)
        train = lambda *more: support.run("ftrun", artifact, "--data", self.folder, *map(str, [*flags, *more]))
        folder = self.path("runs", name.replace(" ", "_"))
        os.makedirs(folder)
        checkpoints = [w for s in (f"dir={folder}", "unit=step", "every=1", "keep=4") for w in ("--set", "train.checkpoint." + s)]
        train("--steps", 0, "--save", self.path("start"))
        train("--steps", 4, "--save", self.path("with"), "--log-jsonl", self.path("l"), "--set", "train.log.every=1", *checkpoints)
        artifact = self.compile(self.path("model.ft"), *words, "--set", "train.log.layers=0")
        train("--steps", 4, "--save", self.path("without"))
        saved = {0: support.read_safetensors(self.path("start"))}
        for step in (1, 2):
            saved[step] = support.read_safetensors(glob.glob(os.path.join(folder, f"*{step}.safetensors"))[0])
        with open(self.path("with"), "rb") as a, open(self.path("without"), "rb") as b:
            self.assertEqual(a.read(), b.read(), "statistics change the training")
        return saved, [json.loads(line) for line in open(self.path("l"))], tolerance

    def near(self, a, b, tolerance, what):
        self.assertLessEqual(abs(float(a) - float(b)), tolerance * max(abs(float(b)), 1e-3), what)

    def check_step(self, line, found, saved, way, tolerance):
        gradients, values, weights = found
        self.assertEqual(set(line["parameters"]), set(gradients))
        total = 0
        for name, told in line["parameters"].items():
            self.assertEqual(told["elements"], gradients[name].numel() if gradients[name] is not None else weights[name].numel())
            self.near(told["weight_norm"], weights[name].norm(), tolerance, name)
            self.near(told["weight_max"], weights[name].abs().max(), tolerance, name)
            if gradients[name] is None:
                self.assertFalse([key for key in told if key.startswith("grad")], name)
                self.assertEqual(told["update_norm"], 0)
                continue
            g = gradients[name]
            self.near(told["grad_norm"], g.norm(), tolerance, name)
            self.near(told["grad_rms"], (g * g).mean().sqrt(), tolerance, name)
            self.near(told["grad_max"], g.abs().max(), 3 * tolerance, name)
            self.near(told["grad_zeros"], (g == 0).double().mean(), 0.01 if tolerance < 0.01 else 0.5, name)
            self.assertEqual(told["grad_nonfinite"], 0)
            total += told["grad_norm"] ** 2
            if saved:
                change = saved[1][name].astype("f8") - saved[0][name].astype("f8")
                self.near(told["update_norm"], numpy.linalg.norm(change), 1e-4, name)
                self.near(told["update_ratio"], numpy.linalg.norm(change) / numpy.linalg.norm(saved[0][name].astype("f8")), 1e-4, name)
        self.near(line["total"]["grad_norm"], math.sqrt(total), 1e-5, way)
        body = [p for name, p in line["parameters"].items() if name.startswith("body.")]
        self.near(line["layers"]["body"]["weight_norm"], math.sqrt(sum(p["weight_norm"] ** 2 for p in body)), 1e-5, way)
        self.assertEqual(line["layers"]["body"]["elements"], sum(p["elements"] for p in body))
        known = 0
        for told in line["activations"]:
            what = told["layer"] + " " + told["value"]
            if what not in values:
                self.assertIn("unfused", way, what)
                continue
            known += 1
            for figure, value in values[what].items():
                scale = 1 if figure == "zeros" else max(values[what]["rms"], 1e-3)
                self.assertLessEqual(abs(told[figure] - value), tolerance * 2 * scale, f"{what} {figure}")
        self.assertGreaterEqual(known, 2 if "tensor" in way else 4, way)

    def test_every_way(self):
        for name in support.of_this_turn(WAYS, 3):
            if "--ranks" in WAYS[name][3] and not HAS_MPI:
                continue
            with self.subTest(name):
                saved, lines, tolerance = self.run_way(name)
                told = {line["step"]: line for line in lines if "parameters" in line and "ft" not in line}
                steps = {line["step"]: line for line in lines if "loss" in line}
                self.assertEqual(sorted(told), [2, 4])
                for step, line in told.items():
                    self.near(line["total"]["grad_norm"], steps[step]["grad_norm"], 1e-4, "grad_norm of the step itself")
                found = self.torch_steps(saved[0], name)
                for step in (2, 4) if "muon" not in name else ():
                    self.check_step(told[step], found[step], [saved[1], saved[2]] if step == 2 else None, name, tolerance)


    def first_step(self, source):
        """(weights that it begins with, what is told of step 1)."""
        artifact = self.compile(source)
        run = lambda *flags: support.run("ftrun", artifact, "--data", self.folder, *flags)
        run("--steps", "0", "--save", self.path("w"))
        said = run("--steps", "1", "--layers", "1", "--log-jsonl", self.path("l")).stdout
        line = next(line for line in map(json.loads, open(self.path("l"))) if "activations" in line)
        self.assertIn("layers at step 1", said)
        for name in line["parameters"]:
            self.assertRegex(said, "\\n" + name.replace(".", r"\.") + " ")
        return {k: torch.tensor(v).double().requires_grad_() for k, v in support.read_safetensors(self.path("w")).items()}, line

    def agree(self, line, weights, loss, values):
        loss.backward()
        for name, told in line["parameters"].items():
            self.near(told["grad_norm"], weights[name].grad.norm(), 1e-4, name)
            self.near(told["grad_max"], weights[name].grad.abs().max(), 1e-4, name)
        told = {f"{v['layer']} {v['value']}".strip(): v for v in line["activations"]}
        for name, value in values.items():
            for figure, number in sums(value).items():
                self.assertLessEqual(abs(told[name][figure] - number), 1e-4 * max(1, abs(number)), f"{name} {figure}")

    def test_convolutions(self):
        numpy.save(self.path("i.npy"), self.random.standard_normal((64, 3, 8, 8)).astype("f4"))
        w, line = self.first_step(CNN)
        x, y = torch.tensor(numpy.load(self.path("i.npy"))[:8]).double(), torch.tensor(self.y[:8]).long()
        c1 = F.conv2d(x, w["c1.weight"], w["c1.bias"], padding=1)
        b1 = F.relu(F.batch_norm(c1, None, None, w["b1.weight"], w["b1.bias"], training=True))
        c2 = F.relu(F.conv2d(b1, w["c2.weight"], w["c2.bias"]))
        logits = F.linear(c2.flatten(1), w["head.weight"], w["head.bias"])
        # what batch_norm begins with is no parameter: its bias has a gradient of 0, so c1.bias is left out
        line["parameters"].pop("c1.bias")
        self.agree(line, w, F.cross_entropy(logits, y), {"c1 output": c1, "c2 relu": c2, "head output": logits})

    def test_transformer(self):
        tokens = self.random.integers(0, 12, (64, 6)).astype("i4")
        numpy.save(self.path("t.npy"), tokens)
        w, line = self.first_step(TRANSFORMER)
        t = torch.tensor(tokens[:8]).long()
        linear = lambda name, h: F.linear(h, w[name + ".weight"], w[name + ".bias"])
        norm = lambda name, h: F.layer_norm(h, h.shape[-1:], w[name + ".weight"], w[name + ".bias"])
        x, values = F.embedding(t, w["wte.weight"]), {}
        for i in range(2):
            h = f"h.{i}."
            n = norm(h + "ln1", x)
            q, k, v = (linear(h + name, n).reshape(8, 6, 2, 4).transpose(1, 2) for name in "qkv")
            scores = (q @ k.transpose(2, 3) / 2).masked_fill(torch.ones(6, 6).triu(1).bool(), -float("inf"))
            a = (scores.softmax(-1) @ v).transpose(1, 2)
            values[f"h.{i} attention"] = a
            x = x + linear(h + "proj", a.reshape(8, 6, 8))
            up = F.relu(linear(h + "up", norm(h + "ln2", x)))
            values[h + "up relu"] = up
            x = x + linear(h + "down", up)
        values["head output"] = linear("head", x)
        self.agree(line, w, F.cross_entropy(values["head output"].transpose(1, 2), t), values)

    def test_resumed_and_refused(self):
        artifact = self.compile(MODEL % (SGD, "batch = 4; accumulate = 2; checkpoint { every = 3 steps }"))
        run = lambda *flags, **how: support.run("ftrun", artifact, "--data", self.folder, *flags, **how)
        logged = lambda name: [line.split(', "time"')[0] for line in open(self.path(name)) if '"activations"' in line]
        run("--steps", "6", "--log-jsonl", self.path("whole"))
        folder = ["--set", "train.checkpoint.dir=" + self.path("c")]
        run("--steps", "3", "--log-jsonl", self.path("cut"), "--save", self.path("w"), *folder)
        run("--steps", "6", "--resume", self.path("c"), "--log-jsonl", self.path("cut"), *folder)
        self.assertEqual(logged("cut"), logged("whole"))
        self.assertEqual(len(logged("whole")), 3)
        said = run("--check=nan", "--layers", "2").stdout
        self.assertIn("no statistics of layers in a run with --check=nan", said)
        artifact = self.compile(MODEL % (SGD, "batch = 4; accumulate = 2"), "--set", "train.log.layers=0")
        self.fails(1, "with accumulate or several ranks the step must tell", "ftrun", artifact, "--data", self.folder, "--layers", "2")
        self.fails(2, "--layers x: expected a whole number", "ftrun", artifact, "--layers", "x")
        self.fails(1, "train.log.layers", "ftc", self.path("model.ft"), "--emit=ir", "--set", "train.log.layers=-1")


if __name__ == "__main__":
    support.main()
