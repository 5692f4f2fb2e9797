"""The recipe as it trains: a batch in parts equals the whole batch, also where targets are ignored; resumed runs
are bitwise the uninterrupted ones, for every optimiser; averages of weights, plateau, frozen groups."""
import itertools
import json
import math
import os
import shutil
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 6], y: i32[B, 5]) {
  param shift: [6] = constant(0.1)
  h = gelu(Linear(16, name="fc1")(x + shift))
  h = gelu(Linear(16, name="fc2")(h))
  logits = reshape(Linear(5 * 4, name="head")(h), B, 5, 4)
  each = cross_entropy(logits, y%(ignore)s)
  loss = %(loss)s
  metric accuracy = mean(weighted(f32(argmax(logits, axis=-1) == y), f32(y >= 0)))
  metric size = mean(h * h)
  metric rms = sqrt(mean(h * h))
  metric worst = max(abs(h))
  metric ratio = sum(each) / maximum(sum(f32(y >= 0)), 1)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = %(batch)s; accumulate = %(parts)s; epochs = 3; seed = 5
  %(recipe)s
  eval every 1 epoch
}
"""
OPTIMIZERS = {
    "sgd": "sgd(lr=0.05, momentum=0.9, nesterov=true, weight_decay=0.01)",
    "adam": "adam(lr=0.01)",
    "adamw": "adamw(lr=0.01, weight_decay=0.1 on rank >= 2)",
    "lion": "lion(lr=0.001)",
    "adagrad": "adagrad(lr=0.05)",
    "rmsprop": "rmsprop(lr=0.002, momentum=0.9, centered=true, eps=0.001)",
    "muon": 'muon(lr=0.02) on rank == 2 and not "head*"',
}


class Recipe(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        x = random.standard_normal((70, 6)).astype("f4")
        y = random.integers(0, 4, (70, 5)).astype("i4")
        y[random.random((70, 5)) < numpy.linspace(0, 0.9, 70)[:, None]] = -1  # some batches have few targets
        y[8:16] = -1  # a part in which nothing counts
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), y)

    def build(self, name="model.so", loss="mean(each)", ignore=", ignore=-1", batch=32, parts=1, recipe="", **flags):
        if not recipe:
            recipe = "optimizer = adamw(lr=0.01)"
        return self.compile(MODEL % dict(loss=loss, ignore=ignore, batch=batch, parts=parts, recipe=recipe), name=name)

    def train(self, artifact, *flags, log="log.jsonl"):
        support.run("ftrun", artifact, "--data", self.folder, "--set", "train.log.every=1", "--no-shuffle",
                    "--log-jsonl", self.path(log), "--save", self.path("weights"), *flags)
        return support.read_jsonl(self.path(log)), support.read_safetensors(self.path("weights"))

    def assert_alike(self, one, other, tolerance=2e-5):
        self.assertEqual(len(one[0]), len(other[0]))
        for a, b in zip(one[0], other[0]):
            self.assertEqual(set(a), set(b))
            for key in set(a) - {"samples_per_s"}:
                self.assertLess(abs(a[key] - b[key]), tolerance * max(1, abs(b[key])), f"{key} of {a} and {b}")
        for name in other[1]:
            numpy.testing.assert_allclose(one[1][name], other[1][name], rtol=tolerance, atol=tolerance, err_msg=name)

    def assert_same_bits(self, one, other):
        self.assertEqual(len(one[0]), len(other[0]))
        for a, b in zip(one[0], other[0]):
            self.assertEqual({k: v for k, v in a.items() if k != "samples_per_s"}, {k: v for k, v in b.items() if k != "samples_per_s"})
        self.assertEqual(set(one[1]), set(other[1]))
        for name in other[1]:
            self.assertEqual(one[1][name].tobytes(), other[1][name].tobytes(), name)

    # SGD shows a wrongly scaled gradient; Adam would hide it
    SGD = "optimizer = sgd(lr=0.5, momentum=0.5); clip = norm(1.0)"

    def test_parts_equal_the_whole(self):
        for parts in (2, 4):
            with self.subTest(parts=parts):
                whole = self.train(self.build(recipe=self.SGD))
                self.assertEqual(len([r for r in whole[0] if "eval" not in r]), 6)
                self.assert_alike(self.train(self.build(batch=32 // parts, parts=parts, recipe=self.SGD)), whole)

    def test_parts_without_ignored_targets(self):
        y = numpy.load(self.path("y.npy"))
        numpy.save(self.path("y.npy"), numpy.abs(y))
        whole = self.train(self.build(ignore="", recipe=self.SGD))
        self.assert_alike(self.train(self.build(ignore="", batch=4, parts=8, recipe=self.SGD)), whole)

    # each is what one batch of all parts would give: sums, means, what no parameter influences around them
    SUMS = ("2 * mean(each) + 1", "sum(each) / (sum(f32(y >= 0)) + 1e-9)", "-mean(-each) / 3", "sum(each)", "sum(each) / B", "sum(h * h) / (B - 1)",
            "sum(each) / maximum(sum(f32(y >= 0)), 1)", "where(sum(f32(y >= 0)) > 0, sum(each) / sum(f32(y >= 0)), 0)", "mean(each + 1) - 0.5 * mean(each * each)",
            "mean(each) + 0.01 * sum(shift ** 2)", "mean(h * h) + sqrt(sum(shift ** 2) + 1)", "mean(weighted(h * h, h > -5)) * 3", "mean(clamp(f32(each), 0.5, 2))",
            "sum(each) / sqrt(sum(f32(y >= 0)) + 1)", "mean(each) * stop_gradient(1 / (1 + mean(each)))", "sum(mean(h * h, axis=0))", "where(mean(each) > 1.25, mean(each), 0)", "mean(sum(each, axis=1) / 5)",
            "mean(each) + mean(cross_entropy(0.5 * logits, y, ignore=-1))")
    OTHERS = {"must be a mean or sum over the samples of a batch: the gradients of its parts are added": (
                  "sqrt(mean(each))", "log(mean(each))", "square(mean(each))", "exp(mean(each))", "sum(h) / sum(h * h)", "max(h)", "sum(each) * mean(h)",
                  "maximum(mean(each), 0.1)", "mean(sqrt(mean(h * h, axis=0)))"),
              "relates samples to each other": (
                  "std(h)", "mean(each) + 0.01 * sum(logits[0, 0] * 0)", "mean((h - mean(h)) ** 2)", "mean(h @ transpose(h))", "mean(softmax(h, axis=0) * h)",
                  "mean(each / sum(f32(y >= 0)))"),
              "mixes means that count different elements": (
                  "mean(each) + mean(each[:, 0])", "mean(each) + mean(h * h)", "mean(cross_entropy(logits[:, 0], y[:, 0], ignore=-1)) + mean(cross_entropy(logits[:, 1], y[:, 1], ignore=-1))")}

    def test_other_losses(self):
        for loss in self.SUMS:
            with self.subTest(loss=loss):
                recipe = "optimizer = sgd(lr=%g, momentum=0.5)" % (0.01 if loss in ("sum(each)", "sum(each) / sqrt(sum(f32(y >= 0)) + 1)") else 0.2)
                whole = self.train(self.build(loss=loss, recipe=recipe))
                self.assert_alike(self.train(self.build(loss=loss, batch=8, parts=4, recipe=recipe)), whole)

    def test_losses_that_parts_cannot_make(self):
        for said, losses in self.OTHERS.items():
            for loss in losses:
                with self.subTest(loss=loss):
                    text = MODEL % dict(loss=loss, ignore=", ignore=-1", batch=8, parts=4, recipe="")
                    with open(self.path("model.ft"), "w") as file:
                        file.write(text)
                    self.fails(1, said, "ftc", self.path("model.ft"), "-o", self.path("m.so"))
                    support.run("ftc", self.path("model.ft"), "--set", "train.accumulate=1", "--emit=plan")

    def test_states_are_updated_once_a_step(self):
        source = """
model M(x: f32[B, 6], y: i32[B, 5]) {
  param w: [6] = ones
  state target: [6] = zeros
  state steps: i32[] = 0
  state seen: f32[] = 0
  z = BatchNorm(name="norm")(x) * w
  update target = 0.9 * target + 0.1 * w
  update steps = steps + 1
  update seen = seen + sum(x * 0 + 1)
  loss = mean((z - 2) ** 2)
  metric spread = std(z)
}
data D { train = npy("x.npy", "y.npy") }
train { batch = %d; accumulate = %d; steps = 2; optimizer = sgd(lr=0.1) }
"""
        done = {}
        for parts in (1, 4):
            artifact = self.compile(source % (32 // parts, parts))
            _, done[parts] = self.train(artifact)
        numpy.testing.assert_allclose(done[4]["target"], done[1]["target"], rtol=0.02)  # the weights differ by the parts' statistics
        self.assertEqual((int(done[1]["steps"]), int(done[4]["steps"])), (2, 2))
        self.assertEqual((float(done[1]["seen"]), float(done[4]["seen"])), (2 * 32 * 6, 2 * 32 * 6))  # of the batch: in every part
        x = numpy.load(self.path("x.npy")).astype("f8")
        for parts in (1, 4):
            mean = numpy.zeros(6)
            for part in x[:64].reshape(2 * parts, -1, 6):
                mean = 0.9 * mean + 0.1 * part.mean(0)
            numpy.testing.assert_allclose(done[parts]["norm.running_mean"], mean, rtol=1e-4, atol=1e-6)
        said = support.run("ftc", self.path("model.ft"), "-o", self.path("m.so")).stderr
        self.assertIn("metric 'spread' of a training step is the mean of the parts' values", said)

    def test_dropout_differs_between_parts(self):
        source = """
model M(x: f32[B, 64]) {
  param w: [64] = ones
  loss = mean(dropout(x * w, 0.5))
}
data D { train = npy("ones.npy") }
train { batch = 1; accumulate = 2; steps = 20; optimizer = sgd(lr=1.0) }
"""
        numpy.save(self.path("ones.npy"), numpy.ones((64, 64), "f4"))
        _, weights = self.train(self.compile(source), "--steps", "1")
        moved = numpy.round((1 - weights["w"]) * 64, 3)  # 0, 1 or 2 of two masks
        self.assertEqual(set(moved.tolist()), {0.0, 1.0, 2.0})

    def test_shuffled_epochs(self):
        flags = ["--set", "data.shuffle=true"]
        support.run("ftrun", self.build(recipe=self.SGD), "--data", self.folder, "--save", self.path("a"), *flags)
        support.run("ftrun", self.build(batch=8, parts=4, recipe=self.SGD), "--data", self.folder, "--save", self.path("b"), *flags)
        a, b = support.read_safetensors(self.path("a")), support.read_safetensors(self.path("b"))
        for name in a:
            numpy.testing.assert_allclose(a[name], b[name], rtol=2e-5, atol=2e-5, err_msg=name)

    def test_resume_is_bitwise(self):
        for name, text in OPTIMIZERS.items():
            for parts in (1, 2):
                with self.subTest(optimizer=name, parts=parts):
                    recipe = f"optimizer = {text}\n  ema = 0.9; schedule = plateau(gamma=0.5, patience=0, metric=max(valid.loss))"
                    if parts == 1:  # a whole batch in which nothing counts is no loss
                        y = numpy.load(self.path("y.npy"))
                        y[8:16, 0] = 1
                        numpy.save(self.path("y.npy"), y)
                    artifact = self.build(batch=8, parts=parts, recipe=recipe)
                    folder, flags = self.path(f"{name}{parts}"), ["--save-ema", self.path("ema"), "--set", "data.shuffle=true"]
                    whole, average = self.train(artifact, *flags), support.read_safetensors(self.path("ema"))
                    checkpoint = ["--set", f"train.checkpoint.dir={folder}", "--set", "train.checkpoint.every=100"]
                    first = self.train(artifact, *flags, *checkpoint, "--steps", "5")
                    support.run("ftrun", artifact, "--data", self.folder, "--set", "train.log.every=1", "--no-shuffle",
                                "--resume", folder, "--log-jsonl", self.path("log.jsonl"), "--save", self.path("weights"), *flags)
                    self.assertNotIn("nonfinite", {key for line in whole[0] for key in line})  # NaN would be like any other NaN
                    both = (support.read_jsonl(self.path("log.jsonl")), support.read_safetensors(self.path("weights")))
                    del first
                    self.assert_same_bits(both, whole)
                    resumed = support.read_safetensors(self.path("ema"))
                    for key in average:
                        self.assertEqual(average[key].tobytes(), resumed[key].tobytes(), key)

    def test_average_before_the_first_update(self):
        """It is the weights, where no step was done, and where fp16 has skipped all of them; and begins as they are then."""
        for average, ranks in (("ema = 0.9", 1), ("average = swa(start=0.5)", 1), ("ema = 0.9", 2)):
            shared = ["--set", "distributed.data=2", "--set", "distributed.zero=2"] if ranks == 2 else []
            many = ["--ranks", str(ranks)] if ranks > 1 else []
            source = MODEL % dict(loss="mean(each)", ignore=", ignore=-1", batch=16, parts=2 // ranks,
                                  recipe=f"optimizer = sgd(lr=0.1); {average}; precision = fp16(initial=16777216, backoff=0.0625); log {{ every = 1 steps }}")
            artifact = self.compile(source, *shared)
            support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", self.path("start"), *many)
            start = {name: value if name.endswith("bias") else 8 * value for name, value in support.read_safetensors(self.path("start")).items()}
            support.write_safetensors(self.path("start"), start)
            for steps in (0, 1, 2):
                log, weights = self.train(artifact, "--steps", str(steps), "--init", self.path("start"), "--save-ema", self.path("ema"), "--set", "train.eval.unit=step", *many)
                if steps:
                    self.assertEqual([line["skipped_steps"] for line in log if "skipped_steps" in line][-1], steps)  # as is meant
                    self.assertEqual({line["loss"] for line in log if "eval" in line}, {line["ema_loss"] for line in log if "eval" in line})
                for name, value in support.read_safetensors(self.path("ema")).items():
                    self.assertTrue(numpy.array_equal(value, start[name]), (average, ranks, steps, name))
                    self.assertTrue(numpy.array_equal(weights[name], start[name]))

    def test_average_of_weights(self):
        recipe = "optimizer = sgd(lr=0.1); ema = 0.9"
        artifact = self.build(recipe=recipe)
        shown = support.run("ftrun", artifact, "--data", self.folder, "--steps", 2).stdout
        self.assertRegex(shown, r"ema_loss \d+\.\d{4}  ema_accuracy \d\.\d{4} ")  # as the others
        states = [self.train(artifact, "--steps", str(n))[1] for n in range(7)]
        log, _ = self.train(artifact, "--save-ema", self.path("ema"))
        average = support.read_safetensors(self.path("ema"))
        for name in average:
            expected = states[0][name].astype("f8")
            for state in states[1:]:
                expected = 0.9 * expected + 0.1 * state[name]
            numpy.testing.assert_allclose(average[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
        evaluation = [r for r in log if "eval" in r][-1]
        done = support.run("ftrun", "eval", artifact, "--data", self.folder, "--weights", self.path("ema"), "--log-jsonl", self.path("e"))
        other = support.read_jsonl(self.path("e"))[-1]
        for key in ("loss", "accuracy"):
            self.assertAlmostEqual(evaluation["ema_" + key], other[key], 6, done.stdout)
        self.assertNotEqual(evaluation["loss"], evaluation["ema_loss"])
        self.fails(1, "keeps no average", "ftrun", self.build(), "--data", self.folder, "--save-ema", self.path("x"))

    def test_many_metrics(self):
        """All metrics are logged, those of averaged weights beside them, however long their names; past the limit ftc refuses."""
        long = "m" * 150

        def source(count):
            metrics = "".join(f"  metric {long}_{i} = mean(h) + {i}\n" for i in range(count))
            return f"""
model M(x: f32[B, 6]) {{
  h = Linear(4, name="f")(x)
  loss = mean(h * h)
{metrics}}}
data D {{ train = npy("x.npy"); valid = npy("x.npy") }}
train {{ batch = 32; steps = 2; eval every 1 steps; ema = 0.5; precision = fp16; optimizer = sgd(lr=0.01)
  checkpoint {{ dir = "{long}"; every = 1 steps; best = max(valid.ema_{long}_99) }} }}
"""

        artifact = self.compile(source(100))
        support.run("ftrun", artifact, "--data", self.folder, "--set", "train.log.every=1", "--log-jsonl", self.path("log.jsonl"), cwd=self.folder)
        log = support.read_jsonl(self.path("log.jsonl"))
        names = {f"{long}_{i}" for i in range(100)}
        for line in log:
            want = names | ({"ema_loss"} | {"ema_" + name for name in names} if "eval" in line else {"loss_scale", "skipped_steps"})
            self.assertEqual(want - set(line), set())
            for name in names:
                self.assertAlmostEqual(line[name] - line[f"{long}_0"], int(name[151:]), 4)
        self.assertTrue(os.path.exists(self.path(long, "best.safetensors")))
        with open(self.path("model.ft"), "w") as file:
            file.write(source(201))
        self.fails(1, "a model has at most 200 metrics", "ftc", self.path("model.ft"), "-o", self.path("model.so"))

    def test_no_parameters(self):
        """A model without parameters counts its steps and updates its states, is evaluated and predicts."""
        source = """
model M(x: f32[B, 6]) {
  state total: f32[6] = zeros
  update total = total + sum(x, axis=0)
  loss = mean(dropout(x, 0.5) ** 2)
  metric mean_x = mean(x)
  output y = x + total
}
data D { train = npy("x.npy"); valid = npy("x.npy") }
train { batch = 10; epochs = 2; ema = 0.5; optimizer = adam(lr=0.1); eval every 1 epoch }
"""
        x = numpy.load(self.path("x.npy")).astype("f8")
        for name, flags, device in (("n.so", [], "cpu"), ("n.so", ["--set", "train.accumulate=7"], "cpu"), ("n.ptx", [], "sim")):
            artifact = self.compile(source, *flags, name=name)
            runs = ["--device", device, "--set", f"train.checkpoint.dir={self.path('runs')}"]
            log, weights = self.train(artifact, *runs, "--epochs", "1")
            self.assertEqual(set(weights), {"total"})
            numpy.testing.assert_allclose(weights["total"], x.sum(0), 1e-4, 1e-4)
            log, weights = self.train(artifact, *runs, "--resume", self.path("runs"))
            numpy.testing.assert_allclose(weights["total"], 2 * x.sum(0), 1e-4, 1e-4)
            self.assertEqual(log[-1]["step"], 2 if flags else 14)
            self.assertAlmostEqual(log[-1]["loss"], (x**2).mean(), 5)
            if flags:  # one step takes all samples, in parts
                self.assertAlmostEqual([line for line in log if "eval" not in line][-1]["mean_x"], x.mean(), 5)
            support.run("ftrun", "eval", artifact, "--data", self.folder, "--weights", self.path("weights"), "--device", device)
            support.run("ftrun", "predict", artifact, "--weights", self.path("weights"), "--input", f"x={self.path('x.npy')}",
                        "--output", self.path("y.npy"), "--device", device)
            numpy.testing.assert_allclose(numpy.load(self.path("y.npy")), x + 2 * x.sum(0), 1e-4, 1e-4)
            shutil.rmtree(self.path("runs"))

    def test_plateau(self):
        recipe = "optimizer = sgd(lr=0.1); schedule = plateau(metric=max(valid.loss), patience=1, gamma=0.5, cooldown=1, final=0.1)"
        log, _ = self.train(self.build(recipe=recipe), "--epochs", "12")
        rates, best, bad, cooldown, rate = [], -1e9, 0, 0, 0.1
        for record in log:  # as torch.optim.lr_scheduler.ReduceLROnPlateau(mode="max", threshold=1e-4)
            if "eval" not in record:
                rates.append((record["lr"], rate))
                continue
            if record["loss"] > best * (1 + 1e-4) or best == -1e9:
                best, bad = record["loss"], 0
            else:
                bad += 1
            if cooldown:
                cooldown, bad = cooldown - 1, 0
            if bad > 1:
                rate, cooldown, bad = max(rate * 0.5, 0.01), 1, 0
        self.assertGreater(len({want for _, want in rates}), 3)
        for have, want in rates:
            self.assertAlmostEqual(have, want, 9)

    def test_plateau_of_another_metric(self):
        """What was best by the metric of the checkpoint's training is no value of this one's: the count begins anew, the rate goes on."""
        artifact = self.build(recipe="optimizer = sgd(lr=0.1); schedule = plateau(metric=min(valid.loss), patience=1, gamma=0.5)")
        runs = ["--set", f"train.checkpoint.dir={self.path('runs')}"]
        self.train(artifact, "--epochs", "3", *runs)
        log, _ = self.train(artifact, "--epochs", "8", *runs, "--resume", self.path("runs"), "--set", "train.schedule.metric=max(valid.loss)")
        losses = [record["loss"] for record in log if "eval" in record]
        self.assertEqual(losses, sorted(losses, reverse=True))  # of those behind the third the first is the best
        rates = {record["epoch"]: record["lr"] for record in log if "eval" not in record}
        self.assertEqual([rates[epoch] for epoch in range(4, 9)], [0.1, 0.1, 0.1, 0.05, 0.05])

    def test_schedules(self):
        """Every step's rate by the formulas of docs/language.md; the last one is exactly `final`."""
        def factor(kind, t, n, w, final, decay):
            if t < w:
                return (t + 1) / w
            p = 1 if t == n - 1 else (t - w) / (n - 1 - w)
            if kind == "wsd":
                p = 1 - min(1, (n - 1 - t) / max(decay or n / 5, 1))
            return final + (1 - final) * ((1 + math.cos(math.pi * p)) / 2 if kind == "cosine" else 1 - p)
        for kind in ("linear", "cosine", "wsd"):
            artifact = self.build(loss="mean(h * h)", recipe=f"optimizer = sgd(lr=0.1); schedule = {kind}", batch=8)
            for n, w, final, decay in itertools.product((1, 2, 12), (0, 1, 5, 12, 20), (0, 0.25), (0, 1, 5, 30) if kind == "wsd" else (0,)):
                log, _ = self.train(artifact, "--steps", str(n), "--set", f"train.schedule.warmup={w}", "--set",
                                    f"train.schedule.final={final}", *(["--set", f"train.schedule.decay={decay}"] if decay else []))
                log = [record for record in log if "eval" not in record]
                self.assertEqual(len(log), n)
                for t, record in enumerate(log):
                    want = 0.1 * factor(kind, t, n, w, final, decay)
                    self.assertAlmostEqual(record["lr"], want, 9, (kind, t, n, w, final, decay))
                if w < n:
                    self.assertEqual(log[-1]["lr"], 0.1 * final, (kind, n, w, final, decay))

    def test_plateau_after_nan(self):
        source = """
model M(x: f32[B, 6], y: i32[B, 5]) {
  param p: [1] = constant(-0.15)
  loss = mean(square(p - 1) + 0 * mean(x))
  metric root = mean(sqrt(p))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 16; steps = 40; optimizer = sgd(lr=0.02); eval every 1 steps
  schedule = plateau(metric=max(valid.root), patience=2, gamma=0.5, threshold=0.06) }
"""
        log, _ = self.train(self.compile(source))
        dummy = torch.optim.SGD([torch.zeros(1)], lr=0.02)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(dummy, "max", 0.5, 2, 0.06)
        seen = []
        for record in log:
            if "eval" in record:
                scheduler.step(math.nan if record["root"] is None else record["root"])
                seen.append(record["root"] is None)
            else:
                self.assertAlmostEqual(record["lr"], dummy.param_groups[0]["lr"], 12)
        self.assertTrue(seen[0] and not seen[-1])
        self.assertGreater(len({record["lr"] for record in log if "lr" in record}), 2)

    def test_rules_name_something(self):
        """A metric or split that does not exist is found before the first step, by ftc and by ftrun."""
        recipe = "checkpoint { dir = \"runs\"; best = %s }"
        for rule, needle in (("max(valid.acuracy)", "did you mean 'accuracy'?"), ("min(train.loss)", "training evaluates valid"),
                             ("min(valid.ema_loss)", "no metric 'ema_loss'")):
            with open(self.path("rule.ft"), "w") as file:
                file.write(MODEL % dict(loss="mean(each)", ignore=", ignore=-1", batch=8, parts=1, recipe=recipe % rule))
            self.fails(1, needle, "ftc", self.path("rule.ft"), "-o", self.path("rule.so"))
            artifact = self.build(recipe='checkpoint { dir = "runs" }')
            done = self.fails(1, "train.checkpoint.best=" + rule, "ftrun", artifact, "--data", self.folder, "--set", f"train.checkpoint.best={rule}",
                              cwd=self.folder)
            self.assertNotIn("step", done.stdout)
        artifact = self.build(recipe="schedule = plateau")
        self.fails(1, "no metric 'lost'", "ftrun", artifact, "--data", self.folder, "--set", "train.schedule.metric=min(valid.lost)")
        self.fails(1, "needs valid data", "ftrun", artifact, "--data", self.folder, "--set", "train.eval.every=0")
        artifact = self.build(recipe="optimizer = sgd(lr=0.1, momentum=0.9, nesterov=true)")
        for change in ("dampening=0.5", "momentum=0"):
            self.fails(1, "compiled with nesterov", "ftrun", artifact, "--data", self.folder, "--set", "train." + change)

    def test_groups(self):
        recipe = 'optimizer = adamw(lr=0.01, weight_decay=0.5 on "fc2.weight"); lr = 0x on "fc1.*"; lr = 0.5x on "head.bias"'
        _, start = self.train(self.build(recipe=recipe), "--steps", "0")
        _, plain = self.train(self.build(recipe="optimizer = adamw(lr=0.01)"), "--steps", "0")
        _, after = self.train(self.build(recipe=recipe), "--steps", "1")
        for name in start:  # the order of the arena does not change initial values
            numpy.testing.assert_array_equal(start[name], plain[name])
        for name in ("fc1.weight", "fc1.bias"):
            numpy.testing.assert_array_equal(start[name], after[name])
        moved = numpy.abs(after["head.bias"] - start["head.bias"])
        self.assertAlmostEqual(moved.max(), 0.005, 4)
        self.assertAlmostEqual(numpy.abs(after["head.weight"] - start["head.weight"]).max(), 0.01, 4)
        decayed = after["fc2.weight"] - start["fc2.weight"] * (1 - 0.01 * 0.5)
        self.assertAlmostEqual(numpy.abs(decayed).max(), 0.01, 4)

    def test_frozen_do_not_count(self):
        """`lr = 0x` is requires_grad=False: no part in the norm that clips, no decay, whatever the optimiser."""
        source = """
model M(x: f32[B, 6], t: f32[B, 3]) {
  h = tanh(Linear(8, name="fc1")(x))
  loss = mean(square(Linear(3, name="head")(tanh(Linear(8, name="fc2")(h))) - t))
}
data D { train = npy("x.npy", "t.npy") }
train { batch = %d; accumulate = %d; steps = 5; optimizer = %s; clip = norm(0.05); lr = 0x on %s; eval = none }
"""
        random = numpy.random.default_rng(1)
        x, t = random.standard_normal((40, 6)).astype("f4"), random.standard_normal((40, 3)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("t.npy"), t)
        makes = {"sgd(lr=0.5, weight_decay=0.1)": lambda p: torch.optim.SGD(p, 0.5, weight_decay=0.1),
                 "adamw(lr=0.01)": lambda p: torch.optim.AdamW(p, 0.01)}
        for (text, make), parts, frozen in itertools.product(makes.items(), (1, 2), ('"fc1.*"', '("fc2.*", "head.bias")')):
            artifact = self.compile(source % (8 // parts, parts, text, frozen))
            flags = ["--data", self.folder, "--no-shuffle", "--set", "train.log.every=1", "--log-jsonl", self.path("log"), "--save"]
            support.run("ftrun", artifact, *flags, self.path("start"), "--steps", "0")
            support.run("ftrun", artifact, *flags, self.path("end"))
            net = torch.nn.ModuleDict({"fc1": torch.nn.Linear(6, 8), "fc2": torch.nn.Linear(8, 8), "head": torch.nn.Linear(8, 3)}).double()
            net.load_state_dict({key: torch.tensor(value) for key, value in support.read_safetensors(self.path("start")).items()})
            for name, p in net.named_parameters():
                p.requires_grad = not (name.startswith("fc1") if "fc1" in frozen else name.startswith("fc2") or name == "head.bias")
            optimizer, norms = make([p for p in net.parameters() if p.requires_grad]), []
            for i in range(5):
                rows = torch.tensor(x[8 * i:8 * i + 8]).double()
                y = net["head"](torch.tanh(net["fc2"](torch.tanh(net["fc1"](rows)))))
                optimizer.zero_grad()
                ((y - torch.tensor(t[8 * i:8 * i + 8])) ** 2).mean().backward()
                norms.append(torch.nn.utils.clip_grad_norm_([p for p in net.parameters() if p.requires_grad], 0.05).item())
                optimizer.step()
            logged = [line["grad_norm"] for line in support.read_jsonl(self.path("log")) if "grad_norm" in line]
            numpy.testing.assert_allclose(logged, norms, 2e-5, err_msg=f"{text} {parts}")
            end = support.read_safetensors(self.path("end"))
            for name, p in net.named_parameters():
                numpy.testing.assert_allclose(end[name], p.detach().numpy(), 2e-5, 2e-6, err_msg=f"{text} {parts} {name}")

    def test_other_ways_to_run_parts(self):
        artifact = self.build(batch=8, parts=2, recipe=self.SGD + "; ema = 0.9")
        plain = self.train(artifact, "--steps", "3")
        for flags in (["--trace", self.path("trace.json")], ["--check", "nan"]):
            self.assert_same_bits(self.train(artifact, "--steps", "3", *flags), plain)
        support.run("ftrun", "bench", artifact, "--made-up-data", "--steps", "3")
        said = support.run("ftrun", "bench", artifact, "--eval", "--steps", "3", "--json", self.path("bench.json")).stdout
        self.assertRegex(said, r"(?m)^evaluate median [\d.]+ ms .* samples/s$")
        with open(self.path("bench.json")) as file:
            measured = json.load(file)
        self.assertEqual(measured["graph"], "eval")
        self.assertEqual({kernel["phase"] for kernel in measured["kernels"]}, {"forward"})
        # the same two parts each time: the first step is that of the plain run, and then the loss falls steadily
        one = [r for r in self.train(artifact, "--steps", "8", "--overfit-batch")[0] if "eval" not in r]
        self.assertEqual(one[0]["loss"], plain[0][0]["loss"])
        self.assertLess(one[7]["loss"], one[3]["loss"])
        self.assertLess(one[3]["loss"], one[0]["loss"])

    def test_simulated(self):
        for recipe in (f"optimizer = {OPTIMIZERS['muon']}; ema = 0.9; clip = norm(1.0)", "optimizer = adamw(weight_decay=0.1 on rank >= 2); clip = value(0.01)"):
            with self.subTest(recipe=recipe):
                self.assert_alike(self.train(self.build(batch=8, parts=2, recipe=recipe, name="model.ptx"), "--steps", "3", "--device", "sim"),
                                  self.train(self.build(batch=8, parts=2, recipe=recipe), "--steps", "3"))

    def test_parts_in_narrow_types(self):
        """The same operands are rounded; what flows back is rounded at other scales: a unit roundoff or so."""
        for precision, unit in (("bf16", 2.0**-8), ("fp16", 2.0**-11)):
            with self.subTest(precision=precision):
                recipe = f"optimizer = sgd(lr=0.5, momentum=0.5); clip = norm(1.0); precision = {precision}"
                whole = self.train(self.build(recipe=recipe))
                for name, device in (("model.so", "cpu"), ("model.ptx", "sim")):
                    self.assert_alike(self.train(self.build(batch=8, parts=4, recipe=recipe, name=name), "--device", device), whole, 4 * unit)

    def test_parts_take_no_memory(self):
        source = MODEL.replace("Linear(16", "Linear(256")
        tables = []
        for parts in (1, 4):
            with open(self.path("m.ft"), "w") as file:
                file.write(source % dict(loss="mean(each)", ignore=", ignore=-1", batch=8, parts=parts, recipe="optimizer = adamw(lr=0.01)"))
            for name in ("m.so", "m.ptx"):
                said = support.run("ftc", self.path("m.ft"), "-o", self.path(name), "--memory").stdout
                tables.append({" ".join(words[:2]): int(words[2]) for words in (line.split() for line in said.splitlines()) if len(words) > 2 and words[2].isdigit()})
        for one, more in zip(tables[:2], tables[2:]):
            self.assertGreater(one["optimizer state"], 500_000)
            self.assertLess(more["optimizer state"], one["optimizer state"] + 2000)

    def test_too_few_samples(self):
        self.fails(1, "--set train.batch=35 or smaller", "ftrun", self.build(batch=36, parts=2), "--data", self.folder)
        self.fails(1, "fewer parts than train.accumulate=71", "ftrun", self.build(batch=1, parts=71), "--data", self.folder)

    def test_what_was_compiled_out(self):
        for optimizer, key in (("sgd(lr=0.1)", "train.momentum=0.9"), ("rmsprop(lr=0.1)", "train.momentum=0.9"), ("adam(lr=0.1)", "train.ema=0.9")):
            artifact = self.build(recipe=f"optimizer = {optimizer}")
            self.fails(1, "has no memory for it", "ftrun", artifact, "--data", self.folder, "--set", key)
        for key, is_read in (("train.momentum=0.9", False), ("train.schedule.gamma=0.5", False), ("train.beta1=0.5", True), ("train.schedule.warmup=1", True), ("train.seed=3", True)):
            done = support.run("ftrun", artifact, "--data", self.folder, "--steps", "1", "--set", key)  # adam has no momentum
            said = f"--set {key.split('=')[0]} does nothing: no step of this model reads it (optimizer adam, schedule constant)"
            (self.assertNotIn if is_read else self.assertIn)(said, done.stdout + done.stderr)


if __name__ == "__main__":
    support.main()
