/* host_attention: the numbers that kernels/attention_x86.c needs of one attention, as a constant of
 * the artifact, and an entry point that hands them over. */
#include "codegen/host_attention.h"
#include "codegen/host_gemm.h"
#include "kernels/attention_host.h"
#include "passes/attention.h"
#include <stddef.h>
#include <string.h>

_Static_assert((int)ATTENTION_MOST == (int)ATTENTION_MOST_FEATURES, "the pass knows the kernel");

static AttentionPlace host_operand_place(HeadPlace p) {
  return (AttentionPlace){p.argument, p.start, p.batch, p.head, p.row};
}

/* args: the operands, then the results. */
static void host_attention_find_places(const Node *node, AttentionProblem *p) {
  HeadPlace place[TENSORS];
  attention_places(node, place);
  p->q = host_operand_place(place[TENSOR_QUERY]);
  p->k = host_operand_place(place[TENSOR_KEY]);
  p->v = host_operand_place(place[TENSOR_VALUE]);
  p->out = host_operand_place(place[TENSOR_OUT]);
  p->arg_lse = node->op == OP_ATTENTION_GRAD ? 5 : node->input_count + 1;
  if (node->op == OP_ATTENTION) return;
  p->dy = host_operand_place(place[TENSOR_SLOPE]);
  p->dq = host_operand_place(place[TENSOR_QUERY_GRAD]);
  p->dk = host_operand_place(place[TENSOR_KEY_GRAD]);
  p->dv = host_operand_place(place[TENSOR_VALUE_GRAD]);
}

/* Dropout; args has seed, step, the numbers of heads' first elements and the stream from p->arg_draws on. */
static void host_attention_drops(const Node *node, const AttentionForm *f, AttentionProblem *p) {
  double share = node_float(node, ATTR_DROPOUT, 0);
  p->gain = 1;
  if (f->draws < 0) return;
  p->arg_draws = f->draws;
  p->drop_below = attention_least_kept(node);
  p->gain = 1 / (1 - share);
}

static AttentionProblem problem_of(const Module *module, const Node *node) {
  AttentionForm f = attention_form(node);
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  const Type *q = &node->input[is_grad]->type;
  AttentionProblem p = {.batch = f.batch,
                        .heads = f.heads,
                        .groups = f.groups,
                        .rows = f.rows,
                        .keys = f.keys,
                        .features = f.features,
                        .type = host_operand_type(q->dtype),
                        .may_use = host_bf16_ways(module),
                        .is_causal = node_int(node, ATTR_CAUSAL, 0),
                        .arg_mask = f.mask,
                        .scale = node_float(node, ATTR_SCALE, 1),
                        .cap = node_float(node, ATTR_SOFTCAP, 0)};
  host_attention_find_places(node, &p);
  p.shares = attention_grad_shares(&p);
  p.arg_partial = node->input_count + node_result_count(node); /* the workspace */
  host_attention_drops(node, &f, &p);
  if (f.mask < 0) return p;
  const Type *mask = &node->input[f.mask]->type;
  p.mask = mask->dtype == DT_BOOL ? ATTENTION_BOOL_MASK : ATTENTION_ADDED_MASK;
  p.mask_row = f.mask_row;
  p.mask_head = f.mask_head;
  p.mask_batch = f.mask_batch;
  return p;
}

static LLVMValueRef define_problem(HostKernel *kernel, const AttentionProblem *p) {
  Module *module = kernel->module;
  enum { REALS = 3, NUMBERS = sizeof(AttentionProblem) / sizeof(int64_t) - REALS };
  _Static_assert(offsetof(AttentionProblem, scale) == NUMBERS * sizeof(int64_t),
                 "the scale, the cap and the gain are last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  LLVMValueRef field[NUMBERS + REALS];
  for (int i = 0; i < NUMBERS; i++)
    field[i] = LLVMConstInt(module->i64, (uint64_t)numbers[i], true);
  field[NUMBERS] = LLVMConstReal(module->f64, p->scale);
  field[NUMBERS + 1] = LLVMConstReal(module->f64, p->cap);
  field[NUMBERS + 2] = LLVMConstReal(module->f64, p->gain);
  return module_constant(module, arena_printf(kernel->scratch, "%s.problem", kernel->name), field,
                         NUMBERS + REALS);
}

/* A launch of `items`, all of which take `nanoseconds`. */
static void add_launch(HostKernel *kernel, Kernel *out, const char *name, int64_t items,
                       double nanoseconds) {
  const double worth = 8000; /* nanoseconds: several times the cost of waking a thread */
  double item = nanoseconds / (double)items;
  int64_t grain = item >= worth ? 1 : (int64_t)(worth / (item + 1)) + 1;
  host_add_launch(kernel, out, name, items, grain);
}

void host_emit_attention(HostKernel *kernel, Kernel *out) {
  AttentionProblem p = problem_of(kernel->module, kernel->node);
  bool is_grad = kernel->node->op == OP_ATTENTION_GRAD;
  LLVMValueRef problem = define_problem(kernel, &p);
  host_call_library(kernel, kernel->name, is_grad ? "attention_grad_run" : "attention_run",
                    problem);
  double rows = (double)p.batch * (double)p.heads * (double)p.rows;
  double one = rows * (double)p.keys * (double)p.features / 20;
  add_launch(kernel, out, kernel->name, is_grad ? attention_grad_items(&p) : attention_items(&p),
             one * (is_grad ? 10 : 4));
  int64_t partials = is_grad ? attention_partials(&p) : 0;
  if (!partials) return;
  int64_t one_bytes = p.batch * p.heads * p.rows * attention_partial_width(&p) * 4;
  out->workspace = partials * one_bytes;
  const char *name = arena_printf(kernel->scratch, "%s_add", kernel->name);
  host_call_library(kernel, name, "attention_grad_add_run", problem);
  add_launch(kernel, out, name, attention_items(&p), (double)out->workspace / 10);
}
