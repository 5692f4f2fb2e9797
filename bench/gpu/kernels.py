"""The stage that asks how fast kernels are by themselves: against the copy, against the best attention known, against
the library's products; then each model's table of kernels, and how long the driver compiles them."""
import json
import os
import re
import sys
import time

import cases
import smoke
from compare import bench
from report import command


def rows_of(table):
    """(us, GB/s, share of the copy, kernel's name) of each row of `ftrun bench --per-kernel`."""
    for line in table.splitlines():
        found = re.match(r" *([0-9.]+) +[0-9.]+% +[0-9.]+% .* ([0-9.]+) +([0-9.]+)%  \S+ .*\((\w+)[,)]", line)
        if found:
            yield float(found[1]), float(found[2]), float(found[3]), found[4]


class Kernels:
    def __init__(self, report, arguments, packed):
        self.report, self.arguments, self.packed = report, arguments, packed
        self.tiny = arguments.tiny
        self.ftrun = os.path.join(report.root, "bin", "ftrun")
        self.found = report.result["kernels"]
        self.off = {"FT_CUBLASLT": "own", **smoke.switches(report.result)}

    def run(self):
        peers = self.peers() if self.arguments.peers else {}
        for name in cases.attentions(self.tiny):
            self.attention(name, peers.get("attention", {}).get(name, {}))
        for name in cases.kernels(self.tiny):
            self.kernel(name)
        for name in cases.products(self.tiny):
            self.product(name, peers.get("product", {}).get(name))
        for name in self.packed:
            self.table(name)
            self.start(name)

    def peers(self):
        code, out, err = command(sys.executable, os.path.join(self.report.root, "bench/gpu/peers.py"), "kernels", "--device", "cpu" if self.tiny else "cuda", *(["--tiny"] if self.tiny else []), timeout=120)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if code != 0 or not lines:
            self.report.failed(f"torch's own kernels: {(err.strip() or out.strip() or 'no output').splitlines()[-1]}")
        return json.loads(lines[-1]) if lines else {}

    def rows(self, kind, name):
        """Of the artifact for this GPU, or of the one for all from sm_80 on."""
        path = os.path.join(self.report.root, "artifacts", f"{kind}-{re.sub(r'[^A-Za-z0-9_]+', '-', name)}")
        for target in ("sm_90a", "sm_80"):
            if not os.path.exists(f"{path}.{target}.ptx") or not smoke.may_use(self.report.result, f"{path}.{target}.ptx"):
                continue
            measured, said = bench(self.ftrun, f"{path}.{target}.ptx", None, self.tiny, per_kernel=True, steps=20, **self.off)
            rows = list(rows_of(said)) if measured else []
            if rows:
                return target, rows
            self.report.failed(f"{kind} {name}, {target}: {said}")
        return None, []

    def keep(self, kind, name, **row):
        self.found[f"{kind} {name}"] = {"kind": kind, "name": name, **row}
        self.report.keep()

    def kernel(self, name):
        """The largest, if several have the name."""
        target, rows = self.rows("kernel", name)
        row = next((row for row in rows if cases.KERNELS[name][-1] in row[3]), None)
        if not row:
            return self.report.failed(f"kernel {name}: none named {cases.KERNELS[name][-1]}") if rows else None
        self.keep("kernel", name, us=row[0], gb_s=row[1], share=row[2], kernel=row[3])
        self.report.say(f"{name:22} {row[0]:10.1f} us {row[1]:9.1f} GB/s {row[2]:6.1f} % of the copy   {row[3]}")

    def attention(self, name, peers):
        target, rows = self.rows("attention", name)
        times = [sum(us for us, _, _, kernel in rows if "attention" in kernel and ("grad" in kernel) == is_backward) for is_backward in (False, True)]
        if not all(times):
            return
        rates = [flops / us / 1e6 for flops, us in zip(cases.attention_flops(name, self.tiny), times)]
        self.keep("attention", name, us=times, rates=rates, peers=peers, target=target)
        said = "".join(f"; {kind} {' / '.join(f'{rate:.1f}' if rate else '-' for rate in pair)}" for kind, pair in peers.items())
        self.report.say(f"attention {name:22} {rates[0]:7.1f} TFLOP/s forward, {rates[1]:7.1f} backward, {target}{said}")

    def product(self, name, peer):
        target, rows = self.rows("product", name)
        m, k, n = cases.product_shape(name, self.tiny)
        # forward: the product whose name has no other part than its dot
        time = next((us for us, _, _, kernel in sorted(rows, key=lambda row: row[3]) if "_dot" in kernel and "combine" not in kernel), None)
        if not time:
            return
        rate = 2 * m * k * n / time / 1e6
        self.keep("product", name, us=time, rate=rate, peer=peer, target=target)
        self.report.say(f"product {name:24} {rate:7.1f} TFLOP/s, {target}" + (f"; torch {peer:.1f}" if peer else ""))

    def table(self, name):
        folder, case = os.path.join(self.report.root, "data", name), self.report.result["cases"].get(name, {})
        variant = case.get("ft_variant", "sm_90a")
        library = "" if "cuBLASLt" in case.get("ft_by", "") else "own"
        measured, said = bench(self.ftrun, cases.artifact(os.path.join(self.report.root, "artifacts"), name, variant), folder if os.path.isdir(folder) else None, self.tiny, per_kernel=True, steps=20,
                               **{**self.off, "FT_CUBLASLT": library})
        if not measured:
            return self.report.failed(f"{name}, table of kernels: {said}")
        self.report.append("kernels.txt", f"──── {name}, {variant}\n{said}")
        self.report.say(f"\n── {name}\n" + "\n".join(line[:150] for line in said.strip().splitlines()[:14]))
        self.report.keep()

    def start(self, name):
        """Seconds of a whole process of one step whose kernels the driver has not compiled before: in one piece, and in several side by side."""
        artifact = cases.artifact(os.path.join(self.report.root, "artifacts"), name, self.report.result["cases"].get(name, {}).get("ft_variant", "sm_90a"))
        seconds = {}
        for pieces in ("1", "8"):
            begun = time.monotonic()
            measured, said = bench(self.ftrun, artifact, None, self.tiny, steps=1, **{**self.off, "CUDA_CACHE_DISABLE": "1", "FT_CUDA_CUBIN": "0", "FT_CUDA_MODULES": pieces})
            if not measured:
                return self.report.failed(f"{name}, its start: {said}")
            seconds[pieces] = time.monotonic() - begun
        self.report.result.setdefault("starts", {})[name] = seconds
        self.report.say(f"{name:22} starts in {seconds['8']:.2f} s, in one piece {seconds['1']:.2f} s (not in the driver's cache)")
        self.report.keep()
