/* dev: what a device is: memory, copies, and graphs bound once and run many times. cpu is here;
 * sim and cuda join by another table. A device pointer is a `char *` that only the device's own
 * functions may follow, unless is_host_memory says that the host can too. */
#ifndef FT_RUNTIME_DEV_H
#define FT_RUNTIME_DEV_H
#include "runtime/artifact.h"

typedef struct Device Device;           /* each device's own */
typedef struct DeviceGraph DeviceGraph; /* a graph bound to addresses, ready to run */

typedef struct {
  int threads; /* cpu: 0 means FT_THREADS, then OMP_NUM_THREADS, then the cores we may use */
  int index;   /* cuda:N */
} DeviceOptions;

typedef struct DeviceType {
  const char *name;
  bool is_host_memory;
  Status (*open)(const Artifact *artifact, const DeviceOptions *options, Device **out);
  void (*close)(Device *device);
  const char *(*describe)(const Device *device); /* "cpu, 2 threads" */
  /* Zeroed, at least 64-byte aligned; 0 bytes gives a valid address. */
  Status (*alloc)(Device *device, int64_t bytes, char **out);
  void (*free)(Device *device, char *memory, int64_t bytes);
  /* Batches live here: host memory the device reads fast (pinned on a GPU). */
  Status (*alloc_host)(Device *device, int64_t bytes, char **out);
  void (*free_host)(Device *device, char *memory, int64_t bytes);
  Status (*write)(Device *device, char *to, const void *from, int64_t bytes);
  Status (*read)(Device *device, void *to, const char *from, int64_t bytes);
  /* Binds plan->graph[which]; base[] are the arenas, base[ARENA_INPUT] unused. */
  Status (*bind)(Device *device, const Artifact *artifact, int which, char *const *base,
                 DeviceGraph **out);
  void (*unbind)(DeviceGraph *graph); /* NULL is fine */
  /* Runs one step on a batch; the batch may be overwritten when it returns. Results are complete
   * after the next read or sync. */
  Status (*run)(DeviceGraph *graph, const char *batch);
  /* Runs steps [first, end) only, complete on return: profiling and checking. Adds nanoseconds. */
  Status (*run_part)(DeviceGraph *graph, const char *batch, int first, int end, int64_t *time);
  Status (*sync)(Device *device);
} DeviceType;

extern const DeviceType dev_cpu;
/* "auto", "cpu", "cuda", "cuda:1", "sim": the device for this artifact, or a sentence that says
 * what to do instead. */
STATUS_CHECKED Status dev_find(const char *text, const Artifact *artifact, const DeviceType **out,
                               DeviceOptions *options);
#endif
