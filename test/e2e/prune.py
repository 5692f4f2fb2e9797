"""Pruning in training (`prune = magnitude(...)`): each mask is that of numpy, ties, odd sizes and last blocks included; what is pruned is 0 to
the bit, in parameters, moments and averages, under every optimizer and way of training; a resumed run is the same run."""
import glob
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 3, 6, 6], y: i32[B]) {
  h = relu(BatchNorm(name="bn")(Conv2d(6, 3, padding=1, name="conv")(x)))
  h = relu(Linear(10, name="fc1")(flatten(h, from=1)))
  loss = mean(cross_entropy(Linear(7, name="fc2")(h), y))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 8; epochs = 2; seed = 5; eval = none; optimizer = %s; prune = %s; %s }
"""
WHEN = "begin=2 steps, end=9 steps, every=3 steps"
WEIGHTS = ["conv.weight", "fc1.weight", "fc2.weight"]
random = numpy.random.RandomState(3)


def wanted(count, begin=2, end=9, every=3, first=0.0, last=0.8):
    """Zhu and Gupta's share behind `count` updates; None: the mask stays."""
    if count < begin or count > end or ((count - begin) % every and count != end):
        return None
    left = 0.0 if count >= end else 1 - (count - begin) / (end - begin)
    return last + (first - last) * left ** 3


def best(score, keep):
    """The highest; of equal ones the first."""
    order = numpy.lexsort((numpy.arange(score.size), -score.astype("f8")))
    is_kept = numpy.zeros(score.size, bool)
    is_kept[order[:keep]] = True
    return is_kept


def kept(units, share):
    return units - int(numpy.floor(share * units + 0.5))


def block_means(x, h, w):
    rows, columns = x.shape
    return numpy.array([[x[r:r + h, c:c + w].astype("f8").mean() for c in range(0, columns, w)] for r in range(0, rows, h)]).astype("f4")


def mask_of(score, share, structure):
    matrix = score.reshape(score.shape[0], -1)
    if structure == "element":
        return best(score.ravel(), kept(score.size, share)).reshape(score.shape)
    if ":" in structure:
        n, m = map(int, structure.split(":"))
        is_kept = numpy.zeros(score.shape, bool)
        for begin in range(0, score.shape[1], m):
            part = score[:, begin:begin + m]
            order = numpy.argsort(-part, axis=1, kind="stable")[:, :n]
            numpy.put_along_axis(is_kept[:, begin:begin + m], order, True, axis=1)
        return is_kept
    h, w = (1, matrix.shape[1]) if structure == "channel" else map(int, structure.split("x"))
    means = block_means(matrix, h, w)
    units = best(means.ravel(), kept(means.size, share)).reshape(means.shape)
    whole = numpy.repeat(numpy.repeat(units, h, axis=0), w, axis=1)
    return whole[:matrix.shape[0], :matrix.shape[1]].reshape(score.shape)


class Prune(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), random.randn(64, 3, 6, 6).astype("f4"))
        numpy.save(self.path("y.npy"), random.randint(0, 7, 64).astype("i4"))

    def built(self, prune, optimizer="sgd(lr=0)", more="", *flags):
        return self.compile(MODEL % (optimizer, prune, more), *flags)

    def checkpoints(self, artifact, name, *flags, steps=10):
        """What a training keeps behind each step, by its number."""
        folder = self.path(name)
        support.run("ftrun", artifact, "--data", self.folder, "--steps", steps, "--set", f"train.checkpoint.dir={folder}", "--set",
                    "train.checkpoint.unit=step", "--set", "train.checkpoint.every=1", "--set", "train.checkpoint.keep=100", *flags)
        files = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
        files = [f for f in files if "best" not in f]
        self.assertEqual(len(files), steps)
        return [None] + [support.read_safetensors(f) for f in files]

    def start(self, artifact, coarse=True):
        """Weights with many ties, and some zeros."""
        file = self.path("start.safetensors")
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", file)
        tensors = support.read_safetensors(file)
        for name in WEIGHTS:
            value = random.randn(*tensors[name].shape)
            tensors[name] = (numpy.round(value * 4) / 4 if coarse else value).astype("f4")
        support.write_safetensors(file, tensors)
        return file, tensors

    def test_masks(self):
        for structure in ("element", "2:4", "1:3", "4x5", "3x100", "channel"):
            share = "" if ":" in structure else "sparsity=0.8, "
            word = structure if structure.isalpha() else f'"{structure}"'
            artifact = self.built(f"magnitude({share}{WHEN}, structure={word})")
            for coarse in (True, False) if structure == "element" else (structure != "4x5",):
                file, start = self.start(artifact, coarse)
                states = self.checkpoints(artifact, f"{structure.replace(':', 'of')}{coarse}", "--init", file)
                for name in WEIGHTS:
                    alive = numpy.ones(start[name].shape, bool)
                    for count in range(1, 11):
                        share = wanted(count)
                        if share is not None:
                            score = numpy.where(alive, abs(start[name]), -numpy.finfo("f4").max)
                            alive &= mask_of(score, share, structure)
                        if structure == "channel" and name == "fc2.weight":
                            alive[:] = True  # the model's outputs
                        with self.subTest(structure=structure, coarse=coarse, name=name, count=count):
                            self.assertTrue(numpy.array_equal(states[count][name], numpy.where(alive, start[name], 0)))
                            if structure == "channel" and name == "conv.weight":
                                lives = alive.reshape(6, -1).any(1)
                                for vector in ("conv.bias", "bn.weight", "bn.bias"):
                                    self.assertTrue(numpy.array_equal(states[count][vector], numpy.where(lives, start[vector], 0)))

    def test_two_of_four_at_once(self):
        """Nothing but the structure is said: the first update is followed by the choice, not the one hundredth or that at three quarters of all."""
        artifact = self.built('magnitude(structure="2:4")')
        file, start = self.start(artifact)
        states = self.checkpoints(artifact, "once", "--init", file)
        for name in WEIGHTS:
            for count in (1, 10):
                is_kept = mask_of(abs(start[name]), None, "2:4")
                self.assertTrue(numpy.array_equal(states[count][name], numpy.where(is_kept, start[name], 0)), (name, count))

    def test_outputs(self):
        """The channels of last layers are the model's outputs: left alone, or warned of. They are told apart by the graph."""
        def compiled(body, prune="magnitude(structure=channel)"):
            with open(self.path("o.ft"), "w") as f:
                f.write(MODEL.replace(MODEL[MODEL.index("  h = relu(B"):MODEL.index("}\ndata")], body) % ("sgd", prune, ""))
            return support.run("ftc", self.path("o.ft"), "-o", self.path("o.so"), check=False)
        two = """  h = relu(Linear(10, name="fc1")(flatten(x, from=1)))
  z = Linear(7, name="a")(h)
  u = Linear(7, name="b")(h) * 0.5
  loss = mean(cross_entropy(z + u, y))
"""
        done = compiled(two)
        self.assertEqual(done.returncode, 0)
        self.assertIn("prune leaves 'a.weight', 'b.weight' alone", done.stderr)
        done = compiled(two, 'magnitude(structure=channel) on "*.weight"')
        self.assertEqual(done.returncode, 0)
        self.assertIn("warning: outputs of the model are pruned: the channels of 'a.weight', 'b.weight'", done.stderr)
        self.assertNotIn("prune", compiled(two, 'magnitude(structure=channel) on "fc1.*"').stderr)
        self.assertNotIn("prune", compiled(two, "magnitude").stderr)
        rounded = two.replace("Linear(", "QuantLinear(")  # rounded weights are weights
        self.assertIn("prune leaves 'a.weight', 'b.weight' alone", compiled(rounded).stderr)
        self.assertNotIn("prune", compiled(rounded, 'magnitude(structure=channel) on "fc1.*"').stderr)
        self.assertIn("the channels of 'a.weight', 'b.weight' are", compiled(rounded.replace("(10,", "(10, dynamic=true,"), 'magnitude(structure=channel) on "*.weight"').stderr)
        tied = """  param e: [12, 6] = normal(0.1)
  w = Linear(6, name="fc1")(mean(embed(e, i32(abs(flatten(x, from=1)[:, 0:4]) < 1)), axis=1))
  loss = mean(cross_entropy((w @ transpose(e))[:, 0:7], y))
"""
        done = compiled(tied)
        self.assertIn("prune leaves 'e' alone", done.stderr)
        done = compiled("""  z = Linear(7, name="a")(flatten(x, from=1))
  loss = mean(cross_entropy(z, y))
""")
        self.assertEqual(done.returncode, 1)
        self.assertIn("structure=channel prunes nothing: no layer's channels are read by another layer, those of 'a.weight' are outputs of the model",
                      done.stderr)

    def test_set_of_a_model(self):
        """What the compiler makes memory for, and a training may change: `ftrun model.ft --set` is for both."""
        self.built("none", "sgd(lr=0.1)")
        ends = []
        for how in ("set", "file"):
            end = self.path(f"{how}.safetensors")
            with open(self.path("model.ft"), "w") as f:
                f.write(MODEL % ("sgd(lr=0.1, momentum=0.9)" if how == "file" else "sgd(lr=0.1)", "none", "ema = 0.8" if how == "file" else ""))
            sets = ["--set", "train.momentum=0.9", "--set", "train.ema=0.8"] if how == "set" else []
            support.run("ftrun", self.path("model.ft"), "--data", self.folder, "--save-ema", end, *sets)
            ends.append(support.read_safetensors(end))
        for name, value in ends[0].items():
            self.assertTrue(numpy.array_equal(value, ends[1][name]), name)

    def test_set_without_effect(self):
        plain = self.built("none")
        for assignment, words in (("train.prune.sparsity=0.9", 'ftc --set "train.prune=magnitude"'), ("train.grow.share=0.5", 'ftc --set "train.grow=batch(16)"')):
            self.fails(1, words, "ftrun", plain, "--data", self.folder, "--set", assignment)
            self.fails(1, "does nothing by itself", "ftc", self.path("model.ft"), "-o", self.path("x.so"), "--set", assignment)
        with_mask = self.built("zeros")
        self.fails(1, "prune = zeros and structure=element, which have no such argument", "ftrun", with_mask, "--data", self.folder, "--set", "train.prune.end=3")
        self.fails(1, "structure=2:4, which have no such", "ftrun", self.built('magnitude(structure="2:4")'), "--data", self.folder, "--set", "train.prune.sparsity=0.3")

    def test_begins_at_resume(self):
        """Pruning that a checkpoint knows nothing of begins with the run that goes on from it."""
        plain = self.built("none", "adam(lr=0.01)", "checkpoint { every = 4 steps }")
        before, end = self.path("before"), self.path("end.safetensors")
        support.run("ftrun", plain, "--data", self.folder, "--stop-at", 4, "--set", f"train.checkpoint.dir={before}")
        file = glob.glob(os.path.join(before, "*4.safetensors"))[0]
        pruned = self.built("magnitude(sparsity=0.8, begin=6, end=6)", "adam(lr=0.01)")
        done = support.run("ftrun", pruned, "--data", self.folder, "--resume", file, "--save", end)
        self.assertIn("comes from a training without pruning, which begins now", done.stdout)
        for name in WEIGHTS:
            value = support.read_safetensors(end)[name]
            self.assertEqual((value == 0).sum(), value.size - kept(value.size, 0.8), name)
        # zeros: what is 0 in the checkpoint stays so
        zeros = self.built("zeros", "sgd(lr=0)")
        support.run("ftrun", zeros, "--data", self.folder, "--stop-at", 3, "--set", f"train.checkpoint.dir={self.path('z')}", "--init", self.start(zeros)[0])
        plain = self.built("none", "sgd(lr=0)")
        support.run("ftrun", plain, "--data", self.folder, "--stop-at", 3, "--set", f"train.checkpoint.dir={self.path('p')}", "--init", self.path("start.safetensors"))
        zeros = self.built("zeros", "sgd(lr=0.1)")
        ends = []
        for folder in "zp":
            support.run("ftrun", zeros, "--data", self.folder, "--resume", self.path(folder), "--save", end)
            ends.append(support.read_safetensors(end))
        for name in WEIGHTS:
            self.assertGreater((ends[0][name] == 0).sum(), 0)
            self.assertTrue(numpy.array_equal(ends[0][name], ends[1][name]), name)

    def test_prunes_nothing(self):
        """A schedule that has no choice in the steps at hand, or ends behind them, is told; where pruning begins with the run it is refused."""
        plain = self.built("none", "sgd(lr=0.1)")
        support.run("ftrun", plain, "--data", self.folder, "--stop-at", 6, "--set", f"train.checkpoint.dir={self.path('six')}")
        for begin, end, goes_on in ((6, 6, False), (2, 6, False), (7, 7, True), (2, 7, True), (16, 0, True), (17, 0, False), (17, 20, False)):
            with self.subTest(begin=begin, end=end):
                artifact = self.built(f"magnitude(begin={begin}, end={end}, every=1)", "sgd(lr=0.1)")
                line = ["ftrun", artifact, "--data", self.folder, "--resume", self.path("six")]
                if goes_on:
                    self.assertNotIn("warning", support.run(*line).stderr)
                else:
                    self.fails(1, f"after update{'s 2 to 6' if begin == 2 else 's 17 to 20' if end == 20 else f' {begin}'}, and goes on from 6 to 16; --set", *line)
        # from the start, and with what a checkpoint has pruned already
        artifact, end, folder = self.built("magnitude(begin=4, end=12, every=3)", "sgd(lr=0.1)"), self.path("end.safetensors"), self.path("four")
        line = ["ftrun", artifact, "--data", self.folder, "--save", end]
        for steps, words in ((3, "this training prunes nothing: prune chooses after updates 4 to 12, and it goes from update 1 to 3"), (12, None),
                             (11, "prune ends after update 12, and this training after 11: its last choice, after 10, leaves 0.492 of the weights 0, not 0.5"),
                             (4, "its last choice, after 4, leaves 0 of the weights 0, not 0.5")):
            said = support.run(*line, "--steps", steps).stderr
            self.assertIn(words or "", said)
            self.assertEqual("warning" in said, bool(words), said)
            fc1 = support.read_safetensors(end)["fc1.weight"]
            left = float(words.split("leaves ")[1].split()[0]) if words and "leaves" in words else 0 if words else 0.5
            self.assertAlmostEqual((fc1 == 0).mean(), left, delta=1e-3)
        support.run(*line, "--stop-at", 13, "--set", f"train.checkpoint.dir={folder}")
        self.assertNotIn("warning", support.run(*line, "--resume", folder).stderr)
        done = support.run(*line, "--resume", folder, "--set", "train.prune.sparsity=0.9")
        self.assertIn("this training prunes nothing: prune chooses after updates 4 to 12, and it goes from update 14 to 16", done.stderr)

    def test_global(self):
        artifact = self.built(f'magnitude(sparsity=0.8, {WHEN}, scope=global) on ("fc*.weight", "conv.weight")')
        file, start = self.start(artifact)
        states = self.checkpoints(artifact, "global", "--init", file)
        # the order of the parameters is that of the file
        names = [n for n in start if n in WEIGHTS]
        score = numpy.concatenate([abs(start[n]).ravel() for n in names])
        alive = numpy.ones(score.size, bool)
        for count in range(1, 11):
            share = wanted(count)
            if share is not None:
                alive &= best(numpy.where(alive, score, -numpy.finfo("f4").max), kept(score.size, share))
            got = numpy.concatenate([states[count][n].ravel() for n in names]) != 0
            self.assertTrue(numpy.array_equal(got, alive & (score != 0)), count)

    def test_scores(self):
        """movement and gradient: sums and averages of w dL/dw, of a model whose gradient is known."""
        text = """
model M(x: f32[B, 9], y: f32[B, 7]) { loss = sum((Linear(7, bias=false, name="fc")(x) - y) ** 2) }
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 8; epochs = 2; seed = 5; eval = none; optimizer = sgd(lr=0.001); prune = %s(sparsity=0.7, begin=4, end=6, every=1) }
"""
        x, y = random.randn(64, 9).astype("f4"), random.randn(64, 7).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), y)
        for kind in ("movement", "gradient"):
            artifact = self.compile(text % kind)
            file = self.path("first.safetensors")
            support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", file)
            w = support.read_safetensors(file)["fc.weight"].astype("f8")
            states = self.checkpoints(artifact, kind, steps=7)
            score, alive = numpy.zeros(w.shape), numpy.ones(w.shape, bool)
            for count in range(1, 8):
                rows = slice(8 * (count - 1), 8 * count)
                g = 2 * (x[rows] @ w.T - y[rows]).T @ x[rows] * alive
                score = score - w * g if kind == "movement" else 0.9 * score + 0.1 * abs(w * g)
                w = w - 0.001 * g
                share = wanted(count, 4, 6, 1, 0, 0.7)
                if share is not None:
                    own = numpy.where(alive, score, -numpy.finfo("f4").max)
                    alive &= best(own.ravel(), kept(w.size, share)).reshape(w.shape)
                w = w * alive
                self.assertTrue(numpy.array_equal(states[count]["fc.weight"] != 0, alive), (kind, count))
                numpy.testing.assert_allclose(states[count]["fc.weight"], w, rtol=1e-4, atol=1e-5)

    def test_zero_stays_zero(self):
        """Once dead, always: parameters, moments from the next step on, averages; under what else a training does."""
        ways = {
            "adamw": ("adamw(lr=0.02, weight_decay=0.1)", "ema = 0.9; clip = norm(0.1)", []),
            "sgd": ("sgd(lr=0.1, momentum=0.9, weight_decay=0.1)", "accumulate = 2", []),
            "muon": ("muon(lr=0.02)", "", []),
            "bf16": ("adam(lr=0.02)", "precision = bf16(parameters=bf16)", []),
            "fp16": ("adam(lr=0.02)", "precision = fp16(loss_scale=1e30); ema = 0.9", []),
            "ranks": ("adam(lr=0.02)", "", ["--ranks", "2"]),
        }
        for name, (optimizer, more, flags) in ways.items():
            static = ["--set", "distributed.data=2"] if flags else []
            artifact = self.built("magnitude(sparsity=0.8, begin=1, end=4, every=1)", optimizer, more, *static)
            steps = 8 if name != "sgd" else 6
            states = self.checkpoints(artifact, name, *flags, steps=steps)
            for weight in WEIGHTS:
                dead = numpy.zeros(states[1][weight].shape, bool)
                for count in range(1, steps + 1):
                    state = states[count]
                    with self.subTest(name, weight=weight, count=count):
                        own = [k for k in state if k.endswith(weight) and k != weight]
                        self.assertTrue(own)
                        for key in own:
                            is_average = "ema" in key
                            if not key.startswith("@loss"):
                                self.assertFalse(numpy.any(state[key].astype("f4")[dead]), key)
                        self.assertFalse(numpy.any(state[weight].astype("f4")[dead]))
                        dead = state[weight].astype("f4") == 0
                if name != "fp16":
                    self.assertEqual(dead.sum(), dead.size - kept(dead.size, 0.8), name)

    def test_resumes(self):
        artifact = self.built(f"gradient(sparsity=0.7, {WHEN})", "adam(lr=0.01)", "checkpoint { every = 5 steps }")
        whole, rest = self.path("whole"), self.path("rest")
        run = lambda *flags: support.run("ftrun", artifact, "--data", self.folder, *flags)
        run("--steps", 10, "--save", whole)
        first = self.path("first")
        run("--steps", 10, "--set", f"train.checkpoint.dir={first}")
        for file in glob.glob(os.path.join(first, "*10.safetensors")):
            os.remove(file)
        run("--steps", 10, "--resume", first, "--save", rest)
        self.assertEqual(open(whole, "rb").read(), open(rest, "rb").read())

    def test_lottery(self):
        """zeros: what begins as 0 stays so."""
        artifact = self.built("zeros", "adam(lr=0.01)")
        file, start = self.start(artifact)
        end = self.path("end")
        support.run("ftrun", artifact, "--data", self.folder, "--init", file, "--steps", 5, "--save", end)
        after = support.read_safetensors(end)
        for name in WEIGHTS:
            self.assertGreater((start[name] == 0).sum(), 0)
            self.assertTrue(numpy.array_equal(after[name] == 0, start[name] == 0))

    def test_simulator(self):
        artifact = self.path("m.ptx")
        with open(self.path("p.ft"), "w") as f:
            f.write(MODEL % ("sgd(lr=0)", f"magnitude(sparsity=0.8, {WHEN})", ""))
        host = self.built(f"magnitude(sparsity=0.8, {WHEN})")
        file, _ = self.start(host)
        support.run("ftc", self.path("p.ft"), "-o", artifact)
        ends = []
        for built, flags in ((host, []), (artifact, ["--device", "sim"])):
            end = self.path("end")
            support.run("ftrun", built, "--data", self.folder, "--init", file, "--steps", 2, "--save", end, "--set", "train.prune.end=2", *flags)
            ends.append(support.read_safetensors(end))
        for name in WEIGHTS:
            self.assertTrue(numpy.array_equal(*(e[name] for e in ends)))

    def test_refused(self):
        for prune, more, words in (
            ("magnitude(sparsity=1.5)", "", "1.5 is more than 1"),
            ("magnitude(structure=rows)", "", "not 'rows'"),
            ('magnitude(structure="5:4")', "", "not '5:4'"),
            ('magnitude(structure="2:4", sparsity=0.5)', "", "leave out sparsity"),
            ('magnitude(structure="2:4", scope=global)', "", "leave out scope=global"),
            ('magnitude(structure="2:4") on "*"', "", "add `and rank >= 2`"),
            ('magnitude on "nothing.*"', "", "no parameter is meant by"),
            ("size(sparsity=0.5)", "", "unknown prune 'size'"),
            ("zeros(sparsity=0.5)", "", "zeros has no arguments"),
        ):
            with self.subTest(prune):
                self.refused(prune, words)

    def refused(self, prune, words, *flags):
        with open(self.path("bad.ft"), "w") as f:
            f.write(MODEL % ("sgd", prune, ""))
        self.fails(1, words, "ftc", self.path("bad.ft"), "-o", self.path("bad.so"), *flags)


if __name__ == "__main__":
    support.main()
