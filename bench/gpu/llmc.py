"""llm.c, where its sources were packed and nvcc and cuBLAS are there: built, run for some steps, its own times read."""
import glob
import os
import re
import site
import statistics
import sys

from side import command

STEPS = 24


def cublas():
    """Folder of headers and folder of libraries: the toolkit's, or Python's packages'."""
    for place in ["/usr/local/cuda"] + [os.path.join(p, "nvidia", "*") for p in site.getsitepackages() + sys.path]:
        for header in sorted(glob.glob(os.path.join(place, "include", "cublasLt.h")), reverse=True):
            home = os.path.dirname(os.path.dirname(header))
            for libraries in ("lib64", "lib"):
                if glob.glob(os.path.join(home, libraries, "libcublasLt.so*")):
                    return os.path.dirname(header), os.path.join(home, libraries)
    return None, None


def build(folder):
    """The path of its program, or a sentence."""
    program = os.path.join(folder, "train_gpt2cu")
    if os.path.exists(program):
        return program, None
    headers, libraries = cublas()
    if not headers:
        return None, "cuBLAS's headers and libraries are not found"
    link = os.path.join(folder, "lib")
    os.makedirs(link, exist_ok=True)
    for name in ("cublas", "cublasLt"):
        found = sorted(glob.glob(os.path.join(libraries, f"lib{name}.so*")))
        if not os.path.islink(os.path.join(link, f"lib{name}.so")):
            os.symlink(found[-1], os.path.join(link, f"lib{name}.so"))
    code, out, err = command("nvcc", "-O3", "-t=0", "--use_fast_math", "-std=c++17", "-gencode", "arch=compute_90,code=sm_90", "-DENABLE_BF16", f"-I{headers}",
                             os.path.join(folder, "train_gpt2.cu"), f"-L{link}", "-lcublas", "-lcublasLt", "-Xlinker", f"-rpath={libraries}", *nvml(), "-o", program, timeout=240)
    return (program, None) if code == 0 else (None, "does not build: " + " / ".join((out + err).strip().splitlines()[:4])[:600])


def nvml():
    """Its own choice: NVML is used where its header is found."""
    found = glob.glob("/usr/local/cuda/include/nvml.h")
    return ["-lnvidia-ml", "-L/usr/local/cuda/lib64/stubs"] if found else []


def measure(root, values, data, is_tiny, seconds):
    folder = os.path.join(root, "llm.c")
    if is_tiny or not os.path.exists(os.path.join(folder, "train_gpt2.cu")):
        return {"missing": "its sources are not in the pack" if not is_tiny else "not in a rehearsal"}
    program, why = build(folder)
    if not program:
        return {"missing": why}
    code, out, err = command(program, "-i", os.path.join(data, "train.bin"), "-j", os.path.join(data, "valid.bin"), "-e", f"d{values['L']}", "-b", values["batch"], "-t", values["T"],
                             "-d", values["batch"] * values["T"], "-x", STEPS, "-v", 0, "-s", 0, "-h", 0, "-r", 0, "-c", 0.1, "-l", 0.0006, timeout=min(seconds, 180))
    times = [float(found) for found in re.findall(r"\| ([0-9.]+) ms \|", out)][4:]
    memory = re.search(r"device memory usage: (\d+) MiB", out)
    if not times:
        return {"failed": (err.strip() or out.strip() or "no output").splitlines()[-1][:200]}
    return {"ms": statistics.median(times), "low": min(times), "high": max(times), "steps": len(times), "memory": int(memory.group(1)) << 20 if memory else None}
