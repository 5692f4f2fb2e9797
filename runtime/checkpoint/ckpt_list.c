/* ckpt_list: see ckpt_file.h. It knows no rank but the seat that it is given, so every rank makes the
 * same list, and any of them could say what another one writes. */
#include "runtime/checkpoint/ckpt_file.h"
#include "runtime/checkpoint/ckpt_places.h"
#include "runtime/common/permute.h"
#include <stdlib.h>
#include <string.h>

/* ── the list ─────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const PlanTensor *param;
  int plan, index;
} Param;

static int by_program(const void *left, const void *right) {
  const Param *a = left, *b = right;
  if (a->param->stream != b->param->stream) return a->param->stream < b->param->stream ? -1 : 1;
  if (a->plan != b->plan) return a->plan < b->plan ? -1 : 1;
  return a->index - b->index;
}

typedef VEC(Param) Params;

static bool is_named_before(Plan *const *plans, int plan, bool is_state, const char *name) {
  for (int p = 0; p < plan; p++)
    if ((is_state ? plan_find_tensor(plans[p]->states.at, plans[p]->states.count, name)
                  : plan_find_tensor(plans[p]->params.at, plans[p]->params.count, name)) >= 0)
      return true;
  return false;
}

static Params find_params(Arena *arena, Plan *const *plans, int count) {
  Params out = {0};
  for (int p = 0; p < count; p++)
    for (int i = 0; i < plans[p]->params.count; i++)
      if (!is_named_before(plans, p, false, plans[p]->params.at[i].name))
        VEC_PUSH(arena, out, ((Param){&plans[p]->params.at[i], p, i}));
  if (out.count) qsort(out.at, (size_t)out.count, sizeof *out.at, by_program);
  return out;
}

/* A state of some plan, and of all that have one of its name if it goes with the parameters. */
static void add_state(Arena *arena, Plan *const *plans, int plan, const PlanTensor *state,
                      const Params *params, CkptList *out) {
  if (plans[plan]->places.at[state->place].elements != ELEMENTS_LIKE) {
    VEC_PUSH(arena, *out, ((CkptEntry){*state, plan, false}));
    return;
  }
  for (int i = 0; i < params->count; i++) {
    const Param *param = &params->at[i];
    const Plan *of = plans[param->plan];
    int index = plan_find_tensor(of->states.at, of->states.count, state->name);
    CkptEntry entry = {.plan = param->plan, .is_of_params = true};
    if (index < 0 || !ckpt_slice(of, &of->states.at[index], param->param, &entry.tensor)) continue;
    entry.tensor.name = arena_printf(arena, "%s.%s", state->name, param->param->name);
    VEC_PUSH(arena, *out, entry);
  }
}

CkptList ckpt_list(Arena *arena, Plan *const *plans, int count, CkptContent content) {
  CkptList out = {0};
  Params params = find_params(arena, plans, count);
  for (int i = 0; i < params.count; i++) {
    const Plan *plan = plans[params.at[i].plan];
    CkptEntry entry = {*params.at[i].param, params.at[i].plan, true};
    int ema = content == CKPT_EMA ? plan_find_role(plan, ROLE_AVERAGE) : -1;
    if (ema >= 0) ckpt_slice(plan, &plan->states.at[ema], params.at[i].param, &entry.tensor);
    VEC_PUSH(arena, out, entry);
  }
  for (int p = 0; p < count; p++)
    for (int i = 0; i < plans[p]->states.count; i++) {
      const PlanTensor *state = &plans[p]->states.at[i];
      if ((content != CKPT_ALL && !state->is_saved) || role_has(state->role, ROLE_SCRATCH) ||
          is_named_before(plans, p, true, state->name))
        continue;
      add_state(arena, plans, p, state, &params, &out);
    }
  return out;
}

/* ── shares ───────────────────────────────────────────────────────────────────────────────── */
/* Which of those that share the batch have least of what is not divided. */
static int least_loaded(int64_t *load, int ranks, int64_t bytes) {
  int least = 0;
  for (int i = 1; i < ranks; i++)
    if (load[i] < load[least]) least = i;
  load[least] += bytes;
  return least;
}

/* Equal runs, of whole blocks of a disk; small tensors go to one rank each, by turns. */
static CkptShare share_equally(const CkptSeat *seat, int entry, int64_t all) {
  enum { BLOCK = 16384 };
  int64_t part = (all + seat->data_ranks - 1) / seat->data_ranks;
  part = (part + BLOCK - 1) / BLOCK * BLOCK;
  int64_t first = part * ((seat->data + entry) % seat->data_ranks), left = all - first;
  return (CkptShare){entry, first, left < part ? left : part, 0};
}

/* What ranks that share each layer's work have alike is written by the first of them; states that
 * go with no parameter, of which each rank may have its own (running statistics), by the first of
 * all. A tensor whose elements lie in memory in another order than in the file is written as a
 * whole where one rank has it all: in long runs. */
CkptShares ckpt_shares(Arena *arena, const CkptList *list, const CkptSeat *seat) {
  CkptShares out = {0};
  int64_t *load = ARENA_ARRAY(arena, int64_t, seat->data_ranks);
  for (int i = 0; i < list->count; i++) {
    const CkptEntry *entry = &list->at[i];
    const PlanTensor *tensor = &entry->tensor;
    int64_t all = shape_elements(&tensor->type.shape);
    CkptShare share = {i, 0, all, 0};
    if (entry->plan != seat->plan) continue;
    if (tensor->shared) {
      Type held = plan_held(tensor);
      int64_t part = shape_elements(&held.shape), left = all - part * seat->data;
      share = (CkptShare){i, part * seat->data, left < part ? left : part, part * seat->data};
    } else if (!entry->is_of_params) {
      if (seat->data) continue;
    } else if (permute_moves(tensor)) {
      if (least_loaded(load, seat->data_ranks, type_bytes(&tensor->type)) != seat->data) continue;
    } else {
      share = share_equally(seat, i, all);
    }
    if (share.count > 0 && (tensor->cut.ranks || seat->tensor == 0)) VEC_PUSH(arena, out, share);
  }
  return out;
}

static int ranges_by_place(const void *left, const void *right) {
  const ExecRange *a = left, *b = right;
  if (a->place != b->place) return a->place < b->place ? -1 : 1;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

/* In one where they lie side by side, with what fills them up to aligned addresses. */
CkptRanges ckpt_ranges(Arena *arena, const Plan *plan, const CkptList *list,
                       const CkptShares *shares) {
  CkptRanges out = {0};
  int kept = 0;
  for (int i = 0; i < shares->count; i++) {
    const CkptShare *share = &shares->at[i];
    const PlanTensor *tensor = &list->at[share->entry].tensor;
    int64_t unit = dtype_bytes(tensor->type.dtype);
    ExecRange range = {tensor->place, tensor->offset + (share->first - share->base) * unit,
                       share->count * unit};
    range.place = plan_whole_place(plan, range.place, &range.offset);
    VEC_PUSH(arena, out, range);
  }
  if (out.count) qsort(out.at, (size_t)out.count, sizeof *out.at, ranges_by_place);
  for (int i = 0; i < out.count; i++) {
    ExecRange *last = kept ? &out.at[kept - 1] : NULL;
    const ExecRange *next = &out.at[i];
    if (last && last->place == next->place &&
        next->offset - (last->offset + last->bytes) < PLAN_ALIGN)
      last->bytes = next->offset + next->bytes - last->offset;
    else
      out.at[kept++] = *next;
  }
  out.count = kept;
  return out;
}
