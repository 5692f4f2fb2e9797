"""Parameters kept as bf16 only, their updates rounded stochastically: the mean is right to five standard errors also
for updates far below half a place, the bits depend on seed, step and element only, and a training comes as far as one
with f32 parameters, where rounding to the nearest does not."""
import math
import os
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

N = 8192
# Each row of w moves by -lr x its entry of `slope`: dw/dt is the slope itself.
LINE = """
model M(x: f32[B, %(rows)d, 1]) {
  param w: [%(rows)d, %(n)d] = %(start)s
  loss = sum(w * x[0])
}
data D { train = npy("x.npy") }
train { batch = 1; steps = 1; optimizer = sgd(lr=1.0); precision = bf16(parameters=bf16%(rounding)s) }
"""
NET = """
model M(x: f32[B, 24], label: i32[B]) {
  h = dropout(relu(Linear(48, name="fc1")(x)), 0.1)
  loss = mean(cross_entropy(Linear(5, name="fc2")(LayerNorm(name="n")(h)), label))
}
data D { train = npy("x.npy", "label.npy") }
train { batch = 16; steps = 400; %(recipe)s; log { every = 1 steps } }
"""


def place(x):
    """Of bf16 at x > 0, upward; below a power of two it is half of that."""
    return 2.0 ** (math.floor(math.log2(x)) - 7)


class Rounding(support.Case):
    def line(self, start, slopes, rounding="", *flags, name="model.so"):
        numpy.save(self.path("x.npy"), numpy.repeat(numpy.array(slopes, "f4")[None, :, None], 400, 0))
        artifact = self.compile(LINE % dict(rows=len(slopes), n=N, start=f"constant({start})", rounding=rounding), name=name)
        support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w"), "--no-shuffle", *flags)
        return support.read_safetensors(self.path("w"))["w"].astype("f8")

    def test_mean_of_one_step(self):
        for start in (1.0, 1.5, 1.9921875, 0.001953125, 100.0, -3.0):
            unit = place(abs(start))
            shares = numpy.array([0.001, 0.1, 0.25, 0.5, 0.7, 0.999, 1.3, -0.01, -0.1, -0.3, -0.5, -0.8, -1.9])
            slopes = (shares * unit).astype("f4")
            w = self.line(start, slopes)
            for row, slope in zip(w, slopes):
                exact = float(numpy.float32(start) - slope)
                values = sorted(set(row.tolist()))
                self.assertLessEqual(len(values), 2)
                for value in values:  # the neighbours
                    self.assertLess(abs(value - exact), place(abs(exact)), f"{start} - {slope}: {values}")
                spread = row.std() + 2 * unit / N  # of a share that is almost 0 or 1
                self.assertLess(abs(row.mean() - exact), 5 * spread / math.sqrt(N), f"{start} - {slope}: {values}")

    def test_mean_of_many_steps(self):
        """200 updates of a hundredth of a place: lost each time if rounded to the nearest."""
        slopes = [2.0**-7 / 100, -(2.0**-7) / 100]
        for rounding in ("", ", rounding=nearest"):
            w = self.line(1.25, slopes, rounding, "--steps", 200)
            for row, slope in zip(w, slopes):
                if rounding:
                    self.assertTrue((row == 1.25).all())
                    continue
                spread = 2.0**-7 * math.sqrt(200 * 0.01 * 0.99)
                self.assertLess(abs(row.mean() - (1.25 - 200 * slope)), 5 * spread / math.sqrt(N))
                self.assertLess(abs(row.std() / spread - 1), 0.1)  # each step draws anew

    def test_no_pattern(self):
        w = self.line(1.0, [2.0**-8 * 0.5] * 2)
        up = w < 1.0
        for other in (numpy.roll(up[0], 1), numpy.roll(up[0], 4), up[1]):  # neighbours, words of one draw, rows
            self.assertLess(abs((up[0] == other).mean() - 0.5), 5 * 0.5 / math.sqrt(N))

    def test_same_bits_on_cpu_and_sim(self):
        slopes = [0.25 * 2.0**-7, -0.01, 0.003]
        flags = ["--steps", "3"]
        cpu = self.line(1.25, slopes, "", *flags)
        self.assertTrue((cpu == self.line(1.25, slopes, "", *flags, "--threads", "1")).all())
        self.assertTrue((cpu == self.line(1.25, slopes, "", *flags, "--device", "sim", name="model.ptx")).all())
        self.assertFalse((cpu == self.line(1.25, slopes, "", *flags, "--set", "train.seed=1")).all())

    def test_interpreter_rounds_alike(self):
        graph = """graph "train" {
  %x = input {name="x"} : f32[64]
  %w = param {name="w", init="zeros"} : f32[64]
  %step = state step {name="@step", init="zeros"} : i64[]
  %p = mul %w, %x : f32[64]
  %s = sum %p {axes=[0]} : f32[1]
  %l = reshape %s : f32[]
  loss "loss" %l
}
"""
        ftopt = os.path.join(support.BUILD, "bin", "ftopt")
        done = subprocess.run([ftopt, "-", "--passes=autodiff,precision,optimizer,simplify2,cse2,dce2", "--interp", "--all-values", "--steps=1", "--set", "train.precision=bf16",
                               "--set", "train.parameters=bf16", "--set", "train.optimizer=sgd", "--set", "train.lr=0.01"], input=graph, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {line.split(":")[0]: numpy.array([float(v) for v in line.split(" =")[1].split()]) for line in done.stdout.splitlines()}
        before, x, after = found["param w"], found["input x"], found["assign @params"]
        exact = before - 0.01 * x
        bits = lambda v: numpy.asarray(v, "f4").view("u4")
        self.assertTrue((bits(after) & 0xFFFF == 0).all(), "not bf16")
        self.assertTrue((numpy.abs(after - exact) <= 2.0**-7 * numpy.abs(exact)).all())
        nearest = ((bits(exact) + 0x7FFF + (bits(exact) >> 16 & 1)) & 0xFFFF0000).view("f4")
        self.assertGreater((after != nearest).sum(), 5)
        self.assertGreater((after == nearest).sum(), 25)

    def net(self, recipe, *flags, name="net.so"):
        maker = numpy.random.default_rng(1)
        x = maker.standard_normal((640, 24)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("label.npy"), x[:, :5].argmax(1).astype("i4"))
        artifact = self.compile(NET % dict(recipe=recipe), name=name)
        support.run("ftrun", artifact, "--data", self.folder, "--log-jsonl", self.path("log.jsonl"), "--save", self.path("w"), *flags)
        return [line["loss"] for line in support.read_jsonl(self.path("log.jsonl"))]

    def test_trains_as_far(self):
        """With an update of a few percent of a place, as late in a training."""
        ends = {}
        for how in ("bf16", "bf16(parameters=bf16)", "bf16(parameters=bf16, rounding=nearest)"):
            losses = self.net(f"optimizer = sgd(lr=0.002, momentum=0.9); precision = {how}")
            ends[how] = numpy.mean(losses[-80:]) / numpy.mean(losses[:20])
        print({how: round(float(end), 3) for how, end in ends.items()})
        whole, stochastic, nearest = ends.values()
        self.assertLess(abs(stochastic - whole), 0.02)
        self.assertGreater(nearest - whole, 3 * abs(stochastic - whole))

    def test_resumes_bitwise(self):
        for optimizer in ("adamw(lr=0.01)", 'muon(lr=0.02) on "fc1.weight"'):
            for device, name, total in (("cpu", "net.so", 30), ("sim", "net.ptx", 8)):
                recipe, flags = f"optimizer = {optimizer}; accumulate = 2; precision = bf16(parameters=bf16)", ["--device", device]
                self.net(recipe, *flags, "--steps", total, name=name)
                whole = open(self.path("w"), "rb").read()
                folder = self.path("runs" + optimizer[:4] + device)
                self.net(recipe, *flags, "--steps", total - 3, "--set", f"train.checkpoint.dir={folder}", name=name)
                self.net(recipe, *flags, "--steps", total, "--resume", folder, name=name)
                self.assertEqual(whole, open(self.path("w"), "rb").read(), optimizer + device)
        with open(os.path.join(folder, f"step-{total - 3:08}.safetensors"), "rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little")).decode()
        self.assertIn('"fc1.weight":{"dtype":"BF16","shape":[48,24]', header)
        self.assertIn('"@muon.m.fc1.weight":{"dtype":"F32","shape":[48,24]', header)

    def test_memory_is_told(self):
        table = {}
        for how in ("bf16", "bf16(parameters=bf16)"):
            source = self.path("m.ft")
            with open(source, "w") as file:
                file.write(NET.replace("48", "512") % dict(recipe=f"precision = {how}"))
            said = support.run("ftc", source, "-o", self.path("m.so"), "--memory").stdout
            table[how] = int(next(line for line in said.splitlines() if line.startswith("parameters")).split()[1])
        self.assertLess(table["bf16(parameters=bf16)"], 0.51 * table["bf16"])

    def test_what_does_not_go_together(self):
        for recipe, words in (("precision = bf16(parameters=bf16); ema = 0.9", "an average of the weights is one of f32 parameters"),
                              ("precision = bf16(parameters=f16)", "parameters are kept as f32 or bf16, not 'f16'"),
                              ("precision = bf16(parameters=bf16, rounding=up)", "rounding is stochastic or nearest, not 'up'")):
            with open(self.path("m.ft"), "w") as file:
                file.write(NET % dict(recipe=recipe))
            self.fails(1, words, "ftc", self.path("m.ft"), "-o", self.path("m.so"))
        self.fails(1, "goes with precision = bf16, not with fp16", "ftc", self.path("m.ft"), "-o", self.path("m.so"), "--set", "train.precision=fp16", "--set", "train.parameters=bf16")


if __name__ == "__main__":
    support.main()
