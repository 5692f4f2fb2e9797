"""What is frozen (`freeze = "backbone.*"`) has no gradient and no activation, and stays as it is to the bit: in --save, in
checkpoints, in averages, under every optimizer and way of training; the rest trains as PyTorch does with requires_grad=False."""
import glob
import os
import re
import shutil
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
block Body()(x: [B, D]) {
  x = gelu(Linear(24, name="fc1")(x))
  return LayerNorm(name="ln")(gelu(Linear(16, name="fc2")(x)))
}
model M(x: f32[B, 8], y: i32[B]) {
  h = Body(name="backbone")(x)
  h = gelu(Linear(16, name="neck")(h))
  loss = mean(cross_entropy(Linear(4, name="head")(h), y))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train {
  batch = 8; epochs = 1; seed = 5; eval = none
  optimizer = %s
  freeze = %s
  %s
}
"""
FREEZE = '("backbone.*", "neck.bias") and not "*.ln.bias"'
is_frozen = lambda name: (name.startswith("backbone.") or name == "neck.bias") and not name.endswith(".ln.bias")
random = numpy.random.RandomState(3)
# optimizer, more of the recipe, flags of ftrun
WAYS = {
    "adamw": ("adamw(lr=0.02, weight_decay=0.1)", "clip = norm(0.1); ema = 0.9", []),
    "sgd": ("sgd(lr=0.1, momentum=0.9, weight_decay=0.1)", "accumulate = 2", []),
    "lion": ("lion(lr=0.01, weight_decay=0.1)", "clip = value(0.1)", []),
    "muon": ("muon(lr=0.02)", "ema = 0.99", []),
    "bf16": ("adamw(lr=0.02)", "precision = bf16; ema = 0.9", []),
    "bf16 parameters": ("adamw(lr=0.02, weight_decay=0.1)", "precision = bf16(parameters=bf16)", []),
    "fp16": ("adamw(lr=0.02)", "precision = fp16", []),
    "recompute": ("rmsprop(lr=0.01, momentum=0.5)", "recompute = block", []),
    "data": ("adamw(lr=0.02)", "ema = 0.9", ["--ranks", "2"]),
    "zero 3": ("adamw(lr=0.02, weight_decay=0.1)", "", ["--ranks", "2"]),
    "tensor": ("adamw(lr=0.02, weight_decay=0.1)", "clip = norm(0.1)", ["--ranks", "2"]),
    "pipeline": ("adamw(lr=0.02, weight_decay=0.1)", "accumulate = 2", ["--ranks", "2"]),
}
STATIC = {"data": ["data=2"], "zero 3": ["data=2", "zero=3"], "tensor": ["tensor=2"], "pipeline": ["pipeline=2"]}


class Freezing(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), random.randn(64, 8).astype("f4"))
        numpy.save(self.path("y.npy"), random.randint(0, 4, 64).astype("i4"))

    def train(self, artifact, *flags):
        support.run("ftrun", artifact, "--data", self.folder, *flags)

    def test_every_way(self):
        for name, (optimizer, more, flags) in WAYS.items():
            with self.subTest(name):
                static = [word for setting in STATIC.get(name, []) for word in ("--set", "distributed." + setting)]
                artifact = self.compile(MODEL % (optimizer, FREEZE, more), *static)
                start, end, average = (self.path(n) for n in ("start", "end", "average"))
                self.train(artifact, "--steps", 0, "--save", start, *flags)
                folder = self.path("runs", name.replace(" ", "_"))
                checkpoints = ["--set", f"train.checkpoint.dir={folder}", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=2"]
                os.makedirs(folder)
                self.train(artifact, "--save", end, "--steps", 4, "--init", start, *checkpoints, *flags, *(["--save-ema", average] if "ema" in more else []))
                before = support.read_safetensors(start)
                files = [end, *glob.glob(os.path.join(folder, "*.safetensors"))] + ([average] if "ema" in more else [])
                self.assertGreater(len(files), 1)
                for file in files:
                    after = support.read_safetensors(file)
                    for key, value in before.items():
                        same = numpy.array_equal(after[key], value)
                        self.assertEqual(same, is_frozen(key), f"{key} in {file}")

    def loss(self, weights, step):
        x, y = torch.tensor(numpy.load(self.path("x.npy"))).double(), torch.tensor(numpy.load(self.path("y.npy"))).long()
        linear = lambda name, h: torch.nn.functional.linear(h, weights[name + ".weight"], weights[name + ".bias"])
        gelu = torch.nn.functional.gelu
        h = gelu(linear("backbone.fc2", gelu(linear("backbone.fc1", x[8 * step :][:8]))))
        h = torch.nn.functional.layer_norm(h, (16,), weights["backbone.ln.weight"], weights["backbone.ln.bias"])
        return torch.nn.functional.cross_entropy(linear("head", gelu(linear("neck", h))), y[8 * step :][:8])

    def test_as_pytorch(self):
        artifact = self.compile(MODEL % ("adamw(lr=0.02, weight_decay=0.1)", FREEZE, "clip = norm(0.1)"))
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        self.train(artifact, "--init", self.path("start"), "--save", self.path("end"))
        weights = {k: torch.tensor(v, dtype=torch.float64, requires_grad=not is_frozen(k)) for k, v in support.read_safetensors(self.path("start")).items()}
        trained = [w for w in weights.values() if w.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.02, weight_decay=0.1)
        for step in range(8):
            optimizer.zero_grad()
            self.loss(weights, step).backward()
            torch.nn.utils.clip_grad_norm_(trained, 0.1)
            optimizer.step()
        for name, value in support.read_safetensors(self.path("end")).items():
            numpy.testing.assert_allclose(value, weights[name].detach().numpy(), atol=2e-5, err_msg=name)

    def test_goes_on_with_others_frozen(self):
        """A checkpoint of a training that froze other parameters: what is frozen now loses its moments, and what was frozen
        begins with new ones, and with its average as it is. Against PyTorch, with the moments set likewise."""
        always = lambda name: False
        for before, after, said in ((always, is_frozen, "are left out"), (is_frozen, always, "begin anew")):
            files = {}
            for at, which in enumerate((before, after)):
                artifact = self.compile(MODEL % ("adamw(lr=0.02, weight_decay=0.1)", FREEZE if which is is_frozen else "none", "ema = 0.9"), name=f"{at}.so")
                if not at:
                    self.train(artifact, "--steps", 0, "--save", self.path("start"))
                folder = self.path(f"runs{at}")
                end = ["--set", f"train.checkpoint.dir={folder}", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=4"]
                go_on = ["--resume", self.path("runs0", "step-00000004.safetensors")] if at else ["--init", self.path("start")]
                shutil.rmtree(folder, ignore_errors=True)
                done = support.run("ftrun", artifact, "--data", self.folder, *go_on, "--steps", 4 * at + 4, *end, "--save", self.path("end"), "--save-ema", self.path("average"))
            self.assertIn(said, done.stdout)
            weights = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in support.read_safetensors(self.path("start")).items()}
            optimizer = torch.optim.AdamW(weights.values(), lr=0.02, weight_decay=0.1)
            average = {k: w.detach().clone() for k, w in weights.items()}
            for step in range(8):
                which = before if step < 4 else after
                optimizer.zero_grad()
                self.loss(weights, step).backward()
                for name, weight in weights.items():
                    if which(name):
                        weight.grad = None
                        average[name] = weight.detach().clone()
                    elif weight not in optimizer.state:
                        optimizer.state[weight] = {"step": torch.tensor(float(step)), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
                optimizer.step()
                average = {k: v * 0.9 + 0.1 * weights[k].detach() for k, v in average.items()}
            for file, expected in (("end", weights), ("average", average)):
                for name, value in support.read_safetensors(self.path(file)).items():
                    numpy.testing.assert_allclose(value, expected[name].detach().numpy(), atol=2e-5, err_msg=f"{name} in {file}, {said}")

    def test_all_of_a_stage(self):
        """A stage of a pipeline of which all is frozen takes part in the norm over all stages; with zero it has a part of nothing."""
        for optimizer, recipe, zeros in (("adamw(lr=0.02, weight_decay=0.1)", "clip = norm(0.1)", (0,)), ("adamw(lr=0.02, weight_decay=0.1)", "clip = norm(0.1); ema = 0.9", (1, 3)),
                                         ("muon(lr=0.02)", "ema = 0.9", (1, 2)), ("sgd(lr=0.1, momentum=0.9)", "precision = bf16", (2,))):
            ends = []
            for zero in (None, *zeros):
                data = 2 if zero else 1
                flags = [] if zero is None else [f"distributed.pipeline=2", f"distributed.data={data}", f"distributed.zero={zero}", f"train.batch={8 // data}"]
                artifact = self.compile(MODEL % (optimizer, '"backbone.*"', recipe + "; accumulate = 2"), *(word for flag in flags for word in ("--set", flag)))
                if zero is None:
                    self.train(artifact, "--steps", 0, "--save", self.path("start"))
                self.train(artifact, "--init", self.path("start"), "--save", self.path("end"), *(["--ranks", 2 * data] if flags else []))
                ends.append(support.read_safetensors(self.path("end")))
                for name, value in support.read_safetensors(self.path("start")).items():
                    frozen, same = name.startswith("backbone."), numpy.array_equal(value, ends[-1][name])
                    self.assertTrue(same if frozen else not same or "bias" in name, f"{name}, {optimizer}, zero = {zero}")
            for name, value in ends[0].items():
                for zero, end in zip(zeros, ends[1:]):
                    numpy.testing.assert_allclose(end[name], value, atol=2e-3 if "bf16" in recipe else 1e-6, err_msg=f"{name}, {optimizer}, zero = {zero}")

    def test_all_frozen(self):
        artifact = self.compile(MODEL % ("adamw(lr=0.02)", '"*"', "ema = 0.9; clip = norm(1)"))
        self.assertIn("all parameters are frozen: there is nothing to train", support.run("ftc", self.path("model.ft"), "--emit=ir", "--stop-after=autodiff").stderr)
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        self.train(artifact, "--init", self.path("start"), "--save", self.path("end"))
        start, end = support.read_safetensors(self.path("start")), support.read_safetensors(self.path("end"))
        for name in start:
            self.assertTrue(numpy.array_equal(start[name], end[name]), name)

    def test_memory(self):
        """Of the backbone nothing is kept but itself. Every tensor has room for a multiple of 64 bytes."""
        trained, backbone = 4 * (256 + 16 + 64 + 16), 4 * (192 + 32 + 384 + 16 + 16 + 16)
        kept = {}
        for freeze, has, lacks in (("none", trained + backbone, 0), ('"backbone.*"', trained, backbone), ('"*"', 0, trained + backbone)):
            self.compile(MODEL % ("adamw(lr=0.02)", freeze, "ema = 0.9"))
            said = support.run("ftc", self.path("model.ft"), "--memory").stdout
            row = lambda name: int((re.search(name + r" +(\d+)", said) or [0, 0])[1])
            rows = {"parameters": has, "parameters, frozen": lacks, "gradients": has, "optimizer state": 64 + 3 * has}
            self.assertEqual({name: row(name) for name in rows}, rows, said)
            kept[freeze] = row("activations kept for backward")
        self.assertLess(kept['"backbone.*"'], kept["none"] / 2)
        self.assertEqual(kept['"*"'], 0)

    def test_a_rate_of_zero_freezes(self):
        said = []
        for freeze, rule in (('"backbone.*"', ""), ("none", 'lr = 0x on "backbone.*"')):
            self.compile(MODEL % ("adamw(lr=0.02)", freeze, rule))
            said.append(support.run("ftc", self.path("model.ft"), "--memory").stdout)
        self.assertEqual(*said)

    def test_refused(self):
        for freeze, what in (('"bakbone.*"', "no parameter is meant by `freeze = \"bakbone.*\"`"), ("3", "3 does not say which parameters"), ("size", "does not say which parameters")):
            with open(self.path("bad.ft"), "w") as file:
                file.write(MODEL % ("sgd(lr=0.1)", freeze, ""))
            self.fails(1, what, "ftc", self.path("bad.ft"), "--emit=ir")

    def test_whatever_other_rules_say(self):
        artifact = self.compile(MODEL % ("sgd(lr=0.1)", '"head.*"', 'lr = 2x on "head.*"; lr = 0.5 on "neck.*"'))
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        self.train(artifact, "--init", self.path("start"), "--save", self.path("end"))
        start, end = support.read_safetensors(self.path("start")), support.read_safetensors(self.path("end"))
        for name in start:
            self.assertEqual(numpy.array_equal(start[name], end[name]), name.startswith("head."), name)


if __name__ == "__main__":
    support.main()
