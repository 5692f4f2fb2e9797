/* attention_help: attention and its gradient as graphs of many forms, for the tests of the kernels
 * on either target, with operands as a type holds them and the error that it allows. */
#ifndef FT_TEST_ATTENTION_HELP_H
#define FT_TEST_ATTENTION_HELP_H
#include "ir/interp.h"
#include "ir/scalar.h"
#include "passes_help.h"

/* Heads apart; or beside one another, in three tensors, or as parts of one, between features that
 * nobody reads, with gradients apart or joined. */
typedef enum { APART, BESIDE, PARTS, JOINED } HeadLayout;

typedef struct {
  const char *type; /* f32, tf32, f16, bf16 */
  int batch, heads, groups, rows, keys, features;
  bool causal;
  const char *mask; /* its type, or NULL */
  bool is_hopper;   /* by wgmma, where that may be */
  HeadLayout layout;
  double cap; /* softcap; below 0: by the approximate tanh; 0: none */
  double dropout;
} AttentionCase;

static inline const char *attention_type(const AttentionCase *c) {
  return c->type[0] == 't' ? "f32" : c->type;
}

/* The operands are inputs of their own, so that both nodes can be tried alone. */
static inline char *attention_text(Arena *arena, const AttentionCase *c) {
  enum { GAP = 8 };
  const char *type = attention_type(c), *m = arena_printf(arena, "%s%s", c->mask ? ", %m" : "", c->dropout > 0 ? ", %seed, %time, %first, %number" : "");
  int rows = c->heads * c->features, keys = c->groups * c->features;
  bool is_one = c->layout == PARTS || c->layout == JOINED;
  const char *q, *k, *whole, *place = "", *joined = "";
  if (c->layout == APART) {
    q = arena_printf(arena, "%s[%d,%d,%d,%d]", type, c->batch, c->heads, c->rows, c->features);
    k = arena_printf(arena, "%s[%d,%d,%d,%d]", type, c->batch, c->groups, c->keys, c->features);
  } else {
    q = arena_printf(arena, "%s[%d,%d,%d]", type, c->batch, c->rows, rows);
    k = arena_printf(arena, "%s[%d,%d,%d]", type, c->batch, c->keys, keys);
    place = arena_printf(arena, ", heads=[%d,%d,%d], start=[%d,%d,%d]", c->heads, c->groups,
                         c->features, is_one ? GAP : 0, is_one ? GAP + rows : 0,
                         is_one ? GAP + rows + keys : 0);
  }
  whole = arena_printf(arena, "%s[%d,%d,%d]", type, c->batch, c->rows, 2 * GAP + rows + 2 * keys);
  const char *dq = q;
  if (c->layout == JOINED) {
    dq = arena_printf(arena, "%s[%d,%d,%d]", type, c->batch, c->rows, rows + 2 * keys);
    joined = ", joined=true";
  }
  const char *cap = c->cap == 0 ? ""
                                : arena_printf(arena, ", softcap=%g%s", fabs(c->cap),
                                               c->cap < 0 ? ", kind=\"approximate\"" : "");
  const char *attrs = arena_printf(arena, "%sscale=%g%s%s%s%s", c->causal ? "causal=true, " : "",
                                   c->features > 128  ? 0.1
                                   : c->features > 32 ? 0.3
                                                      : 0.6,
                                   cap, c->dropout > 0 ? arena_printf(arena, ", dropout=%.17g", c->dropout) : "",
                                   c->type[0] == 't' ? ", tf32=true" : "", place);
  const char *operands = is_one ? "%q, %q, %q" : "%q, %k, %v";
  const char *inputs =
      is_one ? arena_printf(arena, "%%q = input {name=\"q\"} : %s\n", whole)
             : arena_printf(arena,
                            "%%q = input {name=\"q\"} : %s\n%%k = input {name=\"k\"} : %s\n"
                            "%%v = input {name=\"v\"} : %s\n",
                            q, k, k);
  const char *mask = c->mask ? arena_printf(arena, "%%m = input {name=\"m\"} : %s\n", c->mask) : "";
  if (c->dropout > 0)
    mask = arena_printf(arena, "%s%%seed = input {name=\"seed\"} : i64[]\n%%time = input {name=\"time\"} : i64[]\n"
                               "%%first = input {name=\"first\"} : i64[%d,%d,1,1]\n%%number = input {name=\"number\"} : i64[]\n", mask, c->batch, c->heads);
  const char *others = c->layout == JOINED
                           ? ""
                           : arena_printf(arena,
                                          "%%dk = result %%g {index=1} : %s\n"
                                          "%%dv = result %%g {index=2} : %s\n"
                                          "output \"dk\" %%dk\noutput \"dv\" %%dv\n",
                                          k, k);
  return arena_printf(arena,
                      "graph \"attention\" {\n%s%%dy = input {name=\"dy\"} : %s\n%s"
                      "%%a = attention %s%s {%s} : %s\n%%o = result %%a {index=0} : %s\n"
                      "%%l = result %%a {index=1} : f32[%d,%d,%d,1]\n"
                      "%%g = attention_grad %%dy, %s, %%o, %%l%s {%s%s} : %s\n"
                      "%%dq = result %%g {index=0} : %s\noutput \"o\" %%o\noutput \"l\" %%l\n"
                      "output \"dq\" %%dq\n%s}\n",
                      inputs, q, mask, operands, m, attrs, q, q, c->batch, c->heads, c->rows,
                      operands, m, attrs, joined, dq, dq, others);
}

/* The attention and its gradient of a graph of such a text, and the names of their results. */
static inline void attention_nodes(const Graph *graph, const Node *node[2]) {
  for (int i = 0; i < graph->nodes.count; i++) {
    if (graph->nodes.at[i]->op == OP_ATTENTION) node[0] = graph->nodes.at[i];
    if (graph->nodes.at[i]->op == OP_ATTENTION_GRAD) node[1] = graph->nodes.at[i];
  }
}
static const char *const attention_results[2][3] = {{"o", "l"}, {"dq", "dk", "dv"}};

/* In a mask with a row for each query, the keys of a tile are hidden from some rows of each tile of
 * queries, now from the first ones and now from others; some rows see nothing, and from squares of queries and keys
 * everything is hidden. In one that is the
 * same for all queries, a third of the keys is there, or two thirds, or none. */
static inline bool attention_hides(const Shape *shape, int64_t element) {
  enum { TILE = 64, SQUARE = 192 };
  int64_t keys = shape->dim[shape->rank - 1], rows = shape->dim[shape->rank - 2];
  int64_t key = element % keys, row = element / keys % rows, plane = element / keys / rows;
  if (rows > 1 && (row / SQUARE + key / SQUARE + plane) % 3 == 1) return true;
  if (rows > 1) return (row / 5 + key / TILE) % 3 == 1 || row % 11 == 7;
  return key > (plane % 3 + 1) % 3 * keys / 3;
}

/* What is drawn for dropout: heads' numbers of any remainder by 4, of which some are about to become too large for
 * 32 bits; so is the number of the stream, which has 32. */
static inline int64_t attention_draws_from(char name, int64_t head) {
  return name == 's' ? 0x7edcba9876543210 : name == 't' ? 0x500000003 : ((int64_t)1 << 34) - 100 + head * 50021;
}

/* Between -1 and 1, as the type holds them. */
static inline const Tensor *attention_leaf(const Node *leaf, void *context) {
  Tensor *value = tensor_new(context, leaf->type);
  uint64_t state = (uint64_t)node_str(leaf, ATTR_NAME)[0] * 7919 + 17;
  for (int64_t i = 0; i < shape_elements(&leaf->type.shape); i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double x = (double)(state >> 40) / (1 << 23) - 1;
    if (value->f) value->f[i] = dtype_round(leaf->type.dtype, x);
    if (leaf->type.dtype == DT_I64)
      value->i[i] = attention_draws_from(node_str(leaf, ATTR_NAME)[0], i);
    else if (value->i)
      value->i[i] = x > -0.4 && !attention_hides(&leaf->type.shape, i);
  }
  return value;
}

static inline void attention_write(const Tensor *from, char *to) {
  DType dtype = from->type.dtype;
  for (int64_t i = 0; i < shape_elements(&from->type.shape); i++) {
    float wide = from->f ? (float)from->f[i] : 0;
    _Float16 half = (_Float16)wide;
    if (dtype == DT_F32) memcpy(to + 4 * i, &wide, 4);
    if (dtype == DT_F16) memcpy(to + 2 * i, &half, 2);
    if (dtype == DT_BF16) memcpy(to + 2 * i, (char *)&wide + 2, 2);
    if (dtype == DT_BOOL) to[i] = (char)from->i[i];
    if (dtype == DT_I64) memcpy(to + 8 * i, &from->i[i], 8);
  }
}

static inline double attention_read(DType dtype, const char *from, int64_t i) {
  float wide = 0;
  _Float16 half;
  if (dtype == DT_F32) memcpy(&wide, from + 4 * i, 4);
  if (dtype == DT_BF16) memcpy((char *)&wide + 2, from + 2 * i, 2);
  if (dtype == DT_F16) memcpy(&half, from + 2 * i, 2), wide = (float)half;
  return (double)wide;
}

/* Of operands of products, which are around 1; f32: what the sums lose, too. */
static inline double attention_rounding(const AttentionCase *c) {
  return c->type[0] == 'b' ? 0x1p-9 : !strcmp(c->type, "f32") ? 0x1p-21 : 0x1p-12;
}

/* A result is a sum of products of rounded factors, rounded; the largest ones say how large the
 * terms are. */
static inline void attention_compare(const AttentionCase *c, const char *have, const Tensor *want,
                                     const char *what, const char *text) {
  DType dtype = want->type.dtype;
  double most = 1, worst = 0;
  for (int64_t i = 0; i < shape_elements(&want->type.shape); i++)
    if (isfinite(want->f[i])) most = fmax(most, fabs(want->f[i]));
  for (int64_t i = 0; i < shape_elements(&want->type.shape); i++) {
    double x = attention_read(dtype, have, i), y = want->f[i];
    if (x == y) continue;
    double error = fabs(x - y) / (attention_rounding(c) * (most + fabs(y)));
    worst = fmax(worst, error);
    if (!(error <= 3))
      fail_msg("%s %s[%lld] is %g, not %g:\n%s", c->type, what, (long long)i, x, y, text);
  }
  if (getenv("FT_SHOW")) printf("%s %s %g\n", c->type, what, worst);
}
#endif
