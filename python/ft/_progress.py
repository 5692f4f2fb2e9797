"""A line that says how far a training is: redrawn in its place on a terminal and in a notebook, every ten seconds elsewhere."""
from __future__ import annotations

import sys
import time
from typing import Any, Optional


def _notebook() -> Any:
    """IPython's display function where this runs in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if shell is None or "IPKernelApp" not in getattr(shell, "config", {}):
        return None
    from IPython.display import display
    return display


class Progress:
    """A callback of Model.fit."""

    def __init__(self, total: Optional[int] = None, file: Any = None) -> None:
        self.total, self.file = total, file or sys.stdout
        self.begun = self.shown = time.monotonic()
        self.first: Optional[int] = None
        self.handle: Any = None
        self.display = _notebook()
        self.is_live = bool(self.display) or self.file.isatty()

    def text(self, step: int, loss: float) -> str:
        now = time.monotonic()
        done = step - (self.first or 0)
        rate = done / (now - self.begun) if now > self.begun else 0.0
        line = f"step {step}" + (f"/{self.total}" if self.total else "") + f"  loss {loss:.4g}  {rate:.1f} steps/s"
        if self.total and rate > 0:
            left = int(max(0, self.total - step) / rate)
            line += f"  eta {left // 60}:{left % 60:02d}"
            filled = min(20, 20 * step // self.total)
            line = f"[{'#' * filled}{'.' * (20 - filled)}] " + line
        return line

    def __call__(self, model: Any, step: int, loss: float, end: bool = False) -> None:
        if self.first is None:
            self.first = step - 1
        now = time.monotonic()
        if not end and now - self.shown < (0.2 if self.is_live else 10):
            return
        self.shown = now
        line = self.text(step, loss)
        if self.display:
            data = {"text/plain": line}
            if self.handle is None:
                self.handle = self.display(data, raw=True, display_id=True)
            else:
                self.handle.update(data, raw=True)
        elif self.is_live:
            self.file.write("\r\x1b[K" + line + ("\n" if end else ""))
        else:
            self.file.write(line + "\n")
        self.file.flush()
