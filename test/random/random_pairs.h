/* random_pairs: what met in one kernel: from the bodies of a program's fused nodes, which class of
 * operation reads which other, and through what moves. A word is "producer>move>consumer", with "-"
 * for no move between; of a chain of moves each counts. */
#ifndef FT_TEST_RANDOM_PAIRS_H
#define FT_TEST_RANDOM_PAIRS_H
#include "ir/graph.h"

typedef enum {
  MEET_LOAD,
  MEET_CHEAP,
  MEET_HEAVY,
  MEET_RANDOM,
  MEET_WINDOW,
  MEET_REDUCE,
  MEET_PRODUCT,
  MEET_STORE,
  MEET_CLASSES
} MeetClass;
typedef enum {
  MEET_NONE,
  MEET_RESHAPE,
  MEET_TRANSPOSE,
  MEET_BROADCAST,
  MEET_SLICE,
  MEET_PAD,
  MEET_CONCAT,
  MEET_GATHER,
  MEET_OTHER,
  MEET_MOVES
} MeetMove;
typedef struct {
  bool at[MEET_CLASSES][MEET_MOVES][MEET_CLASSES];
} Meetings;

static const char *const meet_class_text[MEET_CLASSES] = {"load",   "cheap",  "heavy",   "random",
                                                          "window", "reduce", "product", "store"};
static const char *const meet_move_text[MEET_MOVES] = {
    "-", "reshape", "transpose", "broadcast", "slice", "pad", "concat", "gather", "other"};

/* MEET_CLASSES: a constant, which is nobody's work. */
static inline MeetClass meet_class(const Node *node) {
  switch (op_info[node->op].op_class) {
  case CLASS_POINTWISE:
    return op_has(node->op, TRAIT_ELEMENTARY) || node->op == OP_DIV ? MEET_HEAVY : MEET_CHEAP;
  case CLASS_REDUCE:
    return MEET_REDUCE;
  case CLASS_CONTRACT:
    return MEET_PRODUCT;
  case CLASS_WINDOW:
    return MEET_WINDOW;
  default:
    return node->op == OP_ARG ? MEET_LOAD : node->op == OP_RANDOM ? MEET_RANDOM : MEET_CLASSES;
  }
}

static inline MeetMove meet_move(Op op) {
  switch (op) {
  case OP_RESHAPE:
    return MEET_RESHAPE;
  case OP_TRANSPOSE:
    return MEET_TRANSPOSE;
  case OP_BROADCAST:
    return MEET_BROADCAST;
  case OP_SLICE:
    return MEET_SLICE;
  case OP_PAD:
    return MEET_PAD;
  case OP_CONCAT:
    return MEET_CONCAT;
  case OP_GATHER:
    return MEET_GATHER;
  default:
    return MEET_OTHER;
  }
}

/* From a reader up through moves, of which `moves` (bits) have been passed, to who made the
 * value. */
static inline void meet_up(Meetings *meetings, const Node *node, unsigned moves, MeetClass reader) {
  if (op_info[node->op].op_class == CLASS_MOVE) {
    moves |= 1u << meet_move(node->op);
    for (int i = 0; i < node->input_count; i++) meet_up(meetings, node->input[i], moves, reader);
    return;
  }
  MeetClass maker = meet_class(node);
  if (maker == MEET_CLASSES) return;
  if (!moves) moves = 1u << MEET_NONE;
  for (int m = 0; m < MEET_MOVES; m++)
    if (moves >> m & 1) meetings->at[maker][m][reader] = true;
}

static inline void meet_in(Meetings *meetings, const Graph *graph) {
  for (int i = 0; graph && i < graph->nodes.count; i++) {
    const Graph *body = graph->nodes.at[i]->body;
    for (int k = 0; body && k < body->nodes.count; k++) {
      const Node *node = body->nodes.at[k];
      MeetClass reader = meet_class(node);
      bool reads = reader != MEET_CLASSES && op_info[node->op].op_class != CLASS_MOVE;
      for (int j = 0; reads && j < node->input_count; j++)
        meet_up(meetings, node->input[j], 0, reader);
    }
    for (int k = 0; body && k < body->roots.count; k++)
      meet_up(meetings, body->roots.at[k].node, 0, MEET_STORE);
  }
}

static inline const char *meet_words(const Meetings *meetings, Arena *arena) {
  const char *words = "";
  for (int p = 0; p < MEET_CLASSES; p++)
    for (int m = 0; m < MEET_MOVES; m++)
      for (int c = 0; c < MEET_CLASSES; c++)
        if (meetings->at[p][m][c])
          words = arena_printf(arena, "%s %s>%s>%s", words, meet_class_text[p], meet_move_text[m],
                               meet_class_text[c]);
  return words;
}
#endif
