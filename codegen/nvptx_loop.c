/* nvptx_loop: kernels without reductions. A thread makes `width` neighbouring elements (16 bytes
 * where they lie side by side, so that LLVM joins the accesses), the grid covers the domain
 * exactly. Large kernels of which all rows share operands go row by row (nvptx_row.c). */
#include "codegen/chain.h"
#include "codegen/nvptx_places.h"
#include "passes/fuse.h"

enum {
  LOOP_THREADS = 256,
  MAX_GRID = INT32_MAX,
  MANY_BLOCKS = 4 * 264,  /* from here on a block can have several rows and the GPU is still full */
  LONGEST_ROW = 16 * 1024 /* that a block holds in registers */
};

static bool goes_by_rows(Job *job, const Domain *domain, int width) {
  if (domain->count < 2) return false;
  int64_t elements = domain_elements(domain, -1), length = domain->extent[domain->count - 1];
  return elements / width >= (int64_t)MANY_BLOCKS * LOOP_THREADS && length >= 4 * width &&
         length <= LONGEST_ROW && nvptx_shared(job, elements / length, NULL, NULL);
}

/* Rows of 2, 4 or 8 elements whose neighbours lie anywhere (an image's planes that become channels): a thread makes a whole row, and
 * stores it in one access; neighbouring lanes still read neighbours of each plane. Otherwise 1. --disable=narrow_rows: 1. */
static int narrow_row(const Job *job, int64_t elements, int64_t inner) {
  bool is_narrow = inner == 2 || inner == 4 || inner == 8;
  for (int i = 0; i < job->result_count; i++)
    is_narrow &= inner * dtype_bytes(job->result_type[i].dtype) <= 16;
  bool is_large = elements / inner >= (int64_t)MANY_BLOCKS * LOOP_THREADS || job->module->only_tile; /* tests have few elements */
  return is_narrow && is_large && !module_leaves_out(job->module, "narrow_rows") ? (int)inner : 1;
}

/* All values of `width` neighbours first, then all stores: loads stay together, and an operand that a result overwrites is read
 * at the same index only. */
static void make_group(Entry *entry, const Domain *domain, LLVMValueRef group, int width, Index *index) {
  Job *job = entry->job;
  for (int e = 0; e < width; e++) entry_push_digits(entry, domain, false, group, width, e, &index[e]);
  for (int e = 0; e < width; e++)
    for (int i = 0; i < job->result_count; i++)
      emit_value(&entry->emitter, job->node->body->roots.at[i].node, &index[e]);
}

/* By rows (codegen/chain.h): the threads of a block go over the groups of its rows. */
static bool loop_block_rows(Job *job) {
  Domain domain = collapse_domain(job->scratch, job->node, job->result_type);
  int64_t elements = domain_elements(&domain, -1), length = elements / job->rows;
  int width = nvptx_width(job, domain.extent[domain.count - 1]); /* there are two rows at least */
  while (length % width) width /= 2;
  int64_t groups = elements / width, own = job->block_rows * length / width, blocks = (groups + own - 1) / own;
  for (int i = 0; i < domain.count; i++) domain.is_reduced[i] = false;
  Entry entry;
  entry_open(&entry, job, job->name, CHAIN_THREADS, false);
  entry_annotate(&entry, "minctasm", 2);
  LLVMValueRef first = entry_mul(&entry, entry_special(&entry, "ctaid.x"), own);
  LLVMValueRef end = entry_min(&entry, entry_add(&entry, first, entry_const(&entry, own)), entry_const(&entry, groups));
  Loop loop;
  LLVMValueRef group = entry_begin_loop(&entry, &loop, entry_add(&entry, first, entry_special(&entry, "tid.x")), end,
                                        entry_const(&entry, CHAIN_THREADS), NULL, 0);
  Index index[8] = {0};
  make_group(&entry, &domain, group, width, index);
  for (int i = 0; i < job->result_count; i++) entry_store_group(&entry, i, index, width);
  entry_end_loop(&entry, &loop, NULL);
  entry_close(&entry, job->name, blocks, 1, 1);
  job->out->launch[0].goes_by_rows = true;
  return true;
}

bool nvptx_loop(Job *job) {
  if (job->rows) return loop_block_rows(job);
  if (nvptx_transpose_bytes(job) || nvptx_transpose(job)) return true;
  Domain domain = collapse_domain(job->scratch, job->node, job->result_type);
  int64_t elements = domain_elements(&domain, -1);
  int64_t inner = domain.count ? domain.extent[domain.count - 1] : 1;
  int width = nvptx_width(job, inner);
  if (width == 1) width = narrow_row(job, elements, inner);
  if (goes_by_rows(job, &domain, width)) return nvptx_loop_rows(job, &domain);
  int places = nvptx_tile_places(job, &domain, false, width);
  int64_t groups = elements / width / places, blocks = (groups + LOOP_THREADS - 1) / LOOP_THREADS;
  if (blocks > MAX_GRID) {
    diag_error(job->module->diag, job->node->origin.loc,
               "this kernel has more elements than a GPU grid");
    return false;
  }
  /* kept digits only: axes play no part here */
  for (int i = 0; i < domain.count; i++) domain.is_reduced[i] = false;
  int threads = LOOP_THREADS;
  while (threads > WARP && threads / 2 >= groups) threads /= 2;
  Entry entry;
  entry_open(&entry, job, job->name, threads, false);
  LLVMValueRef block = entry_special(&entry, "ctaid.x"), lane = entry_special(&entry, "tid.x");
  LLVMValueRef group = entry_add(&entry, entry_mul(&entry, block, threads), lane);
  LLVMValueRef inside =
      groups % threads ? entry_less(&entry, group, entry_const(&entry, groups)) : NULL;
  LLVMBasicBlockRef after = entry_begin_if(&entry, inside);
  Index index[MOST_PLACES][8] = {0};
  for (int p = 0; p < places; p++) {
    nvptx_set_place(&domain, p);
    for (int e = 0; e < width; e++)
      entry_push_digits(&entry, &domain, false, group, width, e, &index[p][e]);
  }
  /* all values first, then all stores: loads stay together, and an operand that a result overwrites
   * is read at the same index only */
  for (int e = 0; e < places * width; e++)
    for (int i = 0; i < job->result_count; i++)
      emit_value(&entry.emitter, job->node->body->roots.at[i].node, &index[e / width][e % width]);
  for (int i = 0; i < job->result_count; i++)
    for (int p = 0; p < places; p++) entry_store_group(&entry, i, index[p], width);
  entry_end_if(&entry, after);
  entry_close(&entry, job->name, (groups + threads - 1) / threads, 1, 1);
  return true;
}
