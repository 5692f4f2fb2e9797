/* lower_kernel: one node that computes: its operands' and results' buffers, its kernel (emitted now
 * or shared with an equal node before), and the launches. */
#include "codegen/chain.h"
#include "codegen/cost.h"
#include "codegen/host.h"
#include "codegen/join.h"
#include "codegen/library.h"
#include "codegen/lower_private.h"
#include "codegen/nvptx.h"
#include "codegen/ptx_text.h"
#include "passes/fuse.h"
#include "passes/integers.h"
#include "passes/prepare.h"
#include <string.h>

int lower_results(Lowering *lowering, const Node *node, const Node ***out) {
  int count = node_result_count(node);
  *out = ARENA_ARRAY(lowering->arena, const Node *, count);
  if (!node_has_results(node)) {
    **out = node;
    return 1;
  }
  for (int i = node->id + 1; i < lowering->graph->nodes.count; i++) {
    const Node *user = lowering->graph->nodes.at[i];
    if (user->op == OP_RESULT && user->input[0] == node)
      (*out)[node_int(user, ATTR_INDEX, 0)] = user;
  }
  return count;
}

typedef struct {
  Address *place;
  Type *type;
  int *buffer, *alias;
  int input_count, result_count, count; /* count: operands and results */
  int64_t workspace;                    /* its first byte behind results which no node reads */
} Arguments;

static bool is_same(Address a, Address b) { return a.place == b.place && a.offset == b.offset; }

static bool overlap(const Arguments *arguments, int a, int b) {
  Address x = arguments->place[a], y = arguments->place[b];
  return x.place == y.place && x.offset < y.offset + type_bytes(&arguments->type[b]) &&
         y.offset < x.offset + type_bytes(&arguments->type[a]);
}

/* For each result the operand at its very place; -2 if it meets operands in any other way. */
static void find_aliases(Arguments *arguments) {
  for (int r = 0; r < arguments->result_count; r++) {
    int at = arguments->input_count + r, *alias = &arguments->alias[r];
    *alias = -1;
    for (int k = 0; k < arguments->input_count; k++) {
      if (!overlap(arguments, at, k)) continue;
      bool is_exact = is_same(arguments->place[at], arguments->place[k]) &&
                      arguments->type[at].pitch == arguments->type[k].pitch &&
                      type_bytes(&arguments->type[at]) == type_bytes(&arguments->type[k]);
      *alias = *alias == -1 && is_exact ? k : -2;
    }
  }
}

static bool find_arguments(Lowering *lowering, const Node *node, Arguments *out) {
  const Node **results;
  out->workspace = lowering->workspace;
  out->input_count = node->input_count;
  out->result_count = lower_results(lowering, node, &results);
  out->count = out->input_count + out->result_count;
  out->place = ARENA_ARRAY(lowering->arena, Address, out->count);
  out->type = ARENA_ARRAY(lowering->arena, Type, out->count);
  out->buffer = ARENA_ARRAY(lowering->arena, int, out->count);
  out->alias = ARENA_ARRAY(lowering->arena, int, out->result_count);
  for (int i = 0; i < out->count; i++) {
    int r = i - out->input_count;
    const Node *value = r < 0 ? node->input[i] : results[r];
    if (value) {
      out->place[i] = lower_address(lowering, value);
      out->type[i] = value->type;
    } else { /* no node reads it: it is gone with the kernel */
      out->type[i] = node_result_type(node, r);
      out->place[i] = (Address){PLACE_WORKSPACE, out->workspace};
      out->workspace += plan_aligned(type_bytes(&out->type[i]));
    }
    out->buffer[i] = lower_buffer(lowering, out->place[i], &out->type[i]);
  }
  find_aliases(out);
  return true;
}

/* ── equal kernels ──────────────────────────────────────────────────────────────────────────── */
static bool standalone_equal(const Node *a, const Node *b) {
  if (a->op != b->op || !type_equal(&a->type, &b->type) || a->input_count != b->input_count)
    return false;
  for (int i = 0; i < a->input_count; i++)
    if (!type_lies_alike(&a->input[i]->type, &b->input[i]->type)) return false;
  static const AttrId ids[] = {ATTR_STRIDE, ATTR_PADDING, ATTR_DILATION,
                               ATTR_HEADS,  ATTR_START,   ATTR_INTEGERS, ATTR_ROUNDED};
  for (size_t k = 0; k < sizeof ids / sizeof *ids; k++) {
    const Attr *x = node_attr(a, ids[k]), *y = node_attr(b, ids[k]);
    if (!x != !y || (x && (x->count != y->count ||
                           memcmp(x->ints, y->ints, sizeof *x->ints * (size_t)x->count))))
      return false;
  }
  const char *x = node_str(a, ATTR_LAYOUT), *y = node_str(b, ATTR_LAYOUT);
  return node_int(a, ATTR_TRANS_A, 0) == node_int(b, ATTR_TRANS_A, 0) &&
         node_int(a, ATTR_TRANS_B, 0) == node_int(b, ATTR_TRANS_B, 0) &&
         node_int(a, ATTR_CAUSAL, 0) == node_int(b, ATTR_CAUSAL, 0) &&
         node_int(a, ATTR_JOINED, 0) == node_int(b, ATTR_JOINED, 0) &&
         node_int(a, ATTR_SPARSE, 0) == node_int(b, ATTR_SPARSE, 0) &&
         node_float(a, ATTR_SCALE, 1) == node_float(b, ATTR_SCALE, 1) &&
         node_float(a, ATTR_SOFTCAP, 0) == node_float(b, ATTR_SOFTCAP, 0) &&
         node_float(a, ATTR_DROPOUT, 0) == node_float(b, ATTR_DROPOUT, 0) &&
         !node_attr(a, ATTR_KIND) == !node_attr(b, ATTR_KIND) &&
         node_int(a, ATTR_TF32, 0) == node_int(b, ATTR_TF32, 0) &&
         node_int(a, ATTR_GROUPS, 1) == node_int(b, ATTR_GROUPS, 1) &&
         node_int(a, ATTR_AXIS, 0) == node_int(b, ATTR_AXIS, 0) && !x == !y &&
         (!x || !strcmp(x, y));
}

static bool has_pitches_of(const LoweredKernel *have, const Arguments *arguments) {
  for (int i = 0; i < arguments->result_count; i++)
    if (have->result[i].pitch != arguments->type[arguments->input_count + i].pitch) return false;
  return true;
}

static bool has_pitch(const Arguments *arguments) {
  bool has = false;
  for (int i = 0; i < arguments->count; i++) has |= arguments->type[i].pitch != 0;
  return has;
}

/* Tensors with maps have a fixed address: none of the batch has. */
static bool maps_fit(const Kernel *kernel, const Arguments *arguments) {
  for (int i = 0; i < kernel->launch_count; i++)
    for (int k = 0; k < kernel->launch[i].map_count; k++) {
      int arg = kernel->launch[i].maps[k].arg;
      if (arg < arguments->count && arguments->place[arg].place == PLACE_INPUT) return false;
    }
  return true;
}

/* The rows that the node's kernel goes by. */
static int64_t lowered_rows(const Lowering *lowering, const Node *node) {
  return lowering->rows && lowering->out != lowering->prepare ? lowering->rows[node->id] : 0;
}

static Kernel *find_kernel(Lowering *lowering, const Node *node, uint64_t hash,
                           const Arguments *arguments) {
  for (int i = 0; i < lowering->kernels.count; i++) {
    LoweredKernel *have = &lowering->kernels.at[i];
    if (have->hash != hash || have->node->op != node->op || have->rows != lowered_rows(lowering, node)) continue;
    if (have->alias_count != arguments->result_count ||
        memcmp(have->alias, arguments->alias, sizeof(int) * (size_t)have->alias_count))
      continue;
    bool equal =
        node->op == OP_FUSED ? kernel_equal(have->node, node) : standalone_equal(have->node, node);
    if (equal && has_pitches_of(have, arguments) && maps_fit(&have->kernel, arguments)) return &have->kernel;
  }
  return NULL;
}

/* ── names ──────────────────────────────────────────────────────────────────────────────────── */
/* "dot_add_max": the ops of a kernel, each once. */
static const char *lower_kernel_describe(Lowering *lowering, const Node *node) {
  Text text = {0};
  bool said[OP_COUNT] = {false};
  int count = 0;
  if (node->op != OP_FUSED) return op_info[node->op].text;
  for (int i = 0; i < node->body->nodes.count && count < 6; i++) {
    const Node *inner = node->body->nodes.at[i];
    if (said[inner->op] || !lower_is_told(inner)) continue;
    said[inner->op] = true;
    text_printf(&text, "%s%s", count++ ? "_" : "", op_info[inner->op].text);
  }
  const char *result = arena_strdup(lowering->plan->arena, count ? text_cstr(&text) : "copy");
  text_free(&text);
  return result;
}

static const char *name_kernel(Lowering *lowering, const Node *node) {
  const char *kind = node->op == OP_FUSED ? node_str(node, ATTR_KIND) : "one";
  const char *stage =
      lowering->plan->stage ? arena_printf(lowering->arena, "s%d_", lowering->plan->stage) : "";
  return arena_printf(lowering->plan->arena, "%sk%d_%s_%s", stage, lowering->kernels.count, kind,
                      lower_kernel_describe(lowering, node));
}

/* ── launches ───────────────────────────────────────────────────────────────────────────────── */
/* Memory of a node's kernels for themselves: a workspace, where those of the other kernels lie too, and behind it packed
 * operands, the second one in memory of its own where it is packed once. */
typedef struct {
  int buffer[3]; /* the workspace, and packed operands; -1: none */
  Address at;    /* of the second of these, */
  Type type;     /* which the plan takes for this */
  bool is_prepared;
} Scratch;

static Type scratch_type(int64_t bytes) {
  int64_t elements = (bytes + 3) / 4; /* f32, so that a library call may write it */
  return (Type){DT_F32, shape_of(1, &elements)};
}

static Scratch find_scratch(Lowering *lowering, const Node *node, const Kernel *kernel,
                            const Arguments *arguments) {
  Scratch out = {.type = scratch_type(kernel->packed[1])};
  int64_t bytes[3] = {kernel->workspace, kernel->packed[0], kernel->packed[1]};
  Address at = {PLACE_WORKSPACE, arguments->workspace};
  bool for_gpu = lowering->module->target == TARGET_PTX;
  int packed = integers_packed_operand(node, for_gpu);
  out.is_prepared = packed >= 0 && lowering->prepare && !prepare_reads(node, packed, for_gpu);
  for (int i = 0; i < 3; i++) {
    Type type = scratch_type(bytes[i]);
    out.buffer[i] = -1;
    if (!bytes[i]) continue;
    if (i == 2 && out.is_prepared)
      at = (Address){PLACE_PREPARED, lower_extend(lowering, PLACE_PREPARED, bytes[i])};
    out.buffer[i] = lower_buffer(lowering, at, &type);
    out.at = at;
    at.offset += plan_aligned(bytes[i]);
  }
  return out;
}

static PlanStep make_step(Lowering *lowering, const Node *node, const KernelLaunch *launch,
                          const Arguments *arguments, const Scratch *scratch, bool is_first) {
  Arena *arena = lowering->plan->arena;
  int all = arguments->count + (scratch->buffer[0] >= 0);
  int count = launch->args ? launch->arg_count : all;
  int *args = ARENA_ARRAY(arena, int, count);
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) {
    int which = launch->args ? launch->args[i] : i;
    args[i] = which < arguments->count ? arguments->buffer[which]
                                       : scratch->buffer[which - arguments->count];
    bool is_new = true; /* q, k and v may be parts of one tensor */
    for (int k = 0; k < i && which < arguments->input_count; k++) is_new &= args[k] != args[i];
    is_new &= node->op != OP_PUT || which == 1;
    if (is_new) bytes += type_bytes(&lowering->out->buffers.at[args[i]].type);
  }
  PlanStep step = {.kind = launch->is_call ? STEP_CALL : STEP_LAUNCH,
                   .name = launch->name,
                   .args = args,
                   .arg_count = count,
                   .input_count = launch->args ? launch->input_count : arguments->input_count,
                   .work = launch->work,
                   .grain = launch->grain,
                   .shared = launch->shared,
                   .stays = launch->stays,
                   .cluster = launch->cluster,
                   .is_early = !launch->is_call && !launch->is_ordinary &&
                               ptx_launches_early(lowering->module),
                   .maps = launch->maps,
                   .map_count = launch->map_count,
                   .ints = launch->ints,
                   .int_count = launch->int_count,
                   .flops = is_first ? cost_flops(node) : 0,
                   .bytes = node->op == OP_PUT ? 2 * bytes : bytes};
  lower_label(lowering, node, &step);
  memcpy(step.grid, launch->grid, sizeof step.grid);
  memcpy(step.block, launch->block, sizeof step.block);
  return step;
}

/* The launch that packs an operand once: a step of the graph that prepares weights. */
static void add_packing(Lowering *lowering, const Node *node, const KernelLaunch *launch,
                        const Arguments *arguments, const Scratch *scratch) {
  PlanGraph *own = lowering->out;
  Arguments there = *arguments;
  int operand = launch->args[0];
  lowering->out = lowering->prepare;
  there.buffer = ARENA_ARRAY(lowering->arena, int, arguments->count);
  there.buffer[operand] =
      lower_buffer(lowering, arguments->place[operand], &arguments->type[operand]);
  Scratch own_scratch = *scratch;
  own_scratch.buffer[2] = lower_buffer(lowering, scratch->at, &scratch->type);
  PlanStep step = make_step(lowering, node, launch, &there, &own_scratch, false);
  VEC_PUSH(lowering->plan->arena, lowering->out->steps, step);
  lowering->out = own;
}

static void add_steps(Lowering *lowering, const Node *node, const Kernel *kernel,
                      const Arguments *arguments) {
  Arena *arena = lowering->plan->arena;
  PlanInstead instead = {.first = lowering->out->steps.count, .call_count = 1};
  Scratch scratch = find_scratch(lowering, node, kernel, arguments);
  bool is_first = true;
  for (int i = 0; i < kernel->launch_count; i++) {
    const KernelLaunch *launch = &kernel->launch[i];
    if (launch->packs && scratch.is_prepared) {
      add_packing(lowering, node, launch, arguments, &scratch);
      continue;
    }
    bool is_itself = !launch->packs && !launch->is_before;
    PlanStep step = make_step(lowering, node, launch, arguments, &scratch, is_first && is_itself);
    is_first &= !is_itself;
    VEC_PUSH(arena, lowering->out->steps, step);
  }
  if (!kernel->library.name || lowering->out == lowering->prepare) return;
  instead.end = lowering->out->steps.count;
  instead.call[0] = make_step(lowering, node, &kernel->library, arguments, &scratch, true);
  VEC_PUSH(arena, lowering->out->insteads, instead);
}

/* Small workspaces lie one behind the other, so that launches which are joined (codegen/join.h) do not write over
 * each other's. */
static void next_workspace(Lowering *lowering, const Kernel *kernel, const Arguments *arguments) {
  enum { SMALL = 512 << 10 };
  int64_t packed = plan_aligned(kernel->packed[0]) + plan_aligned(kernel->packed[1]);
  int64_t end = plan_aligned(arguments->workspace + kernel->workspace) + packed;
  lowering->workspace = join_is_wanted(lowering->module) && end < SMALL ? end : 0;
}

static bool writes_nothing(const Arguments *arguments) {
  for (int i = arguments->input_count; i < arguments->count; i++)
    if (type_bytes(&arguments->type[i])) return false;
  return true;
}

/* What LLVM has to do for a kernel, in halves of a millisecond or so: measured for GPUs, where a
 * product or attention is unrolled to thousands of instructions; on the CPU it comes from a
 * library. */
static int64_t load_of(const Node *node, bool is_ptx) {
  int64_t product = is_ptx ? 100 : 1, load = 10;
  if (node->op == OP_ATTENTION_GRAD) return load + 5 * product; /* two kernels, six products */
  if (node->op == OP_ATTENTION) return load + 3 * product;
  if (node->op == OP_SCATTER_ADD) return load + product;
  if (op_info[node->op].op_class == CLASS_CONTRACT) return load + product;
  for (int i = 0; node->op == OP_FUSED && i < node->body->nodes.count; i++) {
    OpClass inner = op_info[node->body->nodes.at[i]->op].op_class;
    load += inner == CLASS_REDUCE ? 20 : inner == CLASS_CONTRACT ? product : 1;
  }
  return load;
}

/* What the emitters have room for: fuse keeps to it. */
static bool is_within_limits(Lowering *lowering, const Node *node) {
  int accumulators = 0;
  for (int i = 0; node->op == OP_FUSED && i < node->body->nodes.count; i++)
    if (op_info[node->body->nodes.at[i]->op].op_class == CLASS_REDUCE)
      accumulators += kernel_accumulators(node->body->nodes.at[i]);
  if (accumulators <= KERNEL_MOST_ACCUMULATORS) return true;
  diag_error(lowering->module->diag, node->origin.loc,
             "internal error: fuse made a kernel of %d sums", accumulators);
  return false;
}

/* The module that has least to do so far. */
static Module *choose_module(Lowering *lowering, const Node *node) {
  int best = 0;
  for (int i = 1; i < lowering->module_count; i++)
    if (lowering->modules[i]->load < lowering->modules[best]->load) best = i;
  lowering->modules[best]->load += load_of(node, lowering->module->target == TARGET_PTX);
  return lowering->modules[best];
}

/* Emits the kernel of a node for which there is none yet. NULL, with an error, if it cannot. */
static Kernel *make_kernel(Lowering *lowering, const Node *node, uint64_t hash, const Arguments *arguments) {
  if (!is_within_limits(lowering, node)) return NULL;
  LoweredKernel fresh = {.hash = hash,
                         .node = node,
                         .alias = arguments->alias,
                         .result = arguments->type + arguments->input_count,
                         .alias_count = arguments->result_count,
                         .rows = lowered_rows(lowering, node)};
  const char *name = name_kernel(lowering, node);
  Module *module = choose_module(lowering, node);
  bool good = module->target == TARGET_PTX
                  ? nvptx_emit(module, node, name, fresh.result, arguments->alias, fresh.rows, &fresh.kernel)
                  : host_emit(module, node, name, arguments->alias, &fresh.kernel);
  if (!good) return NULL;
  if (lowering->module->target == TARGET_PTX && !has_pitch(arguments))
    library_call(lowering->plan->arena, node, arguments->alias, &fresh.kernel.library);
  bool *by_rows = ARENA_ARRAY(lowering->arena, bool, arguments->count + 1);
  if (fresh.rows && chain_by_rows(lowering->arena, node, fresh.rows, by_rows))
    chain_note(lowering->module, &fresh.kernel, fresh.rows, by_rows, arguments->count);
  VEC_PUSH(lowering->arena, lowering->kernels, fresh);
  return &lowering->kernels.at[lowering->kernels.count - 1].kernel;
}

static bool lower_here(Lowering *lowering, const Node *node) {
  Arguments arguments = {0};
  if (!find_arguments(lowering, node, &arguments)) return false;
  if (writes_nothing(&arguments)) return true;
  uint64_t hash = node->op == OP_FUSED ? kernel_hash(node) : (uint64_t)node->op;
  Kernel *kernel = find_kernel(lowering, node, hash, &arguments);
  if (!kernel) kernel = make_kernel(lowering, node, hash, &arguments);
  if (!kernel) return false;
  if (node->op == OP_PUT) /* the kernel writes the new part only */
    lower_copy(lowering, arguments.place[0], arguments.place[3], &node->type, node);
  for (int i = 0; i < arguments.count && lowering->out != lowering->prepare; i++)
    lower_wait(lowering, arguments.place[i], type_bytes(&arguments.type[i]),
               i >= arguments.input_count);
  NodeSteps steps = {
      .node = node, .first = lowering->out->steps.count, .buffers = arguments.buffer};
  add_steps(lowering, node, kernel, &arguments);
  next_workspace(lowering, kernel, &arguments);
  steps.end = lowering->out->steps.count;
  lower_body(lowering, &steps, arguments.buffer, arguments.input_count, arguments.count);
  VEC_PUSH(lowering->arena, lowering->node_steps[lowering->out - lowering->plan->graphs.at], steps);
  return true;
}

bool lower_kernel(Lowering *lowering, const Node *node) {
  PlanGraph *own = lowering->out;
  if (prepare_has(node)) lowering->out = lowering->prepare;
  bool good = lower_here(lowering, node);
  lowering->out = own;
  return good;
}
