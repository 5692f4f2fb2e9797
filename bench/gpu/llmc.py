"""llm.c, with its own attention and with cuDNN's: built where its pack is made if nvcc is there, else on the machine with
the GPU; run for some steps, its own times read. Its sources are changed in one place, so that they compile with CUDA 13
and so that they never take managed memory, which may hang a GPU that is short of it.

  llmc.py build FOLDER     builds what can be built in a folder with its sources (CUBLAS_HOME, CUDNN_HOME and
                           CUDNN_FRONTEND name folders that are not where packages lie)"""
import glob
import os
import re
import shutil
import site
import statistics
import sys

from report import command

STEPS = 24
PROGRAMS = {"llm.c": "train_gpt2cu", "llm.c, cuDNN's attention": "train_gpt2cu-cudnn"}
FLAGS = ["-O3", "--use_fast_math", "-std=c++17", "-gencode", "arch=compute_90,code=sm_90", "-DENABLE_BF16"]


def places(variable):
    """Homes with include and lib: what the variable names, the toolkit, Python's packages."""
    packages = [os.path.join(p, "nvidia", "*") for p in site.getsitepackages() + sys.path]
    return [home for pattern in [os.environ.get(variable), "/usr/local/cuda", "/usr", *packages] if pattern for home in sorted(glob.glob(pattern), reverse=True)]


def home_of(variable, header, library):
    """Folder of headers and of libraries."""
    for home in places(variable):
        for libraries in ("lib64", "lib", "lib/x86_64-linux-gnu"):
            if os.path.exists(os.path.join(home, "include", header)) and glob.glob(os.path.join(home, libraries, f"lib{library}.so*")):
                return os.path.join(home, "include"), os.path.join(home, libraries)
    return None, None


def patch(folder):
    path = os.path.join(folder, "llmc", "cuda_utils.cuh")
    with open(path) as file:
        text = file.read()
    text = re.sub(r"cudaMallocManaged\(out, bytes\)", "cudaErrorMemoryAllocation", text)
    with open(path, "w") as file:
        file.write(re.sub(r".*cudaMemAdvise\(\*out.*\n", "", text))


def link_folder(folder, libraries, names):
    """Packages have libcublas.so.13 and no libcublas.so."""
    link = os.path.join(folder, "link")
    os.makedirs(link, exist_ok=True)
    for name in names:
        found = sorted(glob.glob(os.path.join(libraries, f"lib{name}.so*")))
        if found and not os.path.lexists(os.path.join(link, f"lib{name}.so")):
            os.symlink(found[-1], os.path.join(link, f"lib{name}.so"))
    return link


def build(folder, program):
    """A sentence if it cannot be built."""
    if not shutil.which("nvcc"):
        return "nvcc is not here"
    headers, libraries = home_of("CUBLAS_HOME", "cublasLt.h", "cublasLt")
    if not headers:
        return "cuBLAS's headers and libraries are not found"
    patch(folder)
    link = link_folder(folder, libraries, ("cublas", "cublasLt"))
    words = [*FLAGS, f"-I{headers}", "train_gpt2.cu", f"-L{link}", "-lcublas", "-lcublasLt"]
    if program.endswith("cudnn"):
        headers, libraries = home_of("CUDNN_HOME", "cudnn.h", "cudnn")
        frontend = next((place for place in (os.environ.get("CUDNN_FRONTEND"), os.path.join(folder, "frontend")) if place and os.path.exists(os.path.join(place, "cudnn_frontend.h"))), None)
        if not headers or not frontend:
            return "cuDNN's headers and libraries, or its frontend's headers, are not found"
        link_folder(folder, libraries, ("cudnn",))
        code, out, err = in_folder(folder, "nvcc", *FLAGS, "-DENABLE_CUDNN", f"-I{headers}", f"-I{frontend}", "-c", "llmc/cudnn_att.cpp", "-o", "cudnn_att.o")
        if code != 0:
            return "does not build: " + " / ".join((out + err).strip().splitlines()[:4])[:600]
        words += ["-DENABLE_CUDNN", "cudnn_att.o", "-lcudnn"]
    code, out, err = in_folder(folder, "nvcc", *words, *nvml(), "-o", program)
    return "" if code == 0 else "does not build: " + " / ".join((out + err).strip().splitlines()[:4])[:600]


def in_folder(folder, *words):
    return command("sh", "-c", 'cd "$0" && exec "$@"', folder, *words, timeout=float(os.environ.get("FT_BUILD_SECONDS", 240)))


def nvml():
    """Its own choice: NVML is used where its header is found."""
    return ["-lnvidia-ml", "-L/usr/local/cuda/lib64/stubs"] if glob.glob("/usr/local/cuda/include/nvml.h") else []


def start(folder, program, *words, timeout):
    libraries = [home_of("CUBLAS_HOME", "cublasLt.h", "cublasLt")[1], home_of("CUDNN_HOME", "cudnn.h", "cudnn")[1], os.environ.get("LD_LIBRARY_PATH")]
    return command(os.path.join(folder, program), *words, timeout=timeout, LD_LIBRARY_PATH=os.pathsep.join(filter(None, libraries)))


def ready(folder, program):
    """A sentence if it cannot run here: what was built elsewhere may want another system."""
    if os.path.exists(os.path.join(folder, program)):
        _, out, err = start(folder, program, "-?", timeout=30)
        if "error while loading" not in err and "GLIBC" not in err and "cannot execute" not in err:
            return ""
    return build(folder, program)


def run(folder, program, v, data, seconds):
    code, out, err = start(folder, program, "-i", os.path.join(data, "train.bin"), "-j", os.path.join(data, "valid.bin"), "-e", f"d{v['L']}", "-b", v["batch"], "-t", v["T"],
                           "-d", v["batch"] * v["T"], "-x", STEPS, "-v", 1000000, "-m", 1, "-s", 0, "-h", 0, "-r", 0, "-ge", 2, "-c", 0.1, "-l", 0.0006, timeout=seconds)
    times = [float(found) for found in re.findall(r"\| ([0-9.]+) ms \|", out)][4:]
    memory = re.search(r"device memory usage: (\d+) MiB", out)
    if not times:
        return {"failed": (err.strip() or out.strip() or "no output").splitlines()[-1][:200]}
    return {"ms": statistics.median(times), "low": min(times), "high": max(times), "steps": len(times), "memory": int(memory.group(1)) << 20 if memory else None}


def measure(report, case, data, is_tiny, seconds):
    folder = os.path.join(report.root, "llm.c")
    for label, program in PROGRAMS.items():
        if not os.path.exists(os.path.join(folder, "train_gpt2.cu")):
            found = {"missing": "its sources are not in the pack"}
        elif is_tiny:
            found = {"missing": ready(folder, program) or "starts; not run in a rehearsal"}
        else:
            why = ready(folder, program)
            found = {"missing": why} if why else run(folder, program, case["values"], data, min(seconds, 120))
        case["peers"][label] = found
        report.say(f"  {case['case']}: {label:32} {format(found['ms'], '10.4f') + ' ms' if 'ms' in found else found.get('missing') or found.get('failed')}")
        report.keep()


if __name__ == "__main__":
    for name in PROGRAMS.values():
        print(f"llm.c, {name}: {build(sys.argv[2], name) or 'built'}")
