"""The GPT examples: gpt_bytes learns real text to a stated number of bits per byte, the same with any
number of threads and across a resume; gpt2 is Hugging Face's GPT-2: values and every gradient of a
slice of two layers against a model written here in PyTorch, with its names and layouts; on the GPU's
simulator, in each precision, against that and against the CPU, and ten steps' losses too."""
import glob
import json
import math
import os
import struct
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


class Conv1D(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.empty(inner, outer)), torch.nn.Parameter(torch.empty(outer))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(torch.nn.Module):
    def __init__(self, width, heads, positions):
        super().__init__()
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(positions, positions)).view(1, 1, positions, positions))
        self.register_buffer("masked_bias", torch.tensor(-1e4))
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(x.shape[2], 2))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        length = x.shape[1]
        scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, -math.inf)
        return self.c_proj((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape))


class Block(torch.nn.Module):
    def __init__(self, width, heads, positions):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attn = Attention(width, heads, positions)
        self.mlp = torch.nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        h = self.mlp["c_fc"](self.ln_2(x))
        return x + self.mlp["c_proj"](0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))))


class GPT2LMHeadModel(torch.nn.Module):
    """With the modules, and so the state dict, of Hugging Face's class of that name."""

    def __init__(self, vocabulary, positions, width, layers, heads):
        super().__init__()
        self.transformer = torch.nn.ModuleDict({
            "wte": torch.nn.Embedding(vocabulary, width), "wpe": torch.nn.Embedding(positions, width),
            "h": torch.nn.ModuleList(Block(width, heads, positions) for _ in range(layers)), "ln_f": torch.nn.LayerNorm(width)})
        self.lm_head = torch.nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


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

    def test_reaches_2_5_bits_per_byte(self):
        # counted on train.txt, valid.txt has 4.61 bits by its letters' frequencies, 3.56 given the byte before, 2.53 given two
        artifact = self.compile(BYTES, "-D", "D=64", "-D", "L=2", "-D", "T=64", "--set", "train.batch=16")
        support.run("ftrun", artifact, "--data", self.texts(), "--epochs", "3", "--log-jsonl", self.path("log.jsonl"))
        evaluations = [line for line in support.read_jsonl(self.path("log.jsonl")) if line.get("eval")]
        self.assertLess(evaluations[-1]["bits_per_byte"], 2.5)
        self.assertAlmostEqual(evaluations[-1]["bits_per_byte"], evaluations[-1]["loss"] / math.log(2), places=3)

    def test_narrow_types_learn_as_well(self):
        """With FT_TURN one of them."""
        ends, folder = {}, self.texts()
        for how in ("f32", *support.of_this_turn(("bf16", "fp16", "bf16, parameters=bf16"), 3)):
            sets = [flag for part in how.split(", ") for flag in ("--set", "train." + part if "=" in part else f"train.precision={part}")]
            artifact = self.compile(BYTES, "-D", "D=32", "-D", "L=2", "-D", "T=32", "--set", "train.batch=32", *sets)
            support.run("ftrun", artifact, "--data", folder, "--epochs", "2", "--log-jsonl", self.path("log.jsonl"))
            ends[how] = support.read_jsonl(self.path("log.jsonl"))[-1]["bits_per_byte"]
        print(ends, flush=True)
        for how, end in ends.items():
            self.assertLess(end, 3.5, how)  # below what the byte before tells
            self.assertLess(abs(end - ends["f32"]), 0.08, how)

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
    V, T, D, L, heads, batch, positions = 211, 70, 48, 2, 3, 2, 80

    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(5)
        sizes = [f"{name}={getattr(self, name)}" for name in ("V", "T", "D", "L", "heads")]
        self.flags = [flag for size in sizes + [f"positions={self.positions}"] for flag in ("-D", size)] + ["--set", f"train.batch={self.batch}"]
        source = open(GPT2).read()
        start, end = source.index("  optimizer ="), source.index("  eval every")
        self.source = source[:start] + "  optimizer = sgd(lr=1.0)\n" + source[end:]
        self.artifact = self.compile(self.source, *self.flags)
        shapes = gpt2_shapes(self.V, self.positions, self.D, self.L)
        self.weights = {name: (random.randn(*shape) * 0.1 + (1 if "ln_" in name and name.endswith("weight") else 0)).astype(numpy.float32) for name, shape in shapes.items()}
        self.tokens = self.make_tokens(random)
        header = numpy.zeros(256, numpy.int32)
        header[:3] = 20240520, 1, len(self.tokens)
        for name in ("train.bin", "valid.bin"):
            with open(self.path(name), "wb") as file:
                file.write(header.tobytes() + self.tokens.tobytes())

    def make_tokens(self, random):
        return random.randint(0, self.V, 1 + self.batch * self.T).astype(numpy.uint16)

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

    def write(self, path, state, dtype):
        """A safetensors file as torch's would be, in this type."""
        names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for name, value in state.items():
            value = value.detach().to(dtype).contiguous()
            raw = (value.view(torch.int16) if dtype != torch.float32 else value).numpy().tobytes()
            header[name] = {"dtype": names[dtype], "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)

    def predict(self, weights, tokens):
        numpy.save(self.path("x.npy"), tokens.numpy().astype(numpy.int32))
        done = support.run("ftrun", "predict", self.artifact, "--weights", weights, "--input", f"tokens={self.path('x.npy')}", "--output", self.path("y.npy"))
        return torch.from_numpy(numpy.load(self.path("y.npy"))), done.stderr

    def test_weights_travel_from_and_to_a_pytorch_module(self):
        torch.manual_seed(3)
        module = GPT2LMHeadModel(self.V, 80, self.D, self.L, self.heads)
        for value in module.parameters():
            torch.nn.init.normal_(value, 0.0, 0.2)
        tokens = torch.from_numpy(self.tokens[1:].astype(numpy.int64)).reshape(self.batch, self.T)
        file = self.path("module.safetensors")
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for prefix in ("transformer.", ""):  # a head's state dict, and that of the model alone, as OpenAI's weights are kept
                state = {name: value for name, value in module.state_dict().items() if prefix or name.startswith("transformer.")}
                self.write(file, {name if prefix else name[len("transformer.") :]: value for name, value in state.items()}, dtype)
                rounded = GPT2LMHeadModel(self.V, 80, self.D, self.L, self.heads)
                rounded.load_state_dict({name: value.to(dtype) if "masked" not in name else value for name, value in module.state_dict().items()})
                wanted = rounded.double()(tokens)
                scores, said = self.predict(file, tokens)
                self.assertLess((scores - wanted).abs().max().item(), 1e-4 * wanted.abs().max().item())
                self.assertEqual(said, "")
        # a head of its own is another model: that must be said
        other = dict(module.state_dict(), **{"lm_head.weight": torch.zeros(self.V, self.D)})
        self.write(file, other, torch.float32)
        self.assertIn("1 tensor is not in the model and ignored: lm_head.weight", self.predict(file, tokens)[1])
        # back: trained a step, loaded by the module's own names, strictly
        self.write(file, module.state_dict(), torch.float32)
        support.run("ftrun", self.artifact, "--data", self.folder, "--init", file, "--save", self.path("end.safetensors"), "--steps", "1",
                    "--set", "train.checkpoint.dir=", "--set", "train.eval.every=0", "--set", "train.lr=0.01", "--log-jsonl", self.path("log.jsonl"))
        end = {name: torch.from_numpy(value) for name, value in support.read_safetensors(self.path("end.safetensors")).items()}
        buffers = {name: value for name, value in module.transformer.state_dict().items() if name.endswith("bias") and name.split(".")[-2] == "attn"}
        self.assertEqual(len(buffers), 2 * self.L)
        module.transformer.load_state_dict({**end, **buffers}, strict=True)
        scores, _ = self.predict(self.path("end.safetensors"), tokens)
        wanted = module(tokens)
        self.assertLess((scores - wanted).abs().max().item(), 1e-4 * wanted.abs().max().item())
        with open(self.path("end.safetensors"), "rb") as saved:  # transformers refuses weights that do not say this
            header = json.loads(saved.read(struct.unpack("<Q", saved.read(8))[0]))
        self.assertEqual(header["__metadata__"], {"format": "pt"})


# Unit roundoff of what products take (f32: what sums of some hundred terms lose). Gradients are at most 4 of it away
# from PyTorch's in f64, as vectors; losses, means over positions, a quarter.
UNIT = {"f32": 2.0**-19, "tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11}


class Gpt2Precisions(Gpt2):
    """Two layers of gpt2.ft as PTX."""

    V, T, D, heads, batch = 61, 40, 32, 2, 2
    steps, target = 10, ()
    test_values_and_gradients_are_pytorchs = test_weights_travel_with_the_names_of_a_whole_model = None
    test_weights_travel_from_and_to_a_pytorch_module = None

    def make_tokens(self, random):
        return random.randint(0, self.V, 1 + self.steps * self.batch * self.T).astype(numpy.uint16)

    def both(self, artifact, device):
        """The losses of ten steps, and gradients of the first."""
        self.artifact, flags = artifact, ["--device", device, "--set", "train.lr=0.2", "--steps", str(self.steps)]
        self.train(self.weights, *flags)
        losses = [line["loss"] for line in support.read_jsonl(self.path("log.jsonl"))]
        end = self.train(self.weights, "--device", device)
        return losses, {name: value.astype(numpy.float64) - end[name] for name, value in self.weights.items()}

    def pytorch(self):
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in self.weights.items()}
        tokens, size, losses, first = torch.from_numpy(self.tokens.astype(numpy.int64)), self.batch * self.T, [], None
        for step in range(self.steps):
            x, y = (tokens[i + step * size : i + (step + 1) * size].reshape(self.batch, self.T) for i in (0, 1))
            loss = torch.nn.functional.cross_entropy(gpt2(w, x, self.L, self.heads).reshape(-1, self.V), y.reshape(-1))
            grads = torch.autograd.grad(loss, list(w.values()))
            losses.append(loss.item())
            first = first or {name: g.numpy() for name, g in zip(w, grads)}
            with torch.no_grad():
                for value, g in zip(w.values(), grads):
                    value -= 0.2 * g
        return losses, first

    def distances(self, ours, theirs):
        losses = max(abs(a - b) / b for a, b in zip(ours[0], theirs[0]))
        return losses, max(numpy.linalg.norm(ours[1][n] - theirs[1][n]) / numpy.linalg.norm(theirs[1][n]) for n in theirs[1])

    def check(self, precision):
        flags = (*self.flags, "--set", f"train.precision={precision}")
        made = {name: self.compile(self.source, *flags, *more, name=name) for name, more in (("gpt.ptx", self.target), ("gpt.so", ()))}
        sim, cpu = self.both(made["gpt.ptx"], "sim"), self.both(made["gpt.so"], "cpu")
        self.assertEqual(len(sim[0]), self.steps)
        for what, other in (("PyTorch", self.pytorch()), ("the CPU", cpu)):
            losses, gradients = self.distances(sim, other)
            print(f"{precision} from {what}: losses {losses / UNIT[precision]:.3f} u, gradients {gradients / UNIT[precision]:.3f} u", file=sys.stderr)
            self.assertLess(losses, UNIT[precision] / 4, what)
            self.assertLess(gradients, 4 * UNIT[precision], what)

    @support.in_turns(0, 2)
    def test_f32(self):
        self.check("f32")

    @support.in_turns(1, 2)
    def test_tf32(self):
        self.check("tf32")

    @support.in_turns(1, 2)
    def test_bf16(self):
        self.check("bf16")

    @support.in_turns(0, 2)
    def test_fp16(self):
        self.check("fp16")


class Gpt2Hopper(Gpt2Precisions):
    """The same for sm_90a, long enough for attention by wgmma."""

    T, D, batch, steps, positions = 130, 128, 1, 1, 140
    test_f32 = test_tf32 = test_fp16 = None
    target = ("--gpu", "sm_90a")

    def test_bf16(self):
        self.check("bf16")
        with open(self.path("gpt.ptx")) as file:
            kernels = [body for body in file.read().split(".visible .entry ") if "wgmma.mma_async" in body]
        names = [body.split("(", 1)[0] for body in kernels]
        for kind in ("_attention", "_attention_grad", "_attention_grad_keys"):
            self.assertTrue([1 for name in names if name.endswith(kind)], f"no wgmma in {kind} of {names}")


if __name__ == "__main__":
    support.main()
