"""Splits that share files: `valid = 0.1 of train by label`, `fold of train`. Sizes, classes and disjointness as scikit-learn's StratifiedKFold
has them, the same whatever the workers, ranks and train.seed; what cannot be split is refused in one sentence."""
import importlib.util
import os
import struct
import sys
import unittest
import zlib

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

MODEL = """
model M(id: f32[B], label: i32[B]) {
  loss = mean(square(Linear(1, name="o")(reshape(id / 1000, [B, 1])) - reshape(f32(label), [B, 1])))
  output id
}
data D { DATA; workers = 2 }
train { batch = 8; steps = 12; seed = 5; optimizer = sgd(lr=0.01); log { every = 1 steps } }
distributed { data = any }
"""
FIXED = {"FT_THREADS": "1"}


def write_png(path, pixels):
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def allocation(labels, folds):
    """How many of each class (by first appearance) each fold has: the K-th part of the labels in order of their classes is every K-th."""
    _, first, counts = numpy.unique(labels, return_index=True, return_counts=True)
    order = numpy.repeat(numpy.arange(len(first)), counts[numpy.argsort(first)])
    return numpy.array([numpy.bincount(order[i::folds], minlength=len(first)) for i in range(folds)])


class Splits(support.Case):
    def setUp(self):
        super().setUp()
        self.labels = self.write(203, 7)

    def write(self, count, classes, labels=None):
        if labels is None:
            labels = (numpy.random.default_rng(3).random(count) ** 2 * classes).astype("i4")
        numpy.save(self.path("id.npy"), numpy.arange(count, dtype="f4"))
        numpy.save(self.path("label.npy"), labels)
        return labels

    def model(self, data, name="model.so"):
        artifact = self.compile(MODEL.replace("DATA", data), name=name)
        support.write_safetensors(self.path("w"), {"o.weight": numpy.zeros((1, 1), "f4"), "o.bias": numpy.zeros(1, "f4")})
        return artifact

    def ids(self, artifact, split, *sets):
        flags = [word for text in sets for word in ("--set", text)]
        support.run("ftrun", "predict", artifact, "--split", split, "--weights", "w", "--output", "id=out.npy", *flags, cwd=self.folder)
        return numpy.load(self.path("out.npy")).astype(int)

    def by_class(self, ids):
        _, first = numpy.unique(self.labels, return_index=True)
        return numpy.array([numpy.sum(self.labels[ids] == self.labels[i]) for i in numpy.sort(first)])

    def test_folds(self):
        data = 'train = npy("id.npy", "label.npy"); valid = fold of train by label; fold = 1 of 4'
        artifact = self.model(data)
        want, seen = allocation(self.labels, 4), []
        for fold in range(4):
            valid = self.ids(artifact, "valid", f"data.fold={fold + 1}")
            train = self.ids(artifact, "train", f"data.fold={fold + 1}")
            self.assertEqual(sorted([*valid, *train]), list(range(203)))
            numpy.testing.assert_array_equal(numpy.sort(valid), valid)
            numpy.testing.assert_array_equal(self.by_class(valid), want[fold])
            seen += list(valid)
        self.assertEqual(sorted(seen), list(range(203)))
        self.assertEqual(list(self.ids(artifact, "valid", "train.seed=9", "data.workers=0")), list(self.ids(artifact, "valid")))
        other = self.ids(artifact, "valid", "data.split_seed=1")
        self.assertNotEqual(list(other), list(self.ids(artifact, "valid")))
        numpy.testing.assert_array_equal(self.by_class(other), want[0])
        self.assertEqual(len(self.ids(artifact, "valid", "data.folds=2")), 102)

    @unittest.skipUnless(importlib.util.find_spec("sklearn"), "scikit-learn is not installed")
    def test_folds_are_those_of_scikit_learn(self):
        from sklearn.model_selection import StratifiedKFold

        artifact = self.model('train = npy("id.npy", "label.npy"); valid = fold of train by label')
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(numpy.zeros(203), self.labels)
        for fold, (_, test) in enumerate(folds):
            numpy.testing.assert_array_equal(self.by_class(self.ids(artifact, "valid", f"data.fold={fold + 1}")), self.by_class(test))

    def test_shares(self):
        artifact = self.model('valid = 0.1 of train by label; test = 0.25 of train; train = npy("id.npy", "label.npy", limit=200)')
        parts = [self.ids(artifact, split) for split in ("train", "valid", "test")]
        self.assertEqual([len(part) for part in parts], [130, 20, 50])
        self.assertEqual(sorted(numpy.concatenate(parts)), list(range(200)))
        have, want = self.by_class(parts[1]), 0.1 * self.by_class(numpy.arange(200))
        self.assertTrue((abs(have - want) < 1).all(), (have, want))
        self.labels = self.write(203, 1)
        artifact = self.model('train = npy("id.npy", "label.npy"); valid = 0.5 of train')
        valid = self.ids(artifact, "valid")
        self.assertEqual(len(valid), 102)
        self.assertTrue(30 < numpy.sum(valid < 100) < 70, valid)  # a draw, not a piece
        # a held-out share is the same for all folds
        artifact = self.model('train = npy("id.npy", "label.npy"); valid = fold of train; test = 0.2 of train')
        tests = [list(self.ids(artifact, "test", f"data.fold={fold}")) for fold in (1, 3)]
        self.assertEqual(tests[0], tests[1])
        folds = [self.ids(artifact, "valid", f"data.fold={fold}") for fold in (1, 2, 3, 4, 5)]
        self.assertEqual(sorted(numpy.concatenate([*folds, tests[0]])), list(range(203)))
        self.assertEqual([len(fold) for fold in folds], [33, 33, 32, 32, 32])

    def test_training(self):
        data = 'train = npy("id.npy", "label.npy"); valid = fold of train by label'
        artifact = self.model(data)
        flags = ["--log-jsonl", "log", "--save", "v", "--set", "train.checkpoint.every=5", "--set", "train.checkpoint.unit=step"]
        support.run("ftrun", artifact, *flags, "--set", "train.checkpoint.dir=c", cwd=self.folder, env=FIXED)
        want = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")]
        self.assertEqual(len(want), 12)
        support.run("ftrun", artifact, *flags, "--set", "train.checkpoint.dir=d", "--steps", "5", cwd=self.folder, env=FIXED)
        self.fails(1, "valid = fold of train by label (1 of 5), data.split_seed = 0", "ftrun", artifact, "--resume", "d", "--set", "data.fold=2",
                   cwd=self.folder)
        support.run("ftrun", artifact, *flags, "--resume", "d", "--set", "data.workers=0", cwd=self.folder, env=FIXED)
        have = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")]
        self.assertEqual(have[-7:], want[-7:])
        whole = self.model(data.split(";")[0], "whole.so")
        self.fails(1, "all of its files", "ftrun", whole, "--resume", "d", cwd=self.folder)

    @unittest.skipUnless(hosts.HAS_MPI, "no MPI")
    def test_ranks(self):
        one = self.model('train = npy("id.npy", "label.npy"); valid = 0.3 of train by label')
        two = self.compile(MODEL.replace("batch = 8", "batch = 4").replace("DATA", 'train = npy("id.npy", "label.npy"); valid = 0.3 of train by label'), name="two.so")
        losses = []
        for flags in ([one], ["--ranks", "2", two]):
            support.run("ftrun", *flags, "--log-jsonl", "log", cwd=self.folder, env=FIXED)
            losses.append([line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")])
        numpy.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)

    def test_texts(self):
        numpy.arange(64, dtype="<u2").tofile(self.path("t.bin"))
        source = """
model M(t: i32[B, 4], n: i32[B, 4]) { loss = mean(square(Linear(1, name="o")(f32(t)) - f32(n[:, 0:1]))); output t; output n }
data D { train = tokens("t.bin"); valid = 0.25 of train; test = 0.1 of train; workers = 0 }
train { batch = 2; steps = 1; optimizer = sgd(lr=0) }"""
        artifact = self.compile(source)
        support.write_safetensors(self.path("w"), {"o.weight": numpy.zeros((1, 4), "f4"), "o.bias": numpy.zeros(1, "f4")})
        for split, low, high in (("train", 0, 36), ("valid", 36, 52), ("test", 52, 60)):
            support.run("ftrun", "predict", artifact, "--split", split, "--weights", "w", "--output", "t=t.npy", "--output", "n=n.npy", cwd=self.folder)
            t, n = numpy.load(self.path("t.npy")), numpy.load(self.path("n.npy"))
            numpy.testing.assert_array_equal(t.ravel(), numpy.arange(low, high))
            numpy.testing.assert_array_equal(n, t + 1)

    def test_folders(self):
        for name, count in (("a", 6), ("b", 10), ("c", 4)):
            os.makedirs(self.path("photos", name))
            for i in range(count):
                write_png(self.path("photos", name, f"{i}.png"), numpy.full((8, 8, 3), 16 * i, "u1"))
        source = """
model M(image: u8[B, 3, 8, 8], label: i32[B]) {
  loss = mean(cross_entropy(Linear(3, name="o")(flatten(f32(image), from=1)), label))
  output label
}
data D { train = folder("photos/") | resize((8, 8)) | hflip; valid = 0.5 of train by label | resize((8, 8)) }
train { batch = 2; steps = 3; optimizer = sgd(lr=0.1) }"""
        artifact = self.compile(source)
        self.assertIn("10 samples to train, 10 to validate", support.run("ftrun", artifact, "--save", "w", cwd=self.folder).stdout)
        for split in ("train", "valid"):
            support.run("ftrun", "predict", artifact, "--split", split, "--weights", "w", "--output", "label=l.npy", cwd=self.folder)
            self.assertEqual(list(numpy.bincount(numpy.load(self.path("l.npy")))), [3, 5, 2])

    def test_errors_of_recipes(self):
        files = 'train = npy("id.npy", "label.npy"); '
        for data, needle in (
            ("valid = 1.5 of train", "a share between 0 and 1, or fold"), ("valid = 0 of train", "a share between 0 and 1"),
            ("valid = 0.1 of test", "there is no split 'test'"), ("valid = 0.1 of valid", "there is no split 'valid'"),
            ("valid = 0.1 of train by lable", "has no input 'lable'; did you mean 'label'?"),
            ("valid = 0.5 of train; test = 0.5 of train", "leaves nothing of that split"),
            ("valid = fold of train; test = fold of train", "two splits would have the same fold"),
            ("valid = 0.1 of train; test = 0.5 of valid", "part itself"), ("fold = 0 of 3", "data.fold"), ("fold = 1 of 1", "data.folds"),
            ("prefetch = 2 of 3", "`of` is for data"), ("valid = 0.1 of train by label of train", "expected"),
        ):
            with self.subTest(data):
                with open(self.path("bad.ft"), "w") as file:
                    file.write(MODEL.replace("DATA", files + data))
                self.fails(1, needle, "ftc", "bad.ft", "-o", "bad.so", cwd=self.folder)
        with open(self.path("bad.ft"), "w") as file:
            file.write('model M(t: i32[B, 4]) { loss = mean(f32(t)) }\ndata D { train = bytes("a"); valid = fold of train }\ntrain { batch = 2 }')
        self.fails(1, "a text is cut where it ends", "ftc", "bad.ft", "-o", "bad.so", cwd=self.folder)

    def test_errors_of_data(self):
        files = 'train = npy("id.npy", "label.npy"); '
        labels = numpy.repeat(numpy.arange(3, dtype="i4"), [10, 3, 7])
        folds = self.model(files + "valid = fold of train by label", "folds.so")
        share = self.model(files + "valid = 0.001 of train", "share.so")
        half = self.model(files + "valid = 0.5 of train by label", "half.so")
        ids = self.model(files + "valid = 0.5 of train by id", "ids.so")
        for artifact, labels, needle, flags in (
            (folds, labels, "class 1 has 3 samples, so that it cannot be in each of 5", []), (share, labels, "not one of 20 samples", []),
            (folds, labels, "data.fold=6, but data.folds=5", ["--set", "data.fold=6"]),
            (half, numpy.append(labels[1:], 5).astype("i4"), "class 5 has 1 sample,", []),
            (half, numpy.append(labels[1:], -1).astype("i4"), "sample 19 has label -1, but classes are whole numbers from 0", []),
            (ids, labels, "split by a whole number for each, but id.npy holds f32", []),
        ):
            with self.subTest(needle):
                self.write(20, 3, labels)
                self.fails(1, needle, "ftrun", artifact, *flags, cwd=self.folder)


if __name__ == "__main__":
    support.main()
