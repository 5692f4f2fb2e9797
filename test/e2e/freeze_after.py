"""Layers that stop to train from a step on (`freeze = after(0.3, "stem.*")`) and steps that are plain between sharp ones (`sharpness = sam(every=3)`): trainings
follow PyTorch's, in float64, where parameters lose requires_grad at these steps; what rests stays the same to the bit, moments included, while its average goes
on; the steps compute less; a resumed run is the same to the bit; ranks, micro-batches, data on the device and programs that use ft.h change nothing else."""
import glob
import math
import os
import re
import subprocess
import sys
import unittest

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  h = gelu(Linear(24, name="stem")(x))
  h = gelu(Linear(16, name="body")(h))
  h = BatchNorm(name="bn")(h)
  loss = mean(cross_entropy(Linear(4, name="head")(dropout(h, DROP)), y))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false; DATA }
train { batch = BATCH; epochs = 2; seed = 5; eval = none; RECIPE; log { every = 1 steps } }
"""
FREEZE = 'freeze = (after(5 steps, "stem.*"), after(9 steps, "body.weight"))'
SHARE = 'freeze = (after(0.3125, "stem.*"), after(0.5625, "body.weight"))'
RATED = 'freeze = (after(5 steps, "stem.*", rate=RATE), after(9 steps, "body.weight", rate=RATE))'
N, STEPS, BATCH = 64, 16, 8
FIXED = {"FT_THREADS": "1"}


def rests(name, step):
    return name.startswith("stem") and step >= 5 or name == "body.weight" and step >= 9


def falling(name, ends=(5, 9), warmup=0, final=0, is_scaled=False, rest=lambda t: 1):
    """A factor on the rate for LambdaLR: FreezeOut's of what rests, `rest` of the others."""
    end = ends[0] if name.startswith("stem") else ends[1] if name == "body.weight" else None

    def factor(t):
        rise = (t + 1) / warmup if t < warmup else None
        if end is None:
            return rise or rest(t)
        fall = final + (1 - final) * (1 + math.cos(math.pi * (t - warmup) / max(end - warmup, 1))) / 2
        return (STEPS / end if is_scaled else 1) * (rise or (fall if t < end else 0))

    return factor


class FreezeAfter(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(3)
        self.x, self.y = random.randn(N, 8).astype("f4"), random.randint(0, 4, N).astype("i4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)

    def model(self, recipe, batch=BATCH, drop=0, data="", name="m.so", flags=()):
        text = MODEL.replace("RECIPE", recipe).replace("BATCH", str(batch)).replace("DROP", str(drop)).replace("DATA", data)
        return self.compile(text, *flags, name=name)

    def train(self, artifact, *flags, save="end", env=FIXED):
        support.run("ftrun", artifact, "--save", self.path(save), "--log-jsonl", self.path("log"), *flags, cwd=self.folder, env=env)
        losses = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line]
        return losses[-STEPS:], support.read_safetensors(self.path(save))

    def torch_train(self, start, optimizer, ema=0, clip=None, rho=0, every=1, parts=1, frozen=True, factor=None):
        values = {k: torch.tensor(numpy.asarray(v), dtype=torch.float64) for k, v in start.items() if "running" not in k and "num_batches" not in k}
        names = list(values)
        for value in values.values():
            value.requires_grad_()
        chosen = optimizer([{"params": [value]} for value in values.values()])
        scheduler = torch.optim.lr_scheduler.LambdaLR(chosen, [factor(name) if factor else lambda t: 1 for name in names])
        x, y = torch.tensor(self.x, dtype=torch.float64), torch.tensor(self.y, dtype=torch.int64)
        average = {k: v.detach().clone() for k, v in values.items()}
        losses = []

        def loss_of(v, rows):
            h = F.gelu(F.linear(x[rows], v["stem.weight"], v["stem.bias"]))
            h = F.gelu(F.linear(h, v["body.weight"], v["body.bias"]))
            h = F.batch_norm(h, None, None, v["bn.weight"], v["bn.bias"], training=True)
            return F.cross_entropy(F.linear(h, v["head.weight"], v["head.bias"]), y[rows])

        for step in range(STEPS):
            rows = torch.arange(BATCH * step, BATCH * (step + 1)) % N
            trained = [k for k in names if not (frozen and rests(k, step))]
            shown, sums = 0, [0] * len(trained)
            for part in rows.chunk(parts):
                loss = loss_of(values, part)
                shown += loss.item() / parts
                grads = torch.autograd.grad(loss, [values[k] for k in trained])
                if rho and step % every == 0:
                    norm = torch.sqrt(sum(g.square().sum() for g in grads))
                    moved = dict(values)
                    moved.update({k: (values[k].detach() + rho * g / (norm + 1e-12)).requires_grad_() for k, g in zip(trained, grads)})
                    grads = torch.autograd.grad(loss_of(moved, part), [moved[k] for k in trained])
                sums = [s + g / parts for s, g in zip(sums, grads)]
            losses.append(shown)
            for k in names:
                values[k].grad = None
            for k, g in zip(trained, sums):
                values[k].grad = g
            if clip:
                torch.nn.utils.clip_grad_norm_([values[k] for k in trained], clip)
            chosen.step()
            scheduler.step()
            average = {k: ema * average[k] + (1 - ema) * values[k].detach() for k in names}
        return losses, {k: v.detach().numpy() for k, v in values.items()}, {k: v.numpy() for k, v in average.items()}

    def assert_like(self, mine, theirs, tolerance=1e-4):
        numpy.testing.assert_allclose(mine[0], theirs[0], rtol=tolerance)
        for key, value in theirs[1].items():
            numpy.testing.assert_allclose(mine[1][key], value, rtol=10 * tolerance, atol=tolerance, err_msg=key)

    def assert_same(self, one, two):
        self.assertEqual(one[0], two[0])
        for key in one[1]:
            numpy.testing.assert_array_equal(one[1][key], two[1][key], err_msg=key)

    def start(self, artifact, *flags):
        return self.train(artifact, "--steps", "0", *flags, save="start")[1]

    def test_like_pytorch(self):
        sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1)
        adam = lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1, eps=1e-4)
        cases = (
            ("optimizer = sgd(lr=0.1, momentum=0.9, weight_decay=0.1)", sgd, {}),
            ("optimizer = adamw(lr=0.02, weight_decay=0.1, eps=1e-4); clip = norm(0.3); ema = 0.9", adam, {"ema": 0.9, "clip": 0.3}),
            ("optimizer = adamw(lr=0.02, weight_decay=0.1, eps=1e-4); recompute = block; ema = 0.9; sharpness = sam(rho=0.3, every=3)", adam, {"ema": 0.9, "rho": 0.3, "every": 3}),
            ("optimizer = sgd(lr=0.1, momentum=0.9, weight_decay=0.1); accumulate = 2", sgd, {"parts": 2}),
            ("optimizer = sgd(lr=0.1, momentum=0.9, weight_decay=0.1); accumulate = 2; sharpness = sam(rho=0.3, every=2)", sgd, {"parts": 2, "rho": 0.3, "every": 2}),
        )
        for number, (recipe, how, options) in enumerate(cases):
            for freeze in support.of_this_turn((FREEZE, SHARE) if number % 2 else (SHARE, FREEZE), 2):
                with self.subTest(recipe, freeze=freeze):
                    artifact = self.model(recipe + "; " + freeze, batch=BATCH // options.get("parts", 1))
                    start = self.start(artifact)
                    averages = ["--save-ema", self.path("average")] if "ema" in options else []
                    mine, theirs = self.train(artifact, *averages), self.torch_train(start, how, **options)
                    self.assert_like(mine, theirs)
                    for key, value in theirs[2].items():
                        if averages:
                            numpy.testing.assert_allclose(support.read_safetensors(self.path("average"))[key], value, rtol=1e-3, atol=1e-4, err_msg=key)
                    other = self.torch_train(start, how, **options, frozen=False)
                    self.assertGreater(abs(other[1]["stem.weight"] - mine[1]["stem.weight"]).max(), 1e-2)

    def test_rates_like_pytorch(self):
        """`rate=cosine`: each group's rate falls to 0 at the step at which it rests, whatever the schedule of the others."""
        sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1)
        adamw = lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.5, eps=1e-4)
        to_end = lambda t: (1 + math.cos(math.pi * t / (STEPS - 1))) / 2
        lines = ("optimizer = sgd(lr=0.1, momentum=0.9, weight_decay=0.1)", "optimizer = adamw(lr=0.02, weight_decay=0.5, eps=1e-4)")
        warm_linear = lambda t: 1 - (t - 3) / (STEPS - 1 - 3)
        cases = (
            (lines[0], "cosine", sgd, {}, {}),
            (lines[1] + "; schedule = cosine", "scaled_cosine", adamw, {"is_scaled": True, "rest": to_end}, {}),
            (lines[1] + "; schedule = linear(warmup=3 steps); clip = norm(0.3); ema = 0.9", "cosine(final=0.2)", adamw, {"warmup": 3, "final": 0.2, "rest": warm_linear}, {"ema": 0.9, "clip": 0.3}),
            (lines[0] + "; schedule = constant(warmup=7 steps); accumulate = 2", "scaled_cosine", sgd, {"warmup": 7, "is_scaled": True}, {"parts": 2}),
            (lines[1] + "; sharpness = sam(rho=0.3, every=3)", "scaled_cosine(final=0.5)", adamw, {"is_scaled": True, "final": 0.5}, {"rho": 0.3, "every": 3}),
            (lines[0] + "; recompute = pointwise; lr = 0.5x on \"*.weight\"", "cosine", sgd, {}, {"halved": ".weight"}),
        )
        for recipe, rate, how, factors, options in cases:
            with self.subTest(recipe, rate=rate):
                artifact = self.model(recipe + "; " + RATED.replace("RATE", rate), batch=BATCH // options.get("parts", 1))
                halved = options.pop("halved", None)
                factor = lambda name: lambda t: (0.5 if halved and name.endswith(halved) else 1) * falling(name, **factors)(t)
                mine = self.train(artifact)
                self.assert_like(mine, self.torch_train(self.start(artifact), how, factor=factor, **options))
                plain = self.train(artifact, "--set", "train.freeze.rate.final=1")  # of what is not scaled the rate stays
                self.assertGreater(abs(plain[1]["body.weight"] - mine[1]["body.weight"]).max(), 1e-3)

    def test_times_move_the_rates(self):
        """Of `--set train.freeze` when compiling, and of another number of steps, the rates are those of the new times."""
        recipe = "optimizer = adamw(lr=0.02, weight_decay=0.5, eps=1e-4); ema = 0.9; "
        shares = SHARE.replace('.*")', '.*", rate=scaled_cosine)').replace('weight")', 'weight", rate=scaled_cosine)')
        one = self.train(self.model(recipe + RATED.replace("RATE", "scaled_cosine")))
        self.assert_same(self.train(self.model(recipe + shares)), one)
        moved = recipe + RATED.replace("5", "3").replace("9", "4").replace("RATE", "cosine")
        self.assert_same(self.train(self.model(moved, flags=["--set", "train.freeze=step 5 9", "--set", "train.freeze.rate=scaled_cosine"])), one)
        self.assert_same(self.train(self.model(recipe + FREEZE, flags=["--set", "train.freeze.rate=scaled_cosine"])), one)
        constant = self.train(self.model(recipe + FREEZE))
        self.assert_same(self.train(self.model(moved, flags=["--set", "train.freeze=step 5 9", "--set", "train.freeze.rate=constant"])), constant)
        short = self.train(self.model(recipe + shares), "--steps", "8")
        self.assert_same(short, self.train(self.model(recipe + RATED.replace("5 steps", "3 steps").replace("9 steps", "5 steps").replace("RATE", "scaled_cosine")), "--steps", "8"))

    def test_range_test(self):
        """--find-lr holds the rates of groups as it holds the schedule."""
        shown = []
        for recipe in (FREEZE, RATED.replace("RATE", "cosine")):
            artifact = self.model("optimizer = sgd(lr=0.1); schedule = cosine(warmup=3 steps); " + recipe)
            support.run("ftrun", "--find-lr", artifact, "--steps", "12", "--log-jsonl", self.path("range"), cwd=self.folder, env=FIXED)
            shown.append([line["loss"] for line in support.read_jsonl(self.path("range")) if "step" in line])
        self.assertEqual(len(shown[0]), 12)
        numpy.testing.assert_allclose(*shown, rtol=1e-5)

    def test_sharp_steps_only(self):
        """Without freezing, every third step has two gradients."""
        artifact = self.model("optimizer = sgd(lr=0.1); sharpness = sam(rho=0.5, every=3)")
        self.assert_like(self.train(artifact), self.torch_train(self.start(artifact), lambda p: torch.optim.SGD(p, lr=0.1), rho=0.5, every=3, frozen=False))

    def checkpoints(self, artifact, *flags):
        self.train(artifact, "--set", "train.checkpoint.dir=" + self.path("c"), "--set", "train.checkpoint.every=1", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.keep=99", *flags)
        return {int(re.search(r"(\d+)\.safetensors", name).group(1)): support.read_safetensors(name) for name in glob.glob(self.path("c", "*[0-9].safetensors"))}

    def test_what_rests_stays(self):
        """Parameters and moments to the bit, under every optimizer and number format; what trains moves on."""
        for recipe in ("optimizer = adamw(lr=0.02, weight_decay=0.1)", "optimizer = lion(lr=0.01, weight_decay=0.1)", "optimizer = rmsprop(lr=0.01, momentum=0.5)",
                       "optimizer = adagrad(lr=0.1)", "optimizer = adam(lr=0.02); precision = bf16", "optimizer = adam(lr=0.02); precision = fp16; ema = 0.9",
                       "optimizer = adamw(lr=0.02, weight_decay=0.1); precision = bf16(parameters=bf16)", "optimizer = sgd(lr=0.1, momentum=0.9); weight_decay = 0.1 on rank >= 2"):
            with self.subTest(recipe):
                at = self.checkpoints(self.model(recipe + "; " + FREEZE, drop=0.1))
                self.assertEqual(len(at), STEPS)
                for key in at[5]:
                    is_average = "ema" in key
                    for name, first in (("stem.", 5), ("body.weight", 9)):
                        if name in key and not is_average:
                            self.assertEqual(at[first][key].tobytes(), at[STEPS][key].tobytes(), key)
                        if name in key and (not is_average or "ema" in recipe):
                            self.assertNotEqual(at[first - 1][key].tobytes(), at[first][key].tobytes(), key)
                    if key.endswith("head.weight"):
                        self.assertNotEqual(at[STEPS - 1][key].tobytes(), at[STEPS][key].tobytes(), key)

    def test_steps_compute_less(self):
        """Forward and the update of what trains are left: no gradient is computed that nobody asks for."""
        said = support.run("ftrun", "info", self.model("optimizer = adam(lr=0.02); " + FREEZE)).stdout
        work = [float(re.search(rf"^{name}: .* ([0-9.]+) MFLOP", said, re.M).group(1)) for name in ("train", r"train\.resting1", r"train\.resting2")]
        self.assertLess(work[1], 0.85 * work[0])
        self.assertLess(work[2], 0.85 * work[1])
        self.assertIn("step, 2 groups resting", said)

    def test_resumed(self):
        for rate in support.of_this_turn(("constant", "scaled_cosine"), 1):
            self.resumed(["--set", "train.freeze.rate=" + rate])

    def resumed(self, flags):
        recipe = 'optimizer = adam(lr=0.02); schedule = cosine; ema = 0.9; sharpness = sam(every=2); grow = batch(2, 4, share=0.7); '
        artifact = self.model(recipe + SHARE, drop=0.1, data="workers = 2", flags=flags)
        whole = self.train(artifact, "--set", "train.checkpoint.dir=" + self.path("c"), "--set", "train.checkpoint.every=1", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.keep=99")
        for step in (3, 5, 7, 10, 13):
            self.assert_same(self.train(artifact, "--resume", self.path("c", f"step-{step}.safetensors") if os.path.exists(self.path("c", f"step-{step}.safetensors")) else
                                        next(name for name in glob.glob(self.path("c", "*.safetensors")) if re.search(rf"\D0*{step}\.safetensors$", name))), whole)

    def test_kept_on_the_device(self):
        """Where a device keeps the data, several steps are one launch, of one form."""
        artifact = self.model("optimizer = adam(lr=0.02); sharpness = sam(every=3); " + FREEZE, data="workers = 0")
        self.assert_same(self.train(artifact, env={**FIXED, "FT_KEEP_DATA": "0"}), self.train(artifact, env={**FIXED, "FT_KEEP_DATA": "1"}))

    def test_the_simulator_and_no_fusion(self):
        recipe = "optimizer = adam(lr=0.02, eps=1e-4); ema = 0.9; schedule = cosine(warmup=2 steps); sharpness = sam(rho=0.3, every=2); " + RATED.replace("RATE", "scaled_cosine")
        one = self.train(self.model(recipe))
        for name, flags, run in (("u.so", ["--disable=fuse,memplan,schedule,storage,layout"], []), ("m.ptx", [], ["--device", "sim"])):
            with self.subTest(name):
                self.assert_like(self.train(self.model(recipe, name=name, flags=flags), *run), one, 2e-5)

    def test_ranks(self):
        """Two ranks train what one does with the whole batch; with zero each updates its part of what trains."""
        if not hosts.HAS_MPI:
            self.skipTest("no MPI: libft-mpi.so or mpirun is missing")
        recipe = "optimizer = adamw(lr=0.02, weight_decay=0.1, eps=1e-4); clip = norm(0.3); " + RATED.replace("RATE", "cosine")
        one = self.train(self.model(recipe, name="one.so"))
        for zero in support.of_this_turn((0, 1, 2, 3), 2):
            with self.subTest(zero=zero):
                flags = ["--set", "distributed.data=2", "--set", f"distributed.zero={zero}", "--set", "distributed.sync_batch_norm=true"]
                self.assert_like(self.train(self.model(recipe, batch=BATCH // 2, flags=flags), "--ranks", "2"), one, 5e-5)

    @unittest.skipIf(support.IS_SANITIZED, "libraries with sanitizers are for programs with sanitizers")
    def test_embedded(self):
        """Programs that use ft.h (here python/ft) have the forms by the step's number, too; of a share of nobody knows how many steps nothing rests, and no rate falls."""
        recipe = "optimizer = adam(lr=0.02); sharpness = sam(every=2); "
        self.model(recipe + SHARE, flags=["--set", "train.freeze.rate=scaled_cosine"])
        self.train(self.path("m.so"), "--threads", "1", save="run")
        self.assert_saved("run", self.embedded("model.set_total(8, 16)"), 0)
        unknown = self.embedded("pass")
        self.train(self.model(recipe), "--threads", "1", save="plain")
        self.assert_saved("plain", unknown, 1e-5)

    def embedded(self, total):
        program = ("import ft, numpy\n"
                   "x, y = numpy.load('x.npy'), numpy.load('y.npy')\n"
                   "with ft.Model('m.so', threads=1) as model:\n"
                   "    model.init(5)\n"
                   f"    {total}\n"
                   "    for i in range(0, 128, 8): model.train_step(x[i % 64 : i % 64 + 8], y[i % 64 : i % 64 + 8])\n"
                   "    model.save_weights('embedded.safetensors')\n")
        env = dict(os.environ, PYTHONPATH=os.path.join(support.ROOT, "python"), FT_LIBRARY=os.path.join(support.BUILD, "lib", "libft.so"))
        done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return support.read_safetensors(self.path("embedded.safetensors"))

    def assert_saved(self, name, other, tolerance):
        for key, value in support.read_safetensors(self.path(name)).items():
            numpy.testing.assert_allclose(value, other[key], rtol=tolerance, atol=tolerance, err_msg=key)

    def test_said(self):
        artifact = self.model("optimizer = adam(lr=0.02); " + SHARE)
        said = support.run("ftrun", artifact, "--dry-run", cwd=self.folder).stdout
        self.assertIn("freeze: 1 group rests from step 6, 2 groups rest from step 10\n", said)
        said = support.run("ftrun", self.model("optimizer = adam(lr=0.02); " + RATED.replace("RATE", "cosine")), "--dry-run", cwd=self.folder).stdout
        self.assertIn("freeze: 1 group rests from step 6, 2 groups rest from step 10; until then rate = cosine\n", said)

    def test_refused(self):
        for recipe, flags, needle in (
            ('freeze = after("stem.*")', [], "after says when and which: after(0.3, \"stem.*\")"),
            ('freeze = after(1.5, "stem.*")', [], "after takes a share of all steps below 1, such as 0.3, or a number of steps"),
            ('freeze = after(2 epochs, "stem.*")', [], "after takes a share of all steps below 1"),
            ('freeze = (after(0.3, "stem.*"), after(200 steps, "body.*"))', [], "all after(...) of a recipe take shares of all steps, or all take steps"),
            ('freeze = (after(0.3, "stem.*"), after(0.2, "body.*"))', [], "freeze has up to 6 after(...), each later than the one before"),
            ('freeze = after(0.3, "steam.*")', [], "no parameter is meant by `freeze = \"steam.*\"`"),
            ('freeze = after(0.3, "*")', [], "freeze leaves nothing to train after the last after(...)"),
            ('freeze = after(0.3, "stem.*", rate=sine)', [], "unknown rate 'sine'; there are constant, cosine and scaled_cosine"),
            ('freeze = after(0.3, "stem.*", rates=cosine)', [], "after has no argument 'rates'; did you mean 'rate'?"),
            ('freeze = after(0.3, "stem.*", rate=constant(final=1))', [], "constant has no arguments"),
            ('freeze = after(0.3, "stem.*", rate=cosine(final=2))', [], "train.freeze.rate.final"),
            ('freeze = after(0.3, rate=cosine)', [], "after says when and which"),
            ('freeze = after(0.3, rate=cosine, "stem.*")', [], "does not say which parameters"),
            ('freeze = (after(0.3, "stem.*", rate=cosine), after(0.5, "body.weight"))', [], "all after(...) of a recipe have one rate, and this one's is constant in place of cosine"),
            ('freeze = (after(0.3, "stem.*"), after(0.5, "body.weight", rate=cosine))', [], "all after(...) of a recipe have one rate, and this one's is cosine in place of constant"),
            ('freeze = after(0.3, "stem.*", rate=cosine); schedule = onecycle', [], "rate = cosine falls from the first step on"),
            ('freeze = "stem.*"', ["--set", "train.freeze.rate=cosine"], "train.freeze.rate = cosine is the rate of groups that come to rest, and the recipe has no freeze = after(...)"),
            ('freeze = after(0.3, "stem.*")', ["--set", "train.freeze.rate.final=0.5"], "--set train.freeze.rate.final does nothing by itself"),
            ('freeze = after(0.3, "stem.*"); prune = magnitude', [], "freeze = after(...) and prune do not go together"),
            ('freeze = after(0.3, "stem.*"); optimizer = muon', [], "freeze = after(...) and optimizer = muon do not go together"),
            ('freeze = after(0.3, "stem.*"); log { layers = 2 steps }', [], "freeze = after(...) and log { layers } do not go together"),
            ('freeze = after(0.3, "stem.*")', ["--set", "distributed.tensor=2"], "freeze = after(...) and distributed.tensor do not go together"),
            ('freeze = after(0.3, "stem.*")', ["--set", "train.freeze=share 0.1 0.2"], "says when 2 groups of parameters come to rest, and the recipe's freeze = after(...) has 1"),
            ('freeze = after(0.3, "stem.*")', ["--set", "train.freeze=soon"], "train.freeze is \"share 0.3 0.5\" or \"step 200 500\""),
            ('freeze = ("stem.*", after(0.3, "body.*")) and not "*.bias"', [], "does not say which parameters"),
            ('grow = batch(2, 3, 4, 5, 6, 7); sharpness = sam(every=2); freeze = (after(0.3, "stem.*"), after(0.5, "body.weight"))', [], "the step would have 42 forms"),
        ):
            with self.subTest(needle):
                with open(self.path("bad.ft"), "w") as file:
                    file.write(MODEL.replace("RECIPE", recipe).replace("BATCH", "8").replace("DROP", "0").replace("DATA", ""))
                self.fails(1, needle, "ftc", self.path("bad.ft"), "-o", self.path("bad.so"), *flags)
        artifact = self.model("optimizer = adam(lr=0.02); freeze = after(0.5, \"stem.*\")", flags=["--set", "train.freeze=share 0.25"])
        self.assertIn("1 group rests from step 5", support.run("ftrun", artifact, "--dry-run", cwd=self.folder).stdout)


if __name__ == "__main__":
    support.main()
