"""bench/deploy/run: both models of a folder, as libraries and as ONNX graphs of the same weights, in alternating rounds."""
import ctypes
import json
import statistics
import struct
import sys
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROUNDS, CALLS = 15, 300


def weights(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            yield name, numpy.frombuffer(data[8 + length + begin : 8 + length + end], "<f4").reshape(entry["shape"])


def graph(model, path):
    """examples/fashion_MODEL.ft, written again by hand: the comparison of values says whether it is the same."""
    constants = {"range": 255, "mean": 0.2860, "deviation": 0.3530}
    values = [numpy_helper.from_array(numpy.array(value, numpy.float32), name) for name, value in constants.items()]
    values += [numpy_helper.from_array(value, name) for name, value in weights(path)]
    nodes = [helper.make_node("Cast", ["image"], ["x0"], to=TensorProto.FLOAT)]

    def add(op, *more, **attributes):
        nodes.append(helper.make_node(op, [f"x{len(nodes) - 1}", *more], [f"x{len(nodes)}"], **attributes))

    add("Div", "range")
    add("Sub", "mean")
    add("Div", "deviation")
    for layer in ("conv1", "conv2") if model == "cnn" else ():
        add("Conv", layer + ".weight", layer + ".bias", pads=[1, 1, 1, 1])
        add("Relu")
        add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    add("Flatten", axis=1)
    layers = ("fc1", "fc2") if model == "cnn" else ("fc1", "fc2", "fc3")
    for layer in layers:
        add("Gemm", layer + ".weight", layer + ".bias", transB=1)
        if layer != layers[-1]:
            add("Relu")
    shape = [1, 1, 28, 28] if model == "cnn" else [1, 28, 28]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, shape)
    logits = helper.make_tensor_value_info(f"x{len(nodes) - 1}", TensorProto.FLOAT, [1, 10])
    whole = helper.make_model(helper.make_graph(nodes, model, [image], [logits], values), opset_imports=[helper.make_opsetid("", 21)])
    whole.ir_version = 10
    onnx.checker.check_model(whole)
    return whole.SerializeToString(), shape, logits.name


def measure(folder, model):
    bytes_, shape, name = graph(model, f"{folder}/{model}.safetensors")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(bytes_, options, providers=["CPUExecutionProvider"])
    image = ((numpy.arange(784) * 37) % 256).astype(numpy.uint8).reshape(shape)
    ours, theirs = numpy.zeros(10, numpy.float32), numpy.zeros((1, 10), numpy.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("image", image)
    binding.bind_output(name, "cpu", 0, numpy.float32, [1, 10], theirs.ctypes.data)
    library = ctypes.CDLL(f"{folder}/latency_{model}.so")
    library.median_us.restype = ctypes.c_double
    first, second = [], []
    for _ in range(ROUNDS):
        first.append(library.median_us(CALLS, ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(ours.ctypes.data)))
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            times.append(time.perf_counter() - start)
        second.append(statistics.median(times) * 1e6)
    numpy.testing.assert_allclose(ours, theirs[0], rtol=1e-4, atol=1e-6)
    ratio = statistics.median(b / a for a, b in zip(first, second))
    print(f"{model}: ft {statistics.median(first):.1f} us, onnxruntime {statistics.median(second):.1f} us, ratio {ratio:.2f}")


if __name__ == "__main__":
    for each in ("mlp", "cnn"):
        measure(sys.argv[1], each)
