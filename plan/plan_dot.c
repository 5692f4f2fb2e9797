/* plan_dot: the plan's steps as Graphviz text: a cluster for each graph, a colour for each queue,
 * and an arrow from each step to those that wait for it. */
#include "plan/plan.h"

static const char *const colours[QUEUE_COUNT] = {[QUEUE_COMPUTE] = "#e4f5df",
                                                 [QUEUE_COPY] = "#eeeeee",
                                                 [QUEUE_COMMUNICATE] = "#ffd9b8",
                                                 [QUEUE_HOST] = "#dbe7ff"};

/* Labels may hold any characters. */
static void print_text(Text *out, const char *text) {
  for (const char *at = text ? text : ""; *at; at++) {
    if (*at == '"' || *at == '\\') text_append(out, "\\", 1);
    text_append(out, (unsigned char)*at < 0x20 ? " " : at, 1);
  }
}

static void plan_dot_print_step(Text *out, int graph, int index, const PlanStep *step) {
  text_printf(out, "    g%d_%d [label=\"%d %s ", graph, index, index, step_kind_text(step->kind));
  print_text(out, step->label);
  text_printf(out, "\\n%s\", fillcolor=\"%s\"]\n", queue_text(step->queue), colours[step->queue]);
  for (int i = 0; i < step->after_count; i++)
    text_printf(out, "    g%d_%d -> g%d_%d\n", graph, step->after[i], graph, index);
}

void plan_print_dot(const Plan *plan, Text *out) {
  text_printf(out, "digraph \"plan\" {\n  node [shape=box, style=filled]\n");
  for (int g = 0; g < plan->graphs.count; g++) {
    const PlanGraph *graph = &plan->graphs.at[g];
    text_printf(out, "  subgraph cluster_%d {\n    label=\"%s\"\n", g, graph->name);
    for (int i = 0; i < graph->steps.count; i++)
      plan_dot_print_step(out, g, i, &graph->steps.at[i]);
    text_printf(out, "  }\n");
  }
  text_printf(out, "}\n");
}
