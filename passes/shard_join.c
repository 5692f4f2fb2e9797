/* shard_join: small tensors that ranks gather, or share out, in one collective (pass shard). A
 * collective takes its latency however few bytes it moves, and most params are norms and biases; what
 * is joined is copied once more, which costs small tensors less. Of n tensors a rank's parts lie
 * behind one another, and so do all ranks' behind these: [ranks, all parts].
 *
 * Declared in shard_private.h. */
#include "passes/shard_private.h"

bool shard_is_small(const Type *type) {
  enum { MOST_BYTES = 1 << 16 };
  return type_bytes(type) <= MOST_BYTES;
}

/* How many bytes go on together. */
static int64_t group_bytes(const Shard *s) {
  double mebibytes = setting_number(s->context->settings, "distributed.bucket");
  return (int64_t)((mebibytes > 0 ? mebibytes : 4) * 1048576);
}

static Node *joined_concat(Graph *fresh, Node **x, int count, int axis) {
  Attr attr = attr_int(ATTR_AXIS, axis);
  return count == 1 ? x[0] : graph_node(fresh, OP_CONCAT, x, count, &attr, 1, NULL);
}

/* One behind the other in what all ranks have. */
static void note_joined(Shard *s, Node *all, const Wanted *these, int count) {
  int64_t begin = 0;
  for (int k = 0; k < count; k++) {
    int key[] = {these[k].what->id, (int)these[k].form};
    int64_t part = shard_part(s, these[k].what);
    lookup_add(&s->joined_at, key, sizeof key, s->joined.count);
    VEC_PUSH(s->context->scratch, s->joined, ((Joined){all, begin, part}));
    begin += part;
  }
}

static const Joined *joined_entry(const Shard *s, const Node *node, Form form) {
  int key[] = {node->id, (int)form}, found = lookup_find(&s->joined_at, key, sizeof key);
  return found < 0 ? NULL : &s->joined.at[found];
}

static Attr name_joined(Shard *s, const char *what, const Node *param, int count) {
  const char *name = param ? node_str(param, ATTR_NAME) : "?";
  return attr_str(ATTR_WHY,
                  arena_printf(s->fresh->arena, "%s of %s and %d more", what, name, count - 1));
}

/* Those of a form and a type by one call each. */
static void join_alike(Shard *s, const Wanted *these, int count,
                       void (*join)(Shard *, const Wanted *, int)) {
  Wanted *alike = ARENA_ARRAY(s->context->scratch, Wanted, count);
  bool *is_done = ARENA_ARRAY(s->context->scratch, bool, count);
  for (int first = 0; first < count; first++) {
    int found = 0;
    for (int k = first; k < count && !is_done[first]; k++) {
      if (these[k].form != these[first].form ||
          these[k].what->type.dtype != these[first].what->type.dtype)
        continue;
      alike[found++] = these[k];
      is_done[k] = k > first;
    }
    if (found) join(s, alike, found);
  }
}

/* ── params ─────────────────────────────────────────────────────────────────────────────────── */
static void gather_together(Shard *s, const Wanted *these, int count) {
  const Node *first = these[0].what;
  if (count == 1) return;
  Node **parts = ARENA_ARRAY(s->fresh->arena, Node *, count);
  for (int k = 0; k < count; k++) parts[k] = shard_part_to_gather(s, these[k].what);
  s->fresh->origin = first->origin;
  Node *own = joined_concat(s->fresh, parts, count, 0);
  own = make_reshape(s->fresh, own, shape_of(2, (int64_t[]){1, own->type.shape.dim[0]}));
  Node *all = shard_over(s, make_all_gather(s->fresh, own, s->ranks));
  node_set_attr(s->fresh, all,
                name_joined(s, "parts", first->op == OP_PARAM ? first : first->input[0], count));
  note_joined(s, all, these, count);
}

int shard_begin_group(Shard *s, int first) {
  int64_t bytes = 0;
  int end = first;
  VEC(Wanted) small = {0};
  for (; end < s->needs.count; end++) {
    const Wanted *wanted = &s->needs.at[end].wanted;
    bytes += type_bytes(&wanted->what->type);
    if (end > first && bytes > group_bytes(s)) break;
    if (shard_is_small(&wanted->what->type)) VEC_PUSH(s->context->scratch, small, *wanted);
  }
  join_alike(s, small.at, small.count, gather_together);
  for (int i = first; i < end; i++)
    shard_get(s, s->needs.at[i].wanted.what, s->needs.at[i].wanted.form);
  return end;
}

Node *shard_joined_whole(Shard *s, const Node *node, Form form) {
  const Joined *joined = joined_entry(s, node, form);
  if (!joined) return NULL;
  int64_t start[] = {0, joined->begin}, parts[] = {s->ranks, joined->part};
  int64_t first = 0, all = s->ranks * joined->part, elements = shape_elements(&node->type.shape);
  s->fresh->origin = node->origin;
  Node *x = make_slice(s->fresh, joined->all, start, shape_of(2, parts));
  x = make_reshape(s->fresh, x, shape_of(1, &all));
  x = make_slice(s->fresh, x, &first, shape_of(1, &elements));
  return make_reshape(s->fresh, x, node->type.shape);
}

/* ── gradients ──────────────────────────────────────────────────────────────────────────────── */
/* [ranks, part], padded with zeros. */
static Node *in_parts(Shard *s, const Node *gradient) {
  int64_t elements = shape_elements(&gradient->type.shape), part = shard_part(s, gradient);
  int64_t low = 0, high = part * s->ranks - elements, parts[] = {s->ranks, part};
  Node *x = make_reshape(s->fresh, shard_get(s, gradient, PLAIN), shape_of(1, &elements));
  return make_reshape(s->fresh, make_pad(s->fresh, x, &low, &high), shape_of(2, parts));
}

static void scatter_together(Shard *s, const Wanted *these, int count) {
  if (count == 1) return; /* by itself */
  Node **parts = ARENA_ARRAY(s->fresh->arena, Node *, count);
  Attr why = name_joined(s, "gradients", s->gradient_of[these[0].what->id], count);
  s->fresh->origin = these[count - 1].what->origin;
  for (int k = 0; k < count; k++) parts[k] = in_parts(s, these[k].what);
  Node *all = joined_concat(s->fresh, parts, count, 1);
  all = shard_over(s, make_reduce_scatter(s->fresh, OP_SUM, all, s->ranks));
  node_set_attr(s->fresh, all, why);
  if (these[0].form == JOINED) all = shard_sum_of_all(s, all, why);
  note_joined(s, all, these, count);
}

static void join_waiting(Shard *s) {
  int count = s->waiting.count;
  s->waiting.count = 0;
  s->since = 0;
  join_alike(s, s->waiting.at, count, scatter_together);
}

static void share_out_waiting(Shard *s) {
  int count = s->waiting.count;
  join_waiting(s);
  for (int i = 0; i < count; i++) shard_get(s, s->waiting.at[i].what, s->waiting.at[i].form);
}

void shard_share_out(Shard *s, const Node *gradient, Form form) {
  bool is_nothing = gradient->op == OP_CONST;
  int64_t bytes = type_bytes(&gradient->type);
  if (s->since + bytes > group_bytes(s)) share_out_waiting(s);
  s->since += bytes;
  if (shard_is_small(&gradient->type) && !is_nothing)
    VEC_PUSH(s->context->scratch, s->waiting, ((Wanted){gradient, form}));
  else
    shard_get(s, gradient, form);
}

Node *shard_joined_part(Shard *s, const Node *gradient, Form form) {
  for (int i = 0; i < s->waiting.count; i++)
    if (s->waiting.at[i].what == gradient && s->waiting.at[i].form == form) join_waiting(s);
  const Joined *joined = joined_entry(s, gradient, form);
  if (!joined) return NULL;
  int64_t start[] = {0, joined->begin};
  Shape part = shape_of(2, (int64_t[]){1, joined->part});
  return make_reshape(s->fresh, make_slice(s->fresh, joined->all, start, part),
                      shape_of(1, &joined->part));
}
