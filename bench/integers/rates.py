"""bench/integers/run: the models of a folder and onnxruntime's of the same weights: accuracies, and rates in turns."""
import ctypes
import gzip
import os
import statistics
import sys
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "deploy"))
import latency

FOLDER, ROUNDS = sys.argv[1], 11
DATA = "/usr/share/datasets/fashion-mnist"
BATCHES = (1, 32, 256)
MULTIPLICATIONS = 9 * 32 * 28 * 28 + 9 * 32 * 64 * 14 * 14 + 3136 * 128 + 128 * 10  # of an image


def idx(name, head):
    with gzip.open(f"{DATA}/{name}") as file:
        return numpy.frombuffer(file.read(), "u1", offset=head)


images = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
labels = idx("t10k-labels-idx1-ubyte.gz", 8)
seen = idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)[:512]  # what the peer's scales are from
floats = lambda x: ((x.astype("f4") / 255 - 0.2860) / 0.3530).reshape(-1, 1, 28, 28)


class Calibration(CalibrationDataReader):
    def __init__(self):
        self.left = [{"x3": floats(seen[i : i + 64])} for i in range(0, len(seen), 64)]

    def get_next(self):
        return self.left.pop() if self.left else None


def peer_graph():
    """examples/fashion_cnn.ft behind the conversion of its images, for any batch, with the weights that ft has trained."""
    bytes_, _, name = latency.graph("cnn", f"{FOLDER}/f32.safetensors")
    whole = onnx.load_from_string(bytes_)
    del whole.graph.node[:4]
    del whole.graph.initializer[:3]
    whole.graph.input[0].CopyFrom(helper.make_tensor_value_info("x3", TensorProto.FLOAT, ["B", 1, 28, 28]))
    whole.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", 10]))
    onnx.save(whole, f"{FOLDER}/f32.onnx")
    quant_pre_process(f"{FOLDER}/f32.onnx", f"{FOLDER}/ready.onnx")
    quantize_static(f"{FOLDER}/ready.onnx", f"{FOLDER}/int8.onnx", Calibration(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8)


def peers():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return {kind: onnxruntime.InferenceSession(f"{FOLDER}/{kind}.onnx", options, providers=["CPUExecutionProvider"]) for kind in ("f32", "int8")}


library = ctypes.CDLL(f"{FOLDER}/rates.so")
library.rates_open.restype = ctypes.c_void_p
library.rates_predict.restype = library.rates_vnni.restype = ctypes.c_double


class Ours:
    def __init__(self, kind, batch):
        self.batch = batch
        self.logits = numpy.zeros((batch, 10), "f4")
        self.model = library.rates_open(f"{FOLDER}/{kind}-{batch}.so".encode(), f"{FOLDER}/{kind}.safetensors".encode())
        if not self.model:
            sys.exit(1)

    def seconds(self, x, calls):
        x = numpy.ascontiguousarray(x)
        taken = library.rates_predict(ctypes.c_void_p(self.model), ctypes.c_void_p(x.ctypes.data), calls, ctypes.c_void_p(self.logits.ctypes.data), ctypes.c_size_t(self.logits.nbytes))
        if taken < 0:
            sys.exit("ft_predict failed")
        return taken


def peer_seconds(session, x, calls):
    """Of the products alone: the images are converted beforehand."""
    start = time.perf_counter()
    for _ in range(calls):
        session.run(None, {"x3": x})
    return time.perf_counter() - start


def accuracies(sessions):
    ours = {kind: Ours(kind, 256) for kind in ("f32", "int8")}
    whole = len(images) // 256 * 256
    for kind in ours:
        right = 0
        for i in range(0, whole, 256):
            ours[kind].seconds(images[i : i + 256], 1)
            right += int((ours[kind].logits.argmax(1) == labels[i : i + 256]).sum())
        theirs = sessions[kind].run(None, {"x3": floats(images[:whole])})[0].argmax(1) == labels[:whole]
        print(f"accuracy in {kind}: ft {100 * right / whole:.2f} %, onnxruntime {100 * theirs.mean():.2f} % (of {whole} images)")


def main():
    peer_graph()
    sessions = peers()
    accuracies(sessions)
    vnni = library.rates_vnni()
    for batch in BATCHES:
        ours = {kind: Ours(kind, batch) for kind in ("f32", "int8")}
        x, calls = images[:batch], max(2, 1024 // batch)
        runs = {f"ft {kind}": (lambda kind=kind: ours[kind].seconds(x, calls)) for kind in ours}
        runs |= {f"onnxruntime {kind}": (lambda kind=kind: peer_seconds(sessions[kind], floats(x), calls)) for kind in sessions}
        times = {name: [] for name in runs}
        for i in range(ROUNDS + 1):
            for name, run in runs.items():
                taken = run()
                if i:  # the first is to warm up
                    times[name].append(taken / calls / batch)
        rates = {name: 1 / statistics.median(of) for name, of in times.items()}
        ratio = lambda a, b: statistics.median(y / x for x, y in zip(times[a], times[b]))
        print(f"batch {batch:3}: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items()) + f"; ft int8 / f32 {ratio('ft int8', 'ft f32'):.2f}, "
              f"onnxruntime int8 / f32 {ratio('onnxruntime int8', 'onnxruntime f32'):.2f}, ft / onnxruntime in int8 {ratio('ft int8', 'onnxruntime int8'):.2f}")
    if vnni:
        print(f"floor: {MULTIPLICATIONS / 1e6:.2f} million multiplications of an image at {vnni / 1e9:,.0f} billion a second (vpdpbusd on registers, one thread): {vnni / MULTIPLICATIONS:,.0f}/s")


main()
