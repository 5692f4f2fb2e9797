"""Standard layers against torch.nn: from PyTorch's state dict, a few steps of training in float64 there, then the weights
back into PyTorch; evaluations with what was trained; several shapes, f32 and bf16, with and without fusion, and the PTX in
the simulator (with FT_TURN either these in f32, or in bf16). All layers of a table stand in one model, each with a loss of its own."""
import os
import sys

import numpy
import torch
import torch.nn as nn

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

STEPS, BATCH, RATE = 4, 3, 0.05
torch.manual_seed(7)
random = numpy.random.RandomState(7)
LAYERS = []  # (expression of x; torch's module; shape of a sample; torch's call)


def layer(expression, module, *shape, call=None):
    LAYERS.append((expression, module, shape, call or (lambda net, x: (net(x),))))


layer("GroupNorm(2)(x)", nn.GroupNorm(2, 6), 6, 4, 5)
layer("GroupNorm(3, eps=0.01)(x)", nn.GroupNorm(3, 3, eps=0.01), 3, 7)
layer("GroupNorm(1, affine=false)(x)", nn.GroupNorm(1, 5, affine=False), 5)
layer("InstanceNorm()(x)", nn.InstanceNorm2d(3), 3, 4, 5)
layer("InstanceNorm(affine=true, track_running_stats=true)(x)", nn.InstanceNorm2d(3, affine=True, track_running_stats=True), 3, 4, 5)
layer("InstanceNorm(affine=true, momentum=0.3, eps=0.1)(x)", nn.InstanceNorm1d(2, affine=True, momentum=0.3, eps=0.1), 2, 9)
layer("PReLU()(x)", nn.PReLU(), 3, 5)
layer("PReLU(3, init=0.4)(x)", nn.PReLU(3, init=0.4), 3, 5, 2)
layer("Conv1d(4, 3, stride=2, padding=1)(x)", nn.Conv1d(3, 4, 3, stride=2, padding=1), 3, 11)
layer("Conv1d(6, 5, groups=2, dilation=2, bias=false)(x)", nn.Conv1d(4, 6, 5, groups=2, dilation=2, bias=False), 4, 13)
layer("ConvTranspose2d(4, 3, stride=2, padding=1, output_padding=1)(x)", nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), 3, 5, 4)
layer("ConvTranspose2d(6, (2, 4), stride=(1, 3), groups=2, dilation=(2, 1), bias=false)(x)", nn.ConvTranspose2d(4, 6, (2, 4), (1, 3), groups=2, dilation=(2, 1), bias=False), 4, 3, 3)
layer("ConvTranspose1d(4, 4, stride=2, padding=1)(x)", nn.ConvTranspose1d(3, 4, 4, 2, 1), 3, 6)
layer("Upsample(scale=2)(x)", nn.Upsample(scale_factor=2), 2, 3, 3)
layer('Upsample(size=(7, 5), mode="bilinear", align_corners=true)(x)', nn.Upsample((7, 5), mode="bilinear", align_corners=True), 2, 3, 4)


def attend(causal=False):
    def call(net, x):
        size = x.shape[1]
        return (net(x, x, x, attn_mask=torch.ones(size, size, dtype=torch.bool).triu(1) if causal else None, need_weights=False)[0],)

    return call


layer("MultiheadAttention(2)(x)", nn.MultiheadAttention(8, 2, batch_first=True), 5, 8, call=attend())
layer("MultiheadAttention(3, bias=false, causal=true)(x)", nn.MultiheadAttention(12, 3, bias=False, batch_first=True), 7, 12, call=attend(True))
layer("MultiheadAttention(2)(x[:, :2], x[:, 2:])", nn.MultiheadAttention(8, 2, batch_first=True), 5, 8, call=lambda net, x: (net(x[:, :2], x[:, 2:], x[:, 2:])[0],))
layer("MultiheadAttention(2)(x, x[..., :6], x[..., 3:])", nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True), 5, 8, call=lambda net, x: (net(x, x[..., :6], x[..., 3:])[0],))


def recurrent(net, x):
    y, state = net(x)
    return (y, *state) if isinstance(state, tuple) else (y, state)


def with_state(of):
    """The first features of step 0 begin the states of both layers."""
    def call(net, x):
        h = x[:, 0, : net.hidden_size].expand(2, -1, -1).contiguous()
        y, state = net(x, (h, -h) if of == "lstm" else h)
        return (y, *state) if of == "lstm" else (y, state)

    return call


layer("RNN(5)(x)", nn.RNN(4, 5, batch_first=True), 6, 4, call=recurrent)
layer('RNN(5, num_layers=2, nonlinearity="relu", bias=false)(x)', nn.RNN(4, 5, 2, nonlinearity="relu", bias=False, batch_first=True), 3, 4, call=recurrent)
layer("LSTM(5)(x)", nn.LSTM(4, 5, batch_first=True), 6, 4, call=recurrent)
layer("LSTM(3, num_layers=2, bidirectional=true)(x)", nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True), 5, 4, call=recurrent)
layer("LSTM(3, num_layers=2, bias=false)(x, stack([x[:, 0, :3]] * 2), -stack([x[:, 0, :3]] * 2))", nn.LSTM(4, 3, 2, bias=False, batch_first=True), 1, 4, call=with_state("lstm"))
layer("GRU(5)(x)", nn.GRU(4, 5, batch_first=True), 6, 4, call=recurrent)
layer("GRU(3, num_layers=2, bidirectional=true)(x)", nn.GRU(4, 3, 2, bidirectional=True, batch_first=True), 5, 4, call=recurrent)
layer("GRU(3, num_layers=2)(x, h=stack([x[:, 0, :3]] * 2))", nn.GRU(4, 3, 2, batch_first=True), 3, 4, call=with_state("gru"))
layer("GRU(4, batch_first=false)(transpose(x, 1, 0, 2))", nn.GRU(3, 4), 5, 3, call=lambda net, x: recurrent(net, x.transpose(0, 1)))


def losses_of(results):
    """mean(y * y + y * 0.1) of each result: as the model's text has it."""
    return sum((y * y + y * 0.1).mean() for y in results)


def text(precision):
    inputs, lines, files = [], [], []
    for i, (expression, module, shape, call) in enumerate(LAYERS):
        inputs.append(f"x{i}: f32[B, {', '.join(map(str, shape))}]")
        files.append(f'"x{i}.npy"')
        kind, config, rest = expression.partition("(")[0], *split_call(expression)
        results = 3 if kind == "LSTM" else 2 if kind in ("GRU", "RNN") else 1
        names = [f"y{i}_{k}" for k in range(results)]
        lines.append(f"  {', '.join(names)} = {kind}({config}{', ' if config else ''}name=\"l{i}\"){rename(rest, f'x{i}')}")
        lines += [f"  l = l + mean({y} * {y} + {y} * 0.1)" for y in names]
        lines.append(f"  output {names[0]}" + (f" = transpose({names[0]}, 1, 0, 2)" if "batch_first=false" in expression else ""))
    return (f"model M({', '.join(inputs)}) {{\n  l = 0.0 * mean(x0)\n" + "\n".join(lines) + "\n  loss = l\n}\n" +
            f"data D {{ train = npy({', '.join(files)}) }}\n"
            f"train {{ batch = {BATCH}; epochs = 1; optimizer = sgd(lr={RATE}); eval = none; precision = {precision}; log {{ every=1 steps }} }}\n")


def split_call(expression):
    """What the first brackets of Name(...)(...) hold, and the second with what they hold."""
    depth, start = 0, expression.index("(")
    for at in range(start, len(expression)):
        depth += {"(": 1, ")": -1}.get(expression[at], 0)
        if depth == 0:
            return expression[start + 1 : at], expression[at + 1 :]


def rename(text, name):
    return __import__("re").sub(r"\bx\b", name, text)


class Layers(support.Case):
    """In f32 on the processor."""

    target, device, flags, precision, tolerance = "m.so", "cpu", [], "f32", 3e-5

    def start(self):
        state = {}
        for i, (_, module, _, _) in enumerate(LAYERS):
            for name, value in module.state_dict().items():
                if not name.endswith("num_batches_tracked"):
                    state[f"l{i}.{name}"] = value.detach().numpy().astype("f4")
        return state

    def test_training(self):
        data = [random.uniform(-2, 2, (STEPS * BATCH, *shape)).astype("f4") for _, _, shape, _ in LAYERS]
        for i, x in enumerate(data):
            numpy.save(self.path(f"x{i}.npy"), x)
        start = self.start()
        support.write_safetensors(self.path("start.safetensors"), start)
        artifact = self.compile(text(self.precision), *self.flags, name=self.target)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"),
                    "--no-shuffle", "--device", self.device, "--log-jsonl", self.path("log"), timeout=900)
        ours = support.read_safetensors(self.path("end.safetensors"))
        log = [line["loss"] for line in support.read_jsonl(self.path("log"))]
        theirs, modules = [0.0] * STEPS, []
        for i, (expression, module, _, call) in enumerate(LAYERS):
            with self.subTest(expression):
                module = __import__("copy").deepcopy(module).double().train()
                modules.append(module)
                optimizer = torch.optim.SGD(module.parameters(), lr=RATE) if list(module.parameters()) else None
                for step in range(STEPS):
                    loss = losses_of(call(module, torch.from_numpy(data[i][step * BATCH :][:BATCH]).double()))
                    theirs[step] += float(loss)
                    if optimizer:
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                self.weights(f"l{i}.", module, start, ours)
        self.assertEqual(len(log), STEPS)
        numpy.testing.assert_allclose(log, theirs, rtol=max(self.tolerance, 2e-5))
        self.evaluation(artifact, data, modules, ours)

    def weights(self, prefix, module, start, ours):
        """ours fit PyTorch's module, names, shapes and all, and moved as its own did."""
        state = {k: v for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}
        self.assertEqual({k: tuple(v.shape) for k, v in state.items()}, {k[len(prefix) :]: v.shape for k, v in ours.items() if k.startswith(prefix)})
        for name, value in state.items():
            moved, wanted = ours[prefix + name] - start[prefix + name], value.numpy() - start[prefix + name]
            error = numpy.abs(moved - wanted).max() / max(numpy.abs(wanted).max(), 1e-3)
            self.assertLess(error, 10 * self.tolerance, f"{prefix}{name}: {error:.1e} of the way")

    def evaluation(self, artifact, data, modules, ours):
        """What was trained, loaded into PyTorch, gives what `ftrun predict` gives."""
        inputs = [argument for i in range(len(data)) for argument in ("--input", f"x{i}={self.path(f'x{i}.npy')}")]
        outputs = [argument for i in range(len(data)) for argument in ("--output", f"y{i}_0={self.path(f'y{i}.npy')}")]
        support.run("ftrun", "predict", artifact, "--weights", self.path("end.safetensors"), *inputs, *outputs, "--device", self.device, timeout=900)
        for i, (expression, module, _, call) in enumerate(LAYERS):
            with self.subTest(expression):
                own = {k[len(f"l{i}.") :]: torch.from_numpy(v).double() for k, v in ours.items() if k.startswith(f"l{i}.")}
                modules[i].load_state_dict(own, strict=False)
                modules[i].eval()
                with torch.no_grad():
                    y = call(modules[i], torch.from_numpy(data[i]).double())[0].numpy()
                got = numpy.load(self.path(f"y{i}.npy"))
                y = y.swapaxes(0, 1) if "batch_first=false" in expression else y
                self.assertEqual(got.shape, y.shape)
                self.assertLess(numpy.abs(got - y).max() / numpy.abs(y).max(), 2 * self.tolerance)


@support.in_turns(0, 2)
class LayersPlain(Layers):
    """Without fusion."""

    flags = ["--disable=fuse"]


@support.in_turns(1, 2)
class LayersInBf16(Layers):
    """Products in bf16: near what f64 gives."""

    precision, tolerance = "bf16", 2e-2


@support.in_turns(0, 2)
class LayersOnSim(Layers):
    """The PTX in the simulator."""

    target, device = "m.ptx", "sim"


class LayersInBf16OnSim(LayersInBf16):
    """bf16 on the GPU's kernels."""

    target, device = "m.ptx", "sim"


if __name__ == "__main__":
    support.main()
