/* emit: pulling values through a kernel's body, and remembering them.
 * Invariant: a remembered value dominates the builder's position: scopes see to that. */
#include "codegen/emit_private.h"
#include <string.h>

typedef struct MemoEntry {
  struct MemoEntry *next; /* in its bucket */
  const Node *node;       /* a value of the body, or NULL: */
  LLVMOpcode op;          /* index arithmetic on a and b */
  LLVMValueRef a, b;
  Index index;
  LLVMValueRef value;
  int bucket;
} MemoEntry;

enum { MEMO_BUCKETS = 512 };
struct EmitMemo {
  MemoEntry *bucket[MEMO_BUCKETS];
  VEC(MemoEntry *) entries; /* in order of making, for closing scopes */
  VEC(int) scopes;          /* entries.count at each opening */
};

struct EmitBinding {
  EmitBound *get;
  void *user;
  LLVMValueRef value;
};

void emitter_init(Emitter *emitter, Module *module, Arena *scratch, const Graph *body,
                  LLVMBuilderRef builder, LLVMTypeRef index_type) {
  *emitter = (Emitter){.module = module,
                       .arena = scratch,
                       .builder = builder,
                       .index_type = index_type,
                       .body = body};
  emitter->memo = ARENA_NEW(scratch, EmitMemo);
  if (body) emitter->binding = ARENA_ARRAY(scratch, struct EmitBinding, body->nodes.count);
}

/* ── memory of what has been emitted ────────────────────────────────────────────────────────── */
void emit_scope_open(Emitter *emitter) {
  EmitMemo *memo = emitter->memo;
  VEC_PUSH(emitter->arena, memo->scopes, memo->entries.count);
}

void emit_scope_close(Emitter *emitter) {
  EmitMemo *memo = emitter->memo;
  int keep = memo->scopes.at[--memo->scopes.count];
  while (memo->entries.count > keep) {
    MemoEntry *entry = memo->entries.at[--memo->entries.count];
    memo->bucket[entry->bucket] = entry->next;
  }
}

static void emit_remember(Emitter *emitter, MemoEntry entry, int bucket) {
  EmitMemo *memo = emitter->memo;
  MemoEntry *kept = ARENA_NEW(emitter->arena, MemoEntry);
  *kept = entry;
  kept->bucket = bucket;
  kept->next = memo->bucket[bucket];
  memo->bucket[bucket] = kept;
  VEC_PUSH(emitter->arena, memo->entries, kept);
}

static int bucket_of(uint64_t key) {
  return (int)((key * 0x9e3779b97f4a7c15u) >> 55) & (MEMO_BUCKETS - 1);
}

static int bucket_of_op(LLVMOpcode op, LLVMValueRef a, LLVMValueRef b) {
  return bucket_of((uint64_t)(uintptr_t)a * 31 + (uint64_t)(uintptr_t)b * 7 + (uint64_t)op);
}

/* The remembered value of an operation on a and b. A load of a group of neighbours is remembered as
 * a load from its pointer and the index of the first. */
static LLVMValueRef recall_op(const Emitter *emitter, LLVMOpcode op, LLVMValueRef a,
                              LLVMValueRef b) {
  MemoEntry *entry = emitter->memo->bucket[bucket_of_op(op, a, b)];
  while (entry && (entry->node || entry->op != op || entry->a != a || entry->b != b))
    entry = entry->next;
  return entry ? entry->value : NULL;
}

static LLVMValueRef remember_op(Emitter *emitter, LLVMOpcode op, LLVMValueRef a, LLVMValueRef b,
                                LLVMValueRef value) {
  emit_remember(emitter, (MemoEntry){.op = op, .a = a, .b = b, .value = value},
                bucket_of_op(op, a, b));
  return value;
}

static bool index_equal(const Index *a, const Index *b) {
  bool is_equal = a->count == b->count;
  for (int i = 0; is_equal && i < a->count; i++)
    is_equal = (a->digit[i].value == b->digit[i].value) & (a->digit[i].extent == b->digit[i].extent);
  return is_equal;
}

/* ── bindings ───────────────────────────────────────────────────────────────────────────────── */
void emit_bind(Emitter *emitter, const Node *node, EmitBound *get, void *user) {
  emitter->binding[node->id] = (struct EmitBinding){.get = get, .user = user};
}

void emit_bind_value(Emitter *emitter, const Node *node, LLVMValueRef value) {
  emitter->binding[node->id] = (struct EmitBinding){.value = value};
}

/* ── pulling ────────────────────────────────────────────────────────────────────────────────── */
/* See emit.h. A skeleton that computes neighbours gives their indices a constant last digit. */
int emit_lane_of(const Emitter *emitter, const Index *index) {
  if (emitter->module->target != TARGET_PTX || !index->count) return -1;
  const Digit *last = &index->digit[index->count - 1];
  bool is_group = last->extent <= 8 && !(last->extent & (last->extent - 1)) &&
                  LLVMIsAConstantInt(last->value);
  return is_group ? (int)LLVMConstIntGetZExtValue(last->value) : -1;
}

/* All neighbours in one access. */
static LLVMValueRef load_group(Emitter *emitter, const Node *node, const Index *index, int lane) {
  DType dtype = node->type.dtype;
  int width = (int)index->digit[index->count - 1].extent;
  Index first = *index;
  first.digit[first.count - 1].value = emit_index_const(emitter, 0);
  int arg = (int)node_int(node, ATTR_INDEX, 0);
  LLVMValueRef pointer = emitter->pointer[arg];
  LLVMValueRef at = emit_place(emitter, arg, &node->type.shape, &first);
  LLVMValueRef group = recall_op(emitter, LLVMLoad, pointer, at);
  if (!group)
    group = remember_op(emitter, LLVMLoad, pointer, at,
                        emit_load_group(emitter, pointer, dtype, at, width));
  return emit_group_element(emitter, dtype, group, lane);
}

LLVMValueRef pull_arg(Emitter *emitter, const Node *node, const Index *index) {
  if (emitter->load) return emitter->load(emitter, node, index, emitter->load_user);
  int arg = (int)node_int(node, ATTR_INDEX, 0);
  int lane = emit_lane_of(emitter, index);
  if (lane >= 0) return load_group(emitter, node, index, lane);
  return emit_load_at(emitter, emitter->pointer[arg], node->type.dtype,
                      emit_place(emitter, arg, &node->type.shape, index));
}

LLVMValueRef pull_iota(Emitter *emitter, const Node *node, const Index *index) {
  LLVMValueRef value =
      index_dim(emitter, index, &node->type.shape, (int)node_int(node, ATTR_AXIS, 0));
  return LLVMBuildIntCast2(emitter->builder, value, emit_register_type(emitter, node->type.dtype),
                           true, "");
}

LLVMValueRef pull_random(Emitter *emitter, const Node *node, const Index *index) {
  LLVMTypeRef wide = emitter->module->i64, types[4] = {wide, wide, wide, wide};
  Index scalar = {0};
  LLVMValueRef arguments[4] = {
      emit_value(emitter, node->input[0], &scalar), emit_value(emitter, node->input[1], &scalar),
      LLVMConstInt(wide, (uint64_t)node_int(node, ATTR_STREAM, 0), true),
      LLVMBuildIntCast2(emitter->builder, index_linear(emitter, index), wide, true, "")};
  if (node->input_count > 2) { /* of the whole batch or parameters, of which this rank has a part */
    const Node *first = node->input[2];
    const Index *at = first->type.shape.rank ? index : &scalar;
    arguments[3] = LLVMBuildAdd(emitter->builder, arguments[3], emit_value(emitter, first, at), "");
  }
  LLVMTypeRef type = LLVMFunctionType(emitter->module->f32, types, 4, false);
  LLVMValueRef function = module_function(emitter->module, "ft_random_f32", type);
  return LLVMBuildCall2(emitter->builder, type, function, arguments, 4, "");
}

LLVMValueRef pull_pointwise(Emitter *emitter, const Node *node, const Index *index) {
  LLVMValueRef inputs[4];
  for (int i = 0; i < node->input_count; i++)
    inputs[i] = emit_value(emitter, node->input[i], index);
  return emit_pointwise(emitter, node, inputs);
}

LLVMValueRef pull_const(Emitter *emitter, const Node *node, const Index *index) {
  (void)index;
  return emit_constant(emitter, node->type.dtype, node_float(node, ATTR_VALUE, 0));
}

/* A reduction or contraction that the skeleton did not bind: the fuse pass broke its contract. */
LLVMValueRef pull_bound(Emitter *emitter, const Node *node, const Index *index) {
  (void)index;
  diag_error(emitter->module->diag, node->origin.loc,
             "internal error: kernel needs an unbound '%s' in the middle of its body",
             op_info[node->op].text);
  return LLVMGetUndef(emit_register_type(emitter, node->type.dtype));
}

static Pull *const pull[OP_COUNT] = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, eval, emitter)   \
  [OP_##ID] = IF_POINTWISE_##class(pull_pointwise, pull_##emitter),
#include "ir/ops.def"
#undef OP
};

LLVMValueRef emit_value(Emitter *emitter, const Node *node, const Index *index) {
  struct EmitBinding *binding = &emitter->binding[node->id];
  if (binding->value) return binding->value;
  if (!shape_elements(&node->type.shape)) /* never executed: there is no element to ask for */
    return LLVMConstNull(emit_register_type(emitter, node->type.dtype));
  uint64_t key = (uint64_t)(uintptr_t)node;
  for (int i = 0; i < index->count; i++)
    key = key * 31 + (uint64_t)(uintptr_t)index->digit[i].value;
  int bucket = bucket_of(key);
  for (MemoEntry *entry = emitter->memo->bucket[bucket]; entry; entry = entry->next)
    if (entry->node == node && index_equal(&entry->index, index)) return entry->value;
  LLVMValueRef value = binding->get ? binding->get(emitter, node, index, binding->user)
                                    : pull[node->op](emitter, node, index);
  emit_remember(emitter, (MemoEntry){.node = node, .index = *index, .value = value}, bucket);
  return value;
}

void emit_hoist_scalars(Emitter *emitter) {
  const Graph *body = emitter->body;
  bool *is_scalar = ARENA_ARRAY(emitter->arena, bool, body->nodes.count);
  Index scalar = {0};
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    OpClass op_class = op_info[node->op].op_class;
    bool is = shape_elements(&node->type.shape) == 1 && op_class != CLASS_REDUCE &&
              op_class != CLASS_CONTRACT && op_class != CLASS_WINDOW;
    for (int k = 0; k < node->input_count; k++) is = is && is_scalar[node->input[k]->id];
    is_scalar[i] = is;
    if (is) emit_value(emitter, node, &scalar);
  }
}

/* ── index arithmetic ───────────────────────────────────────────────────────────────────────── */
LLVMValueRef emit_index_const(Emitter *emitter, int64_t value) {
  return LLVMConstInt(emitter->index_type, (uint64_t)value, true);
}

static bool is_const(LLVMValueRef value, int64_t wanted) {
  return LLVMIsAConstantInt(value) && LLVMConstIntGetSExtValue(value) == wanted;
}

static bool is_made_by(LLVMValueRef value, LLVMOpcode op, int64_t *constant) {
  if (!LLVMIsAInstruction(value) || LLVMGetInstructionOpcode(value) != op ||
      !LLVMIsAConstantInt(LLVMGetOperand(value, 1)))
    return false;
  *constant = LLVMConstIntGetSExtValue(LLVMGetOperand(value, 1));
  return true;
}

/* x m + c with c < m is c at least, since it is not negative. */
int64_t emit_least(LLVMValueRef value) {
  int64_t more, factor;
  if (LLVMIsAConstantInt(value)) return LLVMConstIntGetSExtValue(value);
  bool is_sum = is_made_by(value, LLVMAdd, &more) && is_made_by(LLVMGetOperand(value, 0), LLVMMul, &factor);
  return is_sum && more < factor ? more : 0;
}

/* With a constant b: (x + c) + b is x + (c + b), and of x m + c, never negative, where b divides m,
 * the quotient by b is x (m / b) + c / b and the rest c mod b. NULL: it is neither. So neighbours of a
 * tile that read the same place have the same index, which is remembered. */
static LLVMValueRef index_fold(Emitter *emitter, LLVMOpcode op, LLVMValueRef a, LLVMValueRef b) {
  if (!LLVMIsAConstantInt(b) || LLVMIsAConstantInt(a)) return NULL;
  int64_t by = LLVMConstIntGetSExtValue(b), more = 0, factor;
  bool is_sum = is_made_by(a, LLVMAdd, &more);
  LLVMValueRef x = is_sum ? LLVMGetOperand(a, 0) : a;
  if (op == LLVMAdd || op == LLVMSub) {
    if (is_sum) return emit_add(emitter, x, emit_index_const(emitter, op == LLVMAdd ? more + by : more - by));
    return op == LLVMSub ? emit_add(emitter, a, emit_index_const(emitter, -by)) : NULL;
  }
  if (op == LLVMMul && is_sum)
    return emit_add(emitter, emit_mul(emitter, x, by), emit_index_const(emitter, more * by));
  if (op == LLVMMul && is_made_by(a, LLVMMul, &factor))
    return emit_mul(emitter, LLVMGetOperand(a, 0), factor * by);
  if ((op != LLVMUDiv && op != LLVMURem) || !is_made_by(x, LLVMMul, &factor) || factor % by || more < 0)
    return NULL;
  if (op == LLVMURem) return emit_index_const(emitter, more % by);
  return emit_add(emitter, emit_mul(emitter, LLVMGetOperand(x, 0), factor / by),
                  emit_index_const(emitter, more / by));
}

/* a op b: of add, sub, mul, udiv and urem. */
static LLVMValueRef index_op(Emitter *emitter, LLVMOpcode op, LLVMValueRef a, LLVMValueRef b) {
  if ((op == LLVMAdd || op == LLVMSub) && is_const(b, 0)) return a;
  if (op == LLVMAdd && is_const(a, 0)) return b;
  if ((op == LLVMMul || op == LLVMUDiv) && is_const(b, 1)) return a;
  LLVMValueRef value = index_fold(emitter, op, a, b);
  if (!value) value = recall_op(emitter, op, a, b);
  if (value) return value;
  value = op == LLVMAdd   ? LLVMBuildNSWAdd(emitter->builder, a, b, "")
          : op == LLVMSub ? LLVMBuildNSWSub(emitter->builder, a, b, "")
          : op == LLVMMul ? LLVMBuildNSWMul(emitter->builder, a, b, "")
                          : LLVMBuildBinOp(emitter->builder, op, a, b, "");
  return remember_op(emitter, op, a, b, value);
}

LLVMValueRef emit_add(Emitter *emitter, LLVMValueRef a, LLVMValueRef b) {
  return index_op(emitter, LLVMAdd, a, b);
}
LLVMValueRef emit_sub(Emitter *emitter, LLVMValueRef a, LLVMValueRef b) {
  return index_op(emitter, LLVMSub, a, b);
}
LLVMValueRef emit_mul(Emitter *emitter, LLVMValueRef a, int64_t b) {
  return index_op(emitter, LLVMMul, a, emit_index_const(emitter, b));
}
LLVMValueRef emit_div(Emitter *emitter, LLVMValueRef a, int64_t b) {
  return index_op(emitter, LLVMUDiv, a, emit_index_const(emitter, b));
}
LLVMValueRef emit_rem(Emitter *emitter, LLVMValueRef a, int64_t b) {
  return index_op(emitter, LLVMURem, a, emit_index_const(emitter, b));
}
LLVMBasicBlockRef emit_block(Emitter *emitter, const char *name) {
  LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(emitter->builder));
  return LLVMAppendBasicBlockInContext(emitter->module->context, function, name);
}

LLVMValueRef emit_min(Emitter *emitter, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef is_less = LLVMBuildICmp(emitter->builder, LLVMIntSLT, a, b, "");
  return LLVMBuildSelect(emitter->builder, is_less, a, b, "");
}

void index_push(Index *index, int64_t extent, LLVMValueRef value, bool varies) {
  if (extent != 1) index->digit[index->count++] = (Digit){extent, value, varies};
}

Index index_flat(int64_t elements, LLVMValueRef value, bool varies) {
  Index index = {0};
  index_push(&index, elements, value, varies);
  return index;
}

Index index_of_dims(const Shape *shape, const LLVMValueRef *value, bool varies) {
  Index index = {0};
  for (int d = 0; d < shape->rank; d++) index_push(&index, shape->dim[d], value[d], varies);
  return index;
}

/* Digits [from, to) as one number. */
static Digit join_digits(Emitter *emitter, const Index *index, int from, int to) {
  Digit all = {1, NULL, false};
  for (int k = from; k < to; k++) {
    const Digit *digit = &index->digit[k];
    LLVMValueRef above = all.value ? emit_mul(emitter, all.value, digit->extent) : NULL;
    all.value = above ? emit_add(emitter, above, digit->value) : digit->value;
    all.extent *= digit->extent;
    all.varies |= digit->varies;
  }
  if (!all.value) all.value = emit_index_const(emitter, 0);
  return all;
}

LLVMValueRef index_linear(Emitter *emitter, const Index *index) {
  return join_digits(emitter, index, 0, index->count).value;
}

/* The part of the index that counts in units of `low` and wraps at `high` (low divides high). */
static Digit extract(Emitter *emitter, const Index *index, int64_t low, int64_t high) {
  int from = index->count, to = index->count;
  int64_t weight = 1, unit = 1; /* weight below digit k; unit: that of the last digit taken */
  for (int k = index->count - 1; k >= 0; k--) {
    int64_t next = weight * index->digit[k].extent;
    if (next <= low) {
      to = k;
      unit = next;
    }
    if (weight < high || weight % high) from = k; /* above, only whole wraps */
    weight = next;
  }
  if (low % unit) { /* no digit border divides the dimension: fall back to the element number */
    to = index->count;
    unit = 1;
  }
  Digit digit = join_digits(emitter, index, from, to);
  int64_t top = unit * digit.extent;
  if (low > unit) digit.value = emit_div(emitter, digit.value, low / unit);
  digit.extent = high / low;
  if (top > high) digit.value = emit_rem(emitter, digit.value, digit.extent);
  return digit;
}


Digit emit_index_digit(Emitter *emitter, const Index *index, const Shape *shape, int d) {
  if (shape->dim[d] <= 1) return (Digit){shape->dim[d], emit_index_const(emitter, 0), false};
  int64_t low = shape_elements_between(shape, d + 1, shape->rank);
  return extract(emitter, index, low, low * shape->dim[d]);
}

LLVMValueRef index_dim(Emitter *emitter, const Index *index, const Shape *shape, int d) {
  return emit_index_digit(emitter, index, shape, d).value;
}

void emit_index_run(Emitter *emitter, const Index *index, const Shape *shape, int from, int to,
                    Index *out) {
  int64_t low = shape_elements_between(shape, to, shape->rank);
  int64_t high = shape_elements_between(shape, from, shape->rank);
  if (high <= low) return;
  int first = -1, last = -1;
  int64_t weight = 1;
  for (int k = index->count; k >= 0; k--) { /* borders of digits that fall on low and high */
    if (weight == low) last = k;
    if (weight == high) first = k;
    if (k > 0) weight *= index->digit[k - 1].extent;
  }
  if (first >= 0 && last >= 0 && out->count + last - first <= MAX_DIGITS - MAX_RANK) {
    for (int k = first; k < last; k++) out->digit[out->count++] = index->digit[k];
    return;
  }
  Digit digit = extract(emitter, index, low, high);
  index_push(out, digit.extent, digit.value, digit.varies);
}

LLVMValueRef emit_place(Emitter *emitter, int which, const Shape *shape, const Index *index) {
  int64_t pitch = emitter->pitch ? emitter->pitch[which] : 0;
  if (!pitch) return index_linear(emitter, index);
  Index row = {0};
  emit_index_run(emitter, index, shape, 0, shape->rank - 1, &row);
  LLVMValueRef begin = emit_mul(emitter, index_linear(emitter, &row), pitch);
  return emit_add(emitter, begin, index_dim(emitter, index, shape, shape->rank - 1));
}
