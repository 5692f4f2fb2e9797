"""Data sources against references that are not ours: a training that reads a kind of file ends with the weights of one that
reads the same numbers, as Python's or NumPy's reader has them, as .npy."""
import csv
import ctypes
import os
import shutil
import sys
import zipfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 4], label: i32[B]) {
  loss = mean(cross_entropy(Linear(3, name="fc")(x), label))
}
data D { train = %s; valid = %s }
train { model = M; data = D; batch = 4; epochs = 2; seed = 3; optimizer = sgd(lr=0.1) }
"""
FLOWERS = ("setosa", "versicolor", "virginica")


class Sources(support.Case):
    def write(self, name, data):
        with open(self.path(name), "wb" if isinstance(data, bytes) else "w", **({} if isinstance(data, bytes) else {"newline": ""})) as file:
            file.write(data)

    def weights(self, source, model=MODEL):
        self.write("m.ft", model % (source, source))
        support.run("ftrun", self.path("m.ft"), "--data", self.folder, "--save", self.path("w.safetensors"))
        return {name: value.tobytes() for name, value in support.read_safetensors(self.path("w.safetensors")).items()}

    def same(self, source, *arrays, model=MODEL):
        names = []
        for i, array in enumerate(arrays):
            numpy.save(self.path(f"reference{i}.npy"), numpy.ascontiguousarray(array))
            names.append(f'"reference{i}.npy"')
        self.assertEqual(self.weights(source, model), self.weights(f"npy({', '.join(names)})", model))


class Csv(Sources):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(5)
        self.x, self.y = random.standard_normal((37, 4)) * 10.0 ** random.integers(-20, 20, (37, 4)).clip(-3, 3), random.integers(0, 3, 37)

    def table(self, name, head=None, **form):
        """As Python's writer has it, with classes as texts."""
        with open(self.path(name), "w", newline="") as file:
            writer = csv.writer(file, **form)
            if head:
                writer.writerow(head)
            for row, label in zip(self.x, self.y):
                writer.writerow([*map(repr, map(float, row)), FLOWERS[label]])

    def read(self, name, head, **form):
        """As Python's reader has it."""
        with open(self.path(name), newline="") as file:
            rows = list(csv.reader(file, **form))[head:]
        return numpy.array([list(map(float, row[:4])) for row in rows], "f4"), numpy.array([FLOWERS.index(row[4]) for row in rows], "i4")

    def test_as_python_reads_it(self):
        head = ["sepal_len", "sepal,wid", 'petal "len"', "petal\nwid", "species"]
        for source, head, form in (
            ('csv("t.csv")', None, {}),
            ('csv("t.csv")', head, {}),
            ('csv("t.csv", header=true, classes="setosa, versicolor, virginica")', head, {"quoting": csv.QUOTE_ALL}),
            ('csv("t.csv", separator=tab)', head, {"delimiter": "\t", "lineterminator": "\n"}),
            ('csv("t.csv", separator=";")', None, {"delimiter": ";", "quoting": csv.QUOTE_NONNUMERIC}),
        ):
            self.table("t.csv", head, **form)
            self.same(source, *self.read("t.csv", head is not None, **{k: v for k, v in form.items() if k == "delimiter"}))

    def test_columns(self):
        self.table("t.csv", list("abcde"))
        x, y = self.read("t.csv", 1)
        self.same('csv("t.csv", columns="d, b, a, a; e")', x[:, [3, 1, 0, 0]], y)
        self.same('csv("t.csv", columns="2-4, 1; 5")', x[:, [1, 2, 3, 0]], y)
        self.same('csv("t.csv", classes="e = virginica, setosa, versicolor", limit=20)', x[:20], ((y + 1) % 3)[:20])

    def test_missing_values(self):
        rows = [[0.5 * i, "" if i % 3 else 1, "NA" if i % 5 else -2, i * i, i % 3] for i in range(20)]
        self.write("t.csv", "".join(",".join(map(str, row)) + "\r\n" for row in rows))
        x = numpy.genfromtxt(self.path("t.csv"), delimiter=",", missing_values="NA", filling_values=7)
        self.same('csv("t.csv", missing=7)', x[:, :4].astype("f4"), x[:, 4].astype("i4"))
        self.write("m.ft", MODEL % (('csv("t.csv")',) * 2))
        self.fails(1, "t.csv line 2, column 2: '' is a missing value", "ftrun", self.path("m.ft"), "--data", self.folder)

    def test_floats_to_the_last_bit(self):
        random = numpy.random.default_rng(1)
        bits = random.integers(0, 2**32, 4000, "u4").view("f4")
        bits = bits[numpy.isfinite(bits) & (abs(bits) < 1e30)][:3200].reshape(-1, 4)
        label = numpy.arange(len(bits)) % 3
        self.write("t.csv", "".join(",".join(map(repr, map(float, row))) + f",{k}\n" for row, k in zip(bits, label)))
        x = numpy.loadtxt(self.path("t.csv"), delimiter=",")[:, :4].astype("f4")
        self.assertEqual(x.tobytes(), bits.tobytes())
        model = MODEL.replace("Linear(3, name=\"fc\")(x)", "Linear(3, name=\"fc\")(x * 0 + sign(x))")
        self.same('csv("t.csv")', bits, label.astype("i4"), model=model)

    def test_an_image_in_a_row(self):
        x = numpy.random.default_rng(2).integers(0, 256, (24, 4, 4))
        y = numpy.arange(24) % 3
        self.write("t.csv", "\n".join(",".join(map(str, [k, *row.ravel()])) for k, row in zip(y, x)))
        model = MODEL.replace("x: f32[B, 4]", "x: u8[B, 4, 4]").replace("(x)", "(flatten(f32(x) / 255, from=1))")
        self.same('csv("t.csv", columns="2-17; 1")', x.astype("u1"), y.astype("i4"), model=model)

    def test_refused_with_the_place(self):
        self.table("t.csv", list("abcde"))
        for source, needle in (
            ('csv("t.csv", colums="a")', "csv has no option 'colums'; did you mean 'columns'?"),
            ('csv("t.csv", columns=3)', "columns must be a string that is not empty, not 3"),
            ('csv("t.csv", header=maybe)', "unknown name 'maybe'"),
            ('csv("t.csv", header=3)', "header must be true or false or auto, not 3"),
            ('csv("t.csv", missing="none")', 'missing must be a number, nan or error, not the string "none"'),
            ('csv("t.csv", columns="a,b,c,f;e")', "t.csv has no column 'f'"),
            ('csv("t.csv", classes="setosa, virginica")', "'versicolor' is none of those that classes= lists"),
        ):
            self.write("m.ft", MODEL % (source, source))
            done = support.run("ftrun", self.path("m.ft"), "--data", self.folder, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(needle, done.stderr)

    def test_a_number_beyond_the_type(self):
        """It is finite in the file, and would be an infinity of f32."""
        self.write("t.csv", "".join(f"1,2,3,{'1e39' if i == 5 else 4},0\n" for i in range(40)))
        self.write("m.ft", MODEL % ('csv("t.csv")', 'csv("t.csv")'))
        done = support.run("ftrun", self.path("m.ft"), "--data", self.folder, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("sample 5 of t.csv holds a number that does not fit f32, the type of input x", done.stderr)


class Records(Sources):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(7)
        self.x, self.y = random.standard_normal((40, 4)).astype("f4"), random.integers(0, 3, 40)

    def test_npz(self):
        for save in numpy.savez, numpy.savez_compressed:
            save(self.path("d.npz"), self.x, label=self.y, other=numpy.zeros((3, 3)), x=self.x[::-1])
            self.same('npz("d.npz", keys="arr_0, label")', self.x, self.y)
            self.same('npz("d.npz", limit=17)', self.x[:-18:-1], self.y[:17])
        with zipfile.ZipFile(self.path("d.npz"), "w", zipfile.ZIP_DEFLATED) as file:
            for name, array in ("x", self.x.astype(">f8")), ("label", self.y.astype("u1")):
                with file.open(name + ".npy", "w", force_zip64=True) as member:
                    numpy.lib.format.write_array(member, array)
            file.comment = b"PK\5\6 a comment"
        self.same('npz("d.npz")', self.x, self.y)
        numpy.savez(self.path("d.npz"), x=numpy.asfortranarray(self.x), label=self.y)
        self.write("m.ft", MODEL % (('npz("d.npz")',) * 2))
        self.fails(1, "d.npz array 'x': a member: is in Fortran order", "ftrun", self.path("m.ft"), "--data", self.folder)

    def test_safetensors(self):
        support.write_safetensors(self.path("d.safetensors"), {"label": self.y, "features": self.x, "x": self.x[:, ::-1].astype("f8")})
        self.same('safetensors("d.safetensors")', self.x[:, ::-1], self.y)
        self.same('safetensors("d.safetensors", keys="features, label")', self.x, self.y)

    def test_cifar(self):
        random = numpy.random.default_rng(8)
        for kind, labels, options in ("cifar10", 1, ""), ("cifar100", 2, ", labels=fine"), ("cifar100", 2, ", labels=coarse"):
            records = random.integers(0, 256, (24, 3072 + labels), "u1")
            records[:, :labels] %= 3
            self.write("batch.bin", records.tobytes())
            image, label = records[:, labels:].reshape(-1, 3, 32, 32), records[:, 0 if "coarse" in options else labels - 1].astype("i4")
            model = MODEL.replace("x: f32[B, 4]", "x: u8[B, 3, 32, 32]").replace("(x)", "(mean(f32(x) / 255, axis=[2, 3]))")
            self.same(f'{kind}("batch.bin"{options})', image, label, model=model)
            flat = MODEL.replace("x: f32[B, 4], label: i32[B]", "label: i32[B], x: f32[B, 3072]")
            self.same(f'{kind}("batch.bin"{options}, limit=20)', label[:20], image[:20].reshape(20, -1).astype("f4"), model=flat)


class Files(Sources):
    """Several files in one input: the samples of the next follow those of the one before."""

    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(9)
        self.x, self.y = random.standard_normal((60, 4)).astype("f4"), random.integers(0, 3, 60)
        for i, (a, b) in enumerate(((0, 7), (7, 8), (8, 40), (40, 60))):
            numpy.save(self.path(f"x-{i}.npy"), self.x[a:b])
            numpy.save(self.path(f"y-{i}.npy"), self.y[a:b])
            numpy.savetxt(self.path(f"t{i}.csv"), numpy.column_stack([self.x[a:b], self.y[a:b]]), "%.9g", ",", header="a,b,c,d,e", comments="")
        numpy.save(self.path("ys.npy"), self.y)

    def test_patterns(self):
        for source in (
            'npy("x-*.npy", "y-?.npy")',
            'npy("x-[0-3].npy", "ys.npy")',
            'csv("t*.csv")',
            'csv("t0.csv", "t1.csv", "t[23].csv", columns="a, b, c, d; e")',
        ):
            self.same(source, self.x, self.y)
        self.same('npy("x-*.npy", "y-*.npy", limit=30)', self.x[:30], self.y[:30])
        self.same('csv("t3.csv", "t0.csv")', numpy.concatenate([self.x[40:], self.x[:7]]), numpy.concatenate([self.y[40:], self.y[:7]]))

    def test_names_in_order(self):
        for i in (10, 2, 1):
            numpy.save(self.path(f"s{i}.npy"), self.x[i : i + 10])
            numpy.save(self.path(f"l{i}.npy"), self.y[i : i + 10])
        self.same('npy("s*.npy", "l*.npy")', numpy.concatenate([self.x[i : i + 10] for i in (1, 10, 2)]), numpy.concatenate([self.y[i : i + 10] for i in (1, 10, 2)]))
        os.rename(self.path("s1.npy"), self.path("s[1].npy"))  # a file of this name goes before the pattern
        self.same('npy("s[1].npy", "l1.npy")', self.x[1:11], self.y[1:11])

    def test_zstd(self):
        library = ctypes.CDLL("libzstd.so.1")
        library.ZSTD_compress.restype = ctypes.c_size_t
        for name in "x-1.npy", "y-3.npy", "ys.npy":
            with open(self.path(name), "rb") as file:
                plain = file.read()
            packed = ctypes.create_string_buffer(2 * len(plain) + 1000)
            count = library.ZSTD_compress(packed, ctypes.c_size_t(len(packed)), plain, ctypes.c_size_t(len(plain)), 9)
            self.write(name, packed.raw[:count])
        self.same('npy("x-*.npy", "y-*.npy")', self.x, self.y)
        self.same('npy("x-*.npy", "ys.npy")', self.x, self.y)

    def test_resumed(self):
        self.write("m.ft", (MODEL % (('npy("x-*.npy", "y-*.npy")',) * 2)).replace("seed = 3;", 'seed = 3; checkpoint { dir = "runs"; every = 7 steps };'))
        support.run("ftrun", self.path("m.ft"), "--data", self.folder, "--save", self.path("whole.safetensors"), cwd=self.folder)
        shutil.rmtree(self.path("runs"))
        support.run("ftrun", self.path("m.ft"), "--data", self.folder, "--set", "train.steps=17", cwd=self.folder)
        support.run("ftrun", self.path("m.ft"), "--data", self.folder, "--resume", "runs", "--save", self.path("parts.safetensors"), cwd=self.folder)
        with open(self.path("whole.safetensors"), "rb") as whole, open(self.path("parts.safetensors"), "rb") as parts:
            self.assertEqual(whole.read(), parts.read())

    def test_refused(self):
        numpy.save(self.path("x-4.npy"), self.x[:3].astype("f8"))
        numpy.save(self.path("z-0.npy"), self.y[:7]), numpy.save(self.path("z-1.npy"), self.y[:2])
        os.mkdir(self.path("in")), numpy.save(self.path("in/x.npy"), self.x)
        for source, needle in (
            ('npy("u-*.npy", "y-*.npy")', "u-*.npy not found in "),
            ('npy("x-*.npy", "y-*.npy")', "samples are f32[4] in x-0.npy but f64[4] in x-4.npy"),
            ('npy("x-[01].npy", "z-*.npy")', "x-1.npy holds 1 samples but z-1.npy holds 2"),
            ('npy("x-[01].npy", "ys.npy")', "x-0.npy and the others, 2 files, hold 8 samples, but ys.npy and the others, 1, hold 60"),
            ('npy("../*.npy", "ys.npy")', "relative paths without '..'"),
        ):
            self.write("m.ft", MODEL % (source, source))
            self.fails(1, needle, "ftrun", self.path("m.ft"), "--data", self.folder)
        self.write("m.ft", MODEL % (('npy(".?/x-0.npy", "y-0.npy")',) * 2))
        self.fails(1, "is not below the folder; --allow-paths takes it", "ftrun", self.path("m.ft"), "--data", self.path("in"))


if __name__ == "__main__":
    support.main()
