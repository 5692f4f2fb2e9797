"""stop_gradient(layer)(x): the layer's parameters, and those of the layers inside of it, get no gradient from this application,
what is before it does; against PyTorch in float64, after steps of a GAN-like model whose judge is applied twice."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
block Judge()(x: [B, D]) {
  return Linear(1, name="out")(tanh(Linear(7, name="hidden")(x)))
}
model M(x: f32[B, 5], z: f32[B, 3]) {
  judge = Judge(name="judge")
  made = Linear(5, name="maker")(z)
  fooled = softplus(-stop_gradient(judge)(made))
  seen = softplus(-judge(x)) + softplus(judge(stop_gradient(made)))
  loss = mean(fooled) + mean(seen)
  output made
}
data D { train = npy("x.npy", "z.npy"); shuffle = false }
train { batch = 6; epochs = 1; optimizer = sgd(lr=0.2); eval = none }
"""


class Stopped(support.Case):
    def test_judge(self):
        random = numpy.random.RandomState(2)
        x, z = random.randn(24, 5).astype("f4"), random.randn(24, 3).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("z.npy"), z)
        for target, device, flags in (("m.so", "cpu", []), ("m.so", "cpu", ["--disable=fuse"]), ("m.ptx", "sim", [])):
            with self.subTest(target, flags=flags):
                artifact = self.compile(MODEL, *flags, name=target)
                run = ["--data", self.folder, "--device", device]
                support.run("ftrun", artifact, *run, "--steps", "0", "--save", self.path("start"))
                support.run("ftrun", artifact, *run, "--init", self.path("start"), "--save", self.path("end"))
                weights = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in support.read_safetensors(self.path("start")).items()}
                linear = lambda w, name, h: F.linear(h, w[name + ".weight"], w[name + ".bias"])
                judge = lambda w, h: linear(w, "judge.out", torch.tanh(linear(w, "judge.hidden", h)))
                for step in range(4):
                    real, noise = (torch.tensor(a[6 * step :][:6]).double() for a in (x, z))
                    made = linear(weights, "maker", noise)
                    still = {k: v.detach() for k, v in weights.items()}
                    loss = F.softplus(-judge(still, made)).mean() + (F.softplus(-judge(weights, real)) + F.softplus(judge(weights, made.detach()))).mean()
                    gradients = torch.autograd.grad(loss, list(weights.values()))
                    with torch.no_grad():
                        for weight, gradient in zip(weights.values(), gradients):
                            weight -= 0.2 * gradient
                for name, value in support.read_safetensors(self.path("end")).items():
                    numpy.testing.assert_allclose(value, weights[name].detach().numpy(), atol=1e-6, err_msg=name)


if __name__ == "__main__":
    support.main()
