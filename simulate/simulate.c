/* simulate: see simulate.h. */
#include "simulate/simulate.h"
#include "base/mesh.h"
#include <string.h>

static int64_t attribute_of(const PlanStep *step, const char *key) {
  for (int i = 0; i < step->int_count; i++)
    if (!strcmp(step->ints[i].key, key)) return step->ints[i].value;
  return 0;
}

/* Of the whole tensor: the larger of the two that a collective joins. */
static int64_t whole_bytes(const PlanGraph *graph, const PlanStep *step) {
  int64_t bytes = 0;
  for (int i = 0; i < step->arg_count; i++) {
    int64_t its = type_bytes(&graph->buffers.at[step->args[i]].type);
    if (its > bytes) bytes = its;
  }
  return bytes;
}

static Mesh mesh_of(const Plan *plan, int ranks) {
  int pipeline = (int)setting_pipeline(plan->settings), tensor = (int)setting_tensor(plan->settings);
  return (Mesh){ranks / (pipeline * tensor), pipeline, tensor};
}

/* ── what goes between ranks ────────────────────────────────────────────────────────────────── */
typedef struct {
  const Simulation *simulation;
  Cluster cluster; /* of the ranks that take part */
  Mesh mesh;
  int stage; /* at hand */
} StageAtHand;

/* From a stage to another, each by its first rank. */
static double message_seconds(const StageAtHand *s, int from, int to, int64_t bytes) {
  Fabric fabric = s->cluster.fabric;
  int ranks = fabric.local, stride = mesh_stride(&s->mesh, MESH_PIPELINE);
  bool is_inside = from * stride / ranks == to * stride / ranks;
  fabric.nodes = is_inside ? 1 : 2;
  fabric.local = is_inside ? 2 : 1;
  return comm_cost(&fabric, COST_SEND, bytes).seconds;
}

static const char *add_stage_message(const StageAtHand *s, const PlanGraph *graph,
                                     const PlanStep *step, TimelineTask *task) {
  bool is_transfer = !strcmp(step->name, "transfer"), is_send = !strcmp(step->name, "send");
  int peer = (int)attribute_of(step, "peer");
  task->from = is_transfer ? (int)attribute_of(step, "from") : is_send ? s->stage : peer;
  task->to = is_transfer ? (int)attribute_of(step, "to") : is_send ? peer : s->stage;
  if (attribute_of(step, "group") != MESH_PIPELINE || task->from >= s->simulation->stages ||
      task->to >= s->simulation->stages)
    return arena_printf(s->simulation->arena,
                        "%s (%s), which is not from one stage of a pipeline to another, is not "
                        "simulated yet",
                        step->name, step->label);
  bool takes_part = task->from == s->stage || task->to == s->stage;
  task->queue = takes_part ? TIMELINE_MESSAGE : TIMELINE_NONE;
  task->seconds = message_seconds(s, task->from, task->to, whole_bytes(graph, step));
  return NULL;
}

/* Processes that have all cores of their node at work have none left for what goes on beside: it
 * takes its time from the computing. */
static bool has_spare_cores(const Cluster *cluster) { return cluster->cores == 0; }

static const char *add_beside(const StageAtHand *s, const PlanGraph *graph, const PlanStep *step,
                              int *together, TimelineTask *task) {
  CostKind kind = comm_cost_kind(step->name);
  if (kind == COST_SEND) return add_stage_message(s, graph, step, task);
  if (kind == COST_KINDS)
    return arena_printf(s->simulation->arena, "%s (%s) is not simulated yet", step->name,
                        step->label);
  MeshAxis axis = (MeshAxis)attribute_of(step, "group");
  if (axis == MESH_ALL && s->mesh.pipeline > 1) axis = MESH_STAGE; /* all that run this plan */
  Fabric fabric = cluster_group(&s->cluster, &s->mesh, axis);
  task->seconds = comm_cost(&fabric, kind, whole_bytes(graph, step)).seconds;
  task->queue = has_spare_cores(&s->cluster) ? TIMELINE_COMMUNICATE : TIMELINE_COMPUTE;
  if (axis == MESH_PIPELINE) { /* all stages take part, in one order */
    task->queue = TIMELINE_COMMUNICATE;
    task->collective = (*together)++;
  }
  return NULL;
}

/* ── a graph's steps as tasks ───────────────────────────────────────────────────────────────── */
static const char *tasks_of(const StageAtHand *s, const PlanGraph *graph, TimelineRank *out) {
  const Simulation *simulation = s->simulation;
  const Plan *plan = simulation->plan[s->stage];
  TimelineTask *task = ARENA_ARRAY(simulation->arena, TimelineTask, graph->steps.count + 1);
  int together = 0;
  *out = (TimelineRank){task, graph->steps.count};
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    task[i] = (TimelineTask){
        .queue = step->kind == STEP_END ? TIMELINE_NONE : TIMELINE_COMPUTE,
        .seconds = kernel_seconds(plan, graph, i, &s->cluster, simulation->measured),
        .after = step->after,
        .after_count = step->after_count,
        .collective = -1};
    const char *why = step->kind == STEP_BEGIN ? add_beside(s, graph, step, &together, &task[i])
                                               : NULL;
    if (why) return why;
  }
  return NULL;
}

/* ── a step ─────────────────────────────────────────────────────────────────────────────────── */
/* What a stage's rank does in a run, of so many stages. */
static void add_stage(Simulated *out, const SimulatedRun *run, const StageAtHand *s) {
  const PlanGraph *graph = run->graph[s->stage];
  const Timeline *timeline = &run->timeline;
  double times = (double)run->times, share = times / s->simulation->stages, communicate = 0;
  bool takes_turns = !has_spare_cores(&s->cluster);
  SimulatedParts parts = {timeline->compute[s->stage], timeline->exposed[s->stage],
                          timeline->bubble[s->stage]};
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    const TimelineSpan *span = &timeline->span[s->stage][i];
    if (step->kind != STEP_BEGIN) continue;
    communicate += span->end - span->begin;
    bool is_message = comm_cost_kind(step->name) == COST_SEND;
    if (takes_turns && !is_message && attribute_of(step, "group") != MESH_PIPELINE) {
      parts.compute -= span->end - span->begin;
      parts.exposed += span->end - span->begin;
    }
    out->bytes += share * (double)whole_bytes(graph, step);
    out->collectives += share;
  }
  SimulatedParts *own = &out->stage[s->stage];
  own->compute += times * parts.compute;
  own->exposed += times * parts.exposed;
  own->bubble += times * parts.bubble;
  out->parts.compute += share * parts.compute;
  out->parts.exposed += share * parts.exposed;
  out->parts.bubble += share * parts.bubble;
  out->communicate += share * communicate;
}

static const char *simulate_run(StageAtHand *s, int number, Simulated *out) {
  const Simulation *simulation = s->simulation;
  Arena *arena = simulation->arena;
  TimelineRank *rank = ARENA_ARRAY(arena, TimelineRank, simulation->stages);
  SimulatedRun run = {.graph = ARENA_ARRAY(arena, const PlanGraph *, simulation->stages)};
  for (s->stage = 0; s->stage < simulation->stages; s->stage++) {
    const Plan *plan = simulation->plan[s->stage];
    const PlanProgramme *programme = plan_find_programme(plan, PROGRAMME_STEP);
    if (!programme || number >= programme->runs.count)
      return "the stages do not run as many graphs each";
    run.graph[s->stage] = &plan->graphs.at[programme->runs.at[number].graph];
    run.times = programme->runs.at[number].times;
    const char *why = tasks_of(s, run.graph[s->stage], &rank[s->stage]);
    if (why) return why;
  }
  if (!timeline_run(arena, rank, simulation->stages, &run.timeline))
    return "the plan's steps wait for one another";
  out->seconds += (double)run.times * run.timeline.seconds;
  for (s->stage = 0; s->stage < simulation->stages; s->stage++) add_stage(out, &run, s);
  VEC_PUSH(arena, out->runs, run);
  return NULL;
}

const char *simulate_step(const Simulation *simulation, int ranks, Simulated *out) {
  const Plan *plan = simulation->plan[0];
  const PlanProgramme *programme = plan_find_programme(plan, PROGRAMME_STEP);
  StageAtHand stage = {simulation, *simulation->cluster, mesh_of(plan, ranks), 0};
  stage.cluster.fabric = cluster_fabric(simulation->cluster, ranks);
  if (!programme) return "the model has no training step";
  *out = (Simulated){.ranks = ranks,
                     .stage = ARENA_ARRAY(simulation->arena, SimulatedParts, simulation->stages)};
  for (int r = 0; r < programme->runs.count; r++) {
    const char *why = simulate_run(&stage, r, out);
    if (why) return why;
  }
  out->samples = setting_number(plan->settings, "train.batch") * (double)plan_batches(programme) *
                 (double)plan_parts_at_once(plan) * stage.mesh.data;
  return NULL;
}
