"""`ftrun lottery`: the dense round is the plain training; each ticket has the weights of the early step where the end's magnitudes are among the
largest, and 0 elsewhere, in moments too; what is trained from it keeps its zeros. And `ftrun --stop-at`."""
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
  z = Linear(7, name="fc2")(h)
  loss = mean(cross_entropy(z, y))
  metric accuracy = mean(argmax(z, axis=-1) == y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); shuffle = true }
train { batch = 8; epochs = 3; seed = 5; eval every 1 epoch; optimizer = adam(lr=0.01); schedule = cosine(final=0.1) }
"""
WEIGHTS = ["conv.weight", "fc1.weight", "fc2.weight"]
random = numpy.random.RandomState(3)


class Lottery(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), random.randn(64, 3, 6, 6).astype("f4"))
        numpy.save(self.path("y.npy"), random.randint(0, 7, 64).astype("i4"))
        self.plain = self.compile(MODEL)

    def lottery(self, *flags):
        folder = self.path("lottery")
        done = support.run("ftrun", "lottery", self.path("model.ft"), "-o", folder, "--data", self.folder, *flags)
        return done.stdout, lambda name: support.read_safetensors(os.path.join(folder, name)), support.read_jsonl(os.path.join(folder, "lottery.jsonl"))

    def train(self, *flags):
        return support.run("ftrun", self.plain, "--data", self.folder, *flags).stdout

    def early(self, step):
        """A checkpoint of the plain training."""
        folder = self.path(f"early{step}")
        said = self.train("--stop-at", step, "--set", f"train.checkpoint.dir={folder}")
        (file,) = glob.glob(os.path.join(folder, "*.safetensors"))
        return file, said

    def alive(self, end, by_layer, share):
        """What stays of the largest magnitudes."""
        def largest(score):
            alive = numpy.count_nonzero(score)
            left = alive - int(numpy.floor(share * alive + 0.5))
            keep = numpy.zeros(score.size, bool)
            keep[numpy.lexsort((numpy.arange(score.size), -score))[:left]] = True
            return keep
        scores = {name: abs(end[name]).ravel() for name in WEIGHTS}
        if by_layer:
            return {name: largest(scores[name]).reshape(end[name].shape) for name in WEIGHTS}
        order = [name for name in end if name in WEIGHTS]
        keep, at, found = largest(numpy.concatenate([scores[name] for name in order])), 0, {}
        for name in order:
            found[name] = keep[at:at + scores[name].size].reshape(end[name].shape)
            at += scores[name].size
        return found

    def test_rounds(self):
        end = self.path("end.safetensors")
        self.train("--save", end)
        plain = support.read_safetensors(end)
        for step, by_layer in ((4, False), (0, True)):
            with self.subTest(step=step):
                early = support.read_safetensors(self.early(step)[0])
                flags = ["--scope", "layer"] if by_layer else []
                out, read, lines = self.lottery("--rounds", 2, "--share", "0.3", "--rewind", step, *flags)
                dense = read("round-0.safetensors")
                for name in plain:
                    self.assertTrue(numpy.array_equal(dense[name], plain[name]), name)
                before = dense
                for round in (1, 2):
                    alive = self.alive(before, by_layer, 0.3)
                    ticket, before = read(f"round-{round}.ticket.safetensors"), read(f"round-{round}.safetensors")
                    for name in WEIGHTS:
                        self.assertTrue(numpy.array_equal(ticket[name], numpy.where(alive[name], early[name], 0)), name)
                        self.assertTrue(numpy.array_equal(ticket["@prune.mask." + name], alive[name]), name)
                        self.assertTrue(numpy.array_equal(before[name] != 0, alive[name]), name)
                    for name in early:  # all else is that of the early step, and moments are 0 where the weight is
                        of = [weight for weight in WEIGHTS if name.endswith("." + weight)]
                        self.assertTrue(numpy.array_equal(ticket[name], numpy.where(alive[of[0]], early[name], 0) if of else early[name]) or name in WEIGHTS, name)
                    weights = sum(alive[name].size for name in WEIGHTS)
                    line = lines[round]
                    self.assertEqual((line["round"], line["weights"], line["left"]), (round, weights, sum(alive[name].sum() for name in WEIGHTS)))
                self.assertIn("round  weights left", out)
                support.subprocess.run(["rm", "-r", self.path("lottery")], check=True)

    def test_random(self):
        out, read, lines = self.lottery("--rounds", 1, "--share", "0.6", "--rewind", 2, "--random", "--seed", 3, "--on", "fc*.weight")
        ticket, other = read("round-1.ticket.safetensors"), read("random-1.ticket.safetensors")
        for name in WEIGHTS[1:]:
            self.assertEqual((ticket[name] != 0).sum(), (other[name] != 0).sum())
            self.assertFalse(numpy.array_equal(ticket[name] != 0, other[name] != 0))
            self.assertTrue(numpy.array_equal(read("random-1.safetensors")[name] != 0, other[name] != 0))
        self.assertTrue(numpy.all(ticket["conv.weight"] != 0))
        self.assertEqual([line["random"] for line in lines], [False, False, True])
        self.assertRegex(out, r"    1    40\.0\d %  random    loss [0-9.]+, accuracy [0-9.]+")

    def test_stop_at(self):
        end, on = self.path("end.safetensors"), self.path("on.safetensors")
        self.train("--save", end)
        file, said = self.early(5)
        self.assertIn("stopped after step 5; the same command with --resume", said)
        self.train("--resume", file, "--save", on)
        for a, b in zip(support.read_safetensors(end).values(), support.read_safetensors(on).values()):
            self.assertTrue(numpy.array_equal(a, b))
        self.assertNotIn("stopped", self.train("--stop-at", 1000))

    def test_refused(self):
        def refused(code, words, *flags, model=self.path("model.ft")):
            self.fails(code, words, "ftrun", "lottery", model, "--data", self.folder, *flags)
        new = ["-o", self.path("new")]
        refused(2, "needs a folder")
        refused(2, "needs a model: a .ft file", *new, model=self.plain)
        refused(2, "--rounds 0: expected", *new, "--rounds", "0")
        refused(2, "--scope all: expected", *new, "--scope", "all")
        refused(2, "--share", *new, "--share", "1.5")
        refused(2, "--share 0: a round prunes some", *new, "--share", "0")
        refused(2, "--share 1: a round prunes some", *new, "--share", "1")
        refused(1, "--share 0.0001 of the 2392 weights that are left is none of them", "-o", self.path("none"), "--share", "0.0001")
        refused(2, "the trainings of a lottery keep the checkpoints", *new, "--set", "train.checkpoint.dir=x")
        refused(1, "it is there already", "-o", self.folder)
        refused(1, "--rewind 100: the training has fewer steps", *new, "--rewind", "100")
        refused(1, "has no parameter to prune whose name is one of --on", "-o", self.path("no"), "--on", "nothing.*")
        self.assertFalse(os.path.exists(self.path("no", "round-0.safetensors")), "the dense training was for nothing")
        refused(1, "is less than", "-o", self.path("bad"), "--set", "train.lr=-1")
        with open(self.path("model.ft"), "w") as f:
            f.write(MODEL.replace("eval every 1 epoch", "eval = none"))
        refused(1, "the trainings are not evaluated", "-o", self.path("blind"))


if __name__ == "__main__":
    support.main()
