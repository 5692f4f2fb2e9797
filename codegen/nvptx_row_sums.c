/* nvptx_row_sums: see nvptx_row_sums.h. In the workspace: [sum][block][column], f32. */
#include "codegen/nvptx_row_sums.h"
#include <stdio.h>

enum {
  LEAST_ROWS = 2, /* of a team */
  COMBINE_THREADS = 128,
  COMBINE_LANES = 8, /* that share the parts of a column */
};

void nvptx_row_sums_find(const Job *job, RowSums *out) {
  const Graph *body = job->node->body;
  *out = (RowSums){0};
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    if (!kernel_is_beside(job->node, node)) continue;
    out->node[out->count++] = node;
    out->columns = shape_elements(&node->type.shape);
  }
}

int64_t nvptx_row_sums_blocks(RowSums *sums, int64_t rows, int64_t rows_at_once, int64_t most) {
  int64_t blocks = rows / (LEAST_ROWS * rows_at_once);
  if (blocks < 1) blocks = 1;
  sums->parts = blocks < most ? blocks : most;
  return sums->parts;
}

void nvptx_row_sums_clear(Entry *entry, RowSums *sums, int64_t share) {
  sums->share = share;
  sums->total_count = (int)(sums->count * share);
  if (!sums->count) return;
  entry->job->out->workspace = sums->count * sums->parts * sums->columns * 4;
  for (int i = 0; i < sums->total_count; i++)
    sums->total[i] = emit_constant(&entry->emitter, DT_F32, 0);
}

void nvptx_row_sums_add(Entry *entry, RowSums *sums, const Index *index, int64_t e,
                        LLVMValueRef valid) {
  Emitter *emitter = &entry->emitter;
  for (int i = 0; i < sums->count; i++) {
    LLVMValueRef *total = &sums->total[i * sums->share + e];
    LLVMValueRef value = emit_value(emitter, sums->node[i]->input[0], index);
    if (valid)
      value = LLVMBuildSelect(entry->b, valid, value, emit_constant(emitter, DT_F32, 0), "");
    *total = emit_reduce_step(emitter, OP_SUM, DT_F32, *total, value);
  }
}

void nvptx_row_sums_meet(Entry *entry, RowSums *sums, LLVMValueRef lane, int team) {
  int teams = entry->threads / team;
  if (teams == 1) return;
  LLVMValueRef memory[KERNEL_MOST_ACCUMULATORS], thread = entry_special(entry, "tid.x");
  for (int i = 0; i < sums->total_count; i++)
    memory[i] = entry_share(entry, "row_sum", entry->threads, thread, sums->total[i]);
  entry_barrier(entry);
  for (int i = 0; i < sums->total_count; i++)
    for (int t = 1; t < teams; t++) {
      LLVMValueRef place = entry_add(entry, lane, entry_const(entry, t * team));
      LLVMValueRef part = entry_shared_at(entry, memory[i], LLVMTypeOf(sums->total[i]), place);
      sums->total[i] = emit_reduce_step(&entry->emitter, OP_SUM, DT_F32, sums->total[i], part);
    }
}

/* Of sum i and part `part`. */
static LLVMValueRef row_part_place(Entry *entry, const RowSums *sums, int i, LLVMValueRef part,
                                   LLVMValueRef column) {
  Emitter *emitter = &entry->emitter;
  LLVMTypeRef type = entry->job->module->f32;
  LLVMValueRef base =
      emit_at_number(emitter, type, entry->workspace, i * sums->parts * sums->columns);
  return emit_at(emitter, type, base,
                 entry_add(entry, entry_mul(entry, part, sums->columns), column));
}

void nvptx_row_sums_store(Entry *entry, RowSums *sums, LLVMValueRef block, LLVMValueRef column,
                          int64_t e, LLVMValueRef valid) {
  LLVMBasicBlockRef after = entry_begin_if(entry, valid);
  for (int i = 0; i < sums->count; i++)
    LLVMBuildStore(entry->b, sums->total[i * sums->share + e],
                   row_part_place(entry, sums, i, block, column));
  entry_end_if(entry, after);
}

/* Each lane its parts, in their order; then lanes with lanes. */
static LLVMValueRef add_parts(Entry *entry, const RowSums *sums, int i, LLVMValueRef lane,
                              LLVMValueRef column) {
  Emitter *emitter = &entry->emitter;
  LLVMValueRef total = NULL, zero = emit_constant(emitter, DT_F32, 0);
  for (int64_t first = 0; first < sums->parts; first += COMBINE_LANES) {
    LLVMValueRef part = entry_add(entry, lane, entry_const(entry, first)), is_there = NULL;
    if (first + COMBINE_LANES > sums->parts) {
      is_there = entry_less(entry, part, entry_const(entry, sums->parts));
      part = entry_min(entry, part, entry_const(entry, sums->parts - 1));
    }
    LLVMValueRef value = LLVMBuildLoad2(entry->b, entry->job->module->f32,
                                        row_part_place(entry, sums, i, part, column), "");
    if (is_there) value = LLVMBuildSelect(entry->b, is_there, value, zero, "");
    total = total ? emit_reduce_step(emitter, OP_SUM, DT_F32, total, value) : value;
  }
  for (int mask = 1; mask < COMBINE_LANES; mask *= 2)
    total = emit_reduce_step(emitter, OP_SUM, DT_F32, total, entry_shuffle(entry, total, mask));
  return total;
}

void nvptx_row_sums_combine(Job *job, const RowSums *sums) {
  if (!sums->count) return;
  Entry entry;
  char name[256];
  const Graph *body = job->node->body;
  snprintf(name, sizeof name, "%s_columns", job->name);
  entry_leave_out(job, SECOND_MAKES_COLUMN_SUMS, true);
  entry_open(&entry, job, name, COMBINE_THREADS, true);
  LLVMValueRef thread = entry_special(&entry, "tid.x"), block = entry_special(&entry, "ctaid.x");
  LLVMValueRef lane = entry_rem(&entry, thread, COMBINE_LANES);
  int64_t across = COMBINE_THREADS / COMBINE_LANES;
  LLVMValueRef own =
      entry_add(&entry, entry_mul(&entry, block, across), entry_div(&entry, thread, COMBINE_LANES));
  LLVMValueRef is_there = entry_less(&entry, own, entry_const(&entry, sums->columns));
  LLVMValueRef column = entry_min(&entry, own, entry_const(&entry, sums->columns - 1));
  LLVMValueRef total[MOST_ROW_SUMS];
  for (int i = 0; i < sums->count; i++) total[i] = add_parts(&entry, sums, i, lane, column);
  LLVMBasicBlockRef after =
      entry_begin_if(&entry, entry_and(&entry, is_there, entry_is_zero(&entry, lane)));
  for (int r = 0; r < job->result_count; r++)
    for (int i = 0; i < sums->count; i++)
      if (body->roots.at[r].node == sums->node[i])
        emit_store_at(&entry.emitter, entry.emitter.pointer[job->operand_count + r], DT_F32, column,
                      total[i]);
  entry_end_if(&entry, after);
  entry_close(&entry, name, (sums->columns + across - 1) / across, 1, 1);
}
