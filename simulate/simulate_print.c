/* simulate_print: what people read of a simulation, and the trace. */
#include "simulate/simulate.h"
#include "base/text.h"
#include <string.h>

static const char *human_bytes(double bytes, char buffer[32]) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
  snprintf(buffer, 32, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
  return buffer;
}

static void print_cluster(const Simulation *simulation, int ranks, FILE *out) {
  const Cluster *c = simulation->cluster;
  bool has_others = plan_find_programme(simulation->plan[0], PROGRAMME_STEP)->runs.count > 1;
  fprintf(out, "%s on %d rank%s: %d node%s of %d, %s; estimated, not measured\n",
          simulation->plan[0]->model, ranks, ranks == 1 ? "" : "s", c->fabric.nodes,
          c->fabric.nodes == 1 ? "" : "s", c->fabric.local, c->machine->text);
  if (simulation->measured)
    fprintf(out, "kernels   as measured%s%s%s%s\n", has_others ? " in graph " : "",
            has_others ? simulation->measured->graph : "",
            has_others ? ", estimated in the others" : "",
            cluster_slowness(c) > 1 ? ", and longer where ranks share cores" : "");
  else
    fprintf(out,
            "kernels   %.0f %% of the peak of products, %.0f %% of %.0f GB/s, %.1f us a launch\n",
            100 * c->products, 100 * c->copies, c->memory_rate * 1e-9, c->launch * 1e6);
  fprintf(out, "links     %s %.0f GB/s a rank inside of a node, %.1f GB/s a rank between nodes\n",
          link_kind_text(c->fabric.kind), c->fabric.link * 1e-9, c->fabric.network * 1e-9);
}

static void print_part(const char *what, double seconds, double of, FILE *out) {
  if (seconds < 0) seconds = 0; /* a difference, rounded */
  fprintf(out, "%-22s %10.3f ms %6.1f %%\n", what, seconds * 1e3, of > 0 ? 100 * seconds / of : 0);
}

static void print_step(const Simulated *s, int stages, FILE *out) {
  char text[32];
  fprintf(out, "\nstep                   %10.3f ms   %.0f samples, %.0f samples/s\n",
          s->seconds * 1e3, s->samples, s->seconds > 0 ? s->samples / s->seconds : 0);
  print_part("compute", s->parts.compute, s->seconds, out);
  print_part("exposed communication", s->parts.exposed, s->seconds, out);
  print_part("bubble", s->parts.bubble, s->seconds, out);
  fprintf(out, "communication          %10.3f ms   %.0f collective%s%s of %s, %.1f %% hidden\n",
          s->communicate * 1e3, s->collectives, s->collectives == 1 ? "" : "s",
          stages > 1 ? " and messages" : "", human_bytes(s->bytes, text),
          s->communicate > 0 ? 100 * (1 - s->parts.exposed / s->communicate) : 0);
}

double simulate_memory(const Plan *plan) {
  double total = 0;
  for (int i = 0; i < plan->memory.count; i++) total += (double)plan->memory.at[i].bytes;
  return total;
}

static void print_by_stage(const Simulation *simulation, const Simulated *s, FILE *out) {
  char text[32];
  fprintf(out, "\n%8s %14s %14s %14s %14s\n", "stage", "compute ms", "exposed ms", "bubble ms",
          "memory");
  for (int i = 0; i < simulation->stages; i++) {
    const SimulatedParts *parts = &s->stage[i];
    fprintf(out, "%8d %14.3f %14.3f %14.3f %14s\n", i, parts->compute * 1e3, parts->exposed * 1e3,
            (parts->bubble > 0 ? parts->bubble : 0) * 1e3,
            human_bytes(simulate_memory(simulation->plan[i]), text));
  }
}

/* Of the stage that needs most. */
static void simulate_print_memory(const Simulation *simulation, int ranks, FILE *out) {
  const Plan *plan = simulation->plan[0];
  double room = simulation->cluster->memory, total;
  char text[32], of[32];
  for (int i = 1; i < simulation->stages; i++)
    if (simulate_memory(simulation->plan[i]) > simulate_memory(plan)) plan = simulation->plan[i];
  total = simulate_memory(plan);
  if (simulation->stages > 1)
    fprintf(out, "\nmemory of a rank of stage %d, which needs most\n", plan->stage);
  else
    fprintf(out, "\nmemory of a rank (all %d alike)\n", ranks);
  for (int i = 0; i < plan->memory.count; i++)
    if (plan->memory.at[i].bytes)
      fprintf(out, "  %-32s %12s\n", plan->memory.at[i].category,
              human_bytes((double)plan->memory.at[i].bytes, text));
  fprintf(out, "  %-32s %12s of %s%s\n", "peak", human_bytes(total, text), human_bytes(room, of),
          total > room ? ": it does not fit" : "");
}

/* 1, 2, 4 … ranks of a node, then nodes likewise, then all. */
static int more_ranks(int ranks, int local, int all) {
  int next = ranks < local ? 2 * ranks : ranks * 2;
  if (ranks < local && next > local) next = local;
  return next > all ? all : next;
}

static const char *print_scaling(const Simulation *simulation, int all, FILE *out) {
  double alone = 0;
  if (setting_number(simulation->plan[0]->settings, "distributed.zero") > 0) {
    fprintf(out, "\nwith distributed.zero a plan is for one number of ranks: other numbers, and "
                 "efficiency, by\ncompiling with another distributed.data\n");
    return NULL;
  }
  fprintf(out, "\n%8s %8s %12s %12s %14s %11s\n", "ranks", "nodes", "step ms", "exposed ms",
          "samples/s", "efficiency");
  int group = (int)setting_group(simulation->plan[0]->settings);
  for (int ranks = group;; ranks = more_ranks(ranks, simulation->cluster->fabric.local, all)) {
    Simulated s;
    if (ranks % group) continue; /* never all: simulate_check_ranks */
    Fabric fabric = cluster_fabric(simulation->cluster, ranks);
    const char *why = simulate_step(simulation, ranks, &s);
    if (why) return why;
    if (ranks == group) alone = s.seconds;
    fprintf(out, "%8d %8d %12.3f %12.3f %14.0f %10.1f%%\n", ranks, fabric.nodes, s.seconds * 1e3,
            s.parts.exposed * 1e3, s.seconds > 0 ? s.samples / s.seconds : 0,
            s.seconds > 0 ? 100 * alone / s.seconds : 100);
    if (ranks == all) return NULL;
  }
}

const char *simulate_print(const Simulation *simulation, FILE *out) {
  int ranks = cluster_ranks(simulation->cluster);
  Simulated all;
  const char *why = simulate_step(simulation, ranks, &all);
  if (why) return why;
  print_cluster(simulation, ranks, out);
  print_step(&all, simulation->stages, out);
  if (simulation->stages > 1) print_by_stage(simulation, &all, out);
  simulate_print_memory(simulation, ranks, out);
  return print_scaling(simulation, ranks, out);
}

/* ── the trace ──────────────────────────────────────────────────────────────────────────────── */
/* Two lines of each stage: what it computes, and what goes on beside. */
static void trace_threads(Text *out, int stages) {
  for (int i = 0; i < 2 * stages; i++) {
    text_printf(out,
                "\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"",
                i + 1);
    if (stages > 1) text_printf(out, "stage %d: ", i / 2);
    text_printf(out, "%s\"}},", i % 2 ? "communicate" : "compute");
  }
}

static void trace_task(Text *out, int stage, const PlanStep *step, const TimelineSpan *span,
                       double clock, int number, bool *is_first) {
  text_printf(out,
              "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",",
              *is_first ? "" : ",", 2 * stage + (step->kind == STEP_BEGIN ? 2 : 1), (clock + span->begin) * 1e6,
              (span->end - span->begin) * 1e6, step_kind_text(step->kind));
  text_printf(out, "\"name\":");
  text_append_json(out, step->label ? step->label : step->name);
  text_printf(out, ",\"args\":{\"kernel\":");
  text_append_json(out, step->name);
  text_printf(out, ",\"line\":%u,\"flops\":%lld,\"bytes\":%lld,\"step\":0,\"number\":%d}}",
              step->line, (long long)step->flops, (long long)step->bytes, number);
  *is_first = false;
}

const char *simulate_trace(const Simulation *simulation, Text *out) {
  Simulated s;
  double clock = 0;
  bool is_first = true;
  const char *why = simulate_step(simulation, cluster_ranks(simulation->cluster), &s);
  if (why) return why;
  text_printf(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  trace_threads(out, simulation->stages);
  for (int r = 0; r < s.runs.count; r++)
    for (int64_t time = 0; time < s.runs.at[r].times; time++) {
      const SimulatedRun *run = &s.runs.at[r];
      for (int stage = 0; stage < simulation->stages; stage++) {
        const PlanGraph *graph = run->graph[stage];
        for (int i = 0; i < graph->steps.count; i++)
          if (graph->steps.at[i].kind != STEP_END)
            trace_task(out, stage, &graph->steps.at[i], &run->timeline.span[stage][i], clock, i,
                       &is_first);
      }
      clock += run->timeline.seconds;
    }
  text_printf(out, "\n]}\n");
  return NULL;
}
