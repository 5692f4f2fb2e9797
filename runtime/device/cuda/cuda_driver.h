/* cuda_driver: the CUDA driver API, opened at run time: one table of entry points
 * (cuda_driver.def) with our own declarations, so that ftrun builds and starts on a machine without
 * CUDA. FT_CUDA_LIBRARY names another library file. Types and numbers follow NVIDIA's published
 * ABI, which is stable: structures carry a version suffix in the symbol's name. */
#ifndef FT_RUNTIME_CUDA_DRIVER_H
#define FT_RUNTIME_CUDA_DRIVER_H
#include "ir/type.h"
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CudaResult; /* 0: success */
typedef int CudaDevice;
typedef uint64_t CudaAddress;
typedef struct CudaContextBody *CudaContext;
typedef struct CudaStreamBody *CudaStream;
typedef struct CudaEventBody *CudaEvent;
typedef struct CudaModuleBody *CudaModule;
typedef struct CudaFunctionBody *CudaFunction;
typedef struct CudaGraphBody *CudaGraph;
typedef struct CudaGraphNodeBody *CudaGraphNode;
typedef struct CudaGraphExecBody *CudaGraphExec;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX = 222,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
};
enum { /* device attributes */
       CUDA_ATTRIBUTE_CLOCK_KHZ = 13,
       CUDA_ATTRIBUTE_PROCESSORS = 16,
       CUDA_ATTRIBUTE_MAJOR = 75,
       CUDA_ATTRIBUTE_MINOR = 76,
       CUDA_ATTRIBUTE_SHARED_MOST = 97,
       CUDA_LINK_ACCESS = 2, /* between two devices */
       CUDA_LINK_ATOMICS = 3,
};
enum {
  CUDA_STREAM_NON_BLOCKING = 1,
  CUDA_EVENT_NO_TIMING = 2,
  CUDA_HOST_PORTABLE = 1,
  CUDA_HOST_MAPPED = 2,
  CUDA_CAPTURE_THREAD_LOCAL = 1,
  CUDA_CAPTURE_SET_DEPENDENCIES = 1,
  CUDA_LAUNCH_EARLY = 6, /* it may begin before what its stream has before it is over */
  CUDA_FUNCTION_SHARED_BYTES = 1,
  CUDA_FUNCTION_LOCAL_BYTES = 3,
  CUDA_FUNCTION_REGISTERS = 4,
  CUDA_FUNCTION_SHARED_MOST = 8,
  CUDA_JIT_INFO_LOG = 3,
  CUDA_JIT_INFO_LOG_BYTES = 4,
  CUDA_JIT_ERROR_LOG = 5,
  CUDA_JIT_ERROR_LOG_BYTES = 6,
  CUDA_JIT_LOG_VERBOSE = 12,
  CUDA_MEMORY_HOST = 1,
  CUDA_MEMORY_DEVICE = 2,
};
enum { /* of tensor maps */
       CUDA_MAP_U8 = 0,
       CUDA_MAP_U32 = 2,
       CUDA_MAP_I32 = 3,
       CUDA_MAP_I64 = 5,
       CUDA_MAP_F16 = 6,
       CUDA_MAP_F32 = 7,
       CUDA_MAP_F64 = 8,
       CUDA_MAP_BF16 = 9,
       CUDA_MAP_SWIZZLE_NONE = 0,
       CUDA_MAP_SWIZZLE_32 = 1,
       CUDA_MAP_SWIZZLE_64 = 2,
       CUDA_MAP_SWIZZLE_128 = 3,
       CUDA_MAP_PROMOTE_128 = 2,
};

typedef struct {
  char bytes[16];
} CudaUuid;

typedef struct {
  size_t from_x, from_y;
  int from_kind;
  const void *from_host;
  CudaAddress from_device;
  void *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_kind;
  void *to_host;
  CudaAddress to_device;
  void *to_array;
  size_t to_pitch;
  size_t width, height; /* bytes, rows */
} CudaCopy2d;

/* One of a launch, of which there are many; value: as many bytes as any of them needs. */
typedef struct {
  int id, padding;
  union {
    int number;
    char bytes[64];
  } value;
} CudaLaunchAttribute;
typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CudaStream stream;
  CudaLaunchAttribute *attributes;
  unsigned attribute_count;
} CudaLaunch;

/* A launch's parameter; only the driver knows what is in it. */
typedef struct {
  _Alignas(128) uint64_t word[16]; /* CUDA 12 wants 64 bytes, CUDA 13 says 128 */
} CudaTensorMap;

typedef struct {
  void *library;
  int version; /* of CUDA that the driver supports: 12040 is 12.4 */
#define DRIVER(name, symbol, parameters) CudaResult(*name) parameters;
#define DRIVER_OPTIONAL DRIVER
#include "runtime/device/cuda/cuda_driver.def"
#undef DRIVER_OPTIONAL
#undef DRIVER
} CudaDriver;

enum {
  CUDA_DRIVER_OLDEST = 11040, /* cuGraphInstantiateWithFlags; PTX ISA 7.4 */
  CUDA_DRIVER_EARLY = 12030,  /* CUDA graphs keep which launches may begin early */
};

/* Opens the driver once for the process and initialises it. The failure is STATUS_USER and says
 * what is missing or too old, without saying what to do instead. */
STATUS_CHECKED Status cuda_driver_open(const CudaDriver **out);
/* STATUS_OK for CUDA_SUCCESS; else STATUS_FAULT and "<what>: <the driver's words> (NAME)". */
Status cuda_check(const CudaDriver *driver, CudaResult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What the driver calls the type of a tensor map's elements, and a swizzle of 0, 32, 64 or 128 bytes. */
extern const int cuda_map_type[DT_COUNT];
int cuda_map_swizzle(int bytes);
/* "CUDA_ERROR_OUT_OF_MEMORY", or a number if the driver does not know it. */
const char *cuda_error_name(const CudaDriver *driver, CudaResult result);
#endif
