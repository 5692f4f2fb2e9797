/* mesh_choice: see mesh_choice.h. */
#include "simulate/mesh_choice.h"
#include <string.h>

/* Of candidates as fast as that, to the exactness of the model, the simplest is taken. */
static const double as_fast = 1.01;

typedef struct {
  const MeshQuestion *question;
  MeshAnswer *answer;
  Mesh mesh;
  int zero;
  double least; /* seconds of the fastest so far; 0: none */
  VEC(int64_t) parts; /* numbers of micro-batches that divide a group's samples, ascending */
} MeshSearch;

static bool fits_memory(const MeshSearch *s, const MeshCandidate *c) {
  return !c->refused && c->memory <= s->question->memory;
}

static MeshCandidate reckon(MeshSearch *s, int parts, bool recomputes) {
  int64_t accumulate = s->parts.at[parts];
  MeshCandidate c = {.mesh = s->mesh,
                     .zero = s->zero,
                     .accumulate = accumulate,
                     .batch = s->question->samples / s->mesh.data / accumulate,
                     .recomputes = recomputes};
  s->answer->reckoned++;
  s->question->reckon(s->question->user, &c);
  return c;
}

/* Between two looks, of which only the second fits: where memory would suffice if it consisted of a
 * part that stays and of one that goes with the samples of a micro-batch. */
static int guess_between(const MeshSearch *s, int low, int high, const MeshCandidate *of_low,
                         const MeshCandidate *of_high) {
  int middle = low + (high - low) / 2;
  if (of_low->refused) return middle;
  double from = 1.0 / (double)s->parts.at[low], to = 1.0 / (double)s->parts.at[high];
  double slope = (of_low->memory - of_high->memory) / (from - to);
  for (int i = low + 1; i < high; i++)
    if (of_high->memory + slope * (1.0 / (double)s->parts.at[i] - to) <= s->question->memory)
      return i;
  return high - 1;
}

/* With the fewest micro-batches that fit, from `low` on, or with the most if none do: memory falls
 * with their number. `high`: as many are likely to. A tensor that is too large to be compiled is too
 * much memory. */
static MeshCandidate fewest_parts(MeshSearch *s, int low, int high, bool recomputes, int *found) {
  MeshCandidate less = reckon(s, low, recomputes);
  *found = low;
  if (fits_memory(s, &less) || low == s->parts.count - 1) return less;
  if (high == low) high++;
  MeshCandidate best = reckon(s, high, recomputes);
  int last = s->parts.count - 1;
  if (!fits_memory(s, &best) && high < last) {
    less = best;
    low = high;
    high = last;
    best = reckon(s, high, recomputes);
  }
  *found = high;
  if (!fits_memory(s, &best)) return best.refused && !less.refused ? less : best;
  while (high - low > 1) {
    int middle = guess_between(s, low, high, &less, &best);
    MeshCandidate its = reckon(s, middle, recomputes);
    if (fits_memory(s, &its)) {
      best = its;
      high = *found = middle;
    } else {
      less = its;
      low = middle;
    }
  }
  return best;
}

static bool is_better(const MeshSearch *s, const MeshCandidate *a, const MeshCandidate *b) {
  if (fits_memory(s, a) != fits_memory(s, b)) return fits_memory(s, a);
  return fits_memory(s, a) ? a->seconds < b->seconds : a->memory < b->memory;
}

/* Stages of a pipeline idle at its ends, for longer the fewer micro-batches there are: so more of
 * them may be faster, which without stages they never are. */
static MeshCandidate more_parts(MeshSearch *s, MeshCandidate best, int from) {
  for (int i = from + 1; i < s->parts.count && s->parts.at[i] <= 4 * s->mesh.pipeline; i++) {
    MeshCandidate its = reckon(s, i, best.recomputes);
    if (is_better(s, &its, &best)) best = its;
  }
  return best;
}

/* The mesh at hand with the level at hand. `most`: the level before fits with so many
 * micro-batches, by their number in `parts`; -1: not at all. How many this one takes. */
static int consider_level(MeshSearch *s, int most) {
  int found, again;
  int low = s->zero == 2 && s->parts.count > 1; /* of one micro-batch 2 is the same as 1 */
  while (low < s->parts.count - 1 && s->parts.at[low] < s->mesh.pipeline) low++; /* all idle */
  int high = most >= low ? most : s->parts.count - 1;
  MeshCandidate best = fewest_parts(s, low, high, false, &found);
  bool is_good = fits_memory(s, &best);
  if (s->question->may_recompute && !(is_good && found == low)) {
    int less = is_good ? found - 1 : s->parts.count - 1; /* does it let fewer do at all? */
    MeshCandidate other = reckon(s, less, true);
    if (fits_memory(s, &other) && less > low) other = fewest_parts(s, low, less, true, &again);
    else again = less;
    if (is_better(s, &other, &best)) best = other, found = again;
  }
  if (s->mesh.pipeline > 1 && fits_memory(s, &best)) best = more_parts(s, best, found);
  if (fits_memory(s, &best) && (s->least == 0 || best.seconds < s->least)) s->least = best.seconds;
  VEC_PUSH(s->question->arena, s->answer->candidates, best);
  return fits_memory(s, &best) ? found : -1;
}

static void add_refused(MeshSearch *s, const char *why) {
  MeshCandidate c = {.mesh = s->mesh, .zero = s->question->zero, .refused = why};
  VEC_PUSH(s->question->arena, s->answer->candidates, c);
}

static void consider_mesh(MeshSearch *s) {
  const MeshQuestion *q = s->question;
  s->parts.count = 0;
  int64_t samples = q->samples % s->mesh.data ? 0 : q->samples / s->mesh.data;
  int64_t end = samples < MESH_MOST_PARTS ? samples : MESH_MOST_PARTS;
  for (int64_t parts = 1; parts <= end; parts++)
    if (samples % parts == 0 && (!q->accumulate || parts == q->accumulate))
      VEC_PUSH(q->arena, s->parts, parts);
  if (!s->parts.count) {
    bool is_even = samples > 0;
    add_refused(s, is_even ? arena_printf(q->arena, "%lld samples a group are no %lld micro-batches",
                                     (long long)samples, (long long)q->accumulate)
                      : arena_printf(q->arena, "%d ranks cannot share a batch of %lld samples",
                                     s->mesh.data, (long long)q->samples));
    return;
  }
  int most = -1;
  bool is_whole = false; /* level 1 has a single micro-batch */
  for (s->zero = 0; s->zero <= 3; s->zero++) {
    if (q->zero >= 0 ? s->zero != q->zero : s->zero && s->mesh.data == 1) continue;
    if (s->zero == 2 && q->zero < 0 && (is_whole || s->parts.count == 1)) continue;
    most = consider_level(s, most);
    const MeshCandidate *last = &s->answer->candidates.at[s->answer->candidates.count - 1];
    if (s->zero == 1) is_whole = most == 0;
    if (last->refused) break; /* the levels do not change that, */
    if (most >= 0 && last->seconds > 2 * s->least) break; /* nor that it is twice as slow */
  }
}

static bool is_open(int fixed, int value) { return !fixed || fixed == value; }

void mesh_choose(const MeshQuestion *q, MeshAnswer *out) {
  MeshSearch s = {.question = q, .answer = out};
  *out = (MeshAnswer){.chosen = -1};
  for (int pipeline = 1; pipeline <= q->ranks; pipeline++) {
    if (!q->fixed.pipeline && (s.least > 0 || pipeline > MESH_MOST_STAGES)) break;
    for (int tensor = 1; tensor <= q->ranks; tensor++) {
      if (!is_open(q->fixed.pipeline, pipeline) || !is_open(q->fixed.tensor, tensor)) continue;
      if (q->ranks % pipeline || q->ranks / pipeline % tensor) continue;
      /* the work of a layer is shared inside of a machine, unless the model says otherwise */
      if (!q->fixed.tensor && (tensor > q->local || q->local % tensor)) continue;
      s.mesh = (Mesh){q->ranks / pipeline / tensor, pipeline, tensor};
      if (is_open(q->fixed.data, s.mesh.data)) consider_mesh(&s);
    }
  }
  double least = 0;
  for (int i = 0; i < out->candidates.count; i++) {
    const MeshCandidate *c = &out->candidates.at[i];
    if (fits_memory(&s, c) && (least == 0 || c->seconds < least)) least = c->seconds;
  }
  for (int i = 0; i < out->candidates.count && out->chosen < 0; i++) {
    const MeshCandidate *c = &out->candidates.at[i];
    if (fits_memory(&s, c) && c->seconds <= least * as_fast) out->chosen = i;
  }
}

const MeshCandidate *mesh_nearest(const MeshAnswer *answer) {
  const MeshCandidate *best = NULL;
  for (int i = 0; i < answer->candidates.count; i++) {
    const MeshCandidate *c = &answer->candidates.at[i];
    if (!c->refused && (!best || c->memory < best->memory)) best = c;
  }
  return best;
}
