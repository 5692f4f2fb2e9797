/* role: what a param or state is for. The compiler sets it where it makes the leaf; the graph's
 * text and the plan's say it, and code that decides something about a leaf asks for the role or one
 * of its traits. Names are for files and people. */
#ifndef FT_BASE_ROLE_H
#define FT_BASE_ROLE_H
#include <stdbool.h>

/* ONE: at most one state has it. APART: a state that is not in the arena of states; a plan has no
 * line for it. UPDATE: belongs to the update of the parameters and lies behind the model's states.
 * SLICED: f32[N], of which element i belongs to element i of the parameters; checkpoints hold it in
 * slices, by parameter. SCRATCH: no checkpoint holds it, as it is dead when a step, an evaluation or
 * a text is over, or a file of its own has it. NUMBER: f64[], written by the runtime. COUNTER: i64[]. BY_…: whose graphs write it, and
 * no others: the runs of a step before its last (PART), its last one (UPDATE), those of an
 * evaluation, those of generation; each does so once, but PERHAPS. */
typedef enum {
  ROLE_OF_PARAM = 1 << 0, /* a param may have it */
  ROLE_OF_STATE = 1 << 1,
  ROLE_ONE = 1 << 2,
  ROLE_APART = 1 << 3,
  ROLE_UPDATE = 1 << 4,
  ROLE_SLICED = 1 << 5,
  ROLE_SCRATCH = 1 << 6,
  ROLE_NUMBER = 1 << 7,
  ROLE_COUNTER = 1 << 8,
  ROLE_BY_PART = 1 << 9,
  ROLE_BY_UPDATE = 1 << 10,
  ROLE_BY_EVALUATION = 1 << 11,
  ROLE_BY_GENERATION = 1 << 12,
  ROLE_PERHAPS = 1 << 13
} RoleTrait;

/* clang-format off */
#define ROLES(X)                                                                                   \
  /* no param and no state */                                                                      \
  X(NONE, "none", 0)                                                                               \
  /* a parameter; a state: all of them, flat */                                                    \
  X(PARAMS, "params", ROLE_OF_PARAM | ROLE_OF_STATE | ROLE_ONE | ROLE_APART | ROLE_BY_UPDATE)      \
  /* the same, rounded to bf16 or f16 */                                                           \
  X(NARROW, "narrow", ROLE_OF_PARAM | ROLE_OF_STATE | ROLE_ONE | ROLE_APART | ROLE_BY_UPDATE)      \
  /* of a plan's place: parameters that no graph writes */                                         \
  X(FROZEN, "frozen", 0)                                                                           \
  /* the program's own, as running statistics are */                                               \
  X(MODEL, "model", ROLE_OF_STATE | ROLE_BY_PART | ROLE_BY_UPDATE | ROLE_PERHAPS)                  \
  /* of a frozen layer: what a file has, and no graph writes */                                    \
  X(GIVEN, "given", ROLE_OF_STATE | ROLE_SCRATCH)                                                  \
  /* training steps done */                                                                        \
  X(STEP, "step", ROLE_OF_STATE | ROLE_ONE | ROLE_COUNTER | ROLE_BY_UPDATE)                        \
  /* of an optimizer */                                                                            \
  X(MOMENT, "moment", ROLE_OF_STATE | ROLE_UPDATE | ROLE_SLICED | ROLE_BY_UPDATE)                  \
  /* of pruning: which parameters are alive, and by what they are chosen */                        \
  X(PRUNE, "prune", ROLE_OF_STATE | ROLE_UPDATE | ROLE_SLICED | ROLE_BY_UPDATE)                    \
  /* of the parameters over the steps */                                                           \
  X(AVERAGE, "average", ROLE_OF_STATE | ROLE_ONE | ROLE_UPDATE | ROLE_SLICED | ROLE_BY_UPDATE)     \
  /* over the parts of a batch */                                                                  \
  X(GRADIENT_SUM, "gradient_sum", ROLE_OF_STATE | ROLE_APART | ROLE_UPDATE | ROLE_SCRATCH |        \
    ROLE_BY_PART | ROLE_BY_UPDATE | ROLE_PERHAPS)                                                  \
  /* of the loss or a metric, over the parts */                                                    \
  X(PART_TOTAL, "part_total", ROLE_OF_STATE | ROLE_UPDATE | ROLE_SCRATCH | ROLE_BY_PART)           \
  /* parts of the batch done */                                                                    \
  X(PART, "part", ROLE_OF_STATE | ROLE_ONE | ROLE_UPDATE | ROLE_SCRATCH | ROLE_COUNTER |           \
    ROLE_BY_PART | ROLE_BY_UPDATE)                                                                 \
  /* fp16's, and the counts by which it changes */                                                 \
  X(LOSS_SCALE, "loss_scale", ROLE_OF_STATE | ROLE_BY_UPDATE)                                      \
  /* scales of operands of 8-bit products, and the largest numbers that they follow from */         \
  X(FLOAT8, "float8", ROLE_OF_STATE | ROLE_BY_UPDATE)                                              \
  /* what the schedule remembers of evaluations */                                                 \
  X(PLATEAU, "plateau", ROLE_OF_STATE | ROLE_ONE)                                                  \
  /* of an evaluation, over its batches */                                                         \
  X(TOTAL, "total", ROLE_OF_STATE | ROLE_SCRATCH | ROLE_BY_EVALUATION)                             \
  /* 1: not the first batch of a pass */                                                           \
  X(KEEP, "keep", ROLE_OF_STATE | ROLE_ONE | ROLE_SCRATCH | ROLE_NUMBER)                           \
  /* samples that only fill the last batch */                                                      \
  X(MISSING, "missing", ROLE_OF_STATE | ROLE_ONE | ROLE_SCRATCH | ROLE_NUMBER)                     \
  /* samples of the split, less a batch's */                                                       \
  X(MORE, "more", ROLE_OF_STATE | ROLE_ONE | ROLE_SCRATCH | ROLE_NUMBER)                           \
  /* from 0 to the output "passes", less 1 */                                                      \
  X(PASS, "pass", ROLE_OF_STATE | ROLE_ONE | ROLE_SCRATCH | ROLE_NUMBER)                           \
  /* of a text that is generated */                                                                \
  X(POSITION, "position", ROLE_OF_STATE | ROLE_ONE | ROLE_SCRATCH | ROLE_COUNTER |                 \
    ROLE_BY_GENERATION)                                                                            \
  /* keys and values of that text */                                                               \
  X(CACHE, "cache", ROLE_OF_STATE | ROLE_APART | ROLE_SCRATCH | ROLE_BY_GENERATION |               \
    ROLE_PERHAPS)
/* clang-format on */

typedef enum {
#define X(ID, text, traits) ROLE_##ID,
  ROLES(X)
#undef X
      ROLES_END
} LeafRole;

const char *role_text(LeafRole role);
bool role_has(LeafRole role, RoleTrait trait);
bool role_parse(const char *text, LeafRole *out);
#endif
