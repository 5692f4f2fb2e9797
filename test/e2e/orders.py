"""Orders of training other than shuffled: balanced, oversampled, weighted, curriculum and sorted. What is visited is what the definition in
numpy gives (draws), or has the counts that it promises; distributions fit by chi-square; a resumed run, workers and ranks change nothing."""
import os
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import hosts
import splits
import support

# batch 1: the loss of a step is the sample
MODEL = """
model M(id: f32[B], label: i32[B]) { param w: [1] = ones; loss = mean(id * w); output id }
data D { train = npy("id.npy", "label.npy"); workers = WORKERS; ORDER }
train { batch = BATCH; epochs = 2; seed = 5; optimizer = sgd(lr=0); log { every = 1 steps } }
distributed { data = any }
"""
FIXED = {"FT_THREADS": "1"}
COUNTS = (90, 24, 6)
N, SEED = sum(COUNTS), 5


def philox(key, counter):
    key, counter = list(key), list(counter)
    for _ in range(10):
        high, low = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [low >> 32 ^ counter[1] ^ key[0], low & 0xFFFFFFFF, high >> 32 ^ counter[3] ^ key[1], high & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return counter


def words(epoch, position):
    """The two 64-bit words of a visit."""
    w = philox((SEED, 0), (position, 0, epoch, 0x20000000))
    return w[0] << 32 | w[1], w[2] << 32 | w[3]


def chi_square(counts, shares):
    expected = sum(counts) * numpy.asarray(shares) / sum(shares)
    return float(numpy.sum((counts - expected) ** 2 / expected))


class Orders(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(4)
        self.labels = random.permutation(numpy.repeat(numpy.arange(3), COUNTS)).astype("i4")
        self.weights = random.random(N) * (random.random(N) < 0.8)
        self.difficulty = random.permutation(N).astype("f4")
        for name, value in (("id", numpy.arange(N, dtype="f4")), ("label", self.labels), ("weights", self.weights), ("difficulty", self.difficulty)):
            numpy.save(self.path(f"{name}.npy"), value)

    def model(self, order, name="model.so", batch=1, workers=0):
        return self.compile(MODEL.replace("ORDER", order).replace("BATCH", str(batch)).replace("WORKERS", str(workers)), name=name)

    def visits(self, artifact, *flags):
        support.run("ftrun", *([artifact] if isinstance(artifact, str) else artifact), "--log-jsonl", "log", *flags, cwd=self.folder, env=FIXED)
        return numpy.array([line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line])

    def test_balanced(self):
        artifact = self.model("order = balanced(label)")
        have = self.visits(artifact).astype(int)
        lists = [numpy.flatnonzero(self.labels == label) for label in range(3)]
        want = []
        for visit in range(2 * N):
            which, member = words(*divmod(visit, N))
            of_class = lists[which * 3 >> 64]
            want.append(of_class[member * len(of_class) >> 64])
        numpy.testing.assert_array_equal(have, want)
        have = self.visits(artifact, "--epochs", "20").astype(int)
        self.assertLess(chi_square(numpy.bincount(self.labels[have]), [1, 1, 1]), 13.8)  # 2 degrees: 0.1 %
        shares = 1 / numpy.array(COUNTS)[self.labels]  # inverse frequencies, as for torch's WeightedRandomSampler
        self.assertLess(chi_square(numpy.bincount(have, minlength=N), shares), 172)  # 119 degrees: 0.1 %

    def test_weighted(self):
        artifact = self.model('order = weighted("weights.npy")')
        have, sums = self.visits(artifact, "--epochs", "20").astype(int), numpy.cumsum(self.weights)
        draws = [(words(*divmod(visit, N))[0] >> 11) * 2.0**-53 * sums[-1] for visit in range(20 * N)]
        numpy.testing.assert_array_equal(have, numpy.searchsorted(sums, draws, side="right"))
        counts, some = numpy.bincount(have, minlength=N), self.weights > 0
        self.assertEqual(counts[~some].sum(), 0)
        degrees = some.sum() - 1
        self.assertLess(chi_square(counts[some], self.weights[some]), degrees + 4 * (2 * degrees) ** 0.5)

    def test_oversampled(self):
        have = self.visits(self.model("order = oversampled(label)")).astype(int)
        self.assertEqual(len(have), 2 * 3 * 90)
        most = []
        for epoch in (have[:270], have[270:]):
            self.assertEqual(list(numpy.bincount(self.labels[epoch])), [90, 90, 90])
            counts = numpy.bincount(epoch, minlength=N)
            for label, (low, high) in enumerate(((1, 1), (3, 4), (15, 15))):
                of_class = counts[self.labels == label]
                self.assertEqual((of_class.min(), of_class.max()), (low, high))
            most.append(tuple(numpy.flatnonzero((counts == 4) & (self.labels == 1))))
            self.assertLess(abs(numpy.mean(self.labels[epoch[:135]]) - 1), 0.2)  # classes are mixed
        self.assertNotEqual(*most)
        self.assertEqual(len(most[0]), 90 % 24)

    def test_curriculum_and_sorted(self):
        have = self.visits(self.model('order = curriculum("difficulty.npy", from=0.25, epochs=3)'), "--epochs", "5").astype(int).reshape(5, N)
        for epoch, easy in enumerate((30, 60, 90, 120, 120)):
            counts = numpy.bincount(have[epoch], minlength=N)
            self.assertEqual(counts[self.difficulty >= easy].sum(), 0)
            self.assertLessEqual(numpy.ptp(counts[self.difficulty < easy]), 1)
            self.assertNotEqual(list(have[epoch]), sorted(have[epoch], key=lambda i: self.difficulty[i]))
        self.assertNotEqual(list(have[0][:30]), list(have[0][30:60]))
        self.assertNotEqual(list(have[3]), list(have[4]))
        have = self.visits(self.model('order = sorted("difficulty.npy", epochs=1)')).astype(int).reshape(2, N)
        self.assertEqual(list(have[0]), list(numpy.argsort(self.difficulty)))
        self.assertEqual(sorted(have[1]), list(range(N)))
        self.assertNotEqual(list(have[1]), list(have[0]))

    def test_resumed_with_workers_on_ranks(self):
        for order in ("oversampled(label)", 'weighted("weights.npy")', 'curriculum("difficulty.npy", from=0.3, epochs=2)'):
            with self.subTest(order):
                whole = self.visits(self.model(f"order = {order}"))
                artifact = self.model(f"order = {order}", workers=3)
                self.visits(artifact, "--steps", "47", "--set", "train.checkpoint.dir=" + self.path(order[:4]))
                self.assertEqual(list(self.visits(artifact, "--resume", self.path(order[:4]))), list(whole))  # the log goes on
                if hosts.HAS_MPI:
                    two = self.visits(self.model(f"order = {order}", batch=2))
                    ranks = self.visits(["--ranks", "2", self.model(f"order = {order}")])
                    numpy.testing.assert_array_equal(ranks, two)
                    self.assertEqual(list(two), list((whole[0::2] + whole[1::2]) / 2))
        self.fails(1, "in another order (data.order = oversampled(label))", "ftrun", artifact, "--resume", self.path("over"), cwd=self.folder)

    def test_parts_and_folders(self):
        """The samples that a part leaves, also where each is read by itself."""
        artifact = self.model("order = balanced(label); valid = 0.5 of train by label")
        have = self.visits(artifact, "--epochs", "40").astype(int)
        support.run("ftrun", "predict", artifact, "--split", "train", "--weights", self.weights_file(), "--output", "id=o.npy", cwd=self.folder)
        self.assertEqual(sorted(set(have)), list(numpy.load(self.path("o.npy")).astype(int)))
        self.assertLess(chi_square(numpy.bincount(self.labels[have]), [1, 1, 1]), 13.8)
        for name, count in (("a", 9), ("b", 2)):
            os.makedirs(self.path("photos", name))
            for i in range(count):
                splits.write_png(self.path("photos", name, f"{i}.png"), numpy.full((8, 8, 3), 20 * i + (name == "b"), "u1"))
        source = """
model M(image: u8[B, 3, 8, 8], label: i32[B]) { param w: [1] = ones; loss = mean(f32(image) * w) }
data D { train = folder("photos/") | resize((8, 8)); order = balanced(label); workers = 2 }
train { batch = 1; steps = 60; optimizer = sgd(lr=0); log { every = 1 steps } }"""
        pixels = self.visits(self.compile(source)).round().astype(int)
        self.assertEqual(set(pixels), {*range(0, 180, 20), 1, 21})
        self.assertTrue(18 <= numpy.sum(pixels % 20) <= 42, pixels)

    def weights_file(self):
        support.write_safetensors(self.path("w"), {"w": numpy.ones(1, "f4")})
        return self.path("w")

    def test_errors(self):
        for order, needle in (("balanced(lable)", "no input 'lable'; did you mean 'label'?"), ("balanced", "an order is balanced(label)"),
                              ('balanced("label")', "an order is"), ("weighted(label)", "an order is"), ('weighted("w.npy", epochs=2)', "an order is"),
                              ('curriculum("d.npy", from=0, epochs=2)', "a share from 0 to 1"), ('curriculum("d.npy", epochs=2)', "an order is"),
                              ('curriculum("d.npy", from=0.1, from=0.2, epochs=2)', "an order is"), ('sorted("d.npy")', "an order is"),
                              ('sorted("d.npy", epochs=1.5)', "an order is"), ("7", "an order is")):
            with self.subTest(order):
                with open(self.path("bad.ft"), "w") as file:
                    file.write(MODEL.replace("ORDER", f"order = {order}").replace("BATCH", "1").replace("WORKERS", "0"))
                self.fails(1, needle, "ftc", "bad.ft", "-o", "bad.so", cwd=self.folder)
        artifact = self.model('order = weighted("weights.npy")')
        for weights, flags, needle in (
            (self.weights[1:], [], "holds f64[119], but a number for each of 120 samples is needed"), (-self.weights, [], "a weight is finite and not negative"),
            (self.weights * 0, [], "add up to 0"), (numpy.full(N, 1e308), [], "add up to inf"), (numpy.full(N, numpy.nan), [], "number 0 is nan"),
            (self.weights.astype("c8"), [], "weights.npy"), (self.weights, ["--no-shuffle"], "needs data.shuffle=true"),
            (self.weights, ["--set", "data.order=wieghted(x)"], "an order is balanced(label)"),
            (self.weights, ["--set", "data.order=balanced(id)"], "but id.npy holds f32"),
            (self.weights, ["--set", 'data.order=sorted("none.npy", epochs=1)'], "none.npy"),
        ):
            with self.subTest(needle):
                numpy.save(self.path("weights.npy"), weights)
                self.fails(1, needle, "ftrun", artifact, *flags, cwd=self.folder)


if __name__ == "__main__":
    support.main()
