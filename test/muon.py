"""Muon for PyTorch: Debian's has none."""
import torch


class Muon(torch.optim.Optimizer):
    """Jordan's post and its scaling, and that of Liu et al. 2025, for matrices."""

    def __init__(self, groups, lr, momentum, nesterov, steps, adjust):
        super().__init__(groups, dict(lr=lr, weight_decay=0))
        self.momentum, self.nesterov, self.steps, self.adjust = momentum, nesterov, steps, adjust

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.copy_(self.momentum * m + (1 - self.momentum) * p.grad)
                g = (1 - self.momentum) * p.grad + self.momentum * m if self.nesterov else m
                x = (g.T if g.shape[0] > g.shape[1] else g).clone()
                x /= max(x.norm().item(), 1e-7)
                for _ in range(self.steps):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if g.shape[0] > g.shape[1] else x
                rows, columns = p.shape
                scale = max(1, rows / columns) ** 0.5 if self.adjust == "original" else 0.2 * max(rows, columns) ** 0.5
                p *= 1 - group["lr"] * group["weight_decay"]
                p -= group["lr"] * scale * x
