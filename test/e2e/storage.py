"""Parameters lie in memory in an order of the compiler's choice, and in files in PyTorch's. A small CNN whose kernels
want all its matrices and images turned: it trains as PyTorch does, and its files are those of an artifact that keeps
files' order (--disable=storage), on the CPU and in the simulator; a checkpoint of one goes on under another."""
import os
import re
import subprocess
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import embed
import support
from muon import Muon

MODEL = """
model Cnn(image: f32[B, 4, 6, 6], label: i32[B]) {
  x = relu(Conv2d(8, 3, padding=1, name="conv1")(image))
  x = max_pool2d(relu(Conv2d(12, 3, padding=1, groups=2, name="conv2")(x)), 2)
  x = relu(Linear(20, name="fc1")(flatten(x, from=1)))
  logits = Linear(5, name="fc2")(x)
  loss = mean(cross_entropy(logits, label))
  output logits
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; seed = 3; optimizer = %s; ema = 0.8; accumulate = 2
  checkpoint { every = 4 steps; keep = 4 }
}
"""
# Resumes and saves again; shows a parameter, doubles it, and shows the double.
AGAIN = r"""
#include "runtime/ft.h"
#include <stdio.h>
#include <stdlib.h>
#define CHECK(call) if (call) return fprintf(stderr, "%s\n", ft_error()), 1

int main(int argc, char **argv) { /* MODEL CHECKPOINT COPY PARAMETER */
  static float values[4096];
  FtModel *model;
  FtTensor param;
  FtOptions options = {.device = argc > 5 ? argv[5] : "cpu", .threads = 1};
  CHECK(ft_open_with(argv[1], &options, &model) || ft_init(model, 9));
  CHECK(ft_resume(model, argv[2]) || ft_save(model, argv[3]) || ft_param(model, atoi(argv[4]), &param));
  CHECK(ft_read_param(model, param.name, values, (size_t)param.bytes));
  for (int i = 0; i < param.bytes / 4; i++) printf("%.9g\n", values[i]), values[i] *= 2;
  CHECK(ft_write_param(model, param.name, values, (size_t)param.bytes) || ft_read_param(model, param.name, values, (size_t)param.bytes));
  for (int i = 0; i < param.bytes / 4; i++) printf("%.9g\n", values[i] / 2);
  ft_close(model);
}
"""
OPTIMIZERS = {"muon": "muon(lr=0.01, adjust=original, weight_decay=0)", "adamw": "adamw(lr=0.003, weight_decay=0.1)"}
SHAPES = {"conv1.weight": (8, 4, 3, 3), "conv1.bias": (8,), "conv2.weight": (12, 4, 3, 3), "conv2.bias": (12,),
          "fc1.weight": (20, 108), "fc1.bias": (20,), "fc2.weight": (5, 20), "fc2.bias": (5,)}
STEPS = 8
torch.set_num_threads(2)


def logits_of(p, x):
    x = F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=1))
    x = F.max_pool2d(F.relu(F.conv2d(x, p["conv2.weight"], p["conv2.bias"], padding=1, groups=2)), 2)
    return F.linear(F.relu(F.linear(x.flatten(1), p["fc1.weight"], p["fc1.bias"])), p["fc2.weight"], p["fc2.bias"])


class Storage(embed.Programs):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(5)
        self.x = random.standard_normal((16 * STEPS, 4, 6, 6)).astype("f4")
        self.y = self.x.reshape(len(self.x), -1)[:, :5].argmax(1).astype("i4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)
        self.start = {name: (random.standard_normal(shape) * (2 / max(1, numpy.prod(shape[1:]))) ** 0.5).astype("f4")
                      for name, shape in SHAPES.items()}
        support.write_safetensors(self.path("start"), self.start)

    def train(self, artifact, steps, name, *flags):
        """The tensors that --save leaves, and those of the averages."""
        device = ["--device", "sim"] if artifact.endswith(".ptx") else []
        support.run("ftrun", artifact, "--data", self.folder, "--steps", steps, "--no-shuffle", *device, *flags, "--save", self.path(name),
                    "--save-ema", self.path(name + "-ema"), "--set", f"train.checkpoint.dir={self.path(name + '-runs')}")
        return support.read_safetensors(self.path(name))

    def checkpoint(self, name, step):
        return os.path.join(self.path(name + "-runs"), f"step-{step:08}.safetensors")

    def assert_close(self, mine, other, limit, what):
        self.assertEqual(mine.keys(), other.keys())
        for name, value in other.items():
            self.assertLess(abs(mine[name] - value).max(), limit * (1e-3 + abs(value).max()), f"{what}: {name}")

    def torch(self, optimizer):
        """The parameters after STEPS steps, in float64."""
        p = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in self.start.items()}
        if optimizer == "muon":
            parts = [Muon([dict(params=[v for v in p.values() if v.dim() == 2])], 0.01, 0.95, True, 5, "original"),
                     torch.optim.AdamW([v for v in p.values() if v.dim() != 2], lr=0.01, weight_decay=0)]
        else:
            parts = [torch.optim.AdamW(p.values(), lr=0.003, weight_decay=0.1)]
        for step in range(STEPS):
            batch = slice(16 * step, 16 * step + 16)
            loss = F.cross_entropy(logits_of(p, torch.tensor(self.x[batch], dtype=torch.float64)), torch.tensor(self.y[batch], dtype=torch.int64))
            for part in parts:
                part.zero_grad()
            loss.backward()
            for part in parts:
                part.step()
        return {name: value.detach().numpy() for name, value in p.items()}

    def follow(self, optimizer):
        source = MODEL % OPTIMIZERS[optimizer]
        artifacts = {"so": self.compile(source), "plain": self.compile(source, "--disable=storage", name="plain.so"), "ptx": self.compile(source, name="model.ptx")}
        for name, artifact in artifacts.items():
            said = support.run("ftrun", "info", artifact).stdout
            turned = re.findall(r"(\S+) .* in memory (\w+\[\S+)", said)
            self.assertEqual(turned, [] if name == "plain" else [("conv1.weight", "f32[8,3,3,4]"), ("conv2.weight", "f32[12,3,3,4]"), ("fc1.weight", "f32[20,9,12]")])
            transposed = set(re.findall(r"transpose.*\n +(\S+ \w+)", said))  # the first operand of each kernel that transposes
            self.assertEqual(transposed == {"f32[8,4,6,6] input"}, name != "plain", said)
        first = {name: self.train(artifact, 0, name + "0") for name, artifact in artifacts.items()}
        reference, init = self.torch(optimizer), ["--init", self.path("start")]
        for name, artifact in artifacts.items():
            for key, value in first["plain"].items():  # the same seed gives the same weights
                self.assertEqual(first[name][key].tobytes(), value.tobytes(), key)
            self.assert_close(self.train(artifact, STEPS, name, *init), reference, 1e-4, f"{optimizer} {name}")
        again = self.build(AGAIN, "again")
        for name, other in (("so", "plain"), ("plain", "ptx"), ("ptx", "so")):
            mine, here = self.checkpoint(name, 4), f"{name}-{other}"
            done = subprocess.run([again, artifacts[other], mine, self.path("copy"), "2", "sim" if other == "ptx" else "cpu"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            tensors, copy = support.read_safetensors(mine), support.read_safetensors(self.path("copy"))
            self.assertEqual(tensors.keys(), copy.keys())
            self.assertGreater(len([key for key in tensors if key.endswith("conv2.weight")]), 2)  # moments, averages
            for key, value in tensors.items():
                self.assertEqual(copy[key].tobytes(), value.tobytes(), f"{here}: {key}")
            shown = numpy.array(done.stdout.split(), "f4")
            self.assertEqual(shown.tobytes(), numpy.concatenate([tensors["conv2.weight"].reshape(-1)] * 2).tobytes())
            self.assert_close(self.train(artifacts[other], STEPS, here, "--resume", mine), reference, 1e-4, here)
            self.assert_close(support.read_safetensors(self.path(here + "-ema")), support.read_safetensors(self.path("plain-ema")), 1e-5, here + " average")

    def test_muon(self):
        self.follow("muon")

    def test_adamw(self):
        self.follow("adamw")

    def test_bf16(self):
        """Rounded parameters lie as the others do; evaluation and prediction read either."""
        source = MODEL % OPTIMIZERS["adamw"]
        ends = []
        for flags in ((), ("--disable=storage",)):
            artifact = self.compile(source, "--set", "train.precision=bf16", *flags)
            ends.append(self.train(artifact, STEPS, "a", "--init", self.path("start")))
            support.run("ftrun", "predict", artifact, "--weights", self.path("start"), "--input", f"image={self.path('x.npy')}", "--output", self.path("out.npy"))
            p = {name: torch.tensor(value) for name, value in self.start.items()}
            want = logits_of(p, torch.tensor(self.x)).numpy()
            self.assertLess(abs(numpy.load(self.path("out.npy")) - want).max(), 2e-2 * abs(want).max())
        self.assert_close(ends[0], ends[1], 1e-2, "bf16")

    def test_generation(self):
        """Large matrices [in, out] of a model that generates lie [out, in] (passes/storage_choose.c): the gradients that are computed in that order,
        the products of one row and of few, and other widths of generation give what they give in the file's order."""
        random = numpy.random.default_rng(1)
        header = numpy.zeros(256, "i4")
        header[:3] = 20240520, 1, 2000
        for name in ("train.bin", "valid.bin"):
            with open(self.path(name), "wb") as file:
                file.write(header.tobytes() + random.integers(0, 61, 2000).astype("u2").tobytes())
        sizes = [word for size in ("T=12", "V=61", "positions=12", "D=520", "L=1", "heads=4", "lr=0.01") for word in ("-D", size)]
        model = os.path.join(support.EXAMPLES, "gpt2.ft")
        start = None
        for precision in ("f32", "bf16"):
            for parts in (("train.batch=4",), ("train.batch=2", "train.accumulate=2")):
                trained, texts = {}, {}
                for way in ("stored", "--disable=storage"):
                    settings = [word for setting in (*parts, f"train.precision={precision}") for word in ("--set", setting)]
                    artifact = self.path("g.so")
                    said = support.run("ftc", model, *sizes, *settings, *([way] if way != "stored" else []), "-o", artifact)
                    info = support.run("ftrun", "info", artifact).stdout
                    self.assertEqual(bool(re.search(r"h.0.attn.c_attn.weight .* in memory f32\[1560,520\]", info)), way == "stored", said.stdout)
                    if start is None:
                        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", self.path("start"), cwd=self.folder)
                        start = {name: value if "ln_" in name else (random.standard_normal(value.shape) * 0.08).astype("f4") for name, value in support.read_safetensors(self.path("start")).items()}
                        support.write_safetensors(self.path("start"), start)
                    support.run("ftrun", artifact, "--data", self.folder, "--steps", 2, "--init", self.path("start"), "--save", self.path("end"), cwd=self.folder)
                    trained[way] = support.read_safetensors(self.path("end"))
                    texts[way] = [support.run("ftrun", "generate", artifact, "--weights", self.path("start"), "--prompt-tokens", "3,5", "--tokens", 8, "--samples", count, "--temperature", 0).stdout
                                  for count in (1, 3, 5)]
                name = "h.0.attn.c_attn.weight"
                stored, plain = (trained[way][name] - start[name] for way in trained)
                size = numpy.abs(plain).max()
                self.assertGreater(size, 1e-5)
                # Adam divides by the size of the gradient: of those near 0 rounding makes a difference
                self.assertGreater((numpy.abs(stored - plain) < 0.01 * size).mean(), 0.99 if precision == "bf16" else 0.999, (precision, parts))
                self.assertEqual(*texts.values(), (precision, parts))

    def test_the_place_of_what_is_not_finite(self):
        """--check=nan counts elements as files do."""
        self.start["conv2.weight"][7, 2, 1, 0] = numpy.nan
        support.write_safetensors(self.path("bad"), self.start)
        self.fails(1, "conv2.weight is not finite before anything is computed: NaN at [7,2,1,0] of f32[12,4,3,3]", "ftrun",
                   self.compile(MODEL % OPTIMIZERS["adamw"]), "--data", self.folder, "--init", self.path("bad"), "--check=nan", "--steps", 1)


if __name__ == "__main__":
    support.main()
