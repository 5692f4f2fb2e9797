"""The network of examples/fashion_cnn.ft on Fashion-MNIST, in f32 and with QuantConv2d and QuantLinear, both trained on from the same f32 weights:
the quantised one is as accurate to within half a point, its packed weights take a quarter, what evaluates it (during training, ftrun
eval, ftrun predict) agrees to the bit, and its logits are, to the bit, those that numpy computes with integers."""
import gzip
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

LAYERS = {'Conv2d(32, 3,': 'QuantConv2d(32, 3,', 'Conv2d(64, 3,': 'QuantConv2d(64, 3, signed_input=false,',
          'Linear(128,': 'QuantLinear(128, signed_input=false,', 'Linear(10,': 'QuantLinear(10, signed_input=false,'}
FIRST, THEN, SAMPLES = 400, 80, 20000  # steps in f32; steps of both from there; images
BATCH = 64
PARAMETERS = 32 * 9 + 64 * 32 * 9 + 128 * 3136 + 10 * 128
f4 = numpy.float32


def whole(x, scale, low, high):
    return numpy.clip(numpy.rint(x * (f4(1) / scale)), low, high)


def convolved(x, w):
    """3 × 3, of whole numbers, with zeros around, and the largest of 2 × 2; NCHW."""
    x = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2] - 2, x.shape[3] - 2
    y = sum(numpy.einsum("nchw,oc->nohw", x[:, :, i : i + height, j : j + width], w[:, :, i, j], optimize=True) for i in range(3) for j in range(3))
    return y.reshape(*y.shape[:2], height // 2, 2, width // 2, 2).max((3, 5))


def logits(tensors, images):
    """What the quantised network is: integers, whose sums are exact (f8 holds them), each rounded to f4 once; all else in f4."""
    x = ((images.astype("f4") / f4(255) - f4(0.2860)) / f4(0.3530))[:, None]
    for name in ("conv1", "conv2", "fc1", "fc2"):
        w, bias = tensors[name + ".weight"], tensors[name + ".bias"]
        low, high = (-128, 127) if name == "conv1" else (0, 255)
        step = tensors[name + ".input.max_abs"][0] / f4(high)
        steps = numpy.abs(w).reshape(len(w), -1).max(1) / f4(127)
        n, m = whole(x, step, low, high), whole(w, steps.reshape(-1, *[1] * (w.ndim - 1)), -128, 127)
        if w.ndim == 4:
            x = (convolved(n.astype("f8"), m.astype("f8")).astype("f4") * step) * steps[:, None, None] + bias[:, None, None]
        else:
            x = ((n.reshape(len(n), -1).astype("f8") @ m.astype("f8").T).astype("f4") * step) * steps + bias
        if name != "fc2":
            x = numpy.maximum(x, f4(0))
    return x


def read_images():
    with gzip.open(os.path.join(support.FASHION, "t10k-images-idx3-ubyte.gz")) as file:
        return numpy.frombuffer(file.read(), "u1", offset=16).reshape(-1, 28, 28)


def source(is_quantised):
    with open(os.path.join(support.EXAMPLES, "fashion_cnn.ft")) as file:
        text = file.read()
    text = text.replace('labels-idx1-ubyte.gz")\n  valid', f'labels-idx1-ubyte.gz", limit={SAMPLES})\n  valid')
    for plain, rounded in LAYERS.items() if is_quantised else ():
        assert plain in text
        text = text.replace(plain, rounded)
    return text


@support.unittest.skipUnless(os.path.isdir(support.FASHION), "dataset-fashion-mnist is not installed")
class Quantised(support.Case):
    seed = os.environ.get("FT_TEST_SEED", "1")

    def train(self, kind, *flags):
        log = self.path(kind + ".jsonl")
        support.run("ftrun", self.path(kind + ".so"), "--data", support.FASHION, "--log-jsonl", log, "--set", f"train.seed={self.seed}", *flags)

    def evaluated(self, kind, weights):
        support.run("ftrun", "eval", self.path(kind + ".so"), "--data", support.FASHION, "--weights", weights, "--log-jsonl", self.path("eval.jsonl"))
        return [line for line in support.read_jsonl(self.path("eval.jsonl")) if line.get("eval")][-1]

    def predict(self, artifact, images):
        numpy.save(self.path("images.npy"), images)
        support.run("ftrun", "predict", artifact, "--weights", self.path("int8.safetensors"), "--input", f"image={self.path('images.npy')}", "--output", self.path("z.npy"))
        return numpy.load(self.path("z.npy"))

    def test_trained(self):
        for kind in ("f32", "int8"):
            self.compile(source(kind == "int8"), name=kind + ".so")
        self.train("f32", "--steps", FIRST, "--set", "train.eval.every=0", "--save", self.path("first.safetensors"))
        for kind in ("f32", "int8"):
            self.train(kind, "--init", self.path("first.safetensors"), *(["--init-missing", "keep"] if kind == "int8" else []),
                       "--set", "train.lr=1e-4", "--steps", THEN, "--save", self.path(kind + ".safetensors"))
        results = {kind: self.evaluated(kind, self.path(kind + ".safetensors")) for kind in ("f32", "int8")}
        accuracy = {kind: 100 * line["accuracy"] for kind, line in results.items()}
        plan = support.run("ftc", self.path("model.ft"), "--emit", "plan").stdout  # the quantised one was the last
        packed = int(re.search(r"(?m)^place prepared (\d+)", plan)[1])
        print(f"accuracy of 10,000 images: f32 {accuracy['f32']:.2f} %, int8 {accuracy['int8']:.2f} %; weights: f32 {4 * PARAMETERS} bytes, packed {packed}")
        self.assertGreater(accuracy["f32"], 80)
        self.assertGreaterEqual(accuracy["int8"], accuracy["f32"] - 0.5)
        self.assertLess(packed, 4 * PARAMETERS * 0.27)
        during = [line for line in support.read_jsonl(self.path("int8.jsonl")) if line.get("eval")][-1]
        self.assertEqual([during["loss"], during["accuracy"]], [results["int8"]["loss"], results["int8"]["accuracy"]])
        self.same_as_numpy()

    def same_as_numpy(self):
        images = read_images()[:331]
        want = logits(support.read_safetensors(self.path("int8.safetensors")), images)
        for batch in (1, 29, 32):
            artifact = self.compile(source(True), "--set", f"train.batch={batch}", name="p.so")
            numpy.testing.assert_array_equal(self.predict(artifact, images), want)


if __name__ == "__main__":
    support.main()
