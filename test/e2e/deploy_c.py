"""ftrun deploy -o model.c: one C file computes what the library of the same LLVM module does, to the bit, however gcc and clang compile it,
and ftrun predict to rounding; sanitizers find nothing in it; its refusals."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import support
from deploy import PROGRAM, TWO, mlp

STRICT = ["-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
COMPILERS = [["gcc", "-std=c99", "-O0"], ["gcc", "-std=c11", "-O2"], ["clang-19", "-std=c99", "-O0"], ["clang-19", "-std=c11", "-O2"]]
SANITIZED = ["clang-19", "-std=c11", "-O1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
GPT = """model Gpt(tokens: i32[B, T=12], next: i32[B, T]) {
  x = Embedding(29, 16, name="e")(tokens)
  q, k, v = split(Linear(48, name="qkv")(LayerNorm(name="n")(x)), 3, axis=-1)
  heads = attention(rearrange(q, "b t (h d) -> b h t d", h=2), rearrange(k, "b t (h d) -> b h t d", h=2),
    rearrange(v, "b t (h d) -> b h t d", h=2), causal=true)
  x = x + rearrange(heads, "b h t d -> b t (h d)")
  x = x + Linear(16, name="d")(gelu(Linear(64, name="u")(LayerNorm(name="m")(x))))
  logits = Linear(29, name="out")(x)
  loss = mean(cross_entropy(logits, next))
  output logits
}
data D { train = npy("t.npy", "t.npy") }
train { model = Gpt; data = D; batch = 4; optimizer = sgd(lr=0.01)PRECISION }
"""
CNN = """model Cnn(x: f32[B, 4, 9, 10]) {
  y = Conv2d(8, 3, padding=1, name="c")(x)
  h = relu(Conv2d(6, (2, 3), stride=(2, 1), bias=false, name="d")(max_pool2d(y, 2)))
  g = relu(Conv2d(6, 3, padding=2, dilation=2, groups=2, name="g")(h))
  z = Linear(5, name="l")(flatten(g, from=1))
  loss = mean(z ** 2) + mean(y ** 2)
  output z
}
data D { train = npy("i.npy") }
train { model = Cnn; data = D; batch = 3; optimizer = sgd(lr=0.01) }
"""
VECTORS = """model NAME(x: f32[B, SHAPE], y: f32[B, 3]) {
  BODY
  loss = mean((z - y) ** 2)
  output z
}
data D { train = npy("FILE", "y.npy") }
train { model = NAME; data = D; batch = 5; optimizer = adam(lr=0.01) }
"""


def vectors(name, shape, file, body):
    return VECTORS.replace("NAME", name).replace("SHAPE", shape).replace("FILE", file).replace("BODY", body)


class DeployC(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        random = numpy.random.default_rng(1)
        for name, shape in ("x", (23, 13)), ("y", (23, 3)), ("s", (23, 7, 13)), ("i", (7, 4, 9, 10)):
            numpy.save(self.path(name + ".npy"), random.standard_normal(shape, dtype=numpy.float32))
        numpy.save(self.path("t.npy"), random.integers(0, 29, (23, 12), dtype=numpy.int32))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def ft(self, *arguments, **options):
        return support.run("ftrun", *arguments, cwd=self.folder, **options)

    def gcc(self, *command, check=True):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done

    def deployed(self, name, text, *flags):
        """NAME.c, and SO.so of the same module."""
        self.write(name + ".ft", text)
        weights = "--weights", name + ".safetensors"
        self.ft(name + ".ft", "--steps", 6, "--save", name + ".safetensors", *flags)
        support.run("ftc", name + ".ft", "--inference", "--cpu", "portable", "-o", "portable.so", *flags, cwd=self.folder)
        self.ft("deploy", "portable.so", *weights, "-o", "so.so")
        self.ft("deploy", name + ".ft", *weights, "-o", name + ".c", *flags)
        self.write("main.c", re.sub(r"\bP_", name.upper() + "_", PROGRAM.replace("DEPLOYED.h", name + ".h").replace("p_run", name + "_run")))

    def object(self, name, compiler):
        self.gcc(*compiler, *STRICT, "-c", name + ".c")
        sanitizers = [word for word in compiler if word.startswith("-fsan")]
        self.gcc(compiler[0], *sanitizers, "main.c", name + ".o", "-lm", "-o", "program")

    def run_program(self, given, want, code=0):
        row = lambda array: str(array[0].nbytes)
        given.tofile(self.path("in.raw"))
        done = subprocess.run([self.path("program"), "in.raw", "out.raw", str(len(given)), row(given), row(want), "0"], cwd=self.folder,
                              env={"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return numpy.fromfile(self.path("out.raw"), want.dtype).reshape(want.shape) if code == 0 else None

    def compare(self, name, text, data, input_, output, *flags, compilers=COMPILERS, rtol=2e-5, atol=2e-6):
        self.deployed(name, text, *flags)
        self.ft("predict", name + ".ft", "--weights", name + ".safetensors", "--input", f"{input_}={data}", "--output", f"{output}=want.npy", *flags)
        given, want = numpy.load(self.path(data)), numpy.load(self.path("want.npy"))
        self.gcc(*support.LINKER, "main.c", "./so.so", "-lm", "-o", "program")  # -lm: rintf, where x86-64 has no instruction
        exact = self.run_program(given, want)
        numpy.testing.assert_allclose(exact, want, rtol=rtol, atol=atol)
        self.assertGreater(numpy.abs(want).max(), 0)
        for compiler in compilers:
            self.object(name, compiler)
            self.assertEqual(self.run_program(given, want).tobytes(), exact.tobytes(), compiler)
        return given, want

    def test_mlp(self):
        given, want = self.compare("one", mlp("One", 40), "x.npy", "x", "z", compilers=COMPILERS + [SANITIZED])
        self.gcc("gcc", "-O3", "-march=native", "-ffp-contract=fast", "-c", "one.c")  # products and sums are rounded once
        self.gcc("gcc", "main.c", "one.o", "-lm", "-o", "program")
        numpy.testing.assert_allclose(self.run_program(given, want), want, rtol=2e-5, atol=2e-6)
        self.assertIn("#error", self.gcc("gcc", "-ffast-math", "-c", "one.c", check=False).stderr)
        names = self.gcc("nm", "--defined-only", "--extern-only", "one.o").stdout.split()
        self.assertEqual(names[2:], ["one_run"])
        once = open(self.path("one.c")).read()
        self.ft("deploy", "portable.so", "--weights", "one.safetensors", "-o", "one.c")
        self.assertEqual(open(self.path("one.c")).read(), once)

    def test_one_sample(self):
        self.compare("one", mlp("One", 40).replace("BatchNorm", "LayerNorm"), "x.npy", "x", "z", "--set", "train.batch=1")

    def test_convolutions(self):
        self.compare("cnn", CNN, "i.npy", "x", "z", compilers=COMPILERS + [SANITIZED])

    def test_gpt(self):
        _, want = self.compare("gpt", GPT.replace("PRECISION", ""), "t.npy", "tokens", "logits", compilers=[*COMPILERS, SANITIZED])
        bad = numpy.load(self.path("t.npy"))
        for value in (29, -1, 2**31 - 1, -(2**31)):
            bad[7, 3] = value
            self.run_program(bad, want, code=1)

    @support.in_turns(0, 2)
    def test_bf16(self):
        self.compare("gpt", GPT.replace("PRECISION", '; precision = "bf16"'), "t.npy", "tokens", "logits", compilers=COMPILERS[1:3], rtol=1e-2, atol=1e-2)

    @support.in_turns(1, 2)
    def test_fp16(self):
        self.compare("gpt", GPT.replace("PRECISION", "; precision = fp16"), "t.npy", "tokens", "logits", compilers=COMPILERS[1:3], rtol=2e-3, atol=2e-3)

    def test_recurrent(self):
        self.compare("lstm", vectors("Lstm", "T=7, I=13", "s.npy", 'h, s, c = LSTM(11, num_layers=2, name="l")(x)\n  z = Linear(3, name="b")(h[:, -1])'),
                     "s.npy", "x", "z")
        self.compare("gru", vectors("Gru", "T=7, I=13", "s.npy", 'h, s = GRU(9, name="l")(x)\n  z = Linear(3, name="b")(h[:, -1])'),
                     "s.npy", "x", "z", compilers=COMPILERS[1:3])

    def test_integers(self):
        """Products of integers stay so, and any order of their sums has the same bits: those of ftrun predict as well."""
        text = re.sub(r"\b(Linear|Conv2d)\(", r"Quant\1(", CNN)
        self.compare("cnn", text, "i.npy", "x", "z", compilers=COMPILERS + [SANITIZED], rtol=0, atol=0)
        self.assertRegex(open(self.path("cnn.c")).read(), "integer_run")

    def test_rounded_weights(self):
        body = """h = relu(QuantLinear(70, bits=4, input_bits=none, name="a")(x))
  h = relu(QuantLinear(40, bits=4, group=14, dynamic=true, name="b")(reshape(concat([h, 2 * h], axis=1), [-1, 2, 70])))
  z = QuantLinear(3, bits=8, input_bits=none, group=10, name="c")(h[:, 0] + h[:, 1])"""
        self.compare("rnd", vectors("Rnd", "13", "x.npy", body), "x.npy", "x", "z", compilers=COMPILERS[:3])
        self.assertRegex(open(self.path("rnd.c")).read(), "rounded_run")

    def test_two_in_one_program(self):
        for name, width in ("One", 40), ("Two", 48):
            self.deployed(name.lower(), mlp(name, width))
            self.gcc("gcc", "-c", name.lower() + ".c")
        self.write("both.c", TWO)
        self.gcc("gcc", "both.c", "one.o", "two.o", "-lm", "-o", "both")
        numpy.save(self.path("row.npy"), numpy.arange(13, dtype=numpy.float32)[None] / numpy.float32(13))
        for name, line in zip(("one", "two"), self.gcc("./both").stdout.splitlines()):
            self.ft("predict", name + ".ft", "--weights", name + ".safetensors", "--input", "x=row.npy", "--output", "z=want.npy")
            numpy.testing.assert_allclose([float.fromhex(word) for word in line.split()], numpy.load(self.path("want.npy"))[0], rtol=2e-5, atol=2e-6)

    def test_refusals(self):
        self.deployed("one", mlp("One", 40))
        support.run("ftc", "one.ft", "--inference", "-o", "inference.so", cwd=self.folder)
        done = self.ft("deploy", "inference.so", "--weights", "one.safetensors", "-o", "no.c", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("inference.so has no C in it: `ftrun deploy one.ft -o MODEL.c` compiles so", done.stderr)
        self.assertFalse(os.path.exists(self.path("no.c")) or os.path.exists(self.path("no.h")))
        self.assertIn("nothing written", self.ft("deploy", "portable.so", "--weights", "one.safetensors", "-o", "no.c", "--dry-run").stdout)
        self.assertFalse(os.path.exists(self.path("no.c")))
        for name in 'a"b.c', "a\\b.c", "a\nb.c":
            done = self.ft("deploy", "portable.so", "--weights", "one.safetensors", "-o", name, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("includes its header by name", done.stderr)
            self.assertFalse(os.path.exists(self.path(name)))
        for flags in (["-o", "x.so", "--cpu", "portable"], ["--emit=llvm", "--cpu", "portable"]):
            done = support.run("ftc", "one.ft", *flags, cwd=self.folder, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("it goes with --inference", done.stderr)


if __name__ == "__main__":
    support.main()
