/* nccl: collectives between the GPUs of the ranks, by NVIDIA's library, opened at run time: one
 * table of entry points (nccl.def) with our own declarations, so that ftrun builds and starts where
 * there is none. Works are enqueued on a stream of the caller's, which may be captured; the host's
 * own affairs, and the library's first exchange, go through the Comm, whatever its engine.
 *   FT_NCCL_LIBRARY   the library's file (RCCL keeps NCCL's names); else the loader finds
 *                     libnccl.so.2, or it lies in the Python environment that is active
 * Calls do not block (ncclConfig_t.blocking 0): where the library is not done, the caller waits
 * here, and hears when the job has failed meanwhile. */
#ifndef FT_RUNTIME_NCCL_H
#define FT_RUNTIME_NCCL_H
#include "runtime/communicate/comm.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* ── the library's own types and numbers ──────────────────────────────────────────────────── */
typedef int NcclResult, NcclType, NcclOp;
typedef struct NcclCommBody *NcclComm;
typedef void *NcclStream; /* a CUDA stream */
typedef struct {
  char internal[128];
} NcclUniqueId;
/* As of 2.14, which is what `version` says. Newer libraries read as much as `size`
 * says, and of that what that version knew. */
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size;
} NcclConfig;
enum {
  NCCL_SUCCESS = 0,
  NCCL_REMOTE_ERROR = 6,
  NCCL_IN_PROGRESS = 7,
  NCCL_UNDEFINED = INT_MIN,
  NCCL_TYPE_U8 = 1,
  NCCL_TYPE_I32 = 2,
  NCCL_TYPE_U32 = 3,
  NCCL_TYPE_I64 = 4,
  NCCL_TYPE_F16 = 6,
  NCCL_TYPE_F32 = 7,
  NCCL_TYPE_F64 = 8,
  NCCL_TYPE_BF16 = 9,
  NCCL_OP_SUM = 0,
  NCCL_OP_PROD = 1,
  NCCL_OP_MAX = 2,
  NCCL_OP_MIN = 3,
};

static const unsigned nccl_magic = 0xcafebeef; /* of an NcclConfig */

typedef struct {
  void *library;
  int number; /* of the version: 22703 is 2.27.3 */
  const char *(*error_string)(NcclResult result);
#define NCCL(name, symbol, parameters) NcclResult(*name) parameters;
#include "runtime/communicate/nccl.def"
#undef NCCL
} NcclLibrary;

enum { NCCL_OLDEST = 21800 }; /* ncclCommSplit */

/* Opens the library once for the process. STATUS_USER says what is missing or too old. */
STATUS_CHECKED Status nccl_open(const NcclLibrary **out);

/* ── ranks joined by it ───────────────────────────────────────────────────────────────────── */
typedef struct Nccl Nccl;
/* All ranks of the Comm call it, each with its GPU's context current. */
STATUS_CHECKED Status nccl_join(Comm *comm, Nccl **out);
const char *nccl_text(const Nccl *nccl); /* "NCCL 2.27.3" */
/* Enqueues the work, whose x and out are addresses of the GPU and differ for ALL_TO_ALL; comm_check
 * has looked at it. All ranks enqueue the same in the same order. */
STATUS_CHECKED Status nccl_enqueue(Nccl *nccl, const CommWork *work, NcclStream stream);
/* Has something failed behind the caller's back? False, and why. Any thread. */
bool nccl_is_well(Nccl *nccl, char *why, size_t size);
/* Ends what is under way on the GPU, for ever; may take its time. Any thread, once. */
void nccl_abort(Nccl *nccl);
/* Leaves: all ranks do, when no captured graph is left that has such works. */
void nccl_leave(Nccl *nccl);
/* Of one that was aborted, too. */
void nccl_free(Nccl *nccl); /* NULL is fine */
#endif
