/* ckpt_file: the way from places to a file. Every rank makes the same list of the file's tensors
 * (ckpt_list.c) and so knows where each of them stands; it writes its share of them, from its own
 * memory, at these places (ckpt_file.c, ckpt_write.c). */
#ifndef FT_RUNTIME_CKPT_FILE_H
#define FT_RUNTIME_CKPT_FILE_H
#include "base/arena.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/execute/exec_snapshot.h"

/* What other programs that read weights want to see: how matrices lie. */
#define CKPT_WEIGHTS_FORMAT "pt"

/* ── what is in it ────────────────────────────────────────────────────────────────────────── */
/* Parameters and all states; or parameters and the model's own states; or those with the averages
 * of the parameters. */
typedef enum { CKPT_ALL, CKPT_WEIGHTS, CKPT_EMA } CkptContent;
typedef struct {
  PlanTensor tensor; /* its name in the file, and where its plan has it: plan_whole is its type */
  int plan;
  bool is_of_params; /* a parameter, or what a state has for one */
} CkptEntry;
typedef VEC(CkptEntry) CkptList;
/* Of all plans together, of which each has some: a name once, from the first plan that has it.
 * Parameters in the order of the program, then the states, each in that order: one list whatever the
 * ranks share out. In the arena given. */
CkptList ckpt_list(Arena *arena, Plan *const *plans, int count, CkptContent content);

/* ── who writes what ──────────────────────────────────────────────────────────────────────── */
typedef struct {
  int plan;                    /* the one that this rank runs */
  int data, data_ranks, tensor; /* its place in the mesh */
} CkptSeat;
/* Of a tensor (the part that a cut leaves this rank, in the order of memory): elements `first` to
 * first + count; its memory begins with element `base`. */
typedef struct {
  int entry;
  int64_t first, count, base;
} CkptShare;
typedef VEC(CkptShare) CkptShares;
typedef VEC(ExecRange) CkptRanges;
/* All seats together have every element of the file once. What all have is divided among those that
 * share the batch. */
CkptShares ckpt_shares(Arena *arena, const CkptList *list, const CkptSeat *seat);
/* Where the shares lie. */
CkptRanges ckpt_ranges(Arena *arena, const Plan *plan, const CkptList *list,
                       const CkptShares *shares);

/* ── a file ───────────────────────────────────────────────────────────────────────────────── */
enum { CKPT_PIECE = 64 << 20, CKPT_MEMORY = 2 * CKPT_PIECE };
typedef struct CkptFile CkptFile;
/* All ranks of `comm` call it, and each other function that says so; NULL: this process writes all
 * alone. Fails alike on all. `folder` is made first, if it is not NULL. With texts it is a
 * checkpoint and has a sum. */
STATUS_CHECKED Status ckpt_file_begin(Exec *exec, Comm *comm, const char *folder, const char *path,
                                      CkptContent content, const SafeText *texts, int text_count,
                                      CkptFile **out);
/* What of the places a copy needs that ckpt_file_write is to read. */
CkptRanges ckpt_file_ranges(CkptFile *file);
/* This rank's share to the disk, by any thread; from a copy, or with none from the places, which the
 * thread reads that runs graphs. Streams: takes at most CKPT_MEMORY bytes, whatever the model's
 * size. piece: bytes, 0: CKPT_PIECE; for tests. */
STATUS_CHECKED Status ckpt_file_write(CkptFile *file, const ExecSnapshot *snapshot, int64_t piece);
void ckpt_file_give_up(CkptFile *file); /* by any thread: that one returns soon, and fails */
/* All ranks, each with how its writing went: STATUS_OK if all shares are on the disk. */
STATUS_CHECKED Status ckpt_file_settle(CkptFile *file, Status status);
/* Then the file gets its name, by rank 0; the others do nothing. By any thread. */
STATUS_CHECKED Status ckpt_file_finish(CkptFile *file);
void ckpt_file_free(CkptFile *file); /* removes what has not got its name; NULL is fine */
/* All ranks: settle, finish and free. */
STATUS_CHECKED Status ckpt_file_end(CkptFile *file, Status status);
/* The begin of a checkpoint: ckpt.c. */
STATUS_CHECKED Status ckpt_begin(Exec *exec, Comm *comm, const char *folder, const char *path,
                                 const CkptInfo *info, CkptFile **out);
/* FOLDER/step-….safetensors, or FOLDER/best.safetensors (keep 0); malloc'd. */
char *ckpt_path(const char *folder, const CkptInfo *info, int64_t keep);
/* Removes all but the newest `keep` of those that are not newer than `step`. */
STATUS_CHECKED Status ckpt_keep(const char *folder, int64_t step, int64_t keep);
#endif
