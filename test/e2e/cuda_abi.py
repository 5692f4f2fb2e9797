"""ftrun's own declarations of the CUDA driver and of cuBLASLt (runtime/device/cuda/cuda_*.h, .def) against NVIDIA's
headers, by the C compiler: every entry point's parameters, every structure and every number. Headers
are looked for in CUDA_HOME, /usr/local/cuda* and Python's nvidia packages; skipped where there are none."""
import glob
import os
import re
import shutil
import site
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
DRIVER_NUMBERS = {
    "CUDA_SUCCESS": "CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE": "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY": "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA_ERROR_NO_DEVICE": "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_PTX": "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_UNSUPPORTED_PTX": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "CUDA_ERROR_NOT_FOUND": "CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_NOT_READY": "CUDA_ERROR_NOT_READY", "CUDA_ERROR_LAUNCH_FAILED": "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "CUDA_ATTRIBUTE_CLOCK_KHZ": "CU_DEVICE_ATTRIBUTE_CLOCK_RATE",
    "CUDA_ATTRIBUTE_PROCESSORS": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", "CUDA_ATTRIBUTE_MAJOR": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
    "CUDA_ATTRIBUTE_MINOR": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", "CUDA_ATTRIBUTE_SHARED_MOST": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "CUDA_LINK_ACCESS": "CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED", "CUDA_LINK_ATOMICS": "CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED",
    "CUDA_STREAM_NON_BLOCKING": "CU_STREAM_NON_BLOCKING", "CUDA_EVENT_NO_TIMING": "CU_EVENT_DISABLE_TIMING", "CUDA_HOST_PORTABLE": "CU_MEMHOSTALLOC_PORTABLE", "CUDA_HOST_MAPPED": "CU_MEMHOSTALLOC_DEVICEMAP",
    "CUDA_CAPTURE_THREAD_LOCAL": "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL", "CUDA_CAPTURE_SET_DEPENDENCIES": "CU_STREAM_SET_CAPTURE_DEPENDENCIES",
    "CUDA_LAUNCH_EARLY": "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION",
    "CUDA_FUNCTION_SHARED_BYTES": "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES", "CUDA_FUNCTION_LOCAL_BYTES": "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES",
    "CUDA_FUNCTION_REGISTERS": "CU_FUNC_ATTRIBUTE_NUM_REGS", "CUDA_FUNCTION_SHARED_MOST": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "CUDA_JIT_INFO_LOG": "CU_JIT_INFO_LOG_BUFFER", "CUDA_JIT_INFO_LOG_BYTES": "CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES", "CUDA_JIT_ERROR_LOG": "CU_JIT_ERROR_LOG_BUFFER", "CUDA_JIT_LOG_VERBOSE": "CU_JIT_LOG_VERBOSE",
    **{f"CUDA_MAP_{ours}": f"CU_TENSOR_MAP_{theirs}" for ours, theirs in {
        "U8": "DATA_TYPE_UINT8", "U32": "DATA_TYPE_UINT32", "I32": "DATA_TYPE_INT32", "I64": "DATA_TYPE_INT64", "F16": "DATA_TYPE_FLOAT16",
        "F32": "DATA_TYPE_FLOAT32", "F64": "DATA_TYPE_FLOAT64", "BF16": "DATA_TYPE_BFLOAT16", "SWIZZLE_NONE": "SWIZZLE_NONE", "SWIZZLE_32": "SWIZZLE_32B",
        "SWIZZLE_64": "SWIZZLE_64B", "SWIZZLE_128": "SWIZZLE_128B", "PROMOTE_128": "L2_PROMOTION_L2_128B"}.items()},
    "CUDA_JIT_ERROR_LOG_BYTES": "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", "CUDA_MEMORY_HOST": "CU_MEMORYTYPE_HOST", "CUDA_MEMORY_DEVICE": "CU_MEMORYTYPE_DEVICE",
}
COPY_FIELDS = dict(zip(
    "from_x from_y from_kind from_host from_device from_array from_pitch to_x to_y to_kind to_host to_device to_array to_pitch width height".split(),
    "srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height".split()))
LAUNCH_FIELDS = dict(zip(
    "grid_x grid_y grid_z block_x block_y block_z shared_bytes stream attributes attribute_count".split(),
    "gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ sharedMemBytes hStream attrs numAttrs".split()))
ATTRIBUTE_FIELDS = {"id": "id", "value": "value", "value.number": "value.programmaticStreamSerializationAllowed"}
# our type, or type and parameter, as NVIDIA writes it
DRIVER_WORDS = [
    (r"\bCudaResult\b", "CUresult"), (r"\bCudaDevice\b", "CUdevice"), (r"\bCudaContext\b", "CUcontext"), (r"\bCudaAddress\b", "CUdeviceptr"),
    (r"\bCudaStream\b", "CUstream"), (r"\bCudaEvent\b", "CUevent"), (r"\bCudaModule\b", "CUmodule"), (r"\bCudaFunction\b", "CUfunction"),
    (r"\bCudaGraphNode\b", "CUgraphNode"), (r"\bCudaGraphExec\b", "CUgraphExec"), (r"\bCudaGraph\b", "CUgraph"), (r"\bCudaCopy2d\b", "CUDA_MEMCPY2D_v2"), (r"\bCudaTensorMap\b", "CUtensorMap"), (r"\bCudaUuid\b", "CUuuid"), (r"\bCudaLaunch\b", "CUlaunchConfig"),
    (r"\bint type, unsigned rank\b", "CUtensorMapDataType type, cuuint32_t rank"), (r"\bint interleave\b", "CUtensorMapInterleave interleave"),
    (r"\bint swizzle\b", "CUtensorMapSwizzle swizzle"), (r"\bint promotion, int fill\b", "CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill"),
    (r"\bint mode\b", "CUstreamCaptureMode mode"), (r"\bint \*status\b", "CUstreamCaptureStatus *status"), (r"\bint \*options\b", "CUjit_option *options"),
    (r"unsigned long long \*id\b", "cuuint64_t *id"),
]
DEVICE_WORDS = [(r"\bint attribute, CUdevice from", "CUdevice_P2PAttribute attribute, CUdevice from"), (r"\bint attribute, CUdevice", "CUdevice_attribute attribute, CUdevice"), (r"\bint attribute, CUfunction", "CUfunction_attribute attribute, CUfunction"),
                (r"CUfunction function, int attribute", "CUfunction function, CUfunction_attribute attribute")]
BLAS_NUMBERS = {
    "BLAS_TYPE_F32": "CUDA_R_32F", "BLAS_TYPE_F16": "CUDA_R_16F", "BLAS_TYPE_BF16": "CUDA_R_16BF", "BLAS_COMPUTE_F32": "CUBLAS_COMPUTE_32F",
    "BLAS_COMPUTE_FAST_F16": "CUBLAS_COMPUTE_32F_FAST_16F", "BLAS_COMPUTE_FAST_BF16": "CUBLAS_COMPUTE_32F_FAST_16BF", "BLAS_COMPUTE_FAST_TF32": "CUBLAS_COMPUTE_32F_FAST_TF32",
    "BLAS_OP_TRANSPOSE": "CUBLAS_OP_T", "BLAS_DESC_OP_A": "CUBLASLT_MATMUL_DESC_TRANSA", "BLAS_DESC_OP_B": "CUBLASLT_MATMUL_DESC_TRANSB",
    "BLAS_DESC_EPILOGUE": "CUBLASLT_MATMUL_DESC_EPILOGUE", "BLAS_DESC_BIAS": "CUBLASLT_MATMUL_DESC_BIAS_POINTER", "BLAS_DESC_AUX": "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER",
    "BLAS_DESC_AUX_LEADING": "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD", "BLAS_LAYOUT_BATCHES": "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT",
    "BLAS_LAYOUT_STRIDE": "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", "BLAS_PREFERENCE_WORKSPACE": "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES",
    "BLAS_PREFERENCE_ALIGN_A": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES", "BLAS_PREFERENCE_ALIGN_A + 1": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES",
    "BLAS_PREFERENCE_ALIGN_A + 2": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES", "BLAS_PREFERENCE_ALIGN_A + 3": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES",
    "BLAS_EPILOGUE_DEFAULT": "CUBLASLT_EPILOGUE_DEFAULT", "BLAS_EPILOGUE_RELU": "CUBLASLT_EPILOGUE_RELU", "BLAS_EPILOGUE_BIAS": "CUBLASLT_EPILOGUE_BIAS",
    "BLAS_EPILOGUE_RELU | BLAS_EPILOGUE_BIAS | BLAS_EPILOGUE_AUX": "CUBLASLT_EPILOGUE_RELU_AUX_BIAS", "BLAS_EPILOGUE_GELU": "CUBLASLT_EPILOGUE_GELU",
    "BLAS_EPILOGUE_GELU | BLAS_EPILOGUE_BIAS | BLAS_EPILOGUE_AUX": "CUBLASLT_EPILOGUE_GELU_AUX_BIAS", "BLAS_EPILOGUE_SUMS_B": "CUBLASLT_EPILOGUE_BGRADB",
    "BLAS_EPILOGUE_SUMS_A": "CUBLASLT_EPILOGUE_BGRADA",
    "BLAS_EPILOGUE_RELU_GRADIENT | BLAS_EPILOGUE_AUX": "CUBLASLT_EPILOGUE_DRELU", "BLAS_EPILOGUE_RELU_GRADIENT | BLAS_EPILOGUE_AUX | BLAS_EPILOGUE_SUMS": "CUBLASLT_EPILOGUE_DRELU_BGRAD",
    "BLAS_EPILOGUE_GELU_GRADIENT | BLAS_EPILOGUE_AUX": "CUBLASLT_EPILOGUE_DGELU", "BLAS_EPILOGUE_GELU_GRADIENT | BLAS_EPILOGUE_AUX | BLAS_EPILOGUE_SUMS": "CUBLASLT_EPILOGUE_DGELU_BGRAD",
}
BLAS_WORDS = [(rf"\bvoid \*(\*?){ours}\b", rf"{theirs} \1{ours}") for ours, theirs in (
    ("handle", "cublasLtHandle_t"), ("desc", "cublasLtMatmulDesc_t"), ("layout", "cublasLtMatrixLayout_t"), ("preference", "cublasLtMatmulPreference_t"),
    ("a_layout", "cublasLtMatrixLayout_t"), ("b_layout", "cublasLtMatrixLayout_t"), ("c_layout", "cublasLtMatrixLayout_t"), ("d_layout", "cublasLtMatrixLayout_t"))] + [
    (r"\bint compute\b", "cublasComputeType_t compute"), (r"\bint (scale_)?type\b", "cudaDataType_t type"), (r"\bCudaBlasFound\b", "cublasLtMatmulHeuristicResult_t"),
    (r"\bCudaBlasAlgorithm\b", "cublasLtMatmulAlgo_t"), (r"\bCudaStream\b", "cudaStream_t")]
BLAS_ATTRIBUTES = {"desc_set": "cublasLtMatmulDescAttributes_t", "layout_set": "cublasLtMatrixLayoutAttribute_t", "preference_set": "cublasLtMatmulPreferenceAttributes_t"}
FOUND_FIELDS = {"algorithm": "algo", "workspace": "workspaceSize", "state": "state", "waves": "wavesCount", "reserved": "reserved"}


def folder_with(header):
    places = [os.path.join(os.environ.get("CUDA_HOME", "/nowhere"), "include")] + sorted(glob.glob("/usr/local/cuda*/include"), reverse=True)
    for packages in site.getsitepackages() + sys.path:
        places += sorted(glob.glob(os.path.join(packages, "nvidia", "*", "include")))
    return next((place for place in places if os.path.exists(os.path.join(place, header))), None)


def rows(name, macro):
    with open(os.path.join(support.ROOT, "runtime", "device", "cuda", name)) as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return re.findall(r'\b%s(?:_OPTIONAL)?\((\w+),\s*"(\w+)",\s*(\(.*?\))\)\s*(?=\n|$)' % macro, text, flags=re.S)


class Abi(support.Case):
    def check(self, text, *folders):
        with open(self.path("check.c"), "w") as file:
            file.write(text)
        includes = [f"-I{folder}" for folder in (support.ROOT, *folders)]
        done = subprocess.run([COMPILER, "-std=gnu17", "-fsyntax-only", *includes, self.path("check.c")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[:4000])

    def header(self, name):
        folder = folder_with(name)
        if not COMPILER or not folder:
            self.skipTest(f"{name} or a C compiler is not here")
        return folder

    def test_driver(self):
        folder = self.header("cuda.h")
        numbers, numbers_of = [], []
        # NVIDIA's enumerators and ours share some names: ours are read in one file and compared in another
        with open(os.path.join(support.ROOT, "runtime", "device", "cuda", "cuda_driver.h")) as file:
            ours = dict(re.findall(r"\b(CUDA_[A-Z0-9_]+) = (\d+)", file.read()))
        ours.pop("CUDA_DRIVER_OLDEST")
        ours.pop("CUDA_DRIVER_EARLY")
        self.assertEqual(set(ours), set(DRIVER_NUMBERS), "a number without its name here")
        numbers += [f"_Static_assert({theirs} == {ours[name]}, {name!r});".replace("'", '"') for name, theirs in DRIVER_NUMBERS.items()]
        with open(os.path.join(support.ROOT, "runtime", "device", "cuda", "cuda_driver.h")) as file:
            text = file.read()
        copy = re.search(r"typedef struct \{\n  size_t from_x.*?\} CudaCopy2d;", text, flags=re.S).group(0)
        launch = re.search(r"typedef struct \{\n  int id.*?\} CudaLaunch;", text, flags=re.S).group(0).replace("CudaStream", "CUstream")
        tensor_map = re.search(r"typedef struct \{(\n  _Alignas.*?)\} CudaTensorMap;", text, flags=re.S).group(1)
        fields = [f'_Static_assert(offsetof(CudaCopy2d, {a}) == offsetof(CUDA_MEMCPY2D_v2, {b}), "{a}");' for a, b in COPY_FIELDS.items()]
        for type_of_ours, theirs, names in (("CudaLaunch", "CUlaunchConfig", LAUNCH_FIELDS), ("CudaLaunchAttribute", "CUlaunchAttribute", ATTRIBUTE_FIELDS)):
            fields += [f'_Static_assert(offsetof({type_of_ours}, {a}) == offsetof({theirs}, {b}), "{a}");' for a, b in names.items()]
            fields.append(f'_Static_assert(sizeof({type_of_ours}) == sizeof({theirs}), "{theirs}");')
        entries = rows("cuda_driver.def", "DRIVER")
        self.assertGreater(len(entries), 40)
        for name, symbol, parameters in entries:
            for pattern, word in DRIVER_WORDS + DEVICE_WORDS:
                parameters = re.sub(pattern, word, parameters)
            numbers_of.append(f'_Static_assert(__builtin_types_compatible_p(__typeof__({symbol}), CUresult {parameters}), "{symbol}");')
        self.check("#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <stddef.h>\ntypedef CUdeviceptr CudaAddress;\n" + copy + "\n" + launch + "\n" +
                   "\n".join(numbers + fields + numbers_of) + '\n_Static_assert(sizeof(CudaCopy2d) == sizeof(CUDA_MEMCPY2D_v2), "size");\n'
                   + 'typedef struct {' + tensor_map + '} OurMap;\n_Static_assert(sizeof(OurMap) == sizeof(CUtensorMap) && _Alignof(OurMap) >= _Alignof(CUtensorMap), "map");\n', folder)

    @staticmethod
    def signature(name, symbol, parameters):
        for pattern, word in BLAS_WORDS + [(r"\bint attribute\b", BLAS_ATTRIBUTES.get(name, "int") + " attribute")]:
            parameters = re.sub(pattern, word, parameters)
        if name == "heuristic":  # there a, b, c and d are layouts, in a call they are data
            parameters = re.sub(r"\bvoid \*([abcd])\b", r"cublasLtMatrixLayout_t \1", parameters)
        return f'_Static_assert(__builtin_types_compatible_p(__typeof__({symbol}), cublasStatus_t {parameters}), "{symbol}");'

    def test_library(self):
        folder = self.header("cublasLt.h")
        numbers = [f'_Static_assert(({ours}) == (int){theirs}, "{ours}");' for ours, theirs in BLAS_NUMBERS.items()]
        fields = [f'_Static_assert(offsetof(CudaBlasFound, {a}) == offsetof(cublasLtMatmulHeuristicResult_t, {b}), "{a}");' for a, b in FOUND_FIELDS.items()]
        sizes = [f"_Static_assert(sizeof({a}) == sizeof({b}), \"{a}\");" for a, b in (("CudaBlasFound", "cublasLtMatmulHeuristicResult_t"), ("CudaBlasAlgorithm", "cublasLtMatmulAlgo_t"))]
        symbols = [self.signature(*row) for row in rows("cuda_blas.def", "BLAS")]
        self.assertGreater(len(symbols), 10)
        with open(os.path.join(support.ROOT, "runtime", "device", "cuda", "cuda_blas.h")) as file:
            text = file.read()
        own = re.search(r"typedef struct \{\n  uint64_t data\[8\];.*?\n\};\n", text, flags=re.S).group(0)
        used = set(re.findall(r"\b(BLAS_[A-Z0-9_]+) = ", own))
        for name in used - {word for key in BLAS_NUMBERS for word in re.findall(r"\w+", key)}:
            self.fail(f"{name} is compared with nothing")
        self.check("#include <cublasLt.h>\n#include <stddef.h>\n#include <stdint.h>\n" + own + "\n".join(numbers + fields + sizes + symbols) + "\n", folder, folder_with("cuda_runtime.h") or folder)


if __name__ == "__main__":
    if not folder_with("cuda.h"):
        print("no CUDA headers here: skipped")
    support.main()
