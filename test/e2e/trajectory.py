"""The per-step loss of MLP, CNN and tiny ResNet follows PyTorch's for 50 steps within 1e-4 relative,
from the same initial weights (safetensors) and the same batches (--no-shuffle), with sgd, adam and
adamw; and so do the trained weights and running statistics afterwards.

PyTorch runs in float64 here: training amplifies rounding (relu and max pooling switch sides, Adam
divides by gradients near 0), so two float32 programs part from each other faster than from the truth.
The learning rates are such that PyTorch's own float32 stays within 1e-4 of its float64: at 1e-3, its
CNN with adam is 8.5e-4 off after 50 steps, and its ResNet with sgd at 5e-3 is 8.7e-4 off. The figures
of both are printed."""
import copy
import gzip
import os
import sys

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

STEPS = 50
torch.manual_seed(5)
torch.set_num_threads(1)


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


BATCH = {Mlp: 64, Cnn: 32, ResNet: 32}  # PyTorch's convolutions in float64 are most of the time


def fashion(batch):
    def read(name, header):
        with gzip.open(os.path.join(support.FASHION, name)) as file:
            return numpy.frombuffer(file.read(header + STEPS * batch * (784 if header == 16 else 1)), numpy.uint8)[header:]

    return read("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28), read("train-labels-idx1-ubyte.gz", 8)


# optimiser -> settings for ftc, torch optimiser
OPTIMIZERS = {
    "sgd": (["train.momentum=0.9", "train.weight_decay=0.001"],
            lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.001)),
    "adam": (["train.weight_decay=0"], lambda p, lr: torch.optim.Adam(p, lr=lr)),
    "adamw": (["train.weight_decay=0.05"], lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.05)),
}
RATES = {
    Mlp: {"sgd": 0.02, "adam": 1e-3, "adamw": 1e-3},
    Cnn: {"sgd": 1e-3, "adam": 1e-4, "adamw": 1e-4},
    ResNet: {"sgd": 5e-4, "adam": 3e-5, "adamw": 3e-5},
}


def state_of(net):
    return {k: v.detach().numpy().copy() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}


def train(net, optimizer, images, labels, kind):
    """PyTorch's losses, in the floating point type `kind`; the net is trained in place."""
    net.to(kind).train()
    count = BATCH[type(net)]
    optimizer, losses = OPTIMIZERS[optimizer][1](net.parameters(), RATES[type(net)][optimizer]), []
    for step in range(STEPS):
        batch = slice(step * count, (step + 1) * count)
        loss = F.cross_entropy(net(torch.from_numpy(numpy.array(images[batch])).to(kind)), torch.from_numpy(labels[batch].astype(numpy.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def parting(losses, truth):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, truth))


class Trajectory(support.Case):
    def follow(self, example, make, optimizer, images, labels, data, *defines):
        net = make()
        start = state_of(net)
        support.write_safetensors(self.path("start.safetensors"), start)
        settings = [f"train.optimizer={optimizer}", f"train.lr={RATES[make][optimizer]}", *OPTIMIZERS[optimizer][0]]
        flags = [flag for s in [*settings, f"train.batch={BATCH[make]}", "train.schedule=constant", "train.schedule.warmup=0"] for flag in ("--set", s)]
        artifact = self.compile(os.path.join(support.EXAMPLES, example), *flags, *defines)
        support.run("ftrun", "train", artifact, "--data", data, "--no-shuffle", "--steps", STEPS, "--set", "train.log.every=1", "--set", "train.eval.every=0",
                    "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"), "--log-jsonl", self.path("log.jsonl"))
        ours = [line["loss"] for line in support.read_jsonl(self.path("log.jsonl")) if not line.get("eval")]
        self.assertEqual(len(ours), STEPS)

        with torch.no_grad():
            last = slice((STEPS - 1) * BATCH[make], STEPS * BATCH[make])
            untrained = float(F.cross_entropy(copy.deepcopy(net)(torch.from_numpy(numpy.array(images[last])).float()), torch.from_numpy(labels[last].astype(numpy.int64))))
        single_net = copy.deepcopy(net)
        single = train(single_net, optimizer, images, labels, torch.float32)
        theirs = train(net, optimizer, images, labels, torch.float64)
        print(f"{make.__name__} {optimizer}: ft {parting(ours, theirs):.1e}, PyTorch in float32 {parting(single, theirs):.1e}", flush=True)
        self.assertGreater(abs(theirs[-1] - untrained), 1e-2 * untrained, "the training changed little: the comparison would prove little")
        self.assertLess(parting(ours, theirs), 1e-4, "the losses part")
        end, single_end, reference = support.read_safetensors(self.path("end.safetensors")), state_of(single_net), state_of(net)
        for name, value in reference.items():
            moved = numpy.linalg.norm(value - start[name])
            limit = max(2e-2 * moved, 3 * numpy.linalg.norm(single_end[name] - value)) + 1e-6
            self.assertLess(numpy.linalg.norm(end[name] - value), limit, name)


def add(number, example, make, which, *defines):
    """With FT_TURN each network has one of the optimisers, and each optimiser one of the networks."""
    for i, optimizer in enumerate(OPTIMIZERS):
        if not support.has_its_turn(number + i, 3):
            continue

        def test(self, optimizer=optimizer):
            if which == "fashion":
                images, labels = fashion(BATCH[make])
                data = support.FASHION
            else:
                data = self.path("shapes")
                support.subprocess.run([sys.executable, os.path.join(support.EXAMPLES, "data", "make_shapes.py"), data, str(2 * BATCH[make])], check=True)
                # the same two batches again and again: enough to be learnt at a small rate
                images, labels = (numpy.concatenate([numpy.load(f"{data}/train-{what}.npy")] * (STEPS // 2)) for what in ("images", "labels"))
            self.follow(example, make, optimizer, images, labels, data, *defines)

        setattr(Trajectory, f"test_{example.split('.')[0]}_{optimizer}", test)


add(0, "fashion_mlp.ft", Mlp, "fashion")
add(1, "fashion_cnn.ft", Cnn, "fashion", "-D", "drop=0")
add(2, "resnet_tiny.ft", ResNet, "shapes")
if __name__ == "__main__":
    support.main()
