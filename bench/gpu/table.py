"""bench/gpu.sh run, in the folder of an unpacked pack: units of work, in the order of their worth, each kept on disk as
it goes (report.py). "rest": what has not been done yet and fits into the minutes that are left."""
import argparse
import datetime
import glob
import json
import os
import re
import site
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases
from compare import Compare
from kernels import Kernels
from report import Clock, Report, command
from smoke import Smoke, suite

GROUPS = {"all": list(cases.UNITS), "resnet": ["resnet18-32", "resnet18-224"], "gpt": ["gpt2-124M", "gpt2-350M"]}
NAMES = ["rest", *GROUPS, *cases.UNITS, *cases.CASES]
MARGIN = 0.6  # of its usual time: a unit begins with less only if it is asked for by name

parser = argparse.ArgumentParser(prog="bench/gpu.sh run")
parser.add_argument("root")
parser.add_argument("units", nargs="+", help=" ".join(dict.fromkeys(NAMES)))
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each peer")
parser.add_argument("--minutes", type=float, default=9.3, help="all of this call")
parser.add_argument("--out", default=".")
parser.add_argument("--peers", default=",".join(cases.PEERS))
parser.add_argument("--no-peers", dest="peers", action="store_const", const="")


class Run:
    def __init__(self, arguments):
        self.arguments, self.clock = arguments, Clock(arguments.minutes)
        self.root = os.path.abspath(arguments.root)
        self.report = Report(self.root, arguments.out, arguments.tiny)
        self.ftrun = os.path.join(self.root, "bin", "ftrun")
        self.packed = [name for name in cases.CASES if os.path.isdir(os.path.join(self.root, "smoke", name))]

    def units(self):
        """(name, whether it was asked for by name)"""
        done, chosen = self.report.result["done"], {}
        for word in self.arguments.units:
            names = [name for name in cases.UNITS if name not in done] if word == "rest" else GROUPS.get(word, [word])
            chosen.update((name, word == name) for name in names if name not in chosen)
        return chosen.items()

    def all(self):
        for name, is_named in self.units() if self.look_around() else ():
            usual = cases.UNITS.get(name, cases.UNITS.get(cases.CASES.get(name, {}).get("unit"), 200))
            if self.clock.left() < (20 if is_named else MARGIN * usual) and not self.arguments.tiny:
                self.report.say(f"\nleft for the next call: {name}, which takes {usual} s")
                continue
            if not self.unit(name, 1.4 * usual):
                self.report.say("nothing can run on this GPU: the rest is left out")
                break
        said = self.report.failures
        self.report.say(f"\n{len(said)} failed" + "".join(f"\n  {what[:200]}" for what in said))
        self.report.keep()
        return 1 if said else 0

    def unit(self, name, seconds):
        """False if nothing can run. What goes wrong within one leaves the others."""
        self.report.say(f"\n════ {name}")
        start, goes_on = time.monotonic(), True
        try:
            if name == "smoke":
                goes_on = Smoke(self.report, self.ftrun, self.packed).run()
            elif name == "suite":
                suite(self.report)
            else:
                self.ceilings()
                if name == "kernels":
                    Kernels(self.report, self.arguments, self.packed).run()
                else:
                    names = [name] if name in cases.CASES else [n for n in self.packed if cases.CASES[n]["unit"] == name]
                    Compare(self.report, self.arguments, self.clock).run([n for n in names if n in self.packed], seconds)
            self.report.result["done"][name] = round(time.monotonic() - start, 1)
        except Exception as error:  # a fault of this script: said, and the next unit is tried
            import traceback

            self.report.failed(f"{name} broke off: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        self.report.say(f"({time.monotonic() - start:.0f} s, {self.clock.left():.0f} s are left)")
        self.report.keep()
        return goes_on

    # ── the machine ──────────────────────────────────────────────────────────────────────────────────────
    def look_around(self):
        """What is here, in words; False without a GPU."""
        self.find_library()
        code, out, err = command(self.ftrun, "devices", timeout=60)
        devices = out.strip() or err.strip() or f"ftrun ends with {code}"
        self.report.say(devices)
        gpu = re.search(r"^cuda:0: (.*)$", devices, re.M)
        seen = self.report.result["machine"] = {"gpu": gpu[1].split(",")[0] if gpu else "no GPU", "seen by ftrun": gpu[1] if gpu else None}
        code, out, _ = command("nvidia-smi", "--query-gpu=name,driver_version,memory.total,mig.mode.current,clocks.sm,clocks.max.sm,power.limit", "--format=csv,noheader", timeout=30)
        if code == 0:
            seen["nvidia-smi"] = out.strip().splitlines()[0]
            self.report.say(seen["nvidia-smi"])
        for library in ("torch", "jax", "triton"):
            code, out, err = command(sys.executable, "-c", f"import importlib.metadata as m; print(m.version('{library}'))", timeout=60)
            seen[library] = out.strip() if code == 0 else ""
        seen["cuBLASLt"] = os.environ.get("FT_CUBLASLT_LIBRARY", "")
        self.report.result["date"] = datetime.date.today().isoformat()
        if not gpu:
            self.report.failed("ftrun sees no GPU here: " + next((line for line in devices.splitlines() if line.startswith("cuda")), devices))
        self.report.keep()
        return bool(gpu)

    def find_library(self):
        """cuBLASLt, where Python's packages hold it."""
        if os.environ.get("FT_CUBLASLT_LIBRARY"):
            return
        places = site.getsitepackages() + [p for p in sys.path if p.endswith("-packages")]
        found = [path for place in places for path in glob.glob(os.path.join(place, "nvidia", "*", "lib", "libcublasLt.so.1*"))]
        if found:
            os.environ["FT_CUBLASLT_LIBRARY"] = max(found, key=os.path.basename)
        self.report.say(f"cuBLASLt: {os.environ.get('FT_CUBLASLT_LIBRARY', 'left to the system')}")

    def ceilings(self):
        if not self.arguments.peers or "ceilings" in self.report.result:
            return
        code, out, err = command(sys.executable, os.path.join(self.root, "bench/gpu/peers.py"), "ceilings", "--device", "cpu" if self.arguments.tiny else "cuda", *(["--tiny"] if self.arguments.tiny else []), timeout=120)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        c = json.loads(lines[-1]) if code == 0 and lines else {"failed": (err.strip() or "no output").splitlines()[-1]}
        if c.get("copy_gb_s"):
            self.report.result["ceilings"] = c
            self.report.say(f"{c['device']}: copy {c['copy_gb_s']:.0f} GB/s; products f32 {c['f32_tflops']:.1f}, tf32 {c['tf32_tflops']:.1f}, bf16 {c['bf16_tflops']:.1f} TFLOP/s")
        else:
            self.report.failed(f"ceilings: {c.get('missing') or c.get('failed')}")


def main():
    arguments = parser.parse_args()
    unknown = [unit for unit in arguments.units if unit not in NAMES]
    if unknown:
        parser.error(f"{unknown[0]} is none of: {' '.join(dict.fromkeys(NAMES))}")
    sys.exit(Run(arguments).all())


main()
