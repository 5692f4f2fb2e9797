/* builder: see builder.h. Errors, names and scopes. */
#include "frontend/builder.h"
#include "base/text.h"
#include "frontend/watch.h"
#include <string.h>

Loc builder_site(const Builder *b, Loc loc) {
  return b->frame && b->frame->is_std ? b->frame->site : loc;
}

Written builder_write(Builder *b, const char *name, bool is_operator) {
  Written before = b->written;
  if (!before.name) b->written = (Written){name, is_operator};
  return before;
}

Region builder_open_region(Builder *b, RegionPolicy policy) {
  Region before = b->region;
  if ((before.number == 0 || policy != REGION_SETTING) && b->regions < REGION_MOST)
    b->region = (Region){++b->regions, policy};
  return before;
}

static const char *definition_kind(const Ast *definition) {
  return definition->kind == AST_FN      ? "function"
         : definition->kind == AST_MODEL ? "model"
                                         : "block";
}

/* "in block 'Attn', applied here", innermost first, for the calls in the user's files. */
static void note_calls(Builder *b, Loc last) {
  int notes = 0;
  for (Frame *f = b->frame; f && f->definition && notes < 4; f = f->up) {
    bool from_std = f->up && f->up->is_std;
    if (f->definition->kind == AST_MODEL || from_std) continue;
    bool is_news = memcmp(&f->call, &last, sizeof last) != 0;
    if (f->is_std || f->is_binding || !is_news) continue; /* the error itself is at this call */
    last = f->call;
    diag_note(b->diag, f->call, "in %s '%s', used here", definition_kind(f->definition),
              f->definition->name);
    notes++;
  }
}

/* ── how a value came to be ───────────────────────────────────────────────────────────────── */
static bool is_rearranged(const Node *node) {
  return node->op == OP_RESHAPE || node->op == OP_TRANSPOSE || node->op == OP_BROADCAST ||
         node->op == OP_CAST;
}

/* "input 'image'"; NULL: it is computed. */
static const char *leaf_described(Builder *b, const Node *node) {
  const char *kind = node->op == OP_INPUT   ? "input"
                     : node->op == OP_PARAM ? "parameter"
                     : node->op == OP_STATE ? "state"
                                            : NULL;
  return kind ? arena_printf(b->arena, "%s '%s'", kind, node_str(node, ATTR_NAME)) : NULL;
}

static void note_origin(Builder *b, const Node *node, Loc site) {
  char text[TYPE_TEXT], from[TYPE_TEXT];
  while (is_rearranged(node) && node->origin.loc.line == site.line) node = node->input[0];
  const Node *base = node;
  Loc loc = node->origin.loc;
  if (!loc.file || (loc.file == site.file && loc.line == site.line)) return;
  while (is_rearranged(base) && base->origin.loc.line == loc.line) base = base->input[0];
  type_text(&node->type, text);
  type_text(&base->type, from);
  const char *by = node->origin.function, *leaf = leaf_described(b, base);
  by = by && strcmp(by, "bias") != 0 ? arena_printf(b->arena, ", by %s", by) : "";
  if (base != node && leaf)
    builder_note(b, loc, "%s is made of %s, %s, here%s", text, leaf, from, by);
  else if (base != node)
    builder_note(b, loc, "%s is made of %s here%s", text, from, by);
  else if (leaf)
    builder_note(b, loc, "%s is %s", text, leaf);
  else
    builder_note(b, loc, "%s is computed here%s", text, by);
}

static void note_about(Builder *b, Loc site) {
  const char *layer = b->frame ? block_layer(b) : "";
  if (*layer) builder_note(b, (Loc){0}, "in layer '%s'", layer);
  for (int i = 0; i < 2; i++)
    if (b->about[i] && (i == 0 || b->about[0] != b->about[1])) note_origin(b, b->about[i], site);
}

void builder_about(Builder *b, const Node *x, const Node *y) {
  b->is_about_shapes = true;
  b->about[0] = x;
  b->about[1] = y;
}

bool builder_fail(Builder *b, Loc loc, const char *format, ...) {
  Loc site = builder_site(b, loc);
  bool is_about_shapes = b->is_about_shapes;
  b->is_about_shapes = false;
  if (!locs_add(b->arena, &b->reported, site)) return false;
  va_list args;
  va_start(args, format);
  char *message = arena_vprintf(b->arena, format, args);
  va_end(args);
  diag_error(b->diag, site, "%s", message);
  if (b->frame && b->frame->is_std && loc.file)
    diag_note(b->diag, loc, "in %s '%s' of the standard library",
              definition_kind(b->frame->definition), b->frame->definition->name);
  if (is_about_shapes) note_about(b, site);
  note_calls(b, site);
  return false;
}

void builder_note(Builder *b, Loc loc, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_note(b->diag, loc, "%s", arena_vprintf(b->arena, format, args));
  va_end(args);
}

Variable *builder_local(Frame *frame, const char *name) {
  for (int i = frame->variables.count - 1; i >= 0; i--)
    if (strcmp(frame->variables.at[i].name, name) == 0) return &frame->variables.at[i];
  return NULL;
}

Variable *builder_find(Builder *b, const char *name) {
  Variable *local = builder_local(b->frame, name);
  if (local) return local;
  for (const Scope *scope = b->frame->scope; scope; scope = scope->up)
    for (int i = scope->names.count - 1; i >= 0; i--)
      if (strcmp(scope->names.at[i].name, name) == 0) return &scope->names.at[i];
  return NULL;
}

Variable *builder_find_size(Builder *b, const char *name) {
  Variable *found = builder_find(b, name);
  return found && found->value.kind >= VALUE_FUNCTION && !builder_local(b->frame, name) ? NULL
                                                                                        : found;
}

void builder_bind(Builder *b, const char *name, Value value, Loc loc, bool is_dimension) {
  Variable *old = builder_local(b->frame, name);
  if (old && old->is_dimension && !is_dimension) {
    builder_fail(b, loc, "'%s' is a dimension (%s) here and cannot be assigned", name,
                 value_text(b->arena, &old->value));
    builder_note(b, old->loc, "bound here");
    return;
  }
  Variable fresh = {name, value, loc, is_dimension};
  watch_mention(b, name, &fresh, loc);
  if (old)
    *old = fresh;
  else
    VEC_PUSH(b->arena, b->frame->variables, fresh);
}
