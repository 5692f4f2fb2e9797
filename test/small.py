"""A small model of images and its data, for tests of what surrounds a training: damaged files, failing calls."""
import os

import numpy

MODEL = """
model M(image: u8[B, 4, 4], label: i32[B]) {
  x = flatten(f32(image) / 255, from=1)
  logits = Linear(3, name="fc")(relu(Linear(8, name="hidden")(x)))
  loss = mean(cross_entropy(logits, label))
  metric accuracy = mean(argmax(logits, axis=-1) == label)
  output logits
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy")%s }
train { model = M; data = D; batch = 8; epochs = 2; optimizer = adam(lr=0.01)%s }
"""


def model(data="", train=""):
    """The program, with more in its data and train blocks."""
    return MODEL % (data and "; " + data, train and "; " + train)


def write_data(folder):
    random = numpy.random.RandomState(0)
    numpy.save(os.path.join(folder, "x.npy"), random.randint(0, 256, (40, 4, 4)).astype(numpy.uint8))
    numpy.save(os.path.join(folder, "y.npy"), random.randint(0, 3, 40).astype(numpy.int32))
