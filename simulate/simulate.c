/* simulate: see simulate.h. */
#include "simulate/simulate.h"
#include "base/mesh.h"
#include <string.h>

/* ── a graph's steps as tasks ───────────────────────────────────────────────────────────────── */
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

/* What the plan's tensor and data axes make of so many ranks. */
static Mesh mesh_of(const Plan *plan, int ranks) {
  int tensor = (int)setting_number(plan->settings, "distributed.tensor");
  return (Mesh){ranks / tensor, 1, tensor};
}

static const char *collective_seconds(Arena *arena, const PlanGraph *graph, const PlanStep *step,
                                      const Cluster *cluster, const Mesh *mesh, double *out) {
  CostKind kind = comm_cost_kind(step->name);
  MeshAxis axis = (MeshAxis)attribute_of(step, "group");
  if (kind == COST_KINDS || axis == MESH_PIPELINE)
    return arena_printf(arena,
                        "%s (%s), which not all ranks take part in alike, is not simulated yet",
                        step->name, step->label);
  Fabric fabric = cluster_group(cluster, mesh, axis);
  *out = comm_cost(&fabric, kind, whole_bytes(graph, step)).seconds;
  return NULL;
}

/* Processes that have all cores of their node at work have none left for what goes on beside: it
 * takes its time from the computing. */
static bool has_spare_cores(const Cluster *cluster) { return cluster->cores == 0; }

static const char *tasks_of(const Simulation *simulation, const PlanGraph *graph,
                            const Cluster *cluster, const Mesh *mesh, TimelineRank *out) {
  TimelineTask *task = ARENA_ARRAY(simulation->arena, TimelineTask, graph->steps.count + 1);
  *out = (TimelineRank){task, graph->steps.count};
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    bool is_beside = step->kind == STEP_BEGIN && has_spare_cores(cluster);
    task[i] = (TimelineTask){
        .queue = is_beside                ? TIMELINE_COMMUNICATE
                 : step->kind == STEP_END ? TIMELINE_NONE
                                          : TIMELINE_COMPUTE,
        .seconds = kernel_seconds(simulation->plan, graph, i, cluster, simulation->measured),
        .after = step->after,
        .after_count = step->after_count,
        .collective = -1};
    if (step->kind != STEP_BEGIN) continue;
    const char *why =
        collective_seconds(simulation->arena, graph, step, cluster, mesh, &task[i].seconds);
    if (why) return why;
  }
  return NULL;
}

/* ── a step ─────────────────────────────────────────────────────────────────────────────────── */
static void add_collectives(Simulated *out, const SimulatedRun *run, const Cluster *cluster) {
  const PlanGraph *graph = run->graph;
  double before = out->communicate;
  for (int i = 0; i < graph->steps.count; i++) {
    if (graph->steps.at[i].kind != STEP_BEGIN) continue;
    const TimelineSpan *span = &run->timeline.span[0][i];
    out->communicate += (double)run->times * (span->end - span->begin);
    out->bytes += (double)run->times * (double)whole_bytes(graph, &graph->steps.at[i]);
    out->collectives += (int)run->times;
  }
  if (has_spare_cores(cluster)) return;
  out->compute -= out->communicate - before;
  out->exposed += out->communicate - before;
}

const char *simulate_step(const Simulation *simulation, int ranks, Simulated *out) {
  const PlanProgramme *programme = plan_find_programme(simulation->plan, PROGRAMME_STEP);
  Cluster part = *simulation->cluster;
  part.fabric = cluster_fabric(simulation->cluster, ranks);
  Mesh mesh = mesh_of(simulation->plan, ranks);
  if (!programme) return "the model has no training step";
  *out = (Simulated){.ranks = ranks};
  for (int r = 0; r < programme->runs.count; r++) {
    SimulatedRun run = {.graph = &simulation->plan->graphs.at[programme->runs.at[r].graph],
                        .times = programme->runs.at[r].times};
    TimelineRank rank;
    const char *why = tasks_of(simulation, run.graph, &part, &mesh, &rank);
    if (why) return why;
    if (!timeline_run(simulation->arena, &rank, 1, &run.timeline))
      return "the plan's steps wait for one another";
    double times = (double)run.times;
    out->seconds += times * run.timeline.seconds;
    out->compute += times * run.timeline.compute[0];
    out->exposed += times * run.timeline.exposed[0];
    out->bubble += times * run.timeline.bubble[0];
    add_collectives(out, &run, &part);
    VEC_PUSH(simulation->arena, out->runs, run);
  }
  out->samples = setting_number(simulation->plan->settings, "train.batch") *
                 (double)plan_batches(programme) * mesh.data;
  return NULL;
}
