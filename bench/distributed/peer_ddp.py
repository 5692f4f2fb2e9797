"""PyTorch DistributedDataParallel over gloo, one process a rank, on the models that run measures.

  peer_ddp.py {mlp,gpt128,gpt384} --ranks N --batch B --threads N --steps N

Starts the ranks itself and prints one line of JSON: milliseconds of a step, the median over five rounds of --steps steps
behind as many to warm up, measured by rank 0. --batch is a rank's own, --threads those of each rank. Data is made in memory;
AdamW is the fused one, buckets are DDP's 25 MiB, gradients are views of them."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["mlp", "gpt128", "gpt384"])
    for name in ("ranks", "batch", "threads", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--port", type=int, default=29517)
    return parser.parse_args()


def model_and_batch(o):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    if o.model == "mlp":
        net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        data, labels = torch.randn(8192, 784), torch.randint(0, 10, (8192,))

        def batch():
            at = torch.randint(0, 8192, (o.batch,))
            return data[at], labels[at]

        return net, batch, F.cross_entropy
    V = 256
    L, D, H, T = (4, 128, 4, 128) if o.model == "gpt128" else (6, 384, 6, 256)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.c_attn, self.c_proj, self.c_fc, self.c_out = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

        def forward(self, x):
            B = x.shape[0]
            q, k, v = (t.view(B, T, H, D // H).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(D, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
            x = x + self.c_proj(y)
            return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe, self.h, self.ln_f = nn.Embedding(V, D), nn.Embedding(T, D), nn.Sequential(*(Layer() for _ in range(L))), nn.LayerNorm(D)

        def forward(self, x):
            return self.ln_f(self.h(self.wte(x) + self.wpe.weight)) @ self.wte.weight.T

    text = torch.randint(0, V, (1 << 20,))

    def batch():
        at = torch.randint(0, len(text) - T - 1, (o.batch,))[:, None] + torch.arange(T + 1)
        return text[at[:, :-1]], text[at[:, 1:]]

    return Gpt(), batch, lambda scores, target: F.cross_entropy(scores.view(-1, V), target.reshape(-1))


def rank_main(o):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    net, batch, loss_of = model_and_batch(o)
    dist.init_process_group("gloo")
    if o.ranks > 1:
        net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def run(steps):
        for _ in range(steps):
            x, y = batch()
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss)

    run(o.steps)
    rounds = []
    for _ in range(5):
        dist.barrier()
        begin = time.perf_counter()
        run(o.steps)
        rounds.append(1e3 * (time.perf_counter() - begin) / o.steps)
    if dist.get_rank() == 0:
        print(json.dumps({"model": o.model, "ranks": o.ranks, "median_ms": statistics.median(rounds), "step_ms": rounds, "torch": torch.__version__}), flush=True)
    dist.destroy_process_group()


def main():
    o = parse()
    if "RANK" in os.environ:
        return rank_main(o)
    ranks = [subprocess.Popen([sys.executable, *sys.argv],
                              env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(o.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(o.port),
                                   "OMP_NUM_THREADS": str(o.threads), "GLOO_SOCKET_IFNAME": "lo"}) for r in range(o.ranks)]
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
