"""What an input may hold is asked of the elements that are looked up, and of no others: columns with tables of their own,
strides, transposes, concatenations; what is computed first is not asked. Each bound is tried from both sides."""
import os
import sys

import numpy

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
                    support.run("ftrun", artifact, "--data", self.folder, "--no-shuffle")
                for value in bad:
                    self.write(changed, place, value)
                    done = self.fails(1, f"sample 2 of {changed}.npy holds {value}, but input {changed}", "ftrun", artifact, "--data", self.folder, "--no-shuffle")
                    self.assertIn("takes 0 to", done.stderr)
            self.write("cat", (1,), 8)
            self.fails(1, "holds 8, but input cat[:, 1] takes 0 to 6", "ftrun", artifact, "--data", self.folder, "--no-shuffle")

    def test_outside_gives_zeros(self):
        """Ids that were computed are not asked about: outside, a lookup is zeros, as gather's."""
        artifact = self.compile(MODEL)
        self.write("cat", (2,), 1000)
        support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w"), "--steps", "0")
        inputs = [item for key in ("cat", "ids", "y") for item in ("--input", f"{key}={self.path(key)}.npy")]
        support.run("ftrun", "predict", artifact, "--weights", self.path("w"), *inputs, "--output", self.path("h.npy"))
        h, table = numpy.load(self.path("h.npy")), support.read_safetensors(self.path("w"))["e.weight"]
        numpy.testing.assert_array_equal(h[2, 12:15], numpy.zeros(3))
        numpy.testing.assert_array_equal(h[1, 12:15], table[1])


if __name__ == "__main__":
    support.main()
