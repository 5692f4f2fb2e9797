/* fake: a CUDA driver without a GPU, for tests: test/fake/libcuda.c exports the driver's entry
 * points, fake_queue.c holds streams, events and graphs, fake_state.c memory, checks and faults.
 * Nothing runs when it is enqueued: work waits in its stream until somebody synchronises, or asks
 * again and again and does nothing else, or until the seeded chance of FT_FAKE_CUDA_SEED moves some stream on, and a graph's nodes run in any order
 * that its edges allow. So a missing event, edge or wait shows as wrong numbers. Kernels run in the
 * simulator (runtime/device/sim/sim.h). A misuse that a real driver might forgive ends the process.
 *
 *   FT_FAKE_CUDA_SEED=N       chance; 0 (default): as late as possible. Bit i of N makes the stream
 *                             made as number i slow: it moves only when somebody waits for it
 *   FT_FAKE_CUDA_MEMORY=B     bytes of the GPU (1 GiB)        FT_FAKE_CUDA_CC=90  capability
 *   FT_FAKE_CUDA_VERSION=N    of the driver (12040)           FT_FAKE_CUDA_COUNT=N  GPUs (1)
 *   FT_FAKE_CUDA_CLOCK=N      of the processors, in kHz (1000000)
 *   FT_FAKE_CUDA_PROCESSORS=N multiprocessors (2)
 *   FT_FAKE_CUDA_SHARED=B     shared memory that a block may ask for (227 KiB)
 *   FT_FAKE_CUDA_NO_EDGES=1   capturing takes no dependencies from outside
 *   FT_FAKE_CUDA_GRAPH_FAILS=PART  making a CUDA graph fails: begin, launch, early (a launch that
 *                             may begin early), end, make (instantiating it) or upload, from the graph of number FT_FAKE_CUDA_GRAPH_FAILS_FROM (1) on
 *   FT_FAKE_CUDA_LINKS=TEXT   for each pair of GPUs N (NVLink), P (PCIe) or - (none), row by row
 *   FT_FAKE_CUDA_BUS=TEXT     where on the PCI bus all of them are
 *   FT_FAKE_CUDA_JIT=TEXT     module loading fails with this log   FT_FAKE_CUDA_COMPILE_FAILS=N  the Nth text is refused
 *   FT_FAKE_CUDA_JIT_INFO=TEXT  the compiler's info log; too long a one is cut, without a zero behind it
 *   FT_FAKE_CUDA_CUBIN_FAILS=1  the driver is too old for any cubin
 *   FT_FAKE_CUDA_BAD=N        GPU number N is there, and cannot be used
 *   FT_FAKE_CUDA_LOST_AFTER=N the device is lost at the Nth kernel
 *   FT_FAKE_CUDA_HANG_AFTER=N the Nth kernel never ends, nor does anything behind it
 *   FT_FAKE_CUDA_SLOW=MS      what comes before each record of an event takes so long by the wall clock
 *   FT_FAKE_CUDA_REPORT=FILE  counts, one `name value` a line, when the process ends */
#ifndef FT_TEST_FAKE_H
#define FT_TEST_FAKE_H
#include "runtime/device/cuda/cuda_driver.h"
#include "runtime/device/sim/sim.h"
#include <stdbool.h>

enum { /* results that ftrun does not tell apart */
       CUDA_ERROR_NO_BINARY = 209,
       CUDA_ERROR_LAUNCH_RESOURCES = 701,
       CUDA_ERROR_CAPTURE_UNSUPPORTED = 900,
       CUDA_ERROR_CAPTURE_SPOILED = 901,
       CUDA_ERROR_CAPTURE_UNMATCHED = 903,
       CUDA_ERROR_CAPTURE_UNJOINED = 904,
       CUDA_ERROR_CAPTURE_WRONG_THREAD = 908,
};

#define FAKE_COUNTS(X)                                                                             \
  X(synchronize) /* whole streams waited for by the host */                                        \
  X(wait)        /* events waited for by the host */                                               \
  X(wait_young)  /* … recorded fewer than two launches ago */                                      \
  X(pageable)    /* copies from or to memory that is not pinned */                                 \
  X(to_device)                                                                                     \
  X(to_host)                                                                                       \
  X(on_device)                                                                                     \
  X(launch)                                                                                        \
  X(graph_launch)                                                                                  \
  X(graph_make) /* instantiated, */                                                                 \
  X(graph_late) /* … after some graph was launched */                                              \
  X(kernel) X(event_record) X(library_call) X(memory_alloc) X(most_ahead)            \
  X(cubin)       /* modules loaded from one, */                                                    \
  X(compiled)    /* … and from PTX */                                                              \
  X(collective)  /* in graphs that were made */                                                    \
  X(early)       /* launches in graphs that may begin early */                                      \
  X(beside)      /* pairs of a collective and a kernel of which neither waits for the other */
typedef struct {
#define X(name) long name;
  FAKE_COUNTS(X)
#undef X
} FakeCounts;
extern FakeCounts fake_counts;

/* ── fake_state.c ── */
long fake_setting(const char *name, long otherwise);
void fake_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
unsigned fake_chance(void); /* 0 when there is no seed */
extern SimMachine *fake_machine;
/* The first error that a kernel met: every later call returns it. */
extern CudaResult fake_sticky;
extern bool fake_is_hung; /* by FT_FAKE_CUDA_HANG_AFTER */
CudaResult fake_memory_alloc(CudaAddress *address, size_t bytes);
void fake_memory_free(CudaAddress address);
size_t fake_memory_used(void);
int fake_memory_blocks(void);
void fake_memory_check(CudaAddress address, size_t bytes, const char *what);
CudaResult fake_host_alloc(void **memory, size_t bytes, bool is_mapped);
void fake_host_free(void *memory);
void fake_memory_know(void *at, size_t bytes); /* a variable of a module */
bool fake_is_pinned(const void *memory, size_t bytes); /* dies if only a part is */
void fake_context_check(void);
CudaContext fake_context(void); /* what this thread has current; NULL: nothing */
int fake_lock(void);
extern double fake_said_milliseconds; /* that libraries say they took, on top of the clock */
void fake_pause(void); /* gives the lock to others for a moment: by work that waits */
void fake_unlock(int *unused);

/* ── libcuda_graph.c ── */
bool fake_graph_fails(const char *part);

/* ── fake_queue.c ── */
typedef enum {
  OP_COPY,
  OP_FILL,
  OP_KERNEL,
  OP_HOST,
  OP_COLLECTIVE,
  OP_GRAPH,
  OP_RECORD,
  OP_WAIT
} FakeOpKind;
typedef struct {
  FakeOpKind kind;
  CudaCopy2d copy; /* COPY: addresses as host addresses */
  void *staged;    /* COPY: the source was pageable */
  CudaAddress to;  /* FILL */
  size_t bytes;
  int value;
  const SimKernel *kernel; /* KERNEL */
  SimLaunch launch;
  void *params;
  void (*host)(void *context); /* HOST, COLLECTIVE: a library call */
  void *context;
  CudaGraphExec graph;
  CudaEvent event; /* RECORD, WAIT */
  long generation;
} FakeOp;
CudaResult fake_enqueue(CudaStream stream, FakeOp op);
CudaResult fake_run_until_empty(CudaStream stream);
CudaResult fake_run_until_event(CudaEvent event);
void fake_move_on(void); /* lets chance run something */
bool fake_event_is_done(CudaEvent event);
/* The host asks whether an event, or a stream, is done; asked often enough in a row, time passes until
 * it is. */
bool fake_ask(CudaEvent event, CudaStream stream);
#endif
