"""What an input may hold is asked of the elements that are looked up, and of no others: columns with tables of their own,
strides, transposes, concatenations. Each bound is tried from both sides. What is computed first is asked where it is used."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(cat: i32[B, 4], ids: i64[B, 4, 2], y: i32[B, 2]) {
  a = Embedding(40, 3, name="a")(cat[:, 0])
  b = Embedding(7, 3, name="b")(cat[:, 1])
  c = Embedding(5, 3, name="c")(transpose(ids)[:, 1, ::2])       // ids[:, 0:3:2, 1]
  d = Embedding(9, 3, name="d")(unsqueeze(ids, 1)[:, 0, 1, 1])
  e = Embedding(9, 3, name="e")(cat[:, 2] + 1)
  s = Embedding(6, 3, name="s")(reshape(ids, B, 8)[:, 2:4])      // ids[:, 1, :], through a reshape: not followed
  p, q = split(ids, 2, axis=2)
  t = Embedding(11, 3, name="t")(concat([p[:, 1:3], p[:, 3:4]], axis=1))
  h = concat([a, b, mean(c, axis=1), d, e, mean(s, axis=1), mean(t, axis=(1, 2))], axis=-1)
  each = cross_entropy(Linear(4, name="f")(h), y[:, 0], ignore=-1)
  more = cross_entropy(Linear(3, name="g")(h), y[:, 1])
  loss = mean(each) + mean(more)
  output h
}
data D { train = npy("cat.npy", "ids.npy", "y.npy") }
train { batch = 4; steps = 1; eval = none }
"""
COMPUTED = """
model M(far: i64[B], near: i32[B]) {
  param t: [5, 3] = normal(1)
  z = broadcast_to(t[:, 0], [B, 5])
  loss_far = cross_entropy(z, far * 1)
  loss_ignored = cross_entropy(z, far * 1, ignore=-1)
  loss_near = cross_entropy(z, near + 0)
  hot = one_hot(far, 5)
  row = embed(t, near + 0)
  filled = gather(t, near)                                       // asks for nothing: zeros
  loss = mean(t)
  output loss_far; output loss_ignored; output loss_near; output hot; output row; output filled
}
data D { train = npy("far.npy", "near.npy") }
train { batch = 8; steps = 1; eval = none }
"""
# input, index in a sample, the values it takes, those it does not
CASES = [("cat", (0,), (0, 39), (-1, 40)), ("cat", (1,), (0, 6), (-1, 7)), ("cat", (2,), (-1000, 1000), ()), ("cat", (3,), (-1000, 1000), ()),
         ("ids", (0, 1), (0, 4), (-1, 5)), ("ids", (1, 1), (0, 8), (-1, 9)), ("ids", (2, 1), (0, 4), (-1, 5)), ("ids", (3, 1), (-9, 999), ()),
         ("ids", (0, 0), (-9, 999), ()), ("ids", (1, 0), (0, 10), (-1, 11, 2**33)), ("ids", (3, 0), (0, 10), (-1, 11)),
         ("y", (0,), (-1, 0, 3), (-2, 4)), ("y", (1,), (0, 2), (-1, 3))]


class Bounds(support.Case):
    def write(self, changed=None, place=None, value=None, sample=2):
        arrays = {"cat": numpy.zeros((4, 4), "i4"), "ids": numpy.zeros((4, 4, 2), "i8"), "y": numpy.zeros((4, 2), "i4")}
        if changed:
            arrays[changed][(sample, *place)] = value
        for name, array in arrays.items():
            numpy.save(self.path(name + ".npy"), array)

    def test_each_element(self):
        for name, flags in (("m.so", ()), ("u.so", ("--disable=fuse",))):
            artifact = self.compile(MODEL, *flags, name=name)
            weights = self.path("w")
            self.write()
            support.run("ftrun", artifact, "--data", self.folder, "--save", weights, "--no-shuffle")
            for changed, place, good, bad in CASES:
                for value in good:
                    self.write(changed, place, value)
                    support.run("ftrun", artifact, "--data", self.folder, "--no-shuffle", "--keep-going")
                for value in bad:
                    self.write(changed, place, value)
                    done = self.fails(1, f"sample 2 of {changed}.npy holds {value}, but input {changed}", "ftrun", artifact, "--data", self.folder, "--no-shuffle", "--keep-going")
                    self.assertIn("takes 0 to", done.stderr)
            self.write("cat", (1,), 8)
            self.fails(1, "holds 8, but input cat[:, 1] takes 0 to 6", "ftrun", artifact, "--data", self.folder, "--no-shuffle", "--keep-going")

    def test_computed(self):
        """The loader is not asked about what is computed: an index outside makes NaN of what wants none, and whole integers are
        compared. What cannot be outside has no guard."""
        far = numpy.array([0, 4, 5, -1, 2**32, 2**32 - 1, 2**31, -(2**63)])
        near = numpy.array([0, 4, 5, -1, -2, 2**31 - 1, -(2**31), 3], "i4")
        numpy.save(self.path("far.npy"), far), numpy.save(self.path("near.npy"), near)
        inside, kept = (far >= 0) & (far < 5), far != -1
        nan = lambda rows, fine: numpy.where(fine, rows, numpy.nan)
        for flags, name, device in (((), "m.so", "cpu"), (("--disable=fuse",), "u.so", "cpu"), ((), "m.ptx", "sim")):
            artifact = self.compile(COMPUTED, *flags, name=name)
            support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w"), "--steps", "0", "--device", device)
            table = support.read_safetensors(self.path("w"))["t"]
            have = {}
            for output in ("loss_far", "loss_ignored", "loss_near", "hot", "row", "filled"):
                inputs = [item for key in ("far", "near") for item in ("--input", f"{key}={self.path(key)}.npy")]
                support.run("ftrun", "predict", artifact, "--weights", self.path("w"), *inputs, "--output", f"{output}={self.path('o.npy')}",
                            "--device", device)
                have[output] = numpy.load(self.path("o.npy"))
            loss = lambda target: -torch.log_softmax(torch.tensor(table[:, 0], dtype=torch.float64), 0)[numpy.clip(target, 0, 4)].numpy()
            near_inside = (near >= 0) & (near < 5)
            want = {"loss_far": nan(loss(far), inside), "loss_ignored": numpy.where(kept, nan(loss(far), inside), 0),
                    "loss_near": nan(loss(near), near_inside), "hot": numpy.eye(5)[numpy.clip(far, 0, 4)] * inside[:, None],
                    "row": nan(table[numpy.clip(near, 0, 4)], near_inside[:, None]),
                    "filled": numpy.where(near_inside[:, None], table[numpy.clip(near, 0, 4)], 0)}
            for output, value in want.items():
                numpy.testing.assert_allclose(have[output], value, 1e-5, 1e-6, err_msg=f"{output} {name}")

    def test_no_guard(self):
        """Where inputs, positions and argmax are all there is, nothing is asked when it runs."""
        source = """
model M(ids: i64[B, 4], y: i32[B]) {
  t = Embedding(6, 6, name="t")
  x = t(ids[:, 0]) + t(i32(ids)[:, 1]) + Embedding(4, 6, name="p")(arange(4))[2] + t(argmax(t(ids[:, 2]))) + t(where(y == y, 1, 0))
  loss = mean(cross_entropy(x, y, ignore=-1))
}
train { batch = 4 }
"""
        with open(self.path("m.ft"), "w") as file:
            file.write(source)
        graph = support.run("ftc", self.path("m.ft"), "--emit=ir").stdout
        self.assertNotIn("nan", graph)
        self.assertNotIn(" ge ", graph)

    def test_what_all_allow(self):
        """Elements that several lookups share are what every one of them can take."""
        source = """
model M(y: i32[B, 2]) {
  x = Embedding(40, 5, name="e")(y[:, 1])
  first = cross_entropy(x, y[:, 0], ignore=-1)
  second = cross_entropy(Linear(%d, name="f")(x), y[:, 0]%s)
  loss = mean(first) + mean(second)
}
data D { train = npy("y.npy") }
train { batch = 4; steps = 1; eval = none }
"""
        for classes, ignore, good, bad in ((3, "", (0, 2), (-1, 3)), (3, ", ignore=-1", (-1, 2), (-2, 3)), (3, ", ignore=4", (2, 4), (-1, 3)),
                                           (9, "", (0, 4), (-1, 5)), (9, ", ignore=-2", (4,), (-1, -2, 5))):
            artifact = self.compile(source % (classes, ignore))
            for values, code in ((good, 0), (bad, 1)):
                for value in values:
                    numpy.save(self.path("y.npy"), numpy.array([[0, 1], [value, 1], [0, 1], [0, 1]], "i4"))
                    done = support.run("ftrun", artifact, "--data", self.folder, "--no-shuffle", check=False)
                    self.assertEqual(done.returncode, code, f"{classes}{ignore}: {value}\n{done.stderr}")


if __name__ == "__main__":
    support.main()
