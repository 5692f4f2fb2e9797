"""Texts as data, against numpy: several files are one row of tokens, whatever lies between them, compressed or not; a resumed run, workers and
ranks change nothing."""
import ctypes
import gzip
import json
import os
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import hosts
import support
import tokenizer

FIXED = {"FT_THREADS": "1"}
# the loss of a step tells which windows were in it
WINDOWS = """
model M(t: i32[B, 6], n: i32[B, 6]) {
  param w: [1] = ones
  loss = mean(w * sin(f32(t) * (1 + f32(iota(6)))) + w * cos(3 * f32(n)))
  output t; output n
}
data D { train = SOURCE; valid = 0.2 of train; workers = WORKERS }
train { batch = BATCH; epochs = 2; seed = 5; optimizer = sgd(lr=0.1); log { every = 1 steps } }
distributed { data = any }
"""


def zstd(plain):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    packed = ctypes.create_string_buffer(2 * len(plain) + 1000)
    count = library.ZSTD_compress(packed, ctypes.c_size_t(len(packed)), plain, ctypes.c_size_t(len(plain)), 9)
    return packed.raw[:count]


class Texts(support.Case):
    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())

    def losses(self, artifact, *flags):
        support.run("ftrun", *([artifact] if isinstance(artifact, str) else artifact), "--log-jsonl", "log", *flags, cwd=self.folder, env=FIXED)
        return [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")]

    def predicted(self, artifact, split, *names):
        outputs = [word for name in names for word in ("--output", f"{name}={name}.npy")]
        support.write_safetensors(self.path("w"), {"w": numpy.ones(1, "f4")})
        support.run("ftrun", "predict", artifact, "--split", split, "--weights", "w", *outputs, cwd=self.folder)
        return [numpy.load(self.path(f"{name}.npy")) for name in names]


class Files(Texts):
    """Files of 1, 2, 40 and 90 tokens, so that a window lies in up to three."""

    def setUp(self):
        super().setUp()
        self.text = numpy.random.default_rng(1).integers(32, 127, 333).astype("u1")
        self.parts = [self.text[a:b] for a, b in ((0, 1), (1, 3), (3, 43), (43, 133), (133, 333))]
        self.write("all.txt", self.text.tobytes())
        for i, part in enumerate(self.parts):
            self.write(f"t-{i}.txt", part.tobytes())
            head = numpy.zeros(256, "<i4")
            head[:3] = 20240520, 1, len(part)
            self.write(f"k-{i}.bin", (head.tobytes() if i % 2 else b"") + part.astype("<u2").tobytes())
            self.write(f"w-{i}.bin", part.astype("<u4").tobytes())

    def model(self, source, name="m.so", batch=4, workers=2):
        return self.compile(WINDOWS.replace("SOURCE", source).replace("BATCH", str(batch)).replace("WORKERS", str(workers)), name=name)

    def test_windows_are_those_of_one_row(self):
        count = (333 - 1) // 6
        want = self.text[: count * 6].reshape(-1, 6), self.text[1 : count * 6 + 1].reshape(-1, 6)
        held = round(count * 0.2)
        for source in ('bytes("all.txt")', 'bytes("t-*.txt")', 'tokens("k-{0..4}.bin")', 'tokens("w-0.bin", "w-{1,2}.bin", "w-[34].bin", dtype=u32)'):
            with self.subTest(source):
                artifact = self.model(source)
                for split, part in ("train", slice(0, count - held)), ("valid", slice(count - held, count)):
                    t, n = self.predicted(artifact, split, "t", "n")
                    numpy.testing.assert_array_equal(t, want[0][part])
                    numpy.testing.assert_array_equal(n, want[1][part])

    def test_trains_as_with_one_file(self):
        whole = self.losses(self.model('bytes("all.txt")'))
        artifact = self.model('bytes("t-*.txt")', workers=3)
        self.assertEqual(self.losses(artifact), whole)
        self.losses(artifact, "--steps", "13", "--set", "train.checkpoint.dir=" + self.path("d"))
        self.assertEqual(self.losses(artifact, "--resume", self.path("d")), whole)
        if hosts.HAS_MPI:
            ranks = self.losses(["--ranks", "2", self.model('bytes("t-*.txt")', batch=2)])
            numpy.testing.assert_allclose(ranks, whole, rtol=1e-5)

    def test_compressed(self):
        whole = self.losses(self.model('bytes("all.txt")'))
        self.write("t-1.txt", gzip.compress(self.parts[1].tobytes()))
        self.write("t-3.txt", zstd(self.parts[3].tobytes()))
        self.write("t-4.txt", gzip.compress(self.parts[4][:80].tobytes()) + gzip.compress(self.parts[4][80:].tobytes()))  # two members
        self.assertEqual(self.losses(self.model('bytes("t-*.txt")')), whole)
        with open(self.path("k-3.bin"), "rb") as file:
            self.write("k-3.bin", zstd(file.read()))
        self.assertEqual(self.losses(self.model('tokens("k-*.bin")')), whole)

    def test_refused(self):
        packed = gzip.compress(self.parts[4].tobytes())
        for name, data, needle in (
            ("t-4.txt", packed[:-9], "t-4.txt is truncated: the gzip data ends too early"), ("t-3.txt", gzip.compress(b""), "t-3.txt is empty when unpacked"),
            ("t-3.txt", zstd(b"a" * 5000)[:-3], "t-3.txt is truncated"), ("t-3.txt", packed[:40] + bytes(30) + packed[70:], "t-3.txt is damaged"), ("t-0.txt", b"", "is empty"),
        ):
            with self.subTest(needle):
                self.setUp()
                self.write(name, data)
                self.fails(1, needle, "ftrun", self.model('bytes("t-*.txt")'), cwd=self.folder)
        self.setUp()
        for source, needle in (
            ('bytes("t-[01].txt")', "t-0.txt and the other files hold 3 tokens, but one sample takes 7"), ('bytes("t-{0..9}.txt")', "t-5.txt not found"),
            ('tokens("k-1.bin", "t-2.txt", "k-0.bin", "t-0.txt")', "t-0.txt is not a file of u16 tokens: its 1 bytes are no multiple of 2"),
        ):
            with self.subTest(needle):
                self.fails(1, needle, "ftrun", self.model(source), cwd=self.folder)

    def test_a_token_outside(self):
        """Its file and place in it are told."""
        source = WINDOWS.replace("f32(t) *", "reshape(Embedding(100, 1)(t), [B, 6]) *").replace("SOURCE", 'bytes("t-*.txt")').replace("BATCH", "4").replace("WORKERS", "0")
        self.write("t-3.txt", numpy.where(numpy.arange(90) == 50, 200, 50).astype("u1").tobytes())
        for i in (0, 1, 2, 4):
            self.write(f"t-{i}.txt", bytes([40]) * len(self.parts[i]))
        self.fails(1, "train: token 50 of t-3.txt holds 200, but input t takes 0 to 99", "ftrun", self.compile(source), cwd=self.folder)


class Lines(Texts):
    """JSON lines: what the reference tokenizer makes of Python's reading."""

    @classmethod
    def setUpClass(cls):
        text = open(tokenizer.LICENSE).read()
        merges = tokenizer.train(text[:6000], 150)
        words = sorted(tokenizer.LETTERS.values()) + [a + b for a, b in merges] + ["<|endoftext|>"]
        cls.vocabulary = {word: i for i, word in enumerate(words)}
        cls.merges, cls.reference = merges, tokenizer.Reference(cls.vocabulary, merges)
        cls.documents = [part for part in text[:9000].split("\n\n") if part] + [t for t in tokenizer.TRICKY if len(t) < 200]

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bpe"))
        self.write("bpe/vocab.json", json.dumps(self.vocabulary))
        self.write("bpe/merges.txt", "".join(f"{a} {b}\n" for a, b in self.merges))
        for i in range(3):
            lines = [json.dumps({"id": k, "text": part, "more": {"text": 1}}, ensure_ascii=k % 2 == 0) for k, part in enumerate(self.documents[i::3])]
            self.write(f"d-{i}.jsonl", "\n".join(lines) + "\n" * (i != 1))
        self.order = [part for i in range(3) for part in self.documents[i::3]]

    def model(self, source, name="m.so", batch=4):
        return self.compile(WINDOWS.replace("SOURCE", source).replace("BATCH", str(batch)).replace("WORKERS", "2"), name=name)

    def test_tokens(self):
        end = self.vocabulary["<|endoftext|>"]
        coded = [self.reference.encode(part) for part in self.order]
        raw = [list(part.encode()) for part in self.order]
        for options, want in (
            (', tokenizer="bpe/"', [token for part in coded for token in part + [end]]), (', tokenizer="bpe", end=none', [token for part in coded for token in part]),
            (', tokenizer="bpe/vocab.json", end=7', [token for part in coded for token in part + [7]]), ("", [byte for part in raw for byte in part]),
            (", end=10", [byte for part in raw for byte in part + [10]]),
        ):
            with self.subTest(options):
                artifact = self.model(f'jsonl("d-*.jsonl"{options})')
                t = numpy.concatenate([self.predicted(artifact, split, "t")[0] for split in ("train", "valid")])
                numpy.testing.assert_array_equal(t.ravel(), want[: (len(want) - 1) // 6 * 6])

    def test_trains_as_with_tokens(self):
        end = self.vocabulary["<|endoftext|>"]
        numpy.array([token for part in self.order for token in self.reference.encode(part) + [end]], "<u2").tofile(self.path("all.bin"))
        whole = self.losses(self.model('tokens("all.bin")'), "--epochs", "1")
        with open(self.path("d-0.jsonl"), "rb") as file:
            self.write("d-0.jsonl", zstd(file.read()))
        artifact = self.model('jsonl("d-{0..2}.jsonl", tokenizer="bpe/")')
        self.losses(artifact, "--epochs", "1", "--steps", "13", "--set", "train.checkpoint.dir=" + self.path("d"))
        self.assertEqual(self.losses(artifact, "--epochs", "1", "--resume", self.path("d")), whole)

    def test_tokenize(self):
        """The file of tokens is what jsonl() reads; memory is that of one file."""
        end = self.vocabulary["<|endoftext|>"]
        files = [self.path(f"d-{i}.jsonl") for i in range(3)]
        support.run("ftrun", "tokenize", *files, "--tokenizer", self.path("bpe"), "--member", "text", "--output", self.path("x.bin"), "--no-header")
        want = [token for part in self.order for token in self.reference.encode(part) + [end]]
        self.assertEqual(list(numpy.fromfile(self.path("x.bin"), "<u2")), want)
        said = support.run("ftrun", "tokenize", files[0], "--tokenizer", self.path("bpe"), "--member", "text").stdout
        self.assertEqual([int(word) for word in said.split()], [token for part in self.documents[::3] for token in self.reference.encode(part)])
        self.fails(1, "d-0.jsonl line 1: has no member 'body'", "ftrun", "tokenize", files[0], "--tokenizer", self.path("bpe"), "--member", "body")

    def test_dry_run(self):
        count = sum(len(part.encode()) for part in self.order)
        said = support.run("ftrun", self.model('jsonl("d-*.jsonl")'), "--dry-run", cwd=self.folder).stdout
        self.assertIn(f"train: {count} tokens in 3 files, ", said)
        self.assertIn("the tokens take 0.0 MiB of memory", said)

    def test_refused(self):
        self.write("bad.jsonl", '{"text": "ab"}\n{"text": "ab}\n')
        self.write("none.json", "{}")
        for source, needle in (
            ('jsonl("d-*.jsonl", "bad.jsonl")', "bad.jsonl line 2, column 13: premature end of input"), ('jsonl("d-0.jsonl", text="body")', "d-0.jsonl line 1: has no member 'body'; it has 'id', 'text', 'more'"),
            ('jsonl("d-0.jsonl", tokenizer="nowhere")', "train: tokenizer: nowhere not found"), ('jsonl("d-0.jsonl", tokenizer="none.json")', "none.json"),
            ('jsonl("d-0.jsonl", tokenizer="bpe/", end=500)', "end=500 is no token"),
        ):
            with self.subTest(needle):
                self.fails(1, needle, "ftrun", self.model(source), cwd=self.folder)


if __name__ == "__main__":
    support.main()
