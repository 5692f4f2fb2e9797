/* join: see join.h. Steps are gone through in their order. Each goes to the earliest group that may have it, behind all
 * steps that it waits for, or into the last one of these, behind the kernels there that go by its rows; the groups, in the
 * order of their first steps, are the new steps. */
#include "codegen/chain.h"
#include "codegen/join.h"
#include "codegen/nvptx_private.h"
#include "plan/plan_order.h"
#include <string.h>

enum {
  MOST_ARGS = 128, /* of a joined kernel */
  FAR = 256,       /* groups that are looked at for a step */
  WIDE = 256,      /* threads of a block; those of a larger one have 128 registers each, or fewer */
  /* Threads of a launch that are on the GPU at once with up to 64 registers each: beyond, blocks wait for each other, and
   * less is won. */
  MOST_THREADS = MULTIPROCESSORS * 1024
};

typedef struct {
  int first, count, args; /* its first step; how many; args of all */
  int lines;              /* that its blocks are divided among */
  int64_t blocks, threads;
} Group;

typedef struct {
  Module *module;
  Plan *plan;
  PlanGraph *graph;
  Arena *scratch;
  int *group;  /* by step */
  int *line;   /* by step: the first one of its line, which is itself where it follows none */
  VEC(Group) groups;
} Joining;

/* ── which steps ──────────────────────────────────────────────────────────────────────────── */
static int64_t launch_blocks(const PlanStep *step) { return step->grid[0] * step->grid[1] * step->grid[2]; }

/* The two launches of one kernel say that they touch the same, though each writes a part of it: whoever counts what is
 * written (plan/plan_writes.c) knows them by standing side by side. */
static bool are_of_one_kernel(const PlanStep *a, const PlanStep *b) {
  return a->kind == STEP_LAUNCH && b->kind == STEP_LAUNCH && a->arg_count == b->arg_count &&
         a->input_count == b->input_count &&
         !memcmp(a->args, b->args, sizeof *a->args * (size_t)a->arg_count);
}

static bool may_join(const Joining *j, int index) {
  const PlanStep *step = &j->graph->steps.at[index];
  if (step->kind != STEP_LAUNCH || step->queue != QUEUE_COMPUTE || step->map_count || step->cluster ||
      step->stays || step->shared || step->block[1] != 1 || step->block[2] != 1)
    return false;
  if (index && are_of_one_kernel(step - 1, step)) return false;
  if (index + 1 < j->graph->steps.count && are_of_one_kernel(step, step + 1)) return false;
  return launch_blocks(step) * step->block[0] <= MOST_THREADS;
}

static bool group_takes(const Joining *j, const Group *group, const PlanStep *step) {
  int64_t threads = group->threads > step->block[0] ? group->threads : step->block[0];
  if (threads > WIDE && group->threads != step->block[0]) return false; /* the narrower one may need more registers */
  return group->threads && group->lines < STEP_PARTS && group->count < JOIN_MOST_PARTS && group->args + step->arg_count <= MOST_ARGS &&
         j->graph->steps.at[group->first].is_early == step->is_early &&
         (group->blocks + launch_blocks(step)) * threads <= MOST_THREADS;
}

/* ── kernels that go by the same rows ─────────────────────────────────────────────────────── */
/* Are all bytes that both touch, and one writes, the same rows in both? */
static bool meet_by_rows(const Joining *j, const PlanStep *a, const PlanStep *b) {
  const ChainLaunch *x = chain_launch(j->module, a->name), *y = chain_launch(j->module, b->name);
  if (!x || !y || x->rows != y->rows) return false;
  for (int i = 0; i < a->arg_count; i++)
    for (int k = 0; k < b->arg_count; k++) {
      const PlanBuffer *p = &j->graph->buffers.at[a->args[i]], *q = &j->graph->buffers.at[b->args[k]];
      if ((i < a->input_count && k < b->input_count) || !plan_buffers_overlap(p, q)) continue;
      if (i >= a->input_count && k >= b->input_count) return false; /* --check=nan finds the first one's there, too */
      bool is_same = p->offset == q->offset && type_bytes(&p->type) == type_bytes(&q->type);
      if (!x->by_rows[i] || !y->by_rows[k] || !is_same || p->type.pitch || q->type.pitch) return false;
    }
  return true;
}

/* The line of the group that the step may come behind: the one that has all in the group that it waits for. -1: none. */
static int find_line(const Joining *j, int index, int number) {
  const PlanStep *step = &j->graph->steps.at[index];
  if (number < 0 || !chain_launch(j->module, step->name)) return -1;
  const Group *group = &j->groups.at[number];
  int line = -1;
  if (group->threads != step->block[0] || group->count == JOIN_MOST_PARTS || group->args + step->arg_count > MOST_ARGS ||
      j->graph->steps.at[group->first].is_early != step->is_early)
    return -1;
  for (int i = group->first; i < index; i++) {
    const PlanStep *other = &j->graph->steps.at[i];
    if (j->group[i] != number || !plan_steps_conflict(j->graph, other, step)) continue;
    if (!meet_by_rows(j, other, step) || (line >= 0 && line != j->line[i])) return -1;
    line = j->line[i];
  }
  return line;
}

static void group_step(Joining *j, int index) {
  const PlanStep *step = &j->graph->steps.at[index];
  bool may = may_join(j, index);
  int first = 0;
  for (int i = 0; i < step->after_count; i++)
    if (j->group[step->after[i]] >= first) first = j->group[step->after[i]] + 1;
  int line = may ? find_line(j, index, first - 1) : -1;
  j->line[index] = line >= 0 ? line : index;
  if (line >= 0) {
    j->group[index] = first - 1;
    j->groups.at[first - 1].count++;
    j->groups.at[first - 1].args += step->arg_count;
    return;
  }
  if (first < j->groups.count - FAR) first = j->groups.count - FAR;
  for (int g = first; may && g < j->groups.count; g++) {
    Group *group = &j->groups.at[g];
    if (!group_takes(j, group, step)) continue;
    j->group[index] = g;
    group->count++;
    group->lines++;
    group->args += step->arg_count;
    group->blocks += launch_blocks(step);
    if (group->threads < step->block[0]) group->threads = step->block[0];
    return;
  }
  j->group[index] = j->groups.count;
  Group fresh = {.first = index, .count = 1, .lines = 1};
  if (may) fresh = (Group){index, 1, step->arg_count, 1, launch_blocks(step), step->block[0]};
  VEC_PUSH(j->scratch, j->groups, fresh);
}

/* ── the kernel ───────────────────────────────────────────────────────────────────────────── */
static bool is_same_join(const Join *a, const Join *b) {
  if (a->part_count != b->part_count) return false;
  for (int i = 0; i < a->part_count; i++) {
    const JoinPart *x = &a->part[i], *y = &b->part[i];
    if (strcmp(x->name, y->name) != 0 || x->follows != y->follows ||
        memcmp(x->parameters, y->parameters, sizeof *x->parameters * (size_t)x->parameter_count) != 0)
      return false;
  }
  return true;
}

/* "k5" of "k5_row_sum", "s1_k5" of "s1_k5_row_sum". */
static int short_length(const char *name) {
  const char *number = strchr(name, 'k');
  return (int)(number ? (number - name) + (int)strcspn(number, "_") : (int)strlen(name));
}

static const char *name_join(Joining *j, const Join *join) {
  Text text = {0};
  if (j->plan->stage) text_printf(&text, "s%d_", j->plan->stage);
  text_printf(&text, "join%d", j->module->joins.count);
  for (int i = 0; i < join->part_count; i++)
    text_printf(&text, "_%.*s", short_length(join->part[i].name), join->part[i].name);
  const char *name = arena_strdup(j->plan->arena, text_cstr(&text));
  text_free(&text);
  return name;
}

/* The name of the kernel, which is the one of an equal group before. */
static const char *find_join(Joining *j, Join *join) {
  for (int i = 0; i < j->module->joins.count; i++)
    if (is_same_join(j->module->joins.at[i], join)) return j->module->joins.at[i]->name;
  Join *kept = ARENA_NEW(j->module->arena, Join);
  join->name = name_join(j, join);
  *kept = *join;
  VEC_PUSH(j->module->arena, j->module->joins, kept);
  return join->name;
}

/* ── the step ─────────────────────────────────────────────────────────────────────────────── */
static int64_t weight_of(const PlanStep *step) {
  return step->flops > step->bytes ? step->flops : step->bytes;
}

/* Which of the members before this one in its line makes the input k of member i, and which of its args that is; -1: none. */
static int find_maker(const Joining *j, const int *members, int i, int k, int *arg) {
  const PlanBuffer *input = &j->graph->buffers.at[j->graph->steps.at[members[i]].args[k]];
  for (int m = i - 1; m >= 0 && j->line[members[m]] == j->line[members[i]]; m--) {
    const PlanStep *step = &j->graph->steps.at[members[m]];
    for (*arg = step->input_count; *arg < step->arg_count; ++*arg)
      if (plan_buffers_overlap(input, &j->graph->buffers.at[step->args[*arg]])) return m;
  }
  return -1;
}

/* Inputs of all parts, then outputs of all parts. What a part reads that another one of its line makes is an output only. */
static void join_args(Joining *j, const int *members, int count, Join *join, PlanStep *out) {
  Arena *arena = j->plan->arena;
  int total = 0, next = 0, arg;
  for (int i = 0; i < count; i++) total += j->graph->steps.at[members[i]].arg_count;
  int *args = ARENA_ARRAY(arena, int, total), *own[JOIN_MOST_PARTS];
  for (int i = 0; i < count; i++)
    own[i] = ARENA_ARRAY(j->module->arena, int, j->graph->steps.at[members[i]].arg_count + 1);
  for (int writes = 0; writes < 2; writes++) {
    for (int i = 0; i < count; i++) {
      const PlanStep *step = &j->graph->steps.at[members[i]];
      int first = writes ? step->input_count : 0, end = writes ? step->arg_count : step->input_count;
      for (int k = first; k < end; k++)
        if (writes || find_maker(j, members, i, k, &arg) < 0) own[i][k] = next, args[next++] = step->args[k];
    }
    if (!writes) out->input_count = next;
  }
  for (int i = 0; i < count; i++) {
    const PlanStep *step = &j->graph->steps.at[members[i]];
    for (int k = 0; k < step->input_count; k++) {
      int maker = find_maker(j, members, i, k, &arg);
      bool is_new = true; /* a buffer that is read twice counts once (make_step in lower_kernel.c) */
      if (maker < 0) continue;
      own[i][k] = own[maker][arg];
      for (int before = 0; before < k; before++) is_new &= step->args[before] != step->args[k];
      if (is_new) out->bytes -= type_bytes(&j->graph->buffers.at[step->args[k]].type);
    }
  }
  out->args = args;
  out->arg_count = join->parameter_count = next;
  for (int i = 0; i < count; i++) join->part[i].parameters = own[i];
}

/* Of several steps the largest gives layer, line and kind. */
static void join_belonging(Joining *j, const int *members, int count, PlanStep *out) {
  const PlanStep *most = &j->graph->steps.at[members[0]];
  bool is_forward = false, is_mixed = false;
  Text label = {0};
  out->flops = out->bytes = 0;
  for (int i = 0; i < count; i++) {
    const PlanStep *step = &j->graph->steps.at[members[i]];
    if (weight_of(step) > weight_of(most)) most = step;
    is_forward |= step->phase == PHASE_FORWARD || step->phase == PHASE_BOTH;
    is_mixed |= step->phase != j->graph->steps.at[members[0]].phase;
    out->flops += step->flops;
    out->bytes += step->bytes;
    text_printf(&label, "%s%s", i ? "; " : "", step->label);
  }
  out->line = most->line;
  out->layer = most->layer;
  out->phase = is_mixed && is_forward ? PHASE_BOTH : most->phase;
  out->work_kind = most->work_kind;
  out->label = arena_strdup(j->plan->arena, text_cstr(&label));
  text_free(&label);
}

static PlanStep join_steps(Joining *j, const int *members, int count) {
  Join join = {.arena = j->module->arena, .part_count = count};
  PlanStep out = j->graph->steps.at[members[0]];
  int64_t *parts = ARENA_ARRAY(j->plan->arena, int64_t, count), blocks = 0;
  int lines = 0;
  for (int i = 0; i < count; i++) {
    const PlanStep *step = &j->graph->steps.at[members[i]];
    JoinPart *part = &join.part[i];
    *part = (JoinPart){.name = step->name,
                       .follows = j->line[members[i]] != members[i],
                       .is_followed = i + 1 < count && j->line[members[i + 1]] != members[i + 1],
                       .threads = (int)step->block[0],
                       .parameter_count = step->arg_count};
    memcpy(part->grid, step->grid, sizeof part->grid);
    if (part->threads > join.threads) join.threads = part->threads;
    if (!part->follows) blocks += parts[lines++] = launch_blocks(step);
  }
  join_belonging(j, members, count, &out);
  join_args(j, members, count, &join, &out);
  out.name = find_join(j, &join);
  memcpy(out.grid, (int64_t[]){blocks, 1, 1}, sizeof out.grid);
  memcpy(out.block, (int64_t[]){join.threads, 1, 1}, sizeof out.block);
  out.parts = lines > 1 ? parts : NULL;
  out.part_count = lines > 1 ? lines : 0;
  return out;
}

/* ── what else tells steps by their numbers ───────────────────────────────────────────────── */
static void move_bodies(Joining *j) {
  for (int i = 0; i < j->graph->bodies.count; i++) {
    PlanBody body = j->graph->bodies.at[i];
    int first = j->group[body.first], end = first + 1;
    for (int s = body.first; s < body.end; s++) {
      if (j->group[s] < first) first = j->group[s];
      if (j->group[s] >= end) end = j->group[s] + 1;
    }
    body.first = first, body.end = end;
    int k = i;
    for (; k > 0 && j->graph->bodies.at[k - 1].first > first; k--)
      j->graph->bodies.at[k] = j->graph->bodies.at[k - 1];
    j->graph->bodies.at[k] = body;
  }
}

/* A library call stands for whole steps, side by side. */
static bool move_instead(const Joining *j, PlanInstead *instead) {
  int first = j->group[instead->first];
  for (int s = instead->first; s < instead->end; s++)
    if (j->groups.at[j->group[s]].count > 1 || j->group[s] != first + s - instead->first) return false;
  instead->end += first - instead->first;
  instead->first = first;
  return true;
}

static void move_insteads(Joining *j, int count) {
  int kept = 0;
  for (int i = 0; i < count; i++) {
    PlanInstead instead = j->graph->insteads.at[i];
    if (move_instead(j, &instead)) j->graph->insteads.at[kept++] = instead;
  }
  j->graph->insteads.count = kept;
}

/* Each line's steps behind one another. */
static void order_members(const Joining *j, int *members, int count) {
  for (int i = 1; i < count; i++) {
    int step = members[i], k = i;
    for (; k > 0 && j->line[members[k - 1]] > j->line[step]; k--) members[k] = members[k - 1];
    members[k] = step;
  }
}

static void make_steps(Joining *j) {
  int count = j->graph->steps.count, *members = ARENA_ARRAY(j->scratch, int, count + 1);
  int *next = ARENA_ARRAY(j->scratch, int, j->groups.count + 1);
  PlanStep *made = ARENA_ARRAY(j->scratch, PlanStep, j->groups.count + 1);
  for (int g = 0, at = 0; g < j->groups.count; at += j->groups.at[g++].count) next[g] = at;
  for (int i = 0; i < count; i++) members[next[j->group[i]]++] = i;
  for (int g = 0; g < j->groups.count; g++) {
    int *own = members + next[g] - j->groups.at[g].count;
    order_members(j, own, j->groups.at[g].count);
    made[g] = j->groups.at[g].count > 1 ? join_steps(j, own, j->groups.at[g].count)
                                        : j->graph->steps.at[own[0]];
    if (made[g].kind == STEP_BEGIN || made[g].kind == STEP_END)
      made[g].partner = j->group[made[g].partner];
  }
  memcpy(j->graph->steps.at, made, sizeof *made * (size_t)j->groups.count);
  j->graph->steps.count = j->groups.count;
}

/* ── small launches in a line ─────────────────────────────────────────────────────────────── */
static bool is_early_launch(const PlanStep *step) { return step->kind == STEP_LAUNCH && step->is_early; }

static void wait_for_one(Arena *arena, PlanStep *step, int before) {
  int *after = ARENA_ARRAY(arena, int, 1);
  after[0] = before;
  step->after = after;
  step->after_count = 1;
}

/* A launch behind two is not begun early (plan_begins_early). Where one of the two is small, and the other one, or what it
 * waits for, was to wait for the same step as that one, it waits for the small one instead: all are in one line then, each early. */
static void line_up(Arena *arena, PlanGraph *graph) {
  for (int i = 0; i < graph->steps.count; i++) {
    PlanStep *step = &graph->steps.at[i];
    if (!is_early_launch(step) || step->after_count != 2) continue;
    int small = step->after[0], last = step->after[1], next = last;
    const PlanStep *beside = &graph->steps.at[small];
    if (!is_early_launch(beside) || beside->after_count != 1 || launch_blocks(beside) * beside->block[0] > MOST_THREADS)
      continue;
    while (graph->steps.at[next].after_count == 1 && graph->steps.at[next].after[0] > small)
      next = graph->steps.at[next].after[0];
    PlanStep *first = &graph->steps.at[next];
    if (!is_early_launch(first) || first->after_count != 1 || first->after[0] != beside->after[0]) continue;
    wait_for_one(arena, first, small);
    wait_for_one(arena, step, last);
  }
}

bool join_is_wanted(const Module *first) { /* what is deployed is a part of the steps */
  return first->target == TARGET_PTX && !first->options->is_inference && !module_leaves_out(first, "join_launches");
}

const char *join_launches(Module *first, Plan *plan, PlanGraph *graph) {
  int insteads = graph->insteads.count;
  if (!join_is_wanted(first)) return plan_order_find(plan->arena, graph);
  /* what calls touch besides must not keep small launches apart, whose places they cannot take then */
  graph->insteads.count = 0;
  const char *why = plan_order_find(plan->arena, graph);
  graph->insteads.count = insteads;
  if (why) return why;
  Joining j = {.module = first, .plan = plan, .graph = graph, .scratch = arena_new()};
  j.group = ARENA_ARRAY(j.scratch, int, graph->steps.count + 1);
  j.line = ARENA_ARRAY(j.scratch, int, graph->steps.count + 1);
  for (int i = 0; i < graph->steps.count; i++) group_step(&j, i);
  if (j.groups.count < graph->steps.count) {
    move_insteads(&j, insteads);
    move_bodies(&j);
    make_steps(&j);
  }
  arena_free(j.scratch);
  why = plan_order_find(plan->arena, graph);
  if (!why) line_up(plan->arena, graph);
  return why;
}
