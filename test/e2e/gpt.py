"""The GPT examples: gpt_bytes learns real text to a stated number of bits per byte, the same with any
number of threads and across a resume; gpt2 is Hugging Face's GPT-2: values and every gradient of a
slice of two layers against a model written here in PyTorch, with its names and layouts."""
import glob
import math
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

BYTES = os.path.join(support.EXAMPLES, "gpt_bytes.ft")
GPT2 = os.path.join(support.EXAMPLES, "gpt2.ft")
LICENSES = "/usr/share/common-licenses"  # Debian's base-files: on every machine


def gpt2(w, x, layers, heads):
    """Logits of GPT-2 with Hugging Face's parameter names; its Conv1D weights are [in, out]."""
    norm = lambda h, name: torch.nn.functional.layer_norm(h, h.shape[-1:], w[name + ".weight"], w[name + ".bias"])
    conv = lambda h, name: h @ w[name + ".weight"] + w[name + ".bias"]
    batch, length = x.shape
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    h = w["wte.weight"][x] + w["wpe.weight"][:length]
    for i in range(layers):
        q, k, v = (t.reshape(batch, length, heads, -1).transpose(1, 2) for t in conv(norm(h, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(h.shape)
        h = h + conv(mixed, f"h.{i}.attn.c_proj")
        inner = conv(norm(h, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        gelu = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        h = h + conv(gelu, f"h.{i}.mlp.c_proj")
    return norm(h, "ln_f") @ w["wte.weight"].T


def gpt2_shapes(vocabulary, positions, width, layers):
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (positions, width), "ln_f.weight": (width,), "ln_f.bias": (width,)}
    for i in range(layers):
        for name, inner, outer in [("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)]:
            shapes[f"h.{i}.{name}.weight"] = (inner, outer)
            shapes[f"h.{i}.{name}.bias"] = (outer,)
        for name in ("ln_1", "ln_2"):
            shapes[f"h.{i}.{name}.weight"] = shapes[f"h.{i}.{name}.bias"] = (width,)
    return shapes


class GptBytes(support.Case):
    def texts(self):
        """train.txt and valid.txt of the licenses: every tenth paragraph of 1000 bytes is for validation."""
        paths = sorted(path for path in glob.glob(LICENSES + "/*") if not os.path.islink(path))
        text = b"".join(open(path, "rb").read() for path in paths)
        self.assertGreater(len(text), 100_000)
        pieces = [text[i : i + 1000] for i in range(0, len(text), 1000)]
        with open(self.path("train.txt"), "wb") as train, open(self.path("valid.txt"), "wb") as valid:
            for i, piece in enumerate(pieces):
                (valid if i % 10 == 5 else train).write(piece)
        return self.folder

    def test_reaches_3_bits_per_byte(self):
        # the licenses have 4.6 bits per byte by their letters' frequencies alone
        artifact = self.compile(BYTES, "-D", "D=64", "-D", "L=2", "-D", "T=64", "--set", "train.batch=16")
        support.run("ftrun", artifact, "--data", self.texts(), "--epochs", "3", "--log-jsonl", self.path("log.jsonl"))
        evaluations = [line for line in support.read_jsonl(self.path("log.jsonl")) if line.get("eval")]
        self.assertLess(evaluations[-1]["bits_per_byte"], 3.0)
        self.assertAlmostEqual(evaluations[-1]["bits_per_byte"], evaluations[-1]["loss"] / math.log(2), places=3)

    def test_threads_and_resume_give_the_same_bits(self):
        artifact = self.compile(BYTES, "-D", "D=32", "-D", "L=1", "-D", "T=32", "--set", "train.batch=8")
        common = [artifact, "--data", self.texts(), "--steps", "50"]
        ends = []
        for threads in (1, 2, 3):
            end = self.path(f"end{threads}.safetensors")
            runs = [f"train.checkpoint.dir={self.path('runs')}", "train.checkpoint.unit=step", "train.checkpoint.every=20", "train.checkpoint.keep=9"]
            sets = [flag for key in runs for flag in ("--set", key)] if threads == 3 else []
            support.run("ftrun", *common, *sets, "--save", end, env={"FT_THREADS": str(threads)})
            ends.append(open(end, "rb").read())
        self.assertEqual(ends[0], ends[1])
        self.assertEqual(ends[0], ends[2])
        support.run("ftrun", *common, "--resume", self.path("runs", "step-00000020.safetensors"), "--save", self.path("resumed.safetensors"))
        self.assertEqual(ends[0], open(self.path("resumed.safetensors"), "rb").read())


class Gpt2(support.Case):
    V, T, D, L, heads, batch = 211, 70, 48, 2, 3, 2

    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(5)
        sizes = [f"{name}={getattr(self, name)}" for name in ("V", "T", "D", "L", "heads")]
        flags = [flag for size in sizes + ["positions=80"] for flag in ("-D", size)]
        source = open(GPT2).read()
        start, end = source.index("  optimizer ="), source.index("  eval every")
        self.source = source[:start] + "  optimizer = sgd(lr=1.0)\n" + source[end:]
        self.artifact = self.compile(self.source, *flags, "--set", f"train.batch={self.batch}")
        shapes = gpt2_shapes(self.V, 80, self.D, self.L)
        self.weights = {name: (random.randn(*shape) * 0.1 + (1 if "ln_" in name and name.endswith("weight") else 0)).astype(numpy.float32) for name, shape in shapes.items()}
        self.tokens = random.randint(0, self.V, 1 + self.batch * self.T).astype(numpy.uint16)
        header = numpy.zeros(256, numpy.int32)
        header[:3] = 20240520, 1, len(self.tokens)
        for name in ("train.bin", "valid.bin"):
            with open(self.path(name), "wb") as file:
                file.write(header.tobytes() + self.tokens.tobytes())

    def train(self, start, *flags):
        support.write_safetensors(self.path("start.safetensors"), start)
        support.run("ftrun", self.artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"),
                    "--steps", "1", "--no-shuffle", "--log-jsonl", self.path("log.jsonl"), "--set", "train.log.every=1",
                    "--set", "train.checkpoint.dir=", "--set", "train.eval.every=0", *flags)
        return support.read_safetensors(self.path("end.safetensors"))

    def test_values_and_gradients_are_pytorchs(self):
        end = self.train(self.weights)
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in self.weights.items()}
        tokens = torch.from_numpy(self.tokens.astype(numpy.int64))
        x, y = (tokens[i : i + self.batch * self.T].reshape(self.batch, self.T) for i in (0, 1))
        loss = torch.nn.functional.cross_entropy(gpt2(w, x, self.L, self.heads).reshape(-1, self.V), y.reshape(-1))
        loss.backward()
        logged = support.read_jsonl(self.path("log.jsonl"))[0]["loss"]
        self.assertLess(abs(logged - loss.item()), 2e-6 * loss.item())
        self.assertEqual(sorted(end), sorted(self.weights))
        for name, value in self.weights.items():
            gradient = w[name].grad.numpy()
            error = numpy.abs(value - end[name] - gradient).max() / max(numpy.abs(gradient).max(), 1e-3)
            # old - new is rounded to half an ulp of weights up to 1.4: 6e-8 beside gradients of 1e-2
            self.assertLess(error, 2e-5, f"{name}: {error:.1e}")

    def test_weights_travel_with_the_names_of_a_whole_model(self):
        # GPT2LMHeadModel's state dict: a prefix, a head that is the table again, buffers of masks
        plain = self.train(self.weights)
        whole = {"transformer." + name: value for name, value in self.weights.items()}
        whole["lm_head.weight"] = self.weights["wte.weight"]
        for i in range(self.L):
            whole[f"transformer.h.{i}.attn.bias"] = numpy.ones((1, 1, 80, 80), numpy.uint8)
        prefixed = self.train(whole)
        for name in self.weights:
            numpy.testing.assert_array_equal(plain[name], prefixed[name])


if __name__ == "__main__":
    support.main()
