/* nvptx: what all GPU skeletons use (indices, widths of accesses, stages of reductions), and the
 * function that chooses one of them for a node. */
#include "codegen/chain.h"
#include "codegen/nvptx_private.h"
#include "passes/fuse.h"
#include <string.h>

bool nvptx_may_map(const Job *job, int operand) {
  const Node *node = job->node->input[operand];
  while (!node_str(node, ATTR_PLACE) && node->input_count) node = node->input[0];
  const char *arena = node_str(node, ATTR_PLACE);
  return !arena || strcmp(arena, standard_place_text(PLACE_INPUT)) != 0;
}

int64_t domain_elements(const Domain *domain, int reduced) {
  int64_t count = 1;
  for (int i = 0; i < domain->count; i++)
    if (reduced < 0 || domain->is_reduced[i] == (reduced != 0)) count *= domain->extent[i];
  return count;
}

void entry_push_place(Entry *entry, const Domain *domain, int digit, Index *index) {
  if (domain->tile[digit])
    index_push(index, domain->tile[digit], entry_const(entry, domain->in_tile[digit]), false);
}

/* The digits of one kind, least significant first, by division; pushed in the order of the domain.
 */
void entry_push_digits(Entry *entry, const Domain *domain, bool is_reduced, LLVMValueRef value,
                       int width, int lane, Index *index) {
  int first = -1, last = -1;
  LLVMValueRef digit[MAX_RANK];
  for (int i = domain->count - 1; i >= 0; i--) {
    if (domain->is_reduced[i] != is_reduced) continue;
    if (last < 0) last = i;
    first = i;
  }
  LLVMValueRef rest = value;
  for (int i = last; i >= 0 && i >= first; i--) {
    if (domain->is_reduced[i] != is_reduced) continue;
    int64_t extent = i == last ? domain->extent[i] / width : domain->extent[i];
    digit[i] = i == first ? rest : entry_rem(entry, rest, extent);
    if (i != first) rest = entry_div(entry, rest, extent);
  }
  for (int i = first; i >= 0 && i <= last; i++) {
    if (domain->is_reduced[i] != is_reduced) continue;
    index_push(index, i == last ? domain->extent[i] / width : domain->extent[i], digit[i], true);
    if (i == last) index_push(index, width, entry_const(entry, lane), true);
    entry_push_place(entry, domain, i, index);
  }
}

/* Do the dimensions that the broadcast makes lead, with `rows` elements in all? */
static bool is_along_rows(const Node *node, int64_t rows) {
  const Shape *out = &node->type.shape, *in = &node->input[0]->type.shape;
  int64_t leading = 1;
  for (int d = 0; d < out->rank && leading < rows; d++) {
    if (in->dim[d] != 1) return false;
    leading *= out->dim[d];
  }
  return leading == rows && shape_elements(in) > 1;
}

int nvptx_shared(Job *job, int64_t rows, Entry *entry, const Index *index) {
  const Graph *body = job->node->body;
  Shape domain = kernel_domain(job->node);
  int64_t elements = shape_elements(&domain);
  bool *is_reduced = ARENA_ARRAY(job->scratch, bool, body->nodes.count); /* made of reductions */
  bool *is_read = ARENA_ARRAY(job->scratch, bool, body->nodes.count);    /* made of operands */
  int count = 0;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    is_reduced[i] = op_info[node->op].op_class == CLASS_REDUCE;
    is_read[i] = node->op == OP_ARG;
    for (int k = 0; k < node->input_count; k++) {
      is_reduced[i] |= is_reduced[node->input[k]->id];
      is_read[i] |= is_read[node->input[k]->id];
    }
    if (node->op != OP_BROADCAST || is_reduced[i] || !is_read[i] ||
        shape_elements(&node->type.shape) != elements || !is_along_rows(node, rows))
      continue;
    count++;
    if (entry) emit_value(&entry->emitter, node, index);
  }
  return count;
}

static bool keeps_neighbours(const Node *node) {
  int last = node->type.shape.rank - 1;
  switch (node->op) {
  case OP_RESHAPE:
  case OP_BROADCAST:
  case OP_CONCAT:
  case OP_SLICE:
  case OP_GATHER:
    return true;
  case OP_TRANSPOSE:
    return last >= 0 && node_attr(node, ATTR_PERM)->ints[last] == last &&
           node->type.shape.dim[last] > 1;
  default:
    return false;
  }
}

static int wider(int bytes, const Type *type) {
  bool is_more = shape_elements(&type->shape) > 1 && dtype_bytes(type->dtype) > bytes;
  return is_more ? dtype_bytes(type->dtype) : bytes;
}

int nvptx_width_among(const Job *job, int64_t extent, const bool *among, bool has_results) {
  const Graph *body = job->node->body;
  int widest = 1;
  for (int i = 0; !body && i < job->operand_count; i++)
    widest = wider(widest, &job->node->input[i]->type);
  for (int i = 0; has_results && i < job->result_count; i++)
    if (!among || job->is_whole[i]) widest = wider(widest, &job->result_type[i]);
  for (int i = 0; body && i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    OpClass op_class = op_info[node->op].op_class;
    if (among && !among[i]) continue;
    if (node->op == OP_ARG) widest = wider(widest, &node->type);
    /* neighbours of the domain must be read side by side; else lanes should be neighbours */
    if (op_class == CLASS_WINDOW && !emit_window_is_flat(node)) return 1;
    if (op_class == CLASS_MOVE && !keeps_neighbours(node)) return 1;
  }
  int width = 16 / widest > 8 ? 8 : 16 / widest;
  while (width > 1 && extent % width) width /= 2;
  return width;
}

int nvptx_width(const Job *job, int64_t extent) {
  return nvptx_width_among(job, extent, NULL, true);
}

void entry_store_result(Entry *entry, int result, const Index *index) {
  Emitter *emitter = &entry->emitter;
  const Node *node = entry->job->node->body->roots.at[result].node;
  LLVMValueRef value = emit_value(emitter, node, index);
  int which = entry->job->operand_count + result;
  emit_store_at(emitter, emitter->pointer[which], node->type.dtype,
                emit_place(emitter, which, &node->type.shape, index), value);
}

void entry_store_group(Entry *entry, int result, const Index *index, int count) {
  Emitter *emitter = &entry->emitter;
  const Node *node = entry->job->node->body->roots.at[result].node;
  LLVMValueRef value[8];
  bool is_group = count > 1 && emit_lane_of(emitter, &index[0]) == 0 &&
                  index->digit[index->count - 1].extent == count;
  if (!is_group) {
    for (int e = 0; e < count; e++) entry_store_result(entry, result, &index[e]);
    return;
  }
  for (int e = 0; e < count; e++) value[e] = emit_value(emitter, node, &index[e]);
  int which = entry->job->operand_count + result;
  emit_store_group(emitter, emitter->pointer[which], node->type.dtype,
                   emit_place(emitter, which, &node->type.shape, index), count, value);
}

/* ── the door ───────────────────────────────────────────────────────────────────────────────── */

static bool emit_kind(Job *job) {
  const Node *node = job->node;
  if (node->op == OP_SCATTER_ADD) return nvptx_scatter(job);
  if (node->op == OP_PUT) return nvptx_put(job);
  if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) return nvptx_attention(job);
  const Node *contraction = kernel_contraction(node);
  if (contraction) return nvptx_contract(job, contraction);
  switch (kernel_kind(node)) {
  case KERNEL_ROW:
    return nvptx_row(job);
  case KERNEL_COLUMN:
    return nvptx_column(job);
  default:
    return nvptx_loop(job);
  }
}

/* job->pitch, by pointer. */
static void find_pitches(Job *job) {
  int64_t *pitch = ARENA_ARRAY(job->scratch, int64_t, job->operand_count + job->result_count + 1);
  for (int i = 0; i < job->operand_count; i++) pitch[i] = job->node->input[i]->type.pitch;
  for (int i = 0; i < job->result_count; i++)
    pitch[job->operand_count + i] = job->result_type[i].pitch;
  job->pitch = pitch;
}

int64_t nvptx_row_pitch(const Job *job, int64_t length) {
  const Shape domain = job->node->body ? kernel_domain(job->node) : job->result_type[0].shape;
  int64_t elements = shape_elements(&domain), pitch = -1;
  for (int i = 0; i < job->operand_count + job->result_count; i++) {
    int r = i - job->operand_count;
    const Type *type = r < 0 ? &job->node->input[i]->type : &job->result_type[r];
    if (shape_elements(&type->shape) != elements) continue;
    int64_t own = type->pitch ? type->pitch : length;
    if (type->pitch && shape_last(&type->shape) != length) return 0;
    if (pitch >= 0 && own != pitch) return 0;
    pitch = own;
  }
  return pitch < 0 ? length : pitch;
}

bool nvptx_emit(Module *module, const Node *node, const char *name, const Type *result,
                const int *alias, int64_t rows, Kernel *out) {
  *out = (Kernel){0};
  Job job = {.module = module,
             .node = node,
             .name = name,
             .alias = alias,
             .out = out,
             .scratch = arena_new(),
             .operand_count = node->input_count,
             .rows = rows,
             .block_rows = rows ? chain_block_rows(rows) : 0};
  job.result_count = node_result_count(node);
  Type *types = ARENA_ARRAY(job.scratch, Type, job.result_count);
  bool *is_whole = ARENA_ARRAY(job.scratch, bool, job.result_count);
  bool *is_beside = ARENA_ARRAY(job.scratch, bool, job.result_count);
  int64_t elements = 0;
  for (int i = 0; i < job.result_count; i++) {
    types[i] = node_result_type(node, i);
    types[i].pitch = result ? result[i].pitch : 0;
    is_whole[i] = !node->body || kernel_is_whole(node, node->body->roots.at[i].node);
    is_beside[i] = node->body && kernel_is_beside(node, node->body->roots.at[i].node);
    elements += shape_elements(&types[i].shape);
  }
  job.result_type = types;
  job.is_whole = is_whole;
  job.is_beside = is_beside;
  find_pitches(&job);
  bool ok = elements == 0 || emit_kind(&job); /* nothing to compute: no launch */
  arena_free(job.scratch);
  return ok;
}
