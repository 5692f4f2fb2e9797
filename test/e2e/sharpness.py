"""Sharpness-aware minimisation (`sharpness = sam(rho=0.05)`, `asam(...)`): compiled trainings follow PyTorch's, in float64, step by step: two gradients in each
step on the same samples, statistics of batch norms from the first one, under several optimizers, with parts of a batch and with ranks, each of which moves
the weights for itself. Number formats, the simulator, kernels that are not fused and a resumed run change nothing else, and neither does a dropout."""
import glob
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

MODEL = """
model M(x: f32[B, 3, 6, 6], y: i32[B]) {
  param scale: [6, 1, 1] = ones
  h = BatchNorm(name="bn")(Conv2d(6, 3, padding=1, name="conv")(x)) * scale
  h = dropout(Linear(10, name="fc1")(flatten(gelu(h), from=1)), DROP)
  loss = mean(cross_entropy(Linear(5, name="fc2")(gelu(h)), y, ignore=-1)) + 0.1 * mean(scale * scale * scale)
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = BATCH; epochs = 2; seed = 5; eval = none; RECIPE; log { every = 1 steps } }
"""
N, STEPS = 64, 16
FIXED = {"FT_THREADS": "1"}


class Sharpness(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(3)
        self.x = random.randn(N, 3, 6, 6).astype("f4")
        self.y = random.randint(0, 5, N).astype("i4")
        self.y[5] = self.y[40:44] = -1  # of a batch of 8 in two parts one has no target at all
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)

    def model(self, recipe, batch=8, drop=0, name="m.so", flags=()):
        text = MODEL.replace("RECIPE", recipe).replace("BATCH", str(batch)).replace("DROP", str(drop))
        return self.compile(text, *flags, name=name)

    def train(self, artifact, *flags, save="end", env=FIXED):
        support.run("ftrun", artifact, "--save", self.path(save), "--log-jsonl", self.path("log"), *flags, cwd=self.folder, env=env)
        losses = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line]
        return losses, support.read_safetensors(self.path(save))

    def torch_train(self, start, optimizer, rho, kind="sam", eta=0.01, parts=1, clip=None, rest_in=None, batch=8):
        """The parts of a batch move the weights each for itself; the term that is of parameters alone is the last part's, or each one's."""
        values = {k: torch.tensor(numpy.asarray(v), dtype=torch.float64) for k, v in start.items()}
        stats = {k: values.pop(k) for k in list(values) if "running" in k or "num_batches" in k}
        for value in values.values():
            value.requires_grad_()
        chosen = optimizer(list(values.values()))
        x, y = torch.tensor(self.x, dtype=torch.float64), torch.tensor(self.y, dtype=torch.int64)
        losses = []

        def logits(v, rows, moves):
            h = F.conv2d(x[rows], v["conv.weight"], v["conv.bias"], padding=1)
            running = (stats["bn.running_mean"], stats["bn.running_var"]) if moves else (None, None)
            h = F.batch_norm(h, *running, v["bn.weight"], v["bn.bias"], training=True, momentum=0.1) * v["scale"]
            h = F.linear(F.gelu(h.flatten(1)), v["fc1.weight"], v["fc1.bias"])
            return F.linear(F.gelu(h), v["fc2.weight"], v["fc2.bias"])

        def rest(v):
            return 0.1 * (v["scale"] ** 3).mean()

        for step in range(STEPS):
            whole = torch.arange(batch * step, batch * (step + 1)) % N
            total = (y[whole] >= 0).sum()
            sums, shown = {k: torch.zeros_like(v) for k, v in values.items()}, 0
            for i, rows in enumerate(whole.chunk(parts)):
                targets, count = y[rows], (y[rows] >= 0).sum()
                out = F.cross_entropy(logits(values, rows, True), targets, ignore_index=-1, reduction="sum")
                shown += out.item() / total.item()
                moved = values
                if count:
                    own = torch.autograd.grad(out / count + rest(values), list(values.values()))
                    size = {k: v.detach().abs() + eta if kind == "asam" else torch.ones_like(v) for k, v in values.items()}
                    norm = torch.sqrt(sum((size[k] * g).square().sum() for k, g in zip(values, own)))
                    moved = {k: (v.detach() + rho * size[k] ** 2 * g / (norm + 1e-12)).requires_grad_() for (k, v), g in zip(values.items(), own)}
                loss = F.cross_entropy(logits(moved, rows, False), targets, ignore_index=-1, reduction="sum") / total
                share = rest_in(i) if rest_in else float(i == parts - 1)
                for k, g in zip(values, torch.autograd.grad(loss + share * rest(moved), list(moved.values()))):
                    sums[k] += g
            losses.append(shown + rest(values).item())
            for k, value in values.items():
                value.grad = sums[k]
            if clip:
                torch.nn.utils.clip_grad_norm_(values.values(), clip)
            chosen.step()
        return losses, {k: v.detach().numpy() for k, v in {**values, **stats}.items() if "num_batches" not in k}

    def assert_like(self, mine, theirs, tolerance=2e-4):
        numpy.testing.assert_allclose(mine[0], theirs[0], rtol=tolerance)
        for key, value in theirs[1].items():
            numpy.testing.assert_allclose(mine[1][key].reshape(value.shape), value, rtol=10 * tolerance, atol=tolerance, err_msg=key)

    def assert_differ(self, mine, theirs):
        self.assertGreater(max(abs(a - b) for a, b in zip(mine[0], theirs[0])), 1e-3)

    def start(self, artifact):
        return self.train(artifact, "--steps", "0", save="start")[1]

    def test_like_pytorch(self):
        for recipe, how, options in (
            ("optimizer = sgd(lr=0.1, momentum=0.9); sharpness = sam(rho=0.5)", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), {"rho": 0.5}),
            ("optimizer = adamw(lr=0.01, weight_decay=0.1, eps=1e-3); sharpness = sam(rho=0.5); clip = norm(0.2)",
             lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, eps=1e-3), {"rho": 0.5, "clip": 0.2}),
            ("optimizer = sgd(lr=0.1); sharpness = asam(eta=0.1); recompute = block", lambda p: torch.optim.SGD(p, lr=0.1), {"rho": 0.5, "kind": "asam", "eta": 0.1}),
            ("optimizer = rmsprop(lr=0.002, eps=1e-2); sharpness = sam(rho=0.5); recompute = auto(budget=1 MiB)", lambda p: torch.optim.RMSprop(p, lr=0.002, eps=1e-2), {"rho": 0.5}),
            ("optimizer = sgd(lr=0.1); accumulate = 2; sharpness = sam(rho=0.5)", lambda p: torch.optim.SGD(p, lr=0.1), {"rho": 0.5, "parts": 2, "batch": 16}),
        ):
            with self.subTest(recipe):
                artifact = self.model(recipe)
                flags = ["--steps", str(STEPS)] + (["--epochs", "4"] if "parts" in options else [])
                start = self.start(artifact)
                mine, theirs = self.train(artifact, *flags), self.torch_train(start, how, **options)
                self.assert_like(mine, theirs)
                self.assert_differ(mine, self.torch_train(start, how, **{**options, "rho": 0}))

    def test_other_ways_of_the_same(self):
        """--disable, the simulator, a GPU's graph on the fake driver: as the CPU; kernels that are not fused, too."""
        recipe = "optimizer = sgd(lr=0.1); sharpness = sam(rho=0.5)"
        one = self.train(self.model(recipe), "--steps", "6")
        for name, flags, run in (("u.so", ["--disable=fuse,memplan,schedule,storage,layout"], []), ("m.ptx", [], ["--device", "sim"])):
            with self.subTest(name):
                self.assert_like(self.train(self.model(recipe, name=name, flags=flags), "--steps", "6", *run), one, 1e-5)

    def test_rho_of_zero_is_plain(self):
        """So is the mask of a dropout the same in both passes; rho is a setting of ftrun, too."""
        for more in ("", "; precision = bf16", "; precision = fp16(loss_scale=dynamic)", "; precision = bf16(parameters=bf16)", "; accumulate = 2"):
            with self.subTest(more):
                recipe = "optimizer = sgd(lr=0.1); sharpness = %s" + more
                plain = self.train(self.model(recipe % "none", drop=0.3))
                artifact = self.model(recipe % "sam", drop=0.3)
                self.assert_like(self.train(artifact, "--set", "train.sharpness.rho=0"), plain, 1e-5 if "precision" not in more else 5e-3)
                if "parameters" not in more:
                    self.assert_differ(self.train(artifact, "--set", "train.sharpness.rho=0.5"), plain)

    def test_narrow_is_like_wide(self):
        """In bf16 and fp16 the weights move as far: the training is nearer to that of f32 than a plain one."""
        recipe = "optimizer = sgd(lr=0.1); sharpness = %s"
        wide, plain = (self.train(self.model(recipe % s)) for s in ("sam(rho=0.5)", "none"))
        for precision in ("bf16", "fp16"):
            with self.subTest(precision):
                narrow = self.train(self.model(recipe % "sam(rho=0.5)" + "; precision = " + precision))
                off = max(abs(a - b) for a, b in zip(narrow[0], wide[0]))
                self.assertLess(5 * off, max(abs(a - b) for a, b in zip(plain[0], wide[0])))

    def test_resumed(self):
        artifact = self.model("optimizer = adam(lr=0.01); sharpness = asam(rho=1); ema = 0.9; checkpoint { dir = \"c\"; every = 5 steps; keep = 9 }", drop=0.2)
        whole = self.train(artifact)
        first = sorted(glob.glob(self.path("c", "*5.safetensors")))[0]
        again = self.train(artifact, "--resume", first)
        self.assertEqual(again[0][-11:], whole[0][5:])
        for key in whole[1]:
            numpy.testing.assert_array_equal(again[1][key], whole[1][key], err_msg=key)

    def test_ranks(self):
        """Each rank moves the weights by the gradient of its own rows, as recipes for DistributedDataParallel do; the gradients there are added up."""
        if not hosts.HAS_MPI:
            self.skipTest("no MPI: libft-mpi.so or mpirun is missing")
        recipe = "optimizer = sgd(lr=0.1); sharpness = sam(rho=0.5)"
        for zero in (0, 1, 2, 3):
            with self.subTest(zero=zero):
                artifact = self.model(recipe, batch=8, flags=["--set", "distributed.data=2", "--set", f"distributed.zero={zero}"])
                start = self.start_of_ranks(artifact)
                mine = self.train(artifact, "--ranks", "2", "--steps", str(STEPS), "--epochs", "4")
                theirs = self.torch_train(start, lambda p: torch.optim.SGD(p, lr=0.1), 0.5, parts=2, batch=16, rest_in=lambda i: 0.5)
                theirs = (theirs[0], {k: v for k, v in theirs[1].items() if "running" not in k})  # ranks have the mean of theirs
                self.assert_like(mine, theirs)

    def start_of_ranks(self, artifact):
        return self.train(artifact, "--ranks", "2", "--steps", "0", save="start")[1]

    def test_refused(self):
        for recipe, flags, needle in (
            ("sharpness = sam; prune = magnitude", [], "sharpness = sam would move weights that prune keeps at 0: leave out one of the two"),
            ("sharpness = sam", ["--set", "distributed.tensor=2"], "with distributed.tensor a rank has some: leave out one of the two"),
            ("sharpness = asam; accumulate = 2", ["--set", "distributed.pipeline=2"], "with distributed.pipeline a rank has some"),
            ("sharpness = sam(eta=0.1)", [], "sam has no argument 'eta'; it has rho"),
            ("sharpness = lookahead", [], "unknown sharpness 'lookahead'; there are sam and asam"),
            ("sharpness = sam(rho=-1)", [], "train.sharpness.rho"),
        ):
            with self.subTest(needle):
                with open(self.path("bad.ft"), "w") as file:
                    file.write(MODEL.replace("RECIPE", "optimizer = sgd(lr=0.1); " + recipe).replace("BATCH", "8").replace("DROP", "0"))
                self.fails(1, needle, "ftc", self.path("bad.ft"), "-o", self.path("bad.so"), *flags)


if __name__ == "__main__":
    support.main()
