/* artifact: an opened model.so or model.ptx: its plan, and for a .so its kernels. The file is
 * treated as hostile up to the point where a .so is loaded (loading runs nothing of ours, but a .so
 * is code: open only artifacts you trust). A plan whose kernels are missing is refused. */
#ifndef FT_RUNTIME_ARTIFACT_H
#define FT_RUNTIME_ARTIFACT_H
#include "plan/plan.h"
#include "runtime/status.h"

/* A host kernel: does work items [begin, end); any split gives the same bits. */
typedef void HostKernel(void *const *args, int64_t begin, int64_t end);

typedef struct Artifact {
  Arena *arena;
  const char *path;
  Plan *plan;       /* its settings may be changed (setting_set) before exec_new or later */
  void *library;    /* dlopen handle of a .so; NULL for .ptx */
  bool is_borrowed; /* the library is the caller's */
  const char *ptx;  /* the whole text of a .ptx; NULL for .so */
} Artifact;

STATUS_CHECKED Status artifact_open(const char *path, Artifact **out);
void artifact_close(Artifact *artifact); /* NULL is fine */
/* The kernel named by a launch of the plan; never NULL for one (checked when opened). */
HostKernel *artifact_kernel(const Artifact *artifact, const char *name);
/* A plan already in memory, its kernels looked up in `library` (a dlopen handle, kept by the
 * caller): tests and compilers that link in process. */
STATUS_CHECKED Status artifact_from_plan(Plan *plan, void *library, Artifact **out);
#endif
