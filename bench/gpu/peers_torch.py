"""The cases in PyTorch, 2.1 or newer: eager, torch.compile, and torch.compile with max-autotune (CUDA graphs)."""
import functools

import cases
import torch
import torch.nn as nn
import torch.nn.functional as F
from peers import Peer, timing_alone


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────
class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        is_same = stride == 1 and inputs == outputs
        self.downsample = nn.Identity() if is_same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


def resnet18(size, classes, width):
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    if size <= 64:
        stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    blocks, inputs = [], width
    for k, stride in enumerate((1, 2, 2, 2)):
        blocks += [BasicBlock(inputs, width << k, stride), BasicBlock(width << k, width << k, 1)]
        inputs = width << k
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class GptLayer(nn.Module):
    def __init__(self, D, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.c_fc, self.c_out = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, D // self.heads).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(D, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
        x = x + self.c_proj(y)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, D, L, heads, T, V):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(T, D)
        self.h, self.ln_f = nn.Sequential(*(GptLayer(D, heads) for _ in range(L))), nn.LayerNorm(D)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.ln_f(self.h(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]))
        return x @ self.wte.weight.t()


def small(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────
def choose_attention(kind):
    """One backend, so that it is known which; what this version cannot switch stays as it is."""
    for backend in ("flash", "mem_efficient", "math", "cudnn"):
        switch = getattr(torch.backends.cuda, f"enable_{backend}_sdp", None)
        if switch:
            switch(backend == kind)
        elif backend == kind:
            raise ImportError(f"PyTorch {torch.__version__} has no {kind} attention")


def time_candidates_one_process_at_a_time():
    try:
        from torch._inductor.runtime.benchmarking import benchmarker
    except ImportError:
        return
    time_it = getattr(type(benchmarker), "benchmark_gpu", None)
    if not time_it:
        return

    @functools.wraps(time_it)
    def alone(*arguments, **named):
        with timing_alone():
            return time_it(*arguments, **named)

    type(benchmarker).benchmark_gpu = alone


def fused(kind, parameters, is_gpu, **settings):
    """The optimiser as one kernel, where this version has that (SGD since 2.3)."""
    try:
        return kind(parameters, fused=is_gpu, **settings)
    except TypeError:
        return kind(parameters, **settings)


def compiled(peer, function):
    if peer in ("compile", "compile-cudnn"):
        return torch.compile(function)
    return torch.compile(function, mode="max-autotune") if peer == "autotune" else function


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────
class Torch(Peer):
    def __init__(self, arguments):
        if arguments.device == "cuda" and not torch.cuda.is_available():
            raise ImportError(f"PyTorch {torch.__version__} sees no GPU here")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = arguments.peer == "autotune"
        torch.manual_seed(1)
        self.device, self.peer = torch.device(arguments.device), arguments.peer
        self.values = cases.peer_values(arguments.case, arguments.tiny)
        self.batch, self.kind = self.values.pop("batch"), cases.CASES[arguments.case]["kind"]
        self.is_bf16 = cases.CASES[arguments.case]["precision"] == "bf16"
        self.clip = 0
        if self.is_gpu() and self.kind == "gpt2":
            choose_attention("cudnn" if self.peer == "compile-cudnn" else "flash")
        if self.is_gpu() and self.peer != "eager":
            time_candidates_one_process_at_a_time()
        make = {"gpt2": self.make_gpt, "resnet18": self.make_resnet}.get(self.kind, self.make_small)
        make(arguments.tiny)
        if self.peer == "autotune":
            self.keep_data_in_place()
        self.loss = compiled(self.peer, self.loss_of)
        self.begin = getattr(torch.compiler, "cudagraph_mark_step_begin", None) if self.peer == "autotune" else None
        self.at, self.order = 0, torch.randperm(self.samples, device=self.device)

    def keep_data_in_place(self):
        """Else a captured graph copies all of it in every step."""
        import torch._dynamo

        for tensor in filter(lambda found: found is not None, (self.data, getattr(self, "labels", None))):
            getattr(torch._dynamo, "mark_static_address", lambda tensor: None)(tensor)

    def settle(self):
        """cuDNN tries its ways out now, when nothing else runs; and what compiling took is given back."""
        if self.is_gpu():
            torch.backends.cudnn.benchmark = True
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def is_gpu(self):
        return self.device.type == "cuda"

    def images(self, samples, shape, classes):
        self.samples = max(samples, 2 * self.batch)
        self.data = torch.randint(0, 256, (self.samples, *shape), dtype=torch.uint8, device=self.device)
        self.labels = torch.randint(0, classes, (self.samples,), device=self.device)

    def make_small(self, is_tiny):
        self.images(256 if is_tiny else cases.SAMPLES, (28, 28), 10)
        self.net = small(self.kind).to(self.device)
        if self.kind == "cnn":
            self.net = self.net.to(memory_format=torch.channels_last)
        self.mean, self.deviation = 0.2860, 0.3530
        self.optimizer = fused(torch.optim.Adam, self.net.parameters(), self.is_gpu(), lr=1e-3)

    def make_resnet(self, is_tiny):
        size = self.values["size"]
        self.images(64 if is_tiny else cases.IMAGES[size], (3, size, size), self.values["classes"])
        self.net = resnet18(**self.values).to(self.device, memory_format=torch.channels_last)
        self.mean, self.deviation = 0.45, 0.225
        self.optimizer = fused(torch.optim.SGD, self.net.parameters(), self.is_gpu(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def make_gpt(self, is_tiny):
        V, self.T = self.values["V"], self.values["T"]
        self.samples = 64 if is_tiny else 4096
        self.data = torch.randint(0, min(V, 50257), (self.samples, self.T + 1), device=self.device)
        self.net = Gpt(**self.values).to(self.device)
        large = [p for p in self.net.parameters() if p.dim() > 1]
        little = [p for p in self.net.parameters() if p.dim() <= 1]
        groups = [{"params": large, "weight_decay": 0.1}, {"params": little, "weight_decay": 0.1}]  # as examples/gpt2.ft: all
        self.optimizer = fused(torch.optim.AdamW, groups, self.is_gpu(), lr=6e-4, betas=(0.9, 0.95))
        self.clip = 1.0

    def loss_of(self, index):
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.is_bf16):
            if self.kind == "gpt2":
                rows = self.data[index]
                logits = self.net(rows[:, :-1])
                return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), rows[:, 1:].reshape(-1))
            x = self.data[index].float().div_(255).sub_(self.mean).div_(self.deviation)
            if self.kind == "cnn":
                x = x.unsqueeze(1)
            if self.kind == "resnet18":
                x = x.contiguous(memory_format=torch.channels_last)
            logits, target = self.net(x).float(), self.labels[index]
            return F.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean()

    def step(self):
        if self.at + self.batch > self.samples:
            self.order, self.at = torch.randperm(self.samples, device=self.device), 0
        index = self.order[self.at : self.at + self.batch]
        self.at += self.batch
        if self.begin:
            self.begin()
        found = self.loss(index)
        (found[0] if isinstance(found, tuple) else found).backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def sync(self):
        if self.is_gpu():
            torch.cuda.synchronize()

    def memory(self):
        """The most that tensors took, what CUDA graphs hold counted."""
        return max(torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved() if self.peer == "autotune" else 0) if self.is_gpu() else None


def make(arguments):
    return Torch(arguments)
