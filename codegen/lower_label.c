/* lower_label: what a person reads of a step. "h.3.mlp.c_fc backward: dot + gelu'": the layers whose
 * work a kernel does, that of its main operation first; the phase, unless it is forward; and the
 * operations, each once, contractions first. What a function of the language is made of has its
 * name, in backward with a prime. */
#include "codegen/lower_private.h"
#include <string.h>

bool lower_is_told(const Node *node) {
  if (op_info[node->op].op_class == CLASS_LEAF && node->op != OP_RANDOM) return false;
  switch (node->op) {
  case OP_ARG:
  case OP_RESHAPE:
  case OP_BROADCAST:
  case OP_CAST:
  case OP_STOP_GRADIENT:
    return false;
  default:
    return true;
  }
}

/* Nodes that a kernel consists of; of any other node itself. */
typedef struct {
  const Node *node;
  int count;
} Inside;

static Inside inside_of(const Node *node) {
  return (Inside){node, node->op == OP_FUSED ? node->body->nodes.count : 1};
}

static const Node *inside_at(Inside inside, int index) {
  return inside.node->op == OP_FUSED ? inside.node->body->nodes.at[index] : inside.node;
}

/* ── layers ─────────────────────────────────────────────────────────────────────────────────── */
static const char *main_layer(const Node *node) {
  const char *layer = node->origin.layer;
  Inside inside = inside_of(node);
  for (int i = 0; i < inside.count && !layer; i++)
    if (lower_is_told(inside_at(inside, i))) layer = inside_at(inside, i)->origin.layer;
  return layer;
}

/* "h.3" of "h.3.mlp": who reads the second knows the first. */
static bool is_part_of(const char *layer, const char *other) {
  size_t length = strlen(layer);
  return !strncmp(layer, other, length) && (!other[length] || other[length] == '.');
}

enum { TOLD_LAYERS = 3, TOLD_WORDS = 6 };

/* Those of which no other one is told, up to TOLD_LAYERS; returns how many there are. */
static int find_layers(const Node *node, const char *told[TOLD_LAYERS]) {
  Inside inside = inside_of(node);
  int count = 0;
  if ((told[0] = main_layer(node))) count++;
  for (int i = 0; i < inside.count; i++) {
    const char *layer = inside_at(inside, i)->origin.layer;
    bool is_new = layer && lower_is_told(inside_at(inside, i));
    for (int k = 0; k < count && k < TOLD_LAYERS && is_new; k++)
      is_new = !is_part_of(layer, told[k]);
    if (!is_new) continue;
    if (count < TOLD_LAYERS) told[count] = layer;
    count++;
  }
  return count;
}

/* ── phases ─────────────────────────────────────────────────────────────────────────────────── */
StepPhase lower_phase(const Node *node) {
  const Origin *origin = &node->origin;
  if (origin->is_update) return PHASE_UPDATE;
  if (origin->is_recomputed) return PHASE_RECOMPUTED;
  if (origin->is_backward) return PHASE_BACKWARD;
  return origin->loc.line ? PHASE_FORWARD : PHASE_NONE;
}

/* A kernel of backward may make values of forward again for itself; one that makes them for others
 * is none (passes/fuse_body.c), and if it does backward's work, too, it is both. */
static StepPhase find_phase(const Node *node) {
  Inside inside = inside_of(node);
  bool has[PHASE_COUNT] = {false};
  for (int i = 0; i < inside.count; i++)
    if (lower_is_told(inside_at(inside, i))) has[lower_phase(inside_at(inside, i))] = true;
  if (node->origin.is_update) return PHASE_UPDATE;
  if (!node->origin.is_backward && has[PHASE_FORWARD] && has[PHASE_BACKWARD]) return PHASE_BOTH;
  static const StepPhase order[] = {PHASE_BACKWARD, PHASE_FORWARD, PHASE_RECOMPUTED, PHASE_UPDATE};
  for (int i = 0; i < 4; i++)
    if (has[order[i]]) return order[i];
  return lower_phase(node);
}

/* ── kinds of work ──────────────────────────────────────────────────────────────────────────── */
static bool only_moves(const Node *fused) {
  for (int i = 0; i < fused->body->nodes.count; i++) {
    const Node *node = fused->body->nodes.at[i];
    if (lower_is_told(node) && op_info[node->op].op_class != CLASS_MOVE) return false;
  }
  return true;
}

static WorkKind contraction_kind(Op op) {
  return op == OP_DOT                                    ? WORK_PRODUCT
         : op == OP_ATTENTION || op == OP_ATTENTION_GRAD ? WORK_ATTENTION
                                                         : WORK_CONVOLUTION;
}

static WorkKind find_work_kind(const Node *node) {
  Inside inside = inside_of(node);
  bool has_reduction = false;
  for (int i = 0; i < inside.count; i++) {
    Op op = inside_at(inside, i)->op;
    if (op_info[op].op_class == CLASS_CONTRACT) return contraction_kind(op);
    has_reduction |= op_info[op].op_class == CLASS_REDUCE || op_info[op].op_class == CLASS_WINDOW;
  }
  if (has_reduction) return WORK_REDUCTION;
  if (node->op == OP_FUSED) return only_moves(node) ? WORK_MOVE : WORK_POINTWISE;
  return op_info[node->op].op_class == CLASS_MOVE ? WORK_MOVE : WORK_OTHER;
}

/* ── words ──────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Text text;
  const char *said[TOLD_WORDS]; /* … and whether with a prime */
  bool is_slope[TOLD_WORDS];
  int count;
} Sentence;

static void say_operation(Sentence *sentence, const Node *node) {
  const char *function = node->origin.function, *word = function;
  if (!function || op_info[node->op].op_class == CLASS_CONTRACT) word = op_info[node->op].text;
  bool is_slope = word == function && node->origin.is_backward && !node->origin.is_recomputed;
  int told = sentence->count < TOLD_WORDS ? sentence->count : TOLD_WORDS;
  for (int i = 0; i < told; i++)
    if (!strcmp(sentence->said[i], word) && sentence->is_slope[i] == is_slope) return;
  if (sentence->count++ >= TOLD_WORDS) return;
  sentence->said[told] = word;
  sentence->is_slope[told] = is_slope;
  text_printf(&sentence->text, "%s%s%s", told ? " + " : "", word, is_slope ? "'" : "");
}

static void say_operations(Sentence *sentence, const Node *node) {
  Inside inside = inside_of(node);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < inside.count; i++) {
      const Node *inner = inside_at(inside, i);
      bool is_first = op_info[inner->op].op_class == CLASS_CONTRACT;
      if (is_first == (pass == 0) && lower_is_told(inner)) say_operation(sentence, inner);
    }
  if (!sentence->count) text_printf(&sentence->text, "copy");
  if (sentence->count > TOLD_WORDS) text_printf(&sentence->text, " + ...");
}

static void say_place(Text *text, const Node *node, StepPhase phase) {
  const char *layer[TOLD_LAYERS];
  int count = find_layers(node, layer);
  for (int i = 0; i < count && i < TOLD_LAYERS; i++)
    text_printf(text, "%s%s", i ? " + " : "", layer[i]);
  if (count > TOLD_LAYERS) text_printf(text, " + ...");
  const char *word = phase == PHASE_BOTH                             ? "forward and backward"
                     : phase == PHASE_NONE || phase == PHASE_FORWARD ? NULL
                                                                     : phase_text(phase);
  if (word) text_printf(text, "%s%s", count ? " " : "", word);
  if (word || count) text_printf(text, ": ");
}

void lower_belonging(const Lowering *lowering, const Node *node, PlanStep *step) {
  const char *layer = main_layer(node);
  step->line = node->origin.loc.line;
  step->layer = layer ? arena_strdup(lowering->plan->arena, layer) : NULL;
  step->phase = find_phase(node);
}

void lower_label(Lowering *lowering, const Node *node, PlanStep *step) {
  Sentence sentence = {0};
  lower_belonging(lowering, node, step);
  step->work_kind = find_work_kind(node);
  say_place(&sentence.text, node, step->phase);
  say_operations(&sentence, node);
  step->label = arena_strdup(lowering->plan->arena, text_cstr(&sentence.text));
  text_free(&sentence.text);
}
