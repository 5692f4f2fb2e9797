"""ftrun deploy -o model.onnx: a small reader of our own finds the inputs, outputs, operators and weights that there should be; onnx.checker takes the file, and onnxruntime
computes from it what ftrun predict does, for a batch of any size; what ONNX has no operator for is refused with its layer. The two packages are those of
scripts/onnx-peers; without them what needs them is skipped."""
import json
import os
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

HEAD = "data D { train = npy(\"x.npy\", \"y.npy\"); shuffle = false }\ntrain { batch = 4; epochs = 1; optimizer = sgd(lr=0.05)MORE }\n"
IMAGE = "model M(x: f32[B, 3, 12, 12], y: i32[B]) {\n%s\n  loss = mean(cross_entropy(z, y))\n  output z\n}\n" + HEAD
ROWS = "model M(x: i32[B, T=10], y: i32[B, T]) {\n%s\n  loss = mean(cross_entropy(z, y))\n  output z\n}\n" + HEAD
PLAIN = "model M(x: f32[B, 9], y: i32[B]) {\n%s\n  loss = mean(cross_entropy(z, y))\n  output z\n}\n" + HEAD
# name: program, is the batch of any size
MODELS = {
    "mlp": (PLAIN % """  h = gelu(LayerNorm(name="ln")(Linear(16, name="a")(x)))
  h = silu(BatchNorm(name="bn")(Linear(12, name="b")(h))) + dropout(softplus(h[:, 2:14]), 0.5)
  z = Linear(5, name="c")(tanh(h)); output p = softmax(z, axis=-1); output best = argmax(z, axis=-1); output big = z > 0""", True),
    "cnn": (IMAGE % """  h = relu(BatchNorm(name="bn")(Conv2d(8, 3, stride=2, padding=1, bias=false, name="c1")(x)))
  h = max_pool2d(relu(Conv2d(8, 3, padding=1, groups=2, name="c2")(h)) + h, 3, stride=2, padding=1)
  h = concat([avg_pool2d(h, 2, stride=1, padding=0), avg_pool2d(h * 2, 2, stride=1)], axis=1)
  z = Linear(6, name="fc")(flatten(h, from=1))""", True),
    "transposed": (IMAGE % """  h = relu(Conv2d(4, 3, padding=1, name="c")(x))
  h = ConvTranspose2d(3, 3, padding=1, name="t")(h)
  z = Linear(6, name="fc")(mean(GroupNorm(1, name="g")(h), axis=(2, 3)))""", True),
    "gpt": (ROWS % """  param wpe: [T, 16] = normal(0.5)
  h = Embedding(29, 16, name="wte")(x) + wpe
  q, k, v = split(Linear(48, name="qkv")(LayerNorm(name="ln")(h)), 3, axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=2); k = rearrange(k, "b t (h d) -> b h t d", h=2); v = rearrange(v, "b t (h d) -> b h t d", h=2)
  h = h + Linear(16, name="o")(rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)"))
  z = Linear(7, name="head")(RMSNorm(name="rms")(h))""", True),
    "grouped": (ROWS % """  h = Embedding(29, 16, name="wte")(x)
  q = rearrange(Linear(16, name="q")(h), "b t (h d) -> b h t d", h=4)
  k, v = split(rearrange(Linear(16, name="kv")(h), "b t (h d) -> b h t d", h=4), 2, axis=1)
  inside = reshape(x, [B, 1, 1, T]) > 3 or reshape(iota([T]), [1, 1, T, 1]) == reshape(iota([T]), [1, 1, 1, T])
  h = h + rearrange(attention(rope(q), rope(k), v, mask=inside), "b h t d -> b t (h d)")
  z = Linear(7, name="head")(h)""", True),
    "rows that see no key": (ROWS % """  h = Embedding(29, 16, name="wte")(x)
  q, k, v = split(rearrange(Linear(48, name="qkv")(h), "b t (h d) -> b h t d", h=6), 3, axis=1)
  h = h + rearrange(attention(q, k, v, mask=reshape(x, [B, 1, 1, T]) > 25, causal=true, softcap=0.5), "b h t d -> b t (h d)")
  z = Linear(7, name="head")(h)""", True),
    "recurrent": (ROWS % """  h, last = GRU(12, name="gru")(Embedding(29, 8, name="e")(clamp(x, 0, 30)))
  z = Linear(7, name="head")(h)""", False),
    "related": (PLAIN % """  h = Linear(5, name="a")(x)
  z = h - mean(h, axis=0, keepdims=true) / 2""", False),
}


# ── a reader of Protocol Buffers ──
def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """[(number, value)]: integers, bytes."""
    at, found = 0, []
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        else:
            assert kind == 5
            value, at = data[at:at + 4], at + 4
        found.append((tag >> 3, value))
    return found


def all_of(message, number):
    return [value for field, value in message if field == number]


def read_model(path):
    with open(path, "rb") as file:
        model = fields(file.read())
    graph = [field for part in all_of(model, 7) for field in fields(part)]  # several are one
    weights = {}
    for tensor in map(fields, all_of(graph, 5)):
        dtype = {1: "<f4", 7: "<i8", 6: "<i4", 9: "?", 11: "<f8", 12: "<u4", 2: "u1"}[all_of(tensor, 2)[0]]
        weights[all_of(tensor, 8)[0].decode()] = numpy.frombuffer(all_of(tensor, 9)[0], dtype).reshape(all_of(tensor, 1))
    nodes = [(all_of(node, 4)[0].decode(), [v.decode() for v in all_of(node, 1)], [v.decode() for v in all_of(node, 2)]) for node in map(fields, all_of(graph, 1))]
    names = [[all_of(fields(value), 1)[0].decode() for value in all_of(graph, number)] for number in (11, 12)]
    opset = [all_of(fields(value), 2)[0] for value in all_of(model, 8)]
    return {"weights": weights, "nodes": nodes, "inputs": names[0], "outputs": names[1], "opset": opset, "ir": all_of(model, 1)}


PEER = r"""
import json, sys
import numpy, onnx, onnxruntime
for folder in sys.argv[1:]:
    model = onnx.load(folder + "/m.onnx")
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(folder + "/m.onnx", providers=["CPUExecutionProvider"])
    x = numpy.load(folder + "/x.npy")
    sizes = json.load(open(folder + "/sizes.json"))
    for size in sizes:
        got = session.run(None, {session.get_inputs()[0].name: x[:size]})
        for output, value in zip(session.get_outputs(), got):
            numpy.save(f"{folder}/{output.name}.{size}.npy", value)
"""


class OnnxFile(support.Case):
    def made(self, name):
        folder = self.path(name)
        os.makedirs(folder)
        program, is_open = MODELS[name]
        random = numpy.random.default_rng(5)
        rows = "x: i32" in program
        x = random.integers(0, 29, (12, 10)).astype("i4") if rows else random.normal(size=(12, 9) if "f32[B, 9]" in program else (12, 3, 12, 12)).astype("f4")
        numpy.save(os.path.join(folder, "x.npy"), x)
        numpy.save(os.path.join(folder, "y.npy"), random.integers(0, 5, (12, 10) if rows else 12).astype("i4"))
        with open(os.path.join(folder, "m.ft"), "w") as file:
            file.write(program.replace("MORE", ""))
        with open(os.path.join(folder, "sizes.json"), "w") as file:
            json.dump([12, 5, 1] if is_open else [4], file)
        support.run("ftrun", "m.ft", "--save", "w.safetensors", cwd=folder)
        support.run("ftrun", "deploy", "m.ft", "--weights", "w.safetensors", "-o", "m.onnx", cwd=folder)
        return folder

    def predicted(self, folder, output):
        support.run("ftrun", "predict", "m.ft", "--weights", "w.safetensors", "--input", "x=x.npy", "--output", f"{output}=p.npy", cwd=folder)
        return numpy.load(os.path.join(folder, "p.npy"))

    def test_what_is_in_it(self):
        for name in MODELS:
            with self.subTest(name):
                folder = self.made(name)
                model = read_model(os.path.join(folder, "m.onnx"))
                self.assertEqual((model["inputs"], model["opset"], model["ir"]), (["x"], [21], [10]))
                known = set(model["inputs"]) | set(model["weights"])
                for op, inputs, outputs in model["nodes"]:
                    self.assertLessEqual(set(inputs), known, op)  # in order, each result once
                    self.assertFalse(set(outputs) & known)
                    known |= set(outputs)
                self.assertLessEqual(set(model["outputs"]), known)
                for key, value in support.read_safetensors(os.path.join(folder, "w.safetensors")).items():
                    if key in model["weights"]:
                        numpy.testing.assert_array_equal(model["weights"][key], value, err_msg=key)
                    else:
                        self.assertIn("num_batches", key)

    def test_computes_the_same(self):
        python = support.peer_python("onnx-peers")
        folders = {name: self.made(name) for name in MODELS}
        done = subprocess.run([python, "-c", PEER, *folders.values()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for name, folder in folders.items():
            with open(os.path.join(folder, "sizes.json")) as file:
                sizes = json.load(file)
            for output in read_model(os.path.join(folder, "m.onnx"))["outputs"]:
                want = self.predicted(folder, output)
                for size in sizes:
                    got = numpy.load(os.path.join(folder, f"{output}.{size}.npy"))
                    with self.subTest(name, output=output, size=size):
                        self.assertEqual((got.shape, got.dtype), (want[:size].shape, want.dtype))
                        numpy.testing.assert_allclose(got, want[:size], rtol=2e-4, atol=2e-5)

    def test_examples(self):
        """Trained for two steps; compared where ftrun predict takes the same rows."""
        python = support.peer_python("onnx-peers")
        folders = {}
        for name, maker in (("fashion_mlp", None), ("fashion_cnn", None), ("autoencoder", None), ("resnet_tiny", ["make_shapes.py", "256"]),
                            ("regression", ["make_regression.py"]), ("gpt_bytes", "text")):
            if not maker and not os.path.isdir(support.FASHION):
                continue
            folder, data = self.path(name), self.path(name, "data") if maker else support.FASHION
            os.makedirs(folder)
            if maker == "text":
                os.makedirs(data)
                for split in ("train", "valid"):
                    with open(os.path.join(data, split + ".txt"), "w") as file:
                        file.write("the quick brown fox jumps over the lazy dog\n" * 100)
            elif maker:
                subprocess.run([sys.executable, os.path.join(support.EXAMPLES, "data", maker[0]), data, *maker[1:]], check=True, capture_output=True)
            source = os.path.join(support.EXAMPLES, name + ".ft")
            support.run("ftrun", source, "--data", data, "--steps", "2", "--save", "w.safetensors", cwd=folder)
            support.run("ftrun", "deploy", source, "--weights", "w.safetensors", "-o", "m.onnx", cwd=folder)
            inputs = read_model(os.path.join(folder, "m.onnx"))["inputs"]
            self.assertEqual(len(inputs), 1, name)
            random = numpy.random.default_rng(7)
            made = {"fashion_mlp": ("u1", (7, 28, 28)), "fashion_cnn": ("u1", (7, 28, 28)), "autoencoder": ("u1", (7, 28, 28)), "gpt_bytes": ("i4", (7, 128))}.get(name)
            if made is None:
                shape = json.loads(subprocess.run([python, "-c", "import onnx, json, sys; t = onnx.load(sys.argv[1]).graph.input[0].type.tensor_type; print(json.dumps([t.elem_type] + [d.dim_value for d in t.shape.dim]))",
                                                   os.path.join(folder, "m.onnx")], capture_output=True, text=True, check=True).stdout)
                made = ({1: "f4", 2: "u1"}[shape[0]], (7, *shape[2:]))
            values = random.integers(0, 256, made[1]).astype(made[0]) if made[0] != "f4" else random.normal(size=made[1]).astype("f4")
            numpy.save(os.path.join(folder, "x.npy"), values)
            with open(os.path.join(folder, "sizes.json"), "w") as file:
                json.dump([7, 1], file)
            folders[name] = (folder, source, inputs[0])
        done = subprocess.run([python, "-c", PEER, *(folder for folder, _, _ in folders.values())], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for name, (folder, source, first) in folders.items():
            for output in read_model(os.path.join(folder, "m.onnx"))["outputs"]:
                support.run("ftrun", "predict", source, "--weights", "w.safetensors", "--input", f"{first}=x.npy", "--output", f"{output}=p.npy", cwd=folder)
                want = numpy.load(os.path.join(folder, "p.npy"))
                for size in (7, 1):
                    with self.subTest(name, output=output, size=size):
                        numpy.testing.assert_allclose(numpy.load(os.path.join(folder, f"{output}.{size}.npy")), want[:size], rtol=2e-4, atol=2e-5)

    def test_refused(self):
        """With the line and the layer; the .so of the same model is written."""
        with open(self.path("m.ft"), "w") as file:
            file.write("block Rounded(n: int)(x) { return Linear(n, name=\"in\")(fake_float8(x)) }\n" + (PLAIN % "  z = Rounded(5, name=\"body\")(x)").replace("MORE", ""))
        numpy.save(self.path("x.npy"), numpy.zeros((8, 9), "f4"))
        numpy.save(self.path("y.npy"), numpy.zeros(8, "i4"))
        support.run("ftrun", "m.ft", "--save", "w.safetensors", cwd=self.folder)
        self.fails(1, "cannot be written as ONNX: line ", "ftrun", "deploy", "m.ft", "--weights", "w.safetensors", "-o", "m.onnx", cwd=self.folder)
        self.fails(1, "layer 'body': ONNX has no operator for 'round_e4m3'", "ftrun", "deploy", "m.ft", "--weights", "w.safetensors", "-o", "m.onnx", cwd=self.folder)
        self.assertFalse(os.path.exists(self.path("m.onnx")))
        support.run("ftrun", "deploy", "m.ft", "--weights", "w.safetensors", "-o", "m.so", cwd=self.folder)

    def test_damaged(self):
        """What an artifact says of its model is read as hostile."""
        folder = self.made("mlp")
        support.run("ftc", "m.ft", "--inference", "-o", "i.so", cwd=folder)
        with open(os.path.join(folder, "i.so"), "rb") as file:
            whole = file.read()
        at = whole.index(b"onnx 1\nparam ")
        for old, new in ((b"onnx 1\n", b"onnx 2\n"), (b"param ln.weight ", b"param ln.wight  "), (b"param ", b"pram  "), (b"model ", b"model-"), (b"\nmodel ", b" model ")):
            with self.subTest(new):
                place = whole.index(old, at)
                with open(os.path.join(folder, "d.so"), "wb") as file:
                    file.write(whole[:place] + new + whole[place + len(old):])
                self.fails(1, "what it says of its ONNX model cannot be read", "ftrun", "deploy", "d.so", "--weights", "w.safetensors", "-o", "d.onnx", cwd=folder)
        with open(os.path.join(folder, "d.so"), "wb") as file:
            file.write(whole.replace(b".ft_onnx", b".ft_none"))
        self.fails(1, "says nothing of an ONNX model", "ftrun", "deploy", "d.so", "--weights", "w.safetensors", "-o", "d.onnx", cwd=folder)

    def test_endings(self):
        self.made("mlp")
        self.fails(1, "a model is deployed as a .so, a shared library with a C header, as a .c with the same header, as a .ptx for a GPU with a C header and a "
                   "file of weights, or as an .onnx", "ftrun", "deploy", self.path("mlp", "m.ft"), "--weights", self.path("mlp", "w.safetensors"), "-o", self.path("m.txt"))
        said = support.run("ftrun", "deploy", self.path("mlp", "m.ft"), "--weights", self.path("mlp", "w.safetensors"), "-o", self.path("n.onnx"), "--dry-run", cwd=self.folder).stdout
        self.assertIn("nothing written", said)
        self.assertFalse(os.path.exists(self.path("n.onnx")))


if __name__ == "__main__":
    support.main()
