/* slow_engine: an engine that has another one do its works and makes them slow, for tests and for
 * measuring what hides behind computing. A work ends when it is done, and no sooner than over a
 * link that carries one work after another, in the order in which they begin, each for a latency
 * and its bytes over a bandwidth. The waiting costs no processor.
 *
 *   SLOW_ENGINE_OF=FILE         the engine that does the works: libft-mpi.so with its folder
 *   SLOW_ENGINE_LATENCY=US      microseconds of each work; 0
 *   SLOW_ENGINE_BANDWIDTH=MB/S  for the bytes of its result (of a send: its operand); 0: no limit
 *   SLOW_ENGINE_LABEL=TEXT      only works with this in their labels; all */
#include "base/clock.h"
#include "runtime/communicate/engine.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Engine {
  Engine *inner;
  int64_t latency;         /* nanoseconds */
  double bandwidth;        /* bytes a nanosecond; 0: no limit */
  int64_t free_at;         /* when the link has carried all that has begun */
  int ranks;
};
struct EngineWork {
  EngineWork *inner; /* NULL: it is done */
  int64_t ends;
};

static const EngineType *type; /* of the inner engine */

static const int sizes[DT_COUNT] = {
#define X(ID, text, bytes) [DT_##ID] = bytes,
    DTYPES(X)
#undef X
};

static double number(const char *variable) {
  const char *text = getenv(variable);
  return text ? atof(text) : 0;
}

static bool slow_open(const CommPlace *place, int64_t piece, Engine **out, char *why) {
  const char *file = getenv("SLOW_ENGINE_OF");
  void *library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
  type = library ? dlsym(library, ENGINE_SYMBOL) : NULL;
  *out = calloc(1, sizeof **out);
  if (!*out || !type || type->version != ENGINE_VERSION) {
    snprintf(why, ENGINE_WHY, "SLOW_ENGINE_OF=%s: %s", file ? file : "",
             file && !library ? dlerror() : "expected the file of an engine of this version");
    return false;
  }
  (*out)->latency = (int64_t)(1e3 * number("SLOW_ENGINE_LATENCY"));
  (*out)->bandwidth = 1e-3 * number("SLOW_ENGINE_BANDWIDTH");
  (*out)->ranks = place->ranks;
  return type->open(place, piece, &(*out)->inner, why);
}

static void slow_close(Engine *engine, bool has_failed) {
  if (engine && engine->inner) type->close(engine->inner, has_failed);
  free(engine);
}

static int slow_rank(const Engine *engine) { return type->rank(engine->inner); }
static int slow_ranks(const Engine *engine) { return type->ranks(engine->inner); }
static const char *slow_text(const Engine *engine) { return type->text(engine->inner); }

static bool slow_split(Engine *engine, MeshAxis axis, int color, char *why) {
  return type->split(engine->inner, axis, color, why);
}

/* A gather's result is taken for one of all ranks. */
static int64_t bytes_of(const Engine *engine, const CommWork *work) {
  int64_t bytes = work->count * sizes[work->dtype];
  return work->kind == COMM_ALL_GATHER ? bytes * engine->ranks : bytes;
}

static bool slow_begin(Engine *engine, const CommWork *work, EngineWork **out, char *why) {
  EngineWork *made = *out = calloc(1, sizeof *made);
  const char *label = getenv("SLOW_ENGINE_LABEL");
  int64_t now = clock_nanoseconds(), start = engine->free_at > now ? engine->free_at : now;
  int64_t time = engine->latency;
  if (engine->bandwidth > 0) time += (int64_t)((double)bytes_of(engine, work) / engine->bandwidth);
  if (!label || (work->label && strstr(work->label, label)))
    made->ends = engine->free_at = start + time;
  return type->begin(engine->inner, work, &made->inner, why);
}

static bool slow_go_on(Engine *engine, EngineWork *work, EngineState *state, char *why) {
  *state = ENGINE_WAITS;
  if (work->inner && !type->go_on(engine->inner, work->inner, state, why)) return false;
  if (*state == ENGINE_DONE) work->inner = NULL;
  if (work->inner) return true;
  *state = ENGINE_WAITS;
  if (clock_nanoseconds() < work->ends) return true;
  free(work);
  *state = ENGINE_DONE;
  return true;
}

__attribute__((visibility("default"))) extern const EngineType ft_engine;
const EngineType ft_engine = {
    .version = ENGINE_VERSION,
    .keeps_all = true,
    .open = slow_open,
    .close = slow_close,
    .rank = slow_rank,
    .ranks = slow_ranks,
    .text = slow_text,
    .split = slow_split,
    .begin = slow_begin,
    .go_on = slow_go_on,
};
