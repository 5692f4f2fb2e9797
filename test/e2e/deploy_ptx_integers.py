"""Products and convolutions of integers in a deployed file for GPUs: a byte for each weight, and the CPU's bits."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import support
from deploy_c import vectors
from deploy_ptx import CNN, OnFakeDriver


class DeployIntegers(OnFakeDriver):
    def test_products(self):
        """Of products of integers the file of weights has a byte for each weight, and what is computed are the CPU's bits."""
        body = """h = relu(QuantLinear(300, name="a")(x))
  z = QuantLinear(3, signed_input=false, name="c")(relu(QuantLinear(200, signed_input=false, bits=4, name="b")(h)))"""
        given, want, sim = self.compare("whole", vectors("Whole", "13", "x.npy", body), "x.npy", "x", "z", rtol=0, atol=0)
        weights, rows = 300 * 16 + 200 * 304 + 3 * 208, 300 + 200 + 3  # a row has whole pieces of 16 bytes
        size = os.path.getsize(self.path("whole.weights"))
        self.assertLess(size, weights + 4 * 4 * rows + 10000)  # beside these: biases, scales, and a word for each row

    def test_convolutions(self):
        """The same of convolutions, whose channels are padded to whole pieces; behind one a pooling, and one with strides."""
        text = CNN.replace('BatchNorm(name="n")(Conv2d(8', "(QuantConv2d(24").replace("relu(Conv2d(6", "relu(QuantConv2d(40").replace("Linear(5", "QuantLinear(5")
        self.compare("cnn", text, "i.npy", "x", "z", rtol=0, atol=0)
        weights, rows = 24 * 48 + 40 * 6 * 32 + 5 * 240, 24 + 40 + 5  # 9 places of 4 channels, 6 of 24 with room for 32, 6 of 40
        self.assertLess(os.path.getsize(self.path("cnn.weights")), weights + 4 * 4 * rows + 10000)


if __name__ == "__main__":
    support.main()
