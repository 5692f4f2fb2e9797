"""The per-step loss of MLP, CNN and tiny ResNet follows PyTorch's for 50 steps within 1e-4 relative,
from the same initial weights (safetensors) and the same batches (--no-shuffle), with sgd, adam and
adamw; and so do the trained weights and running statistics afterwards."""
import gzip
import os
import sys

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

STEPS, BATCH = 50, 64
torch.manual_seed(5)
torch.set_num_threads(2)


class ConvNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.bn(self.conv(x))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.a, self.b = ConvNorm(inputs, outputs, 3, stride), ConvNorm(outputs, outputs, 3)
        self.down = ConvNorm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x):
        y = self.b(F.relu(self.a(x)))
        return F.relu(y + (self.down(x) if self.down else x))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 128), nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, image):
        x = ((image / 255 - 0.2860) / 0.3530).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(3136, 128), nn.Linear(128, 10)

    def forward(self, image):
        x = ((image / 255 - 0.2860) / 0.3530).unsqueeze(1)
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, 16, 3)
        self.layer1, self.layer2, self.layer3 = Residual(16, 16), Residual(16, 32, 2), Residual(32, 64, 2)
        self.fc = nn.Linear(64, 10)

    def forward(self, image):
        x = F.relu(self.stem(image / 255 - 0.5))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def fashion():
    def read(name, header):
        with gzip.open(os.path.join(support.FASHION, name)) as file:
            return numpy.frombuffer(file.read(header + STEPS * BATCH * (784 if header == 16 else 1)), numpy.uint8)[header:]

    return read("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28), read("train-labels-idx1-ubyte.gz", 8)


# optimiser -> settings for ftc, torch optimiser
OPTIMIZERS = {
    "sgd": (["train.lr=0.02", "train.momentum=0.9", "train.weight_decay=0.001"],
            lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.001)),
    "adam": (["train.lr=0.001", "train.weight_decay=0"], lambda p: torch.optim.Adam(p, lr=0.001)),
    "adamw": (["train.lr=0.001", "train.weight_decay=0.05"], lambda p: torch.optim.AdamW(p, lr=0.001, weight_decay=0.05)),
}


def state_of(net):
    return {k: v.detach().numpy().copy() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}


class Trajectory(support.Case):
    def follow(self, example, make, optimizer, images, labels, data, *defines):
        net = make()
        net.train()
        start = state_of(net)
        support.write_safetensors(self.path("start.safetensors"), start)
        settings, make_optimizer = OPTIMIZERS[optimizer]
        flags = [flag for s in [f"train.optimizer={optimizer}", f"train.batch={BATCH}", "train.schedule=constant", "train.schedule.warmup=0", *settings] for flag in ("--set", s)]
        artifact = self.compile(os.path.join(support.EXAMPLES, example), *flags, *defines)
        support.run("ftrun", "train", artifact, "--data", data, "--no-shuffle", "--steps", STEPS, "--set", "train.log.every=1", "--set", "train.eval.every=0",
                    "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"), "--log-jsonl", self.path("log.jsonl"))
        ours = [line["loss"] for line in support.read_jsonl(self.path("log.jsonl")) if not line.get("eval")]
        self.assertEqual(len(ours), STEPS)

        torch_optimizer, theirs = make_optimizer(net.parameters()), []
        for step in range(STEPS):
            batch = slice(step * BATCH, (step + 1) * BATCH)
            loss = F.cross_entropy(net(torch.from_numpy(images[batch].astype(numpy.float32))), torch.from_numpy(labels[batch].astype(numpy.int64)))
            torch_optimizer.zero_grad()
            loss.backward()
            torch_optimizer.step()
            theirs.append(float(loss))
        self.assertLess(theirs[-1], theirs[0], "PyTorch itself did not learn: the comparison would prove little")
        worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
        self.assertLess(worst, 1e-4, f"losses part by {worst:.2e}")
        end, reference = support.read_safetensors(self.path("end.safetensors")), state_of(net)
        for name, value in reference.items():
            moved = numpy.linalg.norm(value - start[name])
            self.assertLess(numpy.linalg.norm(end[name] - value), 2e-2 * moved + 1e-6, name)


def add(example, make, which, *defines):
    for optimizer in OPTIMIZERS:

        def test(self, optimizer=optimizer):
            if which == "fashion":
                images, labels = fashion()
                data = support.FASHION
            else:
                data = self.path("shapes")
                support.subprocess.run([sys.executable, os.path.join(support.EXAMPLES, "data", "make_shapes.py"), data, str(STEPS * BATCH)], check=True)
                images, labels = numpy.load(data + "/train-images.npy"), numpy.load(data + "/train-labels.npy")
            self.follow(example, make, optimizer, images, labels, data, *defines)

        setattr(Trajectory, f"test_{example.split('.')[0]}_{optimizer}", test)


add("fashion_mlp.ft", Mlp, "fashion")
add("fashion_cnn.ft", Cnn, "fashion", "-D", "drop=0")
add("resnet_tiny.ft", ResNet, "shapes")
if __name__ == "__main__":
    support.main()
