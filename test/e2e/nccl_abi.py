"""ftrun's own declarations of NCCL (runtime/communicate/nccl.h, nccl.def) against NVIDIA's header, by the C compiler: every entry
point's parameters, every number, and what is used of ncclConfig_t. The header is that of PyPI's nvidia-nccl-cu13, of which
`scripts/nccl-header` keeps nccl.h in the build; skipped by name where it cannot be had."""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
HERE = os.path.join(support.ROOT, "runtime", "communicate")
NUMBERS = {
    "NCCL_SUCCESS": "ncclSuccess", "NCCL_REMOTE_ERROR": "ncclRemoteError", "NCCL_IN_PROGRESS": "ncclInProgress", "NCCL_UNDEFINED": "NCCL_CONFIG_UNDEF_INT",
    "NCCL_TYPE_U8": "ncclUint8", "NCCL_TYPE_I32": "ncclInt32", "NCCL_TYPE_U32": "ncclUint32", "NCCL_TYPE_I64": "ncclInt64", "NCCL_TYPE_F16": "ncclFloat16",
    "NCCL_TYPE_F32": "ncclFloat32", "NCCL_TYPE_F64": "ncclFloat64", "NCCL_TYPE_BF16": "ncclBfloat16",
    "NCCL_OP_SUM": "ncclSum", "NCCL_OP_PROD": "ncclProd", "NCCL_OP_MAX": "ncclMax", "NCCL_OP_MIN": "ncclMin"}
WORDS = [(r"\bNcclResult\b", "ncclResult_t"), (r"\bNcclType\b", "ncclDataType_t"), (r"\bNcclOp\b", "ncclRedOp_t"), (r"\bNcclComm\b", "ncclComm_t"),
         (r"\bNcclStream\b", "cudaStream_t"), (r"\bNcclUniqueId\b", "ncclUniqueId"), (r"\bNcclConfig\b", "ncclConfig_t")]
FIELDS = {"size": "size", "magic": "magic", "version": "version", "blocking": "blocking", "cga_cluster_size": "cgaClusterSize"}


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


class Abi(support.Case):
    def header(self):
        done = subprocess.run([os.path.join(support.ROOT, "scripts", "nccl-header"), support.BUILD], capture_output=True, text=True, timeout=160)
        if done.returncode or not COMPILER:
            self.skipTest("nvidia-nccl-cu13's nccl.h, or a C compiler, cannot be had: " + (done.stderr.strip().splitlines() or [""])[-1])
        return done.stdout.strip()

    def compile_only(self, text):
        with open(self.path("check.c"), "w") as file:
            file.write(text)
        # CUDA's own header is not needed for NCCL's words
        with open(self.path("cuda_runtime.h"), "w") as file:
            file.write("#pragma once\n#include <stddef.h>\n#include <stdint.h>\n#include <limits.h>\ntypedef struct CUstream_st *cudaStream_t;\n"
                       "typedef struct CUevent_st *cudaEvent_t;\n")
        for name in ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"):
            with open(self.path(name), "w") as file:
                file.write("")
        return subprocess.run([COMPILER, "-std=gnu17", "-fsyntax-only", f"-I{self.folder}", self.path("check.c")], capture_output=True, text=True)

    def test_declarations(self):
        path = self.header()
        text = read("nccl.h")
        ours = set(re.findall(r"\b(NCCL_[A-Z0-9_]+) =", text)) - {"NCCL_OLDEST"}
        self.assertEqual(ours, set(NUMBERS), "a number without its name here")
        values = dict(re.findall(r"\b(NCCL_[A-Z0-9_]+) = (\w+)", text))
        asserts = [f'_Static_assert((int){theirs} == {values[name]}, "{name}");' for name, theirs in NUMBERS.items()]
        magic = re.search(r"nccl_magic = (\w+);", text).group(1)
        asserts.append(f'_Static_assert(NCCL_API_MAGIC == {magic}, "magic");')
        entries = re.findall(r'\bNCCL\((\w+),\s*"(\w+)",\s*(\(.*?\))\)\s*(?=\n|$)', read("nccl.def"), flags=re.S)
        self.assertGreater(len(entries), 12)
        for _, symbol, parameters in entries:
            for pattern, word in WORDS:
                parameters = re.sub(pattern, word, parameters)
            asserts.append(f'_Static_assert(__builtin_types_compatible_p(__typeof__({symbol}), ncclResult_t {parameters}), "{symbol}");')
        asserts.append('_Static_assert(__builtin_types_compatible_p(__typeof__(ncclGetErrorString), const char *(ncclResult_t)), "text");')
        config = re.search(r"typedef struct \{\n  size_t size;.*?\} NcclConfig;", text, flags=re.S).group(0)
        asserts += [f'_Static_assert(offsetof(NcclConfig, {a}) == offsetof(ncclConfig_t, {b}), "{a}");' for a, b in FIELDS.items()]
        asserts.append('_Static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t) && sizeof(ncclUniqueId) == 128 && sizeof(ncclResult_t) == 4, "sizes");')
        head = f'#include "{path}"\n#include <stddef.h>\n#include <limits.h>\n' + config + "\n"
        done = self.compile_only(head + "\n".join(asserts) + "\n")
        self.assertEqual(done.returncode, 0, done.stderr[:4000])
        wrong = [line.replace("size_t count", "int count") for line in asserts]
        self.assertNotEqual(self.compile_only(head + "\n".join(wrong)).returncode, 0, "it cannot fail")


if __name__ == "__main__":
    support.main()
