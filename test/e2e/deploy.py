"""ftrun deploy: the library predicts what ftrun predict does, bit for bit, in a C program of gcc without ft; docs/deploy.md; refusals."""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

# Named alike but for the layer's width, so that kernels of one name differ; normalised by running statistics.
MLP = """model NAME(x: f32[B, I=13], y: f32[B, 3]) {
  h = relu(BatchNorm(name="n")(Linear(WIDTH, name="a")(x)))
  z = Linear(3, name="b")(h)
  loss = mean((z - y) ** 2)
  output z
  output p = softmax(z, axis=-1)
}
data D { train = npy("x.npy", "y.npy") }
train { model = NAME; data = D; batch = 5; optimizer = adam(lr=0.01)PRECISION }
"""
TEXT = """model Text(tokens: i32[B, T=12], next: i32[B, T]) {
  x = Embedding(29, 16, name="e")(tokens)
  q, k, v = split(Linear(48, name="qkv")(x), 3, axis=-1)
  heads = attention(rearrange(q, "b t (h d) -> b h t d", h=2), rearrange(k, "b t (h d) -> b h t d", h=2),
    rearrange(v, "b t (h d) -> b h t d", h=2), causal=true)
  x = x + rearrange(heads, "b h t d -> b t (h d)")
  logits = Linear(29, name="out")(x)
  loss = mean(cross_entropy(logits, next))
  output logits
}
data D { train = npy("t.npy", "t.npy") }
train { model = Text; data = D; batch = 4; optimizer = sgd(lr=0.01) }
"""
LENGTHS = """model Many(t: i32[B, T=8], n: i32[B, T], l: i32[B], y: i32[B]) {
  inside = iota([B, T], axis=1) < reshape(l, [B, 1])
  x = Embedding(128, 5, name="e")(t)
  pooled = sum(where(reshape(inside, [B, T, 1]), relu(Linear(5, name="u")(x)), 0), axis=1) / reshape(f32(l), [B, 1])
  loss = mean(cross_entropy(Linear(128, name="o")(x + reshape(pooled, [B, 1, 5])), n, ignore=-1)) + 0 * mean(f32(y))
  output p = pooled
}
data D { train = jsonl("d.jsonl", label="y", keys="tokens, targets, lengths, label") | pad(buckets=[4, 8]) }
train { model = Many; data = D; batch = 4; optimizer = sgd(lr=0.1) }
"""
# Reads raw inputs, writes raw outputs: of `samples` in batches.
PROGRAM = r"""
#include "DEPLOYED.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) { /* IN OUT SAMPLES BYTES-IN BYTES-OUT WHICH; more inputs are NULL */
  int64_t samples = atoll(argv[3]), in_bytes = atoll(argv[4]), out_bytes = atoll(argv[5]);
  char *in = malloc(samples * in_bytes), *out = malloc(samples * out_bytes);
  void *workspace = aligned_alloc(64, P_WORKSPACE + 64);
  FILE *file = fopen(argv[1], "rb");
  if (argc != 7 || !file || fread(in, in_bytes, samples, file) != (size_t)samples) return 100;
  fclose(file);
  memset(workspace, 0x7f, P_WORKSPACE + 64);
  for (int64_t at = 0; at < samples; at += P_BATCH) {
    int64_t count = samples - at < P_BATCH ? samples - at : P_BATCH;
    const void *inputs[P_INPUTS] = {in + at * in_bytes};
    void *outputs[P_OUTPUTS];
    char *other = malloc(P_BATCH * 100000);
    for (int i = 0; i < P_OUTPUTS; i++) outputs[i] = other;
    outputs[atoi(argv[6])] = out + at * out_bytes;
    int code = p_run(inputs, outputs, count, workspace, P_WORKSPACE);
    if (code) return code < 0 ? 200 : code;
    if (p_run(inputs, outputs, P_BATCH + 1, workspace, P_WORKSPACE) != -1) return 101;
    if (p_run(inputs, outputs, 0, workspace, P_WORKSPACE) != -1) return 102;
    if (p_run(inputs, outputs, count, workspace, P_WORKSPACE - 1) != -1) return 103;
    if (p_run(inputs, outputs, count, (char *)workspace + 8, P_WORKSPACE) != -1) return 104;
    free(other);
  }
  for (int i = 0; i < 64; i++)
    if (((char *)workspace)[P_WORKSPACE + i] != 0x7f) return 105;
  file = fopen(argv[2], "wb");
  fwrite(out, out_bytes, samples, file);
  return fclose(file) ? 106 : 0;
}
"""
TWO = r"""
#include "one.h"
#include "two.h"
#include <stdio.h>
static _Alignas(64) char a[ONE_WORKSPACE], b[TWO_WORKSPACE];
int main(void) {
  float x[13], z[3], p[3];
  for (int i = 0; i < 13; i++) x[i] = (float)i / 13;
  const void *in[2] = {x};
  void *out[2] = {z, p};
  if (one_run(in, out, 1, a, sizeof a)) return 1;
  printf("%a %a %a\n", z[0], z[1], z[2]);
  if (two_run(in, out, 1, b, sizeof b)) return 2;
  printf("%a %a %a\n", z[0], z[1], z[2]);
}
"""


def mlp(name, width, precision=""):
    return MLP.replace("NAME", name).replace("WIDTH", str(width)).replace("PRECISION", precision)


class Deploy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        random = numpy.random.default_rng(1)
        self.save("x.npy", random.standard_normal((23, 13), dtype=numpy.float32))
        self.save("y.npy", random.standard_normal((23, 3), dtype=numpy.float32))
        self.save("t.npy", random.integers(0, 29, (23, 12), dtype=numpy.int32))

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, name, array):
        numpy.save(self.path(name), array)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def ft(self, *arguments, **options):
        return support.run("ftrun", *arguments, cwd=self.folder, **options)

    def compile(self, name, *libraries):
        command = [*support.LINKER, "-std=c17", "-Wall", "-Wextra", "-Werror", "-I.", name + ".c", *libraries, "-o", name]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def trained(self, name, text, *flags):
        self.write(name + ".ft", text)
        self.ft(name + ".ft", "--steps", 6, "--save", name + ".safetensors", *flags)
        self.ft("deploy", name + ".ft", "--weights", name + ".safetensors", "-o", name + ".so", *flags)

    def compare(self, name, data, input_, output, which, *flags):
        """The C program and ftrun predict of a training artifact."""
        prefix = name.upper()
        self.write(name + "_main.c", re.sub(r"\bP_", prefix + "_", PROGRAM.replace("DEPLOYED.h", name + ".h").replace("p_run", name + "_run")))
        self.compile(name + "_main", f"./{name}.so")
        self.ft("predict", name + ".ft", "--weights", name + ".safetensors", "--input", f"{input_}={data}", "--output", f"{output}=want.npy",
                *flags)
        given, want = numpy.load(self.path(data)), numpy.load(self.path("want.npy"))
        given.tofile(self.path("in.raw"))
        row = lambda array: str(array[0].nbytes)
        done = subprocess.run([self.path(name + "_main"), "in.raw", "out.raw", str(len(given)), row(given), row(want), str(which)],
                              cwd=self.folder, env={"ASAN_OPTIONS": "detect_leaks=0"})
        self.assertEqual(done.returncode, 0)
        have = numpy.fromfile(self.path("out.raw"), want.dtype).reshape(want.shape)
        plan = support.run("ftc", name + ".ft", "--emit=plan", *flags, cwd=self.folder).stdout
        calls = re.findall(r'^  call "(\w+)"', plan.split('graph "eval"')[1], re.M)
        if calls:  # oneDNN's sums are in another order than the library's own
            numpy.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-6)
        else:
            self.assertEqual(have.tobytes(), want.tobytes())
        self.calls, self.have = calls, have
        self.assertGreater(numpy.abs(want).max(), 0)

    def test_convolutions(self):
        layers = [("Conv2d(8, 3, padding=1)", "same"), ("Conv2d(6, (2, 3), stride=(2, 1), bias=false)", "strides"),
                  ("Conv2d(8, 3, padding=2, dilation=2)", "dilation"), ("Conv2d(8, 3, groups=2, padding=1)", "groups"),
                  ("Conv2d(16, 3, groups=16, padding=1, stride=2)", "depthwise"), ("Conv2d(8, 3, padding=8, dilation=8)", "far")]
        random = numpy.random.default_rng(3)
        self.save("i.npy", random.standard_normal((7, 16, 9, 9), dtype=numpy.float32))
        for layer, name in layers:
            self.trained(name, f"""model {name.capitalize()}(x: f32[B, 16, 9, 9]) {{
  y = {layer[:-1]}, name="c")(x)
  h = relu({layer[:-1]}, name="d")(max_pool2d(concat([y, y, y, y], axis=1)[:, :16], 2)))
  z = flatten(h, from=1)
  loss = mean(z ** 2) + mean(y ** 2)
  output z
  output y
}}
data D {{ train = npy("i.npy") }}
train {{ model = {name.capitalize()}; data = D; batch = 3; optimizer = sgd(lr=0.01) }}
""")
            self.compare(name, "i.npy", "x", "z", 0)
            self.compare(name, "i.npy", "x", "y", 1)
            self.assertIn("conv", self.calls)  # oneDNN's, in ftrun
            if name != "far":  # which plain loops make: the others have kernels of ft's own in the library, and there ftrun takes them, too
                self.ft("predict", f"./{name}.so", "--weights", name + ".safetensors", "--input", "x=i.npy", "--output", "y=own.npy")
                self.assertEqual(self.have.tobytes(), numpy.load(self.path("own.npy")).tobytes())

    def test_mlp(self):
        self.trained("one", mlp("One", 40))
        self.compare("one", "x.npy", "x", "z", 0)
        self.compare("one", "x.npy", "x", "p", 1)

    def test_bf16(self):
        self.trained("half", mlp("Half", 24, '; precision = "bf16"'))
        self.compare("half", "x.npy", "x", "p", 1)

    def test_frozen_layer(self):
        """Weights that another file has go into the library, too; layers of integers compute the same there."""
        random = numpy.random.default_rng(7)
        support.write_safetensors(self.path("given.safetensors"), {"l.weight": random.standard_normal((9, 13)).astype("f4"), "l.bias": random.standard_normal(9).astype("f4")})
        for name, dtype in ("wide", "f32"), ("narrow", "bf16"):
            self.trained(name, f"""block Net()(x: [B, D]) {{ return relu(Linear(9, name="l")(x)) }}
model {name.capitalize()}(x: f32[B, 13], y: f32[B, 3]) {{
  z = QuantLinear(3, name="b")(frozen(Net(name="t"), "given.safetensors", dtype={dtype})(x))
  loss = mean((z - y) ** 2)
  output z
}}
data D {{ train = npy("x.npy", "y.npy") }}
train {{ batch = 5; optimizer = adam(lr=0.01) }}
""")
            self.compare(name, "x.npy", "x", "z", 0)

    def test_one_sample(self):
        self.trained("one", mlp("One", 40).replace("BatchNorm", "LayerNorm"), "--set", "train.batch=1")
        self.compare("one", "x.npy", "x", "z", 0, "--set", "train.batch=1")

    def test_tokens(self):
        self.trained("text", TEXT)
        self.compare("text", "t.npy", "tokens", "logits", 0)
        bad = numpy.load(self.path("t.npy"))
        for value in (29, -1, 2**31 - 1, -(2**31)):
            bad[7, 3] = value
            bad.tofile(self.path("bad.raw"))
            done = subprocess.run([self.path("text_main"), "bad.raw", "out.raw", "23", "48", str(12 * 29 * 4), "0"], cwd=self.folder)
            self.assertEqual(done.returncode, 1, value)

    @unittest.skipIf(support.IS_SANITIZED, "Python has no AddressSanitizer")
    def test_several_inputs(self):
        """A text model with a step for each of several lengths: two inputs are needed, two are not."""
        self.write("d.jsonl", "".join(json.dumps({"text": "abcdefgh"[: 2 + i % 7], "y": i % 3}) + "\n" for i in range(24)))
        self.write("many.ft", LENGTHS)
        self.ft("many.ft", "--steps", 3, "--save", "many.safetensors")
        self.ft("deploy", "many.ft", "--weights", "many.safetensors", "-o", "many.so")
        self.assertRegex(open(self.path("many.h")).read(), "inputs\\[1\\].*NULL\n.*inputs\\[2\\].*samples.\n.*inputs\\[3\\].*NULL")
        random = numpy.random.default_rng(4)
        lengths = random.integers(1, 9, 4, dtype=numpy.int32)
        tokens = random.integers(0, 128, (4, 8), dtype=numpy.int32)
        self.save("tokens.npy", tokens)
        self.save("lengths.npy", lengths)
        self.ft("predict", "many.ft", "--weights", "many.safetensors", "--input", "t=tokens.npy", "--input", "l=lengths.npy", "--output", "p=p.npy")
        workspace = int(re.search("MANY_WORKSPACE ([0-9]+)", open(self.path("many.h")).read())[1])
        memory = numpy.full(workspace + 64, 0x7F, numpy.uint8)
        start = -memory.ctypes.data % 64
        out = numpy.zeros((4, 5), numpy.float32)
        inputs = (ctypes.c_void_p * 4)(tokens.ctypes.data, None, lengths.ctypes.data, None)
        outputs = (ctypes.c_void_p * 1)(out.ctypes.data)
        library = ctypes.CDLL(self.path("many.so"))
        call = lambda: library.many_run(inputs, outputs, ctypes.c_int64(4), ctypes.c_void_p(memory.ctypes.data + start), ctypes.c_size_t(workspace))
        self.assertEqual(call(), 0)
        numpy.testing.assert_allclose(out, numpy.load(self.path("p.npy")), rtol=2e-5, atol=2e-6)
        inputs[2] = None
        self.assertEqual(call(), -1)

    def test_two_in_one_program(self):
        self.trained("one", mlp("One", 40))
        self.trained("two", mlp("Two", 48))
        self.save("row.npy", numpy.arange(13, dtype=numpy.float32)[None] / numpy.float32(13))
        self.write("both.c", TWO)
        self.compile("both", "./one.so", "./two.so")
        lines = subprocess.run([self.path("both")], cwd=self.folder, capture_output=True, text=True, check=True).stdout.splitlines()
        for name, line in zip(("one", "two"), lines):
            self.ft("predict", name + ".ft", "--weights", name + ".safetensors", "--input", "x=row.npy", "--output", "z=want.npy")
            have = [float.fromhex(word) for word in line.split()]
            numpy.testing.assert_allclose(have, numpy.load(self.path("want.npy"))[0], rtol=2e-5, atol=2e-6)

    def test_file(self):
        self.trained("one", mlp("One", 40))
        size = os.path.getsize(self.path("one.so"))
        support.run("ftc", "one.ft", "-o", "training.so", cwd=self.folder)
        self.assertLess(size, os.path.getsize(self.path("training.so")))
        names = subprocess.run(["nm", "-D", "--defined-only", "one.so"], cwd=self.folder, capture_output=True, text=True).stdout
        self.assertIn("one_run", names)
        undefined = subprocess.run(["nm", "-D", "--undefined-only", "one.so"], cwd=self.folder, capture_output=True, text=True).stdout
        self.assertLessEqual({word for word in undefined.split() if len(word) > 1 and not (support.IS_SANITIZED and word.startswith("__asan_"))}, {"memcpy", "memset", "memmove"})
        self.ft("predict", "one.so", "--weights", "one.safetensors", "--input", "x=x.npy", "--output", "z=z.npy")
        self.assertIn("for inference", self.ft("one.so", check=False).stderr)
        self.assertIn("for inference", self.ft("bench", "one.so", check=False).stderr)
        once = open(self.path("one.so"), "rb").read()
        self.ft("deploy", "one.ft", "--weights", "one.safetensors", "-o", "one.so")
        self.assertEqual(once, open(self.path("one.so"), "rb").read())

    def refuse(self, code, *arguments, text):
        done = self.ft("deploy", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertFalse(os.path.exists(self.path("no.so")))
        self.assertFalse(os.path.exists(self.path("no.h")))

    def test_refusals(self):
        self.write("one.ft", mlp("One", 40))
        self.ft("one.ft", "--steps", 1, "--save", "one.safetensors")
        support.run("ftc", "one.ft", "--inference", "-o", "inference.so", cwd=self.folder)
        support.run("ftc", "one.ft", "-o", "training.so", cwd=self.folder)
        weights, out = ("--weights", "one.safetensors"), ("-o", "no.so")
        self.refuse(2, "inference.so", *out, text="--weights")
        self.refuse(2, "inference.so", *weights, text="-o MODEL.so")
        for ending in ("ptx", "txt"):
            self.refuse(1, "inference.so", *weights, "-o", "no." + ending, text="no." + ending)
        self.refuse(1, "training.so", *weights, *out, text="compiled for training")
        whole = open(self.path("inference.so"), "rb").read()
        section = subprocess.run(["readelf", "-SW", "inference.so"], cwd=self.folder, capture_output=True, text=True).stdout
        at, size = (int(word, 16) for word in re.search(r"\.ft_weights +PROGBITS +\w+ (\w+) (\w+)", section).groups())
        with open(self.path("other.so"), "wb") as file:  # as an ftc that lays out in another way would write
            file.write(whole[: at + size - 64] + bytes(8) + whole[at + size - 56 :])
        self.refuse(1, "other.so", *weights, *out, text="other.so is compiled by another version of ftc")
        self.refuse(1, "inference.so", "--weights", "none.safetensors", *out, text="none.safetensors")
        self.refuse(1, "inference.so", *weights, "-o", "nowhere/no.so", text="nowhere/no.h")
        tensors = support.read_safetensors(self.path("one.safetensors"))
        tensors = tensors[0] if isinstance(tensors, tuple) else tensors
        support.write_safetensors(self.path("less.safetensors"), {k: v for k, v in tensors.items() if k != "b.weight"})
        self.refuse(1, "inference.so", "--weights", "less.safetensors", *out, text="b.weight")
        support.write_safetensors(self.path("other.safetensors"), {**tensors, "b.weight": numpy.zeros((3, 7), numpy.float32)})
        self.refuse(1, "inference.so", "--weights", "other.safetensors", *out, text="b.weight")
        whole = open(self.path("one.safetensors"), "rb").read()
        with open(self.path("cut.safetensors"), "wb") as file:
            file.write(whole[:-9])
        self.refuse(1, "inference.so", "--weights", "cut.safetensors", *out, text="cut.safetensors")
        self.assertIn("nothing written", self.ft("deploy", "inference.so", *weights, *out, "--dry-run").stdout)
        self.assertFalse(os.path.exists(self.path("no.so")))
        self.write("conv.ft", """model C(x: f32[B, 4, 9, 9]) { y = ConvTranspose2d(4, 3, stride=2, name="c")(x)
  loss = mean(y ** 2)
  output y }
data D { train = npy("i.npy") }
train { model = C; data = D; batch = 2; optimizer = sgd(lr=0.1) }""")
        self.refuse(1, "conv.ft", *weights, *out, text="conv_grad_input")
        done = support.run("ftc", "one.ft", "--inference", "--emit=ptx", cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--inference is for an artifact", done.stderr)

    def test_document(self):
        text = open(os.path.join(support.ROOT, "docs", "deploy.md")).read()
        (program,) = re.findall(r"```c\n(.*?)```", text.split("## As PTX")[0], re.DOTALL)  # the other one: deploy_ptx.py
        commands = [line.strip() for line in re.findall(r"^    (.*)$", text.split("## What is in it")[0], re.M)]
        example = os.path.join(support.EXAMPLES, "fashion_mlp.ft")
        self.save("image.npy", numpy.zeros((1, 28, 28), numpy.uint8))
        support.write_example_mlp(self.path("mlp.safetensors"))
        self.write("program.c", program)
        self.assertEqual(len([c for c in commands if c.split()[0] in ("ftrun", "ftc", "gcc")]), 4)
        as_c = re.findall(r"^    (.*)$", text.split("## As one C file")[1].split("\n## ")[0], re.M)
        self.assertEqual([c.split()[0] for c in as_c], ["ftrun", "gcc"])

        def results(commands):
            for command in commands:
                words = command.replace("examples/fashion_mlp.ft", example).split()
                if words[0] in ("ftrun", "ftc"):
                    support.run(*words, cwd=self.folder)
                elif words[0] == "gcc":
                    subprocess.run([*support.LINKER, *words[1:]], cwd=self.folder, check=True)
            return numpy.float32(subprocess.run([self.path("program")], cwd=self.folder, capture_output=True, text=True, check=True).stdout.split())

        have = results(commands)
        self.ft("predict", "mlp.so", "--weights", "mlp.safetensors", "--input", "image=image.npy", "--output", "logits=logits.npy")
        self.assertEqual(have.tolist(), numpy.load(self.path("logits.npy"))[0].tolist())
        numpy.testing.assert_allclose(results(as_c), have, rtol=2e-5, atol=2e-6)


if __name__ == "__main__":
    support.main()
