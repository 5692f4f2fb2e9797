/* nvptx_private: what the files of the GPU skeletons share. An entry under construction (Entry)
 * wraps an Emitter; every value a thread computes before a barrier or shuffle is computed by all
 * threads: places beyond the end are clamped, and only stores are guarded. */
#ifndef FT_CODEGEN_NVPTX_PRIVATE_H
#define FT_CODEGEN_NVPTX_PRIVATE_H
#include "codegen/collapse.h"
#include "codegen/nvptx.h"
#include "codegen/reductions.h"
#include "passes/fuse.h"

enum {
  WARP = 32,
  MULTIPROCESSORS = 132 /* of an H100: numbers of blocks are chosen for it, on every GPU */
};

typedef struct {
  Module *module;
  const Node *node; /* fused, or a contraction or scatter_add */
  const char *name;
  const int *alias;
  Kernel *out;
  Arena *scratch;
  int operand_count, result_count;
  const Type *result_type; /* per result, as it lies in memory */
  const int64_t *pitch;    /* per operand, then per result: that of its rows, or 0 */
  const bool *is_whole;    /* likewise: has it the domain's shape? */
  const bool *is_beside;   /* likewise: kernel_is_beside */
  const PlanMap *maps;     /* parameters of entries that are opened with maps */
  int map_count;
  const bool *left_out; /* per operand, then per result: entries that are opened do not touch it; NULL: they may touch all */
  bool reads_workspace; /* with left_out: they write none of it */
  bool has_packed;      /* behind the workspace there are two packed operands; then there are no maps */
  const int *only;      /* entries that are opened have these parameters, as entry_only says; NULL: as above */
  int only_count, only_inputs;
  int64_t rows;   /* not 0: the kernel goes by so many rows (codegen/chain.h), */
  int block_rows; /* of which a block of CHAIN_THREADS threads makes so many */
} Job;

/* What a kernel body in C gets the pointers of: operands, results, the workspace, packed operands, maps. */
static inline int job_pointers(const Job *job) {
  return job->operand_count + job->result_count + 1 + 2 * job->has_packed + job->map_count;
}

typedef struct {
  Job *job;
  Emitter emitter;
  LLVMBuilderRef b;
  LLVMValueRef function, workspace;
  LLVMTypeRef index;
  int threads;
  bool has_maps;
  int *parameters; /* positions among operands, results and the workspace */
  int parameter_count, input_count;
} Entry;

bool nvptx_loop(Job *job);
bool nvptx_row(Job *job);
/* A loop kernel, a team of threads for each row of the last digit. */
bool nvptx_loop_rows(Job *job, const Domain *domain);
/* A loop kernel that turns what it reads through shared memory; false, and nothing is made, where
 * there is nothing to turn. */
bool nvptx_transpose(Job *job);
/* The same of a kernel that transposes bytes and does nothing else. */
bool nvptx_transpose_bytes(Job *job);
/* A row kernel of which a thread's share of a row does not fit into registers. */
bool nvptx_long(Job *job, const Domain *domain, const Reductions *reductions, bool is_heavy);
bool nvptx_column(Job *job);
bool nvptx_contract(Job *job, const Node *contraction);
bool nvptx_scatter(Job *job);
bool nvptx_put(Job *job);
bool nvptx_attention(Job *job);

/* ── nvptx_entry.c, nvptx.c ── */
/* The elements between the beginnings of neighbouring rows, each of `length` elements, in all operands
 * and results of the domain's size; 0: not the same in all of them. */
int64_t nvptx_row_pitch(const Job *job, int64_t length);
/* May the operand have a tensor map? Not what lies in the batch, whose place changes. */
bool nvptx_may_map(const Job *job, int operand);
/* Makes the entry `name` with parameters operands, results and, if wanted, a workspace. */
void entry_open(Entry *entry, Job *job, const char *name, int threads, bool has_workspace);
/* The same, and behind them the job's maps, which live as long as the module. A map's arg counts
 * operands, results, workspace; its parameter is emitter.pointer[operands + results + 1 + map],
 * with or without a workspace. */
void entry_open_mapped(Entry *entry, Job *job, const char *name, int threads, bool has_workspace);
/* Returns, and appends the launch. */
void entry_close(Entry *entry, const char *name, int64_t grid_x, int64_t grid_y, int64_t grid_z);
/* Of a kernel of two launches, of which the first leaves parts of sums in the workspace: which results the second one makes
 * of them. From here on entries leave out the results of the other launch, and those of the second one the operands that
 * only the sums need. What each touches, the plan then tells, so that others need not wait. */
typedef enum { SECOND_MAKES_COLUMN_SUMS, SECOND_MAKES_ALL } SecondMakes;
void entry_leave_out(Job *job, SecondMakes makes, bool is_second);
/* From here on entries have these parameters alone, of which the first `inputs` are read only: positions among operands,
 * results, and behind these the workspace and the packed operands. */
void entry_only(Job *job, const int *list, int count, int inputs);
/* Launch bounds beside maxntidx: "minctasm", blocks that must fit a multiprocessor. */
void entry_annotate(Entry *entry, const char *key, unsigned value);
/* Fits the number of every element of the kernel's tensors, and what a grid overshoots it by, 32 bits? */
bool entry_is_small(const Job *job);
/* i32 where that is so, else i64; --disable=index32: i64. */
LLVMTypeRef entry_index_type(const Job *job);

LLVMValueRef entry_special(Entry *entry, const char *name); /* "tid.x" as an index */
void entry_barrier(Entry *entry);
void entry_warp_barrier(Entry *entry);
/* The value of the lane whose number differs by `mask`; any register type. */
LLVMValueRef entry_shuffle(Entry *entry, LLVMValueRef value, int mask);
/* An array in shared memory. */
LLVMValueRef entry_shared(Entry *entry, const char *what, LLVMTypeRef type, int count);
/* Puts a value in a new one of `count`; reads one of this type there: a bit is a word in memory. */
LLVMValueRef entry_share(Entry *entry, const char *what, int count, LLVMValueRef place,
                         LLVMValueRef value);
LLVMValueRef entry_shared_at(Entry *entry, LLVMValueRef memory, LLVMTypeRef type,
                             LLVMValueRef place);
/* `bytes` of it without a type: a block's own where they are few, else given at launch. */
enum { SHARED_STATIC = 48 << 10 };
LLVMValueRef entry_panels(Entry *entry, int64_t bytes);
/* If `condition` (NULL: always) ... entry_end_if. Values made inside do not outlive it. */
LLVMBasicBlockRef entry_begin_if(Entry *entry, LLVMValueRef condition);
void entry_end_if(Entry *entry, LLVMBasicBlockRef after);
/* for (i = first; i < end; i += step) with `count` carried values: entry_begin_loop gives i and
 * replaces carried[] by their values in the iteration; entry_end_loop gives the final ones. */
typedef struct {
  LLVMBasicBlockRef header, after;
  LLVMValueRef counter, step, phi[KERNEL_MOST_ACCUMULATORS];
  int count;
} Loop;
LLVMValueRef entry_begin_loop(Entry *entry, Loop *loop, LLVMValueRef first, LLVMValueRef end,
                              LLVMValueRef step, LLVMValueRef *carried, int count);
void entry_end_loop(Entry *entry, Loop *loop, LLVMValueRef *carried);

LLVMValueRef entry_const(Entry *entry, int64_t value);
LLVMValueRef entry_add(Entry *entry, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef entry_sub(Entry *entry, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef entry_mul(Entry *entry, LLVMValueRef a, int64_t b);
LLVMValueRef entry_div(Entry *entry, LLVMValueRef a, int64_t b);
LLVMValueRef entry_rem(Entry *entry, LLVMValueRef a, int64_t b);
LLVMValueRef entry_is_zero(Entry *entry, LLVMValueRef a);
LLVMValueRef entry_less(Entry *entry, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef entry_min(Entry *entry, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef entry_and(Entry *entry, LLVMValueRef a, LLVMValueRef b); /* NULL: true */
/* `value` counts the elements of digits [from, to): pushes them, the last of them split so that its
 * final digit is the constant lane < width (width 1: not split). value counts groups of `width`. */
void entry_push_digits(Entry *entry, const Domain *domain, bool is_reduced, LLVMValueRef value,
                       int width, int lane, Index *index);
/* Behind a digit that was pushed: the place in its tile, if it has tiles. */
void entry_push_place(Entry *entry, const Domain *domain, int digit, Index *index);
int64_t domain_elements(const Domain *domain, int reduced); /* 0 kept, 1 reduced, -1 all; tiles count once */

/* ── nvptx_row.c: rows ── */
/* Neighbouring elements that a thread takes at once: 16 bytes of the widest operand or result of the
 * domain's size. Loops keep what all rows share in registers, so that its type does not count: but
 * for windows, which read it at places of their own. */
int nvptx_row_width(const Job *job, int64_t inner, int64_t elements, int64_t length, bool is_loop);
/* What the `team` threads that have a row (1 to 1024; the block's teams lie side by side) found of a
 * reduction, together; all of them end with it. */
LLVMValueRef nvptx_combine(Entry *entry, const Reduction *one, LLVMValueRef value,
                           LLVMValueRef thread, int team);
/* If the reduction is a pick (reductions.h): finishes it, from the row's one element. */
bool nvptx_pick(Entry *entry, const Domain *domain, const Index *row, Reduction *one);
/* Stores the results that rows have once, where `condition` holds: of one thread of a row. */
void nvptx_store_rows(Entry *entry, const Index *row, LLVMValueRef condition);

void entry_store_result(Entry *entry, int result, const Index *index);
/* `count` neighbours, at most 8, in one access where that can be. */
void entry_store_group(Entry *entry, int result, const Index *index, int count);

/* What the body broadcasts along all `rows` (the leading dimensions of the domain): how many
 * values, and, with an entry, emits them at `index`, whose digits of the row may be any: from then
 * on they are remembered for the same place of every row. */
int nvptx_shared(Job *job, int64_t rows, Entry *entry, const Index *index);
/* Elements that a thread takes side by side: 16 bytes of the widest type, dividing `extent`. */
int nvptx_width(const Job *job, int64_t extent);
/* The same for a part of the body: the nodes `among` (by id), with the results of the domain's size
 * or without. */
int nvptx_width_among(const Job *job, int64_t extent, const bool *among, bool has_results);
#endif
