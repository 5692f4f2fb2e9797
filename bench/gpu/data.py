"""Made-up data: as large as the real thing, noise, for speed does not depend on it. The same numbers for everybody."""
import os
import struct

import cases
import numpy


def fashion(folder, is_tiny):
    random = numpy.random.default_rng(1)
    for split, count in (("train", 256 if is_tiny else cases.SAMPLES), ("t10k", 64 if is_tiny else 10000)):
        with open(os.path.join(folder, f"{split}-images-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, 28, 28) + random.integers(0, 256, count * 784, dtype=numpy.uint8).tobytes())
        with open(os.path.join(folder, f"{split}-labels-idx1-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + random.integers(0, 10, count, dtype=numpy.uint8).tobytes())


def images(folder, size, classes, is_tiny):
    random = numpy.random.default_rng(1)
    for split, count in (("train", 64 if is_tiny else cases.IMAGES[size]), ("valid", 16 if is_tiny else 256)):
        numpy.save(os.path.join(folder, f"{split}-images.npy"), random.integers(0, 256, (count, 3, size, size), dtype=numpy.uint8))
        numpy.save(os.path.join(folder, f"{split}-labels.npy"), random.integers(0, classes, count).astype(numpy.int64))


def tokens(folder, vocabulary, is_tiny):
    """With the header that llm.c writes and wants."""
    random = numpy.random.default_rng(1)
    for split, count in (("train", 1 << 12 if is_tiny else 1 << 22), ("valid", 1 << 12 if is_tiny else 1 << 18)):
        header = numpy.zeros(256, numpy.int32)
        header[:3] = 20240520, 1, count
        with open(os.path.join(folder, f"{split}.bin"), "wb") as file:
            file.write(header.tobytes() + random.integers(0, vocabulary, count).astype(numpy.uint16).tobytes())


def make(name, folder, is_tiny):
    """The folder that --data names for a case."""
    os.makedirs(folder, exist_ok=True)
    kind, found = cases.CASES[name]["kind"], cases.values(name, is_tiny)
    if kind == "gpt2":
        tokens(folder, found["V"], is_tiny)
    elif kind == "resnet18":
        images(folder, found["size"], found.get("classes", 10), is_tiny)
    else:
        fashion(folder, is_tiny)
    return folder
