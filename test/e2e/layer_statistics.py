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
  loss = mean(cross_entropy(Linear(5, name="head")(h), y))
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
    "plain": (SGD, "batch = 8", [], [], 2e-5),
    "frozen": (SGD, 'batch = 8; freeze = "body.fc1.*"', [], [], 2e-5),
    "clip, average, recompute": (SGD, "batch = 8; clip = norm(0.05); ema = 0.9; recompute = block", [], [], 2e-5),
    "unfused": (SGD, "batch = 8", ["--disable=fuse"], [], 2e-5),
    "accumulate": (SGD, "batch = 2; accumulate = 4", [], [], 2e-5),
    "bf16": (SGD, "batch = 8; precision = bf16", [], [], 0.05),
    "fp16": (SGD, "batch = 4; accumulate = 2; precision = fp16", [], [], 0.05),
    "bf16 parameters": (SGD, "batch = 8; precision = bf16(parameters=bf16)", [], [], 0.05),
    "muon": ("muon(lr=0.02)", "batch = 8", [], [], 2e-5),
    "data": (SGD, "batch = 4", ["data=2"], ["--ranks", 2], 2e-5),
    "data, bf16, accumulate": (SGD, "batch = 2; accumulate = 2; precision = bf16", ["data=2"], ["--ranks", 2], 0.05),
    "zero 1, accumulate": (SGD, "batch = 2; accumulate = 2", ["data=2", "zero=1"], ["--ranks", 2], 2e-5),
    "zero 3": (SGD, "batch = 4", ["data=2", "zero=3"], ["--ranks", 2], 2e-5),
    "tensor": (SGD, "batch = 8", ["tensor=2"], ["--ranks", 2], 2e-5),
    "tensor, zero": (SGD, "batch = 4", ["tensor=2", "data=2", "zero=2"], ["--ranks", 4], 2e-5),
    "pipeline": (SGD, "batch = 4; accumulate = 2", ["pipeline=2"], ["--ranks", 2], 2e-5),
}
random = numpy.random.default_rng(3)


def sums(x):
    x = x.detach().double().flatten()
    return {"mean": x.mean(), "std": x.std(unbiased=False), "rms": (x * x).mean().sqrt(), "max": x.abs().max(), "zeros": (x == 0).double().mean(),
            "nonfinite": 0}


class LayerStatistics(support.Case):
    def setUp(self):
        super().setUp()
        self.x, self.y = random.standard_normal((64, 25)).astype("f4"), random.integers(0, 5, 64).astype("i4")
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
            F.cross_entropy(v["head output"], y).backward()
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
        train("--steps", 4, "--save", self.path("without"), "--set", "train.log.layers=0")
        saved = {0: support.read_safetensors(self.path("start"))}
        for step in (1, 2):
            saved[step] = support.read_safetensors(glob.glob(os.path.join(folder, f"*{step}.safetensors"))[0])
        with open(self.path("with"), "rb") as a, open(self.path("without"), "rb") as b:
            self.assertEqual(a.read(), b.read(), "statistics change the training")
        return artifact, saved, [json.loads(line) for line in open(self.path("l"))], tolerance

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
        for name in WAYS:
            if "--ranks" in WAYS[name][3] and not HAS_MPI:
                continue
            with self.subTest(name):
                _, saved, lines, tolerance = self.run_way(name)
                told = {line["step"]: line for line in lines if "parameters" in line and "ft" not in line}
                steps = {line["step"]: line for line in lines if "loss" in line}
                self.assertEqual(sorted(told), [2, 4])
                for step, line in told.items():
                    self.near(line["total"]["grad_norm"], steps[step]["grad_norm"], 1e-4, "grad_norm of the step itself")
                found = self.torch_steps(saved[0], name)
                for step in (2, 4) if "muon" not in name else ():
                    self.check_step(told[step], found[step], [saved[1], saved[2]] if step == 2 else None, name, tolerance)


if __name__ == "__main__":
    support.main()
