"""Two ranks of ft and two processes of PyTorch's DistributedDataParallel over gloo train the same problem: the same initial weights and
samples, the same losses at every step and the same weights at the end. PyTorch computes in float64, so what is left is ft's rounding."""
import importlib.util
import json
import os
import subprocess
import sys
import unittest

import numpy

sys.path.insert(0, os.path.dirname(__file__))
import ranks
import support

HAS_TORCH = importlib.util.find_spec("torch") is not None
RANKS, BATCH, STEPS = 2, 4, 20
# source, data, optimiser here and there; eps: biases of keys have no gradient but rounding, which adam would make steps of
PROBLEMS = {
    "mlp": ("""
model M(x: f32[B, 8], y: i32[B]) {
  loss = mean(cross_entropy(Linear(4, name="head")(relu(Linear(16, name="fc1")(x))), y))
}
data D { train = npy("x.npy", "y.npy") }
""", ("x.npy", "y.npy"), "sgd(lr=0.1, momentum=0.9)", ("SGD", {"lr": 0.1, "momentum": 0.9})),
    "gpt": ("""
model G(x: i32[B, T=6], y: i32[B, T]) {
  param wte: [11, 8] = normal(0.1)
  param wpe: [T, 8] = normal(0.1)
  h = embed(wte, x) + wpe
  q, k, v = split(Linear(24, name="attn")(LayerNorm(name="ln_1")(h)), 3, axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=2)
  k = rearrange(k, "b t (h d) -> b h t d", h=2)
  v = rearrange(v, "b t (h d) -> b h t d", h=2)
  h = h + Linear(8, name="proj")(rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)"))
  h = h + Linear(8, name="out")(relu(Linear(32, name="fc")(LayerNorm(name="ln_2")(h))))
  loss = mean(cross_entropy(LayerNorm(name="ln_f")(h) @ transpose(wte), y))
}
data D { train = npy("t.npy", "u.npy") }
""", ("t.npy", "u.npy"), "adamw(lr=0.01, eps=1e-4, weight_decay=0.1)", ("AdamW", {"lr": 0.01, "eps": 1e-4, "weight_decay": 0.1})),
}


def make_module(problem):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x, y):
            return F.cross_entropy(self.head(F.relu(self.fc1(x.double()))), y)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Parameter(torch.zeros(11, 8)), nn.Parameter(torch.zeros(6, 8))
            self.ln_1, self.ln_2, self.ln_f = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
            self.attn, self.proj, self.fc, self.out = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x, y):
            h = F.embedding(x, self.wte) + self.wpe
            q, k, v = (part.view(-1, 6, 2, 4).transpose(1, 2) for part in self.attn(self.ln_1(h)).split(8, -1))
            scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
            h = h + self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 6, 8))
            h = h + self.out(F.relu(self.fc(self.ln_2(h))))
            return F.cross_entropy((self.ln_f(h) @ self.wte.T).view(-1, 11), y.view(-1))

    return {"mlp": Mlp, "gpt": Gpt}[problem]().double()


def peer(problem, rank, folder):
    """One process of DistributedDataParallel: writes its losses and the weights that it ends with."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    net = make_module(problem)
    net.load_state_dict({name: torch.tensor(value).double() for name, value in support.read_safetensors(f"{folder}/w.safetensors").items()})
    spread = torch.nn.parallel.DistributedDataParallel(net)
    kind, options = PROBLEMS[problem][3]
    optimizer = getattr(torch.optim, kind)(net.parameters(), **options)
    x, y = (torch.tensor(numpy.load(f"{folder}/{name}")) for name in PROBLEMS[problem][1])
    y, x = y.long(), x if x.is_floating_point() else x.long()
    whole, losses = RANKS * BATCH, []
    for step in range(STEPS):
        at = step % (len(x) // whole) * whole + rank * BATCH
        loss = spread(x[at : at + BATCH], y[at : at + BATCH])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(f"{folder}/peer-{rank}.json", "w") as file:
        json.dump({"losses": losses, "weights": {name: p.tolist() for name, p in net.named_parameters()}}, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@unittest.skipUnless(HAS_TORCH, "no PyTorch here (Debian: python3-torch, for /usr/bin/python3)")
@unittest.skipUnless(ranks.HAS_MPI, "no MPI: libft-mpi.so or mpirun is missing")
class Ddp(ranks.Ranks):
    def setUp(self):
        super().setUp()
        tokens = ((numpy.random.default_rng(1).integers(0, 11, (ranks.SAMPLES, 1)) + numpy.arange(7)) % 11).astype("i4")
        numpy.save(self.path("t.npy"), tokens[:, :-1])
        numpy.save(self.path("u.npy"), tokens[:, 1:])

    def peers(self, problem):
        """The mean of the ranks' losses by step, and the weights."""
        processes = [subprocess.Popen([sys.executable, __file__, "--peer", problem, str(rank), self.folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env=dict(os.environ, GLOO_SOCKET_IFNAME="lo")) for rank in range(RANKS)]
        try:
            for process in processes:
                said = process.communicate(timeout=120)[0]
                self.assertEqual(process.returncode, 0, said[-3000:])
        finally:
            for process in processes:
                process.kill()
        ends = []
        for rank in range(RANKS):
            with open(self.path(f"peer-{rank}.json")) as file:
                ends.append(json.load(file))
        self.assertEqual(ends[0]["weights"], ends[1]["weights"])
        return [sum(losses) / RANKS for losses in zip(*(end["losses"] for end in ends))], ends[0]["weights"]

    def follow(self, problem):
        source, _, optimizer, _ = PROBLEMS[problem]
        net, random = make_module(problem), numpy.random.default_rng(2)
        weights = {name: (random.standard_normal(p.shape) / 3).astype("f4") for name, p in net.named_parameters()}
        support.write_safetensors(self.path("w.safetensors"), weights)
        if os.path.exists(self.path("meeting")):
            os.remove(self.path("meeting"))
        losses, ends = self.peers(problem)
        self.assertGreater(losses[0] - losses[-1], 0.05, "this trains nothing")
        for zero in (0, 3):
            path = self.compile(source + f"train {{ batch = {BATCH}; optimizer = {optimizer}; log {{ every = 1 steps }} }}\ndistributed {{ data = {RANKS}; zero = {zero} }}\n")
            self.start(path, "--steps", STEPS, "--no-shuffle", "--init", "w.safetensors", "--log-jsonl", f"log-{zero}", "--save", "end.safetensors", ranks=RANKS)
            own = [line["loss"] for line in support.read_jsonl(self.path(f"log-{zero}"))]
            numpy.testing.assert_allclose(own, losses, rtol=2e-5, atol=2e-5, err_msg=f"losses, zero = {zero}")
            have = support.read_safetensors(self.path("end.safetensors"))
            for name, value in ends.items():
                numpy.testing.assert_allclose(have[name], value, rtol=2e-4, atol=2e-4, err_msg=f"{name}, zero = {zero}")

    def test_mlp(self):
        self.follow("mlp")

    def test_gpt(self):
        self.follow("gpt")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        support.main()
