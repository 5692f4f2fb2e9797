/* artifact: an opened model.so or model.ptx: its plan, and once a .so is loaded its kernels.
 * Opening treats the file as hostile and runs nothing in it: the plan of a .so is read from its
 * section .ft_plan, whatever the file's name. A .so is code, and loading it runs what its author
 * wants: only exec_new loads it, for training, evaluation and prediction. */
#ifndef FT_RUNTIME_ARTIFACT_H
#define FT_RUNTIME_ARTIFACT_H
#include "plan/plan_cubin.h"
#include "plan/plan_stages.h"
#include "runtime/common/status.h"

/* A host kernel: does work items [begin, end); any split gives the same bits. */
typedef void HostKernel(void *const *args, int64_t begin, int64_t end);

typedef struct Artifact {
  Arena *arena;
  const char *path;
  PlanStages stages; /* of all ranks of a pipeline; else there is one */
  Plan *plan;        /* this process' one of them, at first that of stage 0; its settings, which all
                        have together, may be changed (setting_set) before exec_new or later */
  bool is_shared;    /* a .so */
  int64_t weights_at, weights; /* of a .so for inference (ftc --inference): where ftrun deploy puts weights
                                  into the file, and room for how many bytes; of such a .ptx, which lie
                                  beside: 0, 0; else 0, -1. It has the kernels of the evaluation and no others */
  uint64_t plan_sum; /* of the text of its plans */
  void *library;     /* dlopen handle of a .so; NULL for .ptx, and before artifact_load */
  int copy;          /* descriptor of the .so in memory; -1: none */
  bool is_borrowed;  /* the library is the caller's */
  const char *ptx;   /* the whole text of a .ptx, but for the lines of its cubin; NULL for .so */
  PlanCubin cubin;   /* of a .ptx that ftc --cubin made */
} Artifact;

STATUS_CHECKED Status artifact_open(const char *path, Artifact **out);
/* Loads the kernels of a .so, once; nothing to do for a .ptx. A file that lacks a kernel, or was
 * exchanged since it was opened, is refused. */
STATUS_CHECKED Status artifact_load(Artifact *artifact);
void artifact_close(Artifact *artifact); /* NULL is fine */
/* From here on the plan is that of this stage: before exec_new. */
void artifact_choose(Artifact *artifact, int stage);
/* The kernel named by a launch of the plan; never NULL for one of a loaded artifact. */
HostKernel *artifact_kernel(const Artifact *artifact, const char *name);
/* A plan already in memory, its kernels looked up in `library` (a dlopen handle, kept by the
 * caller): tests and compilers that link in process. */
STATUS_CHECKED Status artifact_from_plan(Plan *plan, void *library, Artifact **out);
#endif
