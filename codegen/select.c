/* select: see select.h. A call does a bias over the last dimension and a relu, too; any other
 * epilogue is a loop of ours over the call's output, in place. This is the one place where a GEMM
 * of our own (kernels/gemm_x86.c) with a generated epilogue is chosen instead. */
#include "codegen/select.h"
#include "codegen/host_gemm.h"
#include "ir/match.h"
#include "passes/integers.h"
#include <string.h>

enum { MAX_INTS = 20 };

typedef struct {
  HostKernel *kernel; /* NULL where only the call is wanted */
  const Graph *body;  /* of the kernel's node; NULL: the contraction is not fused */
  const Node *contraction;
  int argument[2];        /* the positions of its operands among the kernel's */
  const Node *covered;    /* the node of the body whose value the call produces */
  int bias;               /* position of the bias operand, or -1 */
  bool has_relu;
} Choice;

/* ── recognising what the call does too ─────────────────────────────────────────────────────── */
static int uses_of(const Graph *body, const Node *node) {
  int uses = 0;
  for (int i = 0; i < body->nodes.count; i++)
    for (int k = 0; k < body->nodes.at[i]->input_count; k++)
      uses += body->nodes.at[i]->input[k] == node;
  for (int i = 0; i < body->roots.count; i++) uses += body->roots.at[i].node == node;
  return uses;
}

static const Node *only_user(const Graph *body, const Node *node) {
  if (uses_of(body, node) != 1) return NULL;
  for (int i = 0; i < body->nodes.count; i++)
    for (int k = 0; k < body->nodes.at[i]->input_count; k++)
      if (body->nodes.at[i]->input[k] == node) return body->nodes.at[i];
  return NULL;
}

/* Is `node` an operand of one value for each channel, broadcast along all others? Its position. */
static int bias_operand(const Node *node, int channel) {
  const Shape *out = &node->type.shape;
  if (node->op == OP_BROADCAST) {
    const Shape *in = &node->input[0]->type.shape;
    for (int d = 0; d < out->rank; d++)
      if (in->dim[d] != (d == channel ? out->dim[d] : 1)) return -1;
    node = node->input[0];
  } else if (shape_elements(out) != out->dim[channel]) {
    return -1;
  }
  node = node_base(node);
  return node->op == OP_ARG ? (int)node_int(node, ATTR_INDEX, 0) : -1;
}

/* relu(x), where x has no other reader; else NULL. */
static const Node *relu_of(const Graph *body, const Node *x) {
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    if (match_relu(node) != x) continue;
    bool is_select = node->op == OP_SELECT; /* which reads x twice: its test, too */
    bool is_alone = uses_of(body, x) == 1 + is_select;
    return is_alone && (!is_select || uses_of(body, node->input[0]) == 1) ? node : NULL;
  }
  return NULL;
}

static void cover_epilogue(Choice *choice, int channel) {
  const Graph *body = choice->body;
  const Node *user = only_user(body, choice->covered);
  if (user && user->op == OP_ADD) {
    const Node *other = user->input[user->input[0] == choice->covered];
    choice->bias = bias_operand(other, channel);
    if (choice->bias < 0) return;
    choice->covered = user;
  }
  const Node *relu = relu_of(body, choice->covered);
  if (relu) choice->covered = relu;
  choice->has_relu = relu != NULL;
}

/* ── the calls ──────────────────────────────────────────────────────────────────────────────── */
static void add_int(KernelLaunch *launch, const char *key, int64_t value) {
  launch->ints[launch->int_count++] = (PlanInt){key, value};
}

static void gemm_ints(const Choice *choice, KernelLaunch *launch) {
  const DotForm f = dot_form(choice->contraction);
  add_int(launch, "batch", f.batch);
  add_int(launch, "m", f.m);
  add_int(launch, "n", f.n);
  add_int(launch, "k", f.k);
  add_int(launch, "ta", f.ta);
  add_int(launch, "tb", f.tb);
  add_int(launch, "bias", choice->bias >= 0);
  add_int(launch, "act", choice->has_relu);
}

static void conv_ints(const Choice *choice, KernelLaunch *launch) {
  const Node *node = choice->contraction;
  const ConvForm f = conv_form(node);
  static const char *const pad_key[4] = {"pt", "pl", "pb", "pr"};
  add_int(launch, "n", f.images);
  add_int(launch, "c", f.groups * f.in);
  add_int(launch, "h", f.in_height);
  add_int(launch, "w", f.in_width);
  add_int(launch, "o", f.groups * f.out);
  add_int(launch, "kh", f.kernel_height);
  add_int(launch, "kw", f.kernel_width);
  add_int(launch, "sh", f.stride[0]);
  add_int(launch, "sw", f.stride[1]);
  for (int i = 0; i < 4; i++) add_int(launch, pad_key[i], f.padding[i]);
  add_int(launch, "dh", f.dilation[0]);
  add_int(launch, "dw", f.dilation[1]);
  add_int(launch, "groups", f.groups);
  add_int(launch, "layout", f.is_nhwc);
  if (node->op != OP_CONV) return;
  add_int(launch, "bias", choice->bias >= 0);
  add_int(launch, "act", choice->has_relu);
}

/* `target`: the argument (result or workspace) that the call writes. */
static void add_call(const Choice *choice, Kernel *out, int target) {
  static const struct {
    Op op;
    const char *name;
  } names[] = {{OP_DOT, "gemm"},
               {OP_CONV, "conv"},
               {OP_CONV_GRAD_INPUT, "conv_grad_input"},
               {OP_CONV_GRAD_WEIGHT, "conv_grad_weight"}};
  Arena *arena = choice->kernel->module->arena;
  KernelLaunch *launch = &out->launch[out->launch_count++];
  *launch = (KernelLaunch){.is_call = true};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].op == choice->contraction->op) launch->name = names[i].name;
  launch->ints = ARENA_ARRAY(arena, PlanInt, MAX_INTS);
  if (choice->contraction->op == OP_DOT)
    gemm_ints(choice, launch);
  else
    conv_ints(choice, launch);
  launch->args = ARENA_ARRAY(arena, int, 4);
  launch->args[launch->arg_count++] = choice->argument[0];
  launch->args[launch->arg_count++] = choice->argument[1];
  if (choice->bias >= 0) launch->args[launch->arg_count++] = choice->bias;
  launch->input_count = launch->arg_count;
  launch->args[launch->arg_count++] = target;
}

/* ── the rest of the epilogue ───────────────────────────────────────────────────────────────── */
static LLVMValueRef load_product(Emitter *e, const Node *node, const Index *index, void *user) {
  return emit_load_at(e, user, node->type.dtype, index_linear(e, index));
}

static bool is_result(const Graph *body, const Node *node, int *which) {
  for (*which = 0; *which < body->roots.count; ++*which)
    if (body->roots.at[*which].node == node) return true;
  return false;
}

/* Is the call's value the kernel's only result, and does the call write it, as argument `place`,
 * where that result belongs? Where the result overwrites an operand that the call reads, it
 * cannot. */
static bool is_covered(const HostKernel *kernel, const Choice *choice, int place) {
  const Graph *body = kernel->body;
  return body->roots.count == 1 && body->roots.at[0].node == choice->covered &&
         place == kernel->node->input_count;
}

/* Does some result up to `last` need the product? Then it is loaded before `last` is stored. */
static bool is_read_by_then(Arena *scratch, const Graph *body, const Node *product, int last) {
  bool *needs = ARENA_ARRAY(scratch, bool, body->nodes.count);
  needs[product->id] = true;
  for (int i = product->id + 1; i < body->nodes.count; i++)
    for (int k = 0; k < body->nodes.at[i]->input_count; k++)
      needs[i] |= needs[body->nodes.at[i]->input[k]->id];
  for (int i = 0; i <= last; i++)
    if (needs[body->roots.at[i].node->id]) return true;
  return false;
}

/* Where the call may write: a result of its very type that is not overwritten before the product is
 * read, or else the workspace. A result in place of an operand will do only if that operand is not
 * read any more after the call. */
static int product_place(const HostKernel *kernel, const Choice *choice, Kernel *out) {
  const Graph *body = kernel->body;
  int which;
  if (is_result(body, choice->covered, &which) && kernel->alias[which] == -1)
    return kernel->node->input_count + which;
  for (int i = 0; i < body->roots.count; i++)
    if (kernel->alias[i] == -1 &&
        type_equal(&body->roots.at[i].node->type, &choice->covered->type) &&
        is_read_by_then(kernel->scratch, body, choice->covered, i))
      return kernel->node->input_count + i;
  out->workspace = type_bytes(&choice->covered->type);
  return kernel->node->input_count + body->roots.count;
}

static void emit_epilogue(HostKernel *kernel, const Choice *choice, int place, Kernel *out) {
  char *name = arena_printf(kernel->scratch, "%s_epilogue", kernel->name);
  bool in_workspace = out->workspace > 0;
  kernel->elements = shape_elements(&choice->covered->type.shape);
  host_start(kernel, name, in_workspace);
  Emitter *e = &kernel->emitter;
  LLVMValueRef product = in_workspace ? kernel->workspace : e->pointer[place];
  emit_bind(e, choice->covered, load_product, product);
  host_loop_nest(kernel, name, out);
  host_finish(kernel);
}

bool select_contraction(HostKernel *kernel, Kernel *out) {
  bool is_fused = kernel->node->op == OP_FUSED;
  Choice choice = {.kernel = kernel,
                   .body = is_fused ? kernel->node->body : NULL,
                   .contraction = kernel_contraction(kernel->node),
                   .argument = {kernel_operand(kernel->node, 0), kernel_operand(kernel->node, 1)},
                   .bias = -1};
  choice.covered = choice.contraction;
  if (choice.contraction->type.dtype != DT_F32) {
    diag_error(kernel->module->diag, kernel->node->origin.loc,
               "contractions are in f32 on the CPU so far, not in %s",
               dtype_text(choice.contraction->type.dtype));
    return false;
  }
  if (integers_have_kernel(choice.contraction, false)) {
    host_integer_emit(kernel, choice.contraction, choice.argument, out);
    return true;
  }
  if (rounded_has_kernel(choice.contraction)) {
    host_rounded_emit(kernel, choice.contraction, choice.argument, out);
    return true;
  }
  if (host_winograd_suits(kernel, choice.contraction)) {
    host_winograd_emit(kernel, choice.contraction, choice.argument, out);
    return true;
  }
  if (host_conv_suits(kernel, choice.contraction)) {
    host_conv_emit(kernel, choice.contraction, choice.argument, out);
    return true;
  }
  if (host_grouped_suits(kernel, choice.contraction)) {
    host_grouped_emit(kernel, choice.contraction, choice.argument, out);
    return true;
  }
  if (host_gemm_suits(kernel, choice.contraction))
    return host_gemm_emit(kernel, choice.contraction, choice.argument, out);
  if (!is_fused) {
    add_call(&choice, out, 2);
    return true;
  }
  const Shape *shape = &choice.contraction->type.shape;
  bool is_nchw =
      choice.contraction->op == OP_CONV && node_str(choice.contraction, ATTR_LAYOUT)[1] == 'c';
  cover_epilogue(&choice, is_nchw ? 1 : shape->rank - 1);
  int place = product_place(kernel, &choice, out);
  add_call(&choice, out, place);
  if (!is_covered(kernel, &choice, place)) emit_epilogue(kernel, &choice, place, out);
  return true;
}
