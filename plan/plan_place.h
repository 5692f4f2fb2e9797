/* plan_place: the memory of a plan, as an open list of places. Each is memory of its own, or a
 * window of one that is: bytes [offset, offset + bytes) of it. What a place is for follows from
 * what its line says, never from its name:
 *
 *   place params 4096 for ever elements f32 saved weights
 *   place frozen 8192 for ever elements f32 saved weights frozen
 *   place narrow 2048 for ever elements bf16 rounded params
 *   place grads 4096 for step elements f32 like params
 *   place state 8320 for ever saved checkpoint
 *   place settings 64 for ever from host
 *   place input 6400 for batch from host
 *   place output 64 for batch to host
 *   place work 90000 for batch
 *   place prepared 4096 for weights
 *   place @ema 4096 for ever elements f32 like params saved checkpoint of state+128
 *
 * Every place, and every buffer in it, is 64-byte aligned. */
#ifndef FT_PLAN_PLAN_PLACE_H
#define FT_PLAN_PLAN_PLACE_H
#include "ir/type.h"

/* How long what is written there is kept: for ever; until the step, of one batch or of several
 * parts of one, is done; as long as programme GENERATE runs on the same texts; until the run of a
 * graph on its batch is done; until weights change that it was made of (plan_prepare.h). A window may
 * keep its part of a place longer than the rest is kept. */
#define PLACE_LIVES(X)                                                                             \
  X(EVER, "ever") X(STEP, "step") X(TEXT, "text") X(BATCH, "batch") X(WEIGHTS, "weights")
typedef enum {
#define X(ID, text) FOR_##ID,
  PLACE_LIVES(X)
#undef X
      PLACE_LIFE_COUNT
} PlaceLife;

/* FROM: the host fills it, and no step writes it. For each batch: it is a batch, of which a device
 * has several at different addresses. TO: the host reads it after each run, while the next one goes
 * on. */
#define PLACE_HOSTS(X) X(NONE, "none") X(FROM, "from") X(TO, "to")
typedef enum {
#define X(ID, text) HOST_##ID,
  PLACE_HOSTS(X)
#undef X
      PLACE_HOST_COUNT
} PlaceHost;

/* What goes to files: WEIGHTS to those of weights and to checkpoints; CHECKPOINT to checkpoints,
 * and to weights only the tensors that say so. A tensor whose role is scratch goes to neither. A
 * tensor in a place that is `like` another one is saved in slices, one for each parameter there. */
#define PLACE_SAVES(X) X(NONE, "none") X(WEIGHTS, "weights") X(CHECKPOINT, "checkpoint")
typedef enum {
#define X(ID, text) SAVED_##ID,
  PLACE_SAVES(X)
#undef X
      PLACE_SAVED_COUNT
} PlaceSaved;

/* Whose order the elements have. FLAT: of nothing else. LIKE: element i belongs to element i of the
 * place `of_elements`. ROUNDED: it is element i of that place, rounded: a step that writes the one
 * writes the other, and the runtime rounds where it writes that place itself. */
typedef enum { ELEMENTS_NONE, ELEMENTS_FLAT, ELEMENTS_LIKE, ELEMENTS_ROUNDED } PlaceElements;

typedef struct {
  const char *name;
  int64_t bytes;
  PlaceLife life;
  PlaceHost host;
  PlaceSaved saved;
  PlaceElements elements;
  DType dtype;     /* of all elements, but with ELEMENTS_NONE */
  int of_elements; /* LIKE, ROUNDED */
  bool is_frozen;  /* no graph writes there */
  bool is_window;
  int of;         /* a window: of this place, which is none itself, */
  int64_t offset; /* … from this byte on */
} PlanPlace;

enum { PLAN_MOST_PLACES = 4096 };

/* The places that ftc makes. They come first in its plans, in this order, so it may use the
 * constants as indices; readers of a plan go by what the lines say.
 *   params    the parameters, all f32 or all bf16; a `param` is a slice, with its elements in
 *             the order that its `storage` says
 *   narrow    f32 parameters rounded to bf16 or f16, for products; else empty
 *   grads     the gradients
 *   state     running statistics, the step counter, what the optimizer keeps: windows of it
 *   settings  one f64 for each numeric setting that the graphs read
 *   input     a batch: all input tensors one behind the other
 *   output    loss and metrics: scalars
 *   work      activations, temporaries, and the tensors among the outputs (each graph has its own
 *             offsets; size is the largest); a window "caches": what GENERATE remembers
 *   workspace what kernels use while they run. It belongs to the queue compute.
 *   frozen    the parameters that the update leaves as they are, if there are any; frozen_narrow is
 *             to it what narrow is to params
 *   given     what files have of frozen layers, if there are any: states of role given
 *   prepared  what graphs have of weights alone and make once: see plan_prepare.h */
#define STANDARD_PLACES(X)                                                                         \
  X(PARAMS, "params")                                                                              \
  X(NARROW, "narrow")                                                                              \
  X(GRADS, "grads")                                                                                \
  X(STATE, "state")                                                                                \
  X(SETTINGS, "settings")                                                                          \
  X(INPUT, "input")                                                                                \
  X(OUTPUT, "output")                                                                              \
  X(WORK, "work")                                                                                  \
  X(WORKSPACE, "workspace")                                                                        \
  X(FROZEN, "frozen") X(FROZEN_NARROW, "frozen_narrow") X(GIVEN, "given") X(PREPARED, "prepared")
typedef enum {
#define X(ID, text) PLACE_##ID,
  STANDARD_PLACES(X)
#undef X
      STANDARD_PLACE_COUNT
} StandardPlace;
const char *standard_place_text(StandardPlace id);
bool standard_place_parse(const char *text, StandardPlace *out);
#endif
