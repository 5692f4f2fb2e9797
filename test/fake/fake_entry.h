/* fake_entry: what the files that export the driver's entry points share. Signatures come from the
 * same list that ftrun uses (runtime/device/cuda/cuda_driver.def), so a row added there and not
 * here does not link. */
#ifndef FT_TEST_FAKE_ENTRY_H
#define FT_TEST_FAKE_ENTRY_H
#include "fake_queue.h"

#define EXPORT __attribute__((visibility("default")))
#define DRIVER(name, symbol, parameters) EXPORT CudaResult entry_##name parameters __asm__(symbol);
#define DRIVER_OPTIONAL DRIVER
#include "runtime/device/cuda/cuda_driver.def"
#undef DRIVER
#ifdef FAKE_OLD /* a driver from before CUDA 11.4: under another name, so not exported */
#define entry_graph_instantiate left_out_graph_instantiate
#endif
#ifdef FAKE_11 /* a driver from before CUDA 12 */
#define entry_launch_ex left_out_launch_ex
CudaResult entry_launch_ex(const CudaLaunch *launch, CudaFunction function, void **arguments,
                           void **extra);
#define entry_map_tiled left_out_map_tiled
CudaResult entry_map_tiled(CudaTensorMap *map, int type, unsigned rank, void *address,
                           const uint64_t *dims, const uint64_t *strides, const unsigned *box,
                           const unsigned *steps, int interleave, int swizzle, int promotion,
                           int fill);
#endif

extern bool fake_is_initialised;
/* A driver is called by several threads; the fake does one thing at a time. */
#define LOCKED() __attribute__((cleanup(fake_unlock), unused)) int is_locked = fake_lock()
#define LIVE()                                                                                     \
  LOCKED();                                                                                        \
  if (!fake_is_initialised) return 3;                                                              \
  fake_context_check();                                                                            \
  if (fake_sticky) return fake_sticky
/* In what may not be called by a thread that captures a stream (CUDA Driver API, "Stream
 * Management": cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode; CUDA C++ Programming Guide,
 * "Prohibited and Unhandled Operations"): it fails, and the capture with it. */
#define NOT_IN_CAPTURE(call)                                                                       \
  do {                                                                                             \
    if (fake_capture_refuses(call)) return CUDA_ERROR_CAPTURE_UNSUPPORTED;                         \
  } while (0)
#endif
