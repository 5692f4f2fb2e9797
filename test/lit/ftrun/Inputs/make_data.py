"""make_data.py FOLDER: 203 samples to train (IDX, images gzipped), 45 to validate (.npy)."""
import gzip
import os
import struct
import sys

import numpy

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
random = numpy.random.RandomState(1)


def samples(count):
    label = random.randint(0, 4, count)
    image = random.randint(0, 120, (count, 4, 4))
    image[numpy.arange(count), label] += 100  # a bright row tells the class
    return image.astype(numpy.uint8), label


image, label = samples(203)
with gzip.GzipFile(os.path.join(folder, "train-x.gz"), "wb", mtime=0) as file:
    file.write(struct.pack(">BBBBIII", 0, 0, 8, 3, 203, 4, 4) + image.tobytes())
with open(os.path.join(folder, "train-y"), "wb") as file:
    file.write(struct.pack(">BBBBI", 0, 0, 8, 1, 203) + label.astype(numpy.uint8).tobytes())
image, label = samples(45)
numpy.save(os.path.join(folder, "valid-x.npy"), image)
numpy.save(os.path.join(folder, "valid-y.npy"), label.astype(numpy.int64))
