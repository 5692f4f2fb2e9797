"""Data that is not read where it lies: compressed tables, texts and archives, and what a command prints ("| command"). A training from
them ends with the weights of one from the plain files; what is cut off, damaged or fails is named; nothing is run unasked."""
import bz2
import csv
import ctypes
import gzip
import io
import os
import shutil
import sys
import tarfile

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
TEXT = """
model T(text: i32[B, 8], next: i32[B, 8]) {
  param e: [256, 16] = normal(0.1)
  loss = mean(cross_entropy(embed(e, text) @ transpose(e), next))
}
data D { train = %s; valid = %s }
train { model = T; data = D; batch = 4; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""


def zstd(data):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    packed = ctypes.create_string_buffer(len(data) + 1000)
    count = library.ZSTD_compress(packed, ctypes.c_size_t(len(packed)), data, ctypes.c_size_t(len(data)), 9)
    return packed.raw[:count]


class Streams(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(5)
        self.x, self.y = random.standard_normal((41, 4)).astype("f4"), random.integers(0, 3, 41).astype("i4")
        numpy.save(self.path("x.npy"), self.x), numpy.save(self.path("y.npy"), self.y)
        text = io.StringIO()
        csv.writer(text).writerows([*map(repr, map(float, row)), int(label)] for row, label in zip(self.x, self.y))
        self.table = text.getvalue().encode()
        self.write("t.csv", self.table)

    def write(self, name, data):
        with open(self.path(name), "wb" if isinstance(data, bytes) else "w") as file:
            file.write(data)

    def weights(self, source, *flags, model=MODEL, valid=None):
        self.write("m.ft", model % (source, valid or source))
        support.run("ftrun", self.path("m.ft"), "--data", self.folder, "--save", self.path("w.safetensors"), *flags, cwd=self.folder)
        return {name: value.tobytes() for name, value in support.read_safetensors(self.path("w.safetensors")).items()}

    def refused(self, source, needle, *flags, code=1):
        self.write("m.ft", MODEL % (source, 'npy("x.npy", "y.npy")'))
        done = self.fails(code, "error: ", "ftrun", self.path("m.ft"), "--data", self.folder, *flags, cwd=self.folder)
        self.assertRegex(done.stdout + done.stderr, needle)


class Compressed(Streams):
    def test_same_as_plain(self):
        plain = self.weights('csv("t.csv")')
        numpy.savez_compressed(self.path("a.npz"), x=self.x, label=self.y)
        numpy.savez(self.path("b.npz"), x=self.x, label=self.y)
        with open(self.path("b.npz"), "rb") as file:
            self.write("b.npz.zst", zstd(file.read()))
        self.write("t.csv.gz", gzip.compress(self.table)), self.write("t.csv.zst", zstd(self.table))
        self.write("t2.csv.gz", gzip.compress(self.table[:500]) + gzip.compress(self.table[500:]))
        for source in 'csv("t.csv.gz")', 'csv("t.csv.zst")', 'csv("t2.csv.gz")', 'npz("a.npz")', 'npz("b.npz.zst")':
            self.assertEqual(self.weights(source), plain, source)
        text = bytes(numpy.random.default_rng(1).integers(32, 127, 3000, "u1"))
        self.write("t.txt", text), self.write("t.gz", gzip.compress(text)), self.write("t.zst", zstd(text))
        plain = self.weights('bytes("t.txt")', model=TEXT)
        for name in "t.gz", "t.zst":
            self.assertEqual(self.weights(f'bytes("{name}")', model=TEXT), plain)

    def test_damaged(self):
        for pack in gzip.compress, zstd:
            whole = pack(self.table)
            for cut in (len(whole) - 1, len(whole) - 5, len(whole) // 2, 30):
                self.write("t.csv.z", whole[:cut])
                self.refused('csv("t.csv.z")', "t.csv.z is (truncated|damaged)")
            for at in range(40, len(whole) - 12, len(whole) // 12):
                self.write("t.csv.z", whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
                self.write("m.ft", MODEL % ('csv("t.csv.z")', 'csv("t.csv")'))
                done = support.run("ftrun", self.path("m.ft"), "--data", self.folder, check=False)
                self.assertIn(done.returncode, (0, 1))  # zstd's simple call writes no checksum: other numbers may be numbers
                if pack is gzip.compress:
                    self.assertEqual(done.returncode, 1, done.stdout)
            self.write("t.csv.z", pack(b""))
            self.refused('csv("t.csv.z")', "is empty when unpacked")
        self.write("t.csv.z", bz2.compress(self.table))
        self.refused('csv("t.csv.z")', "t.csv.z")

    def test_no_room(self):
        self.write("t.csv.gz", gzip.compress(self.table))
        self.write("m.ft", MODEL % (('csv("t.csv.gz")',) * 2))
        support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"))
        self.fails(1, "t.csv.gz needs a temporary file in /nowhere (TMPDIR says where): No such", "ftrun", self.path("m.so"),
                   "--data", self.folder, env={"TMPDIR": "/nowhere"})


class Commands(Streams):
    def test_same_as_files(self):
        plain = self.weights('csv("t.csv")')
        self.write("t.csv.zst", zstd(self.table))
        for source in ('csv("| cat t.csv")', 'csv("|cat t.csv.zst")', 'csv("| head -n 20 t.csv", "| tail -n +21 t.csv")', 'npy("| cat x.npy", "| gzip -c y.npy")'):
            self.assertEqual(self.weights(source, "--allow-commands"), plain, source)
        self.assertEqual(self.weights('npy("| cat x.npy", "y.npy")', "--allow-commands"), plain)

    def test_shards(self):
        with tarfile.open(self.path("s.tar"), "w") as tar:
            for i in range(len(self.x)):
                for ending, array in (("x.npy", self.x[i]), ("y.npy", self.y[i])):
                    data = io.BytesIO()
                    numpy.save(data, array)
                    member = tarfile.TarInfo(f"{i:03d}.{ending}")
                    member.size = data.tell()
                    tar.addfile(member, io.BytesIO(data.getvalue()))
        plain = self.weights('tar("s.tar", keys="x.npy, y.npy", index=false)')
        before = sorted(os.listdir(self.folder))
        for command in "| cat s.tar", "| gzip -c s.tar":
            self.assertEqual(self.weights(f'tar("{command}", keys="x.npy, y.npy")', "--allow-commands"), plain)
        self.assertEqual(sorted(os.listdir(self.folder)), before)  # no index beside what is no file

    def test_once_and_resumed(self):
        """Run once for train and valid, and once more where a training goes on."""
        command = "| echo x >> runs.txt; cat t.csv"
        source = f'csv("{command}")'
        text = (MODEL % (source, source)).replace("seed = 3;", 'seed = 3; checkpoint { dir = "runs"; every = 5 steps };')
        self.write("m.ft", text)
        support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"))
        self.assertFalse(os.path.exists(self.path("runs.txt")))
        go = ("ftrun", "m.so", "--allow-commands", "--save", "w.safetensors")
        support.run(*go, cwd=self.folder)
        with open(self.path("runs.txt")) as file:
            self.assertEqual(file.read(), "x\n")
        with open(self.path("w.safetensors"), "rb") as file:
            whole = file.read()
        shutil.rmtree(self.path("runs"))
        support.run(*go, "--steps", "12", cwd=self.folder)
        done = support.run(*go, "--resume", "runs", cwd=self.folder)
        with open(self.path("w.safetensors"), "rb") as file:
            self.assertEqual(file.read(), whole)
        self.assertNotIn("warning", done.stdout + done.stderr)
        self.write("t.csv", self.table.replace(b"0.", b"1."))
        done = support.run(*go, "--resume", "runs", "--epochs", "3", cwd=self.folder)
        self.assertIn("warning", done.stdout + done.stderr)

    def test_not_unasked(self):
        """Neither opening nor a dry run runs it, and a training says what would."""
        source = 'csv("| touch ran; cat t.csv")'
        self.refused(source, r'train: "\| touch ran; cat t.csv" is a command, whose output would be the data. It was not run: --allow-commands runs it')
        self.write("m.ft", MODEL % (source, source))
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        support.run("ftrun", "info", "m.so", "--allow-commands", cwd=self.folder, check=False)
        self.assertIn('"| touch ran; cat t.csv"', support.run("ftrun", "info", "m.so", cwd=self.folder).stdout)
        for flags in [], ["--allow-commands"]:
            said = support.run("ftrun", "m.so", "--dry-run", *flags, cwd=self.folder).stdout
            self.assertIn('its data is what "| touch ran; cat t.csv" prints, which a training runs with --allow-commands and a dry run does not', said)
        self.assertIn("--allow-commands runs it", support.run("ftrun", "bench", "m.so", "--steps", "3", cwd=self.folder).stdout)  # of made-up batches
        self.assertFalse(os.path.exists(self.path("ran")))
        support.run("ftrun", "m.so", "--allow-commands", cwd=self.folder)
        self.assertTrue(os.path.exists(self.path("ran")))

    def test_failures(self):
        for command, needle in (
            ("| false", '"\\| false" failed with exit code 1, after 0 bytes'),
            ("| cat t.csv; exit 7", "failed with exit code 7, after [0-9]+ bytes"),
            ("| true", '"\\| true" has printed nothing'),
            ("| cat t.csv; kill -9 $$", "was ended by signal 9 .Killed., after [0-9]+ bytes"),
            ("| no-such-program", "failed with exit code 127: the shell finds no such command"),
            ("|  ", "names no command"),
            ("| printf '1,2,3\\\\n'", "line 1|has 3 columns|columns"),
        ):
            self.refused(f'csv("{command}")', needle, "--allow-commands")
        self.write("m.ft", (MODEL % ('folder("| ls") | resize((2, 2)) | normalize', 'folder("| ls") | resize((2, 2)) | normalize')).replace("f32[B, 4]", "f32[B, 1, 2, 2]").replace("(x)", "(rearrange(x, \"b c h w -> b (c h w)\"))"))
        self.fails(1, "reads a folder, which no command prints", "ftrun", self.path("m.ft"), "--allow-commands", cwd=self.folder)
        self.refused('csv("https://example.org/t.csv")', "[|] COMMAND. in place of the name reads what a command prints, with ftrun --allow-commands")

    def test_no_standard_input(self):
        """A command that reads finds the end."""
        self.weights('csv("| cat - t.csv")', "--allow-commands")


if __name__ == "__main__":
    support.main()
