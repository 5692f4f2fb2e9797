/* deploy_c: the C text of a portable artifact (csource.h): kernels, the tables that kernels/deploy_x86.c reads, and
 * the function PREFIX_run. The weights are declared, and ftrun deploy defines them behind the text. */
#include "codegen/csource.h"
#include "codegen/deploy.h"
#include "plan/plan_inference.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
  CSource *source;
  const Plan *plan;
  const Inference *inference;
  Text cells; /* rows of ft_cell */
  Text numbers;
  int64_t number_count;
} CTables;

static void table_number(CTables *t, int64_t number) {
  text_printf(&t->numbers, "%s%" PRId64 "%s", t->number_count % 8 ? " " : "\n  ", number, ",");
  t->number_count++;
}

static const char *step_where(const Module *module, const PlanStep *step) {
  const char *label = step->label ? step->label : step->name ? step->name : "?";
  return arena_printf(module->arena, "line %u, layer '%s'", step->line, label);
}

/* kind, kernel, work, count, args, ints */
static void table_steps(const Module *module, CTables *t) {
  const PlanGraph *graph = t->inference->graph;
  text_printf(&t->cells, "static const ft_cell ft_steps[] = {\n");
  for (int i = 0; i < t->inference->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[t->inference->steps.at[i]];
    int kind = deploy_step_kind(step);
    int64_t args = t->number_count;
    for (int k = 0; k < step->arg_count; k++) {
      const PlanBuffer *buffer = &graph->buffers.at[step->args[k]];
      bool is_kept;
      int64_t at = inference_at(t->inference, buffer->place, buffer->offset, &is_kept);
      table_number(t, 2 * at + !is_kept);
    }
    int64_t ints = t->number_count;
    for (int k = 0; k < step->int_count; k++) table_number(t, step->ints[k].value);
    text_printf(&t->cells, "  {%du}, ", kind);
    if (kind)
      text_printf(&t->cells, "{0}, ");
    else
      text_printf(&t->cells, "{.f = (ft_function *)%s}, ", csource_function(t->source, step->name, step_where(module, step)));
    text_printf(&t->cells, "{%" PRId64 "u}, {%du}, {.p = ft_numbers + %" PRId64 "}, {.p = ft_numbers + %" PRId64 "},\n",
                step->work, step->arg_count, args, ints);
  }
  text_printf(&t->cells, "  {0}};\n");
}

static void table_ports(CTables *t, const char *name, const InferencePort *port, int count) {
  text_printf(&t->cells, "static const int64_t %s[] = {\n", name);
  for (int i = 0; i < count; i++) {
    text_printf(&t->cells, "  ");
    for (int k = 0; k < INFERENCE_PORT; k++) text_printf(&t->cells, "%" PRId64 ", ", port[i].number[k]);
    text_printf(&t->cells, "\n");
  }
  text_printf(&t->cells, "  0};\n");
}

/* The tables' numbers and addresses in the order of kernels/deploy_x86.c. */
static void table_head(CTables *t, int inputs, int outputs, int copies) {
  const Inference *inference = t->inference;
  text_printf(&t->cells,
              "static const ft_cell ft_tables[] = {{.p = ft_weights}, {%" PRId64 "u}, {%" PRId64 "u}, {%du}, {%du}, {%du}, {%du},\n"
              "  {.p = ft_steps}, {.p = ft_inputs}, {.p = ft_outputs}, {.p = ft_copies}};\n\n",
              (int64_t)setting_number(t->plan->settings, "train.batch"), inference->workspace,
              inference->steps.count, inputs, outputs, copies);
}

static int table_copies(CTables *t) {
  int count = 0;
  text_printf(&t->cells, "static const int64_t ft_copies[] = {\n");
  for (const InferenceRange *range = NULL; (range = inference_next_copy(t->inference, range)) != NULL; count++)
    text_printf(&t->cells, "  %" PRId64 ", %" PRId64 ", %" PRId64 ",\n", range->at, range->copy, range->bytes);
  text_printf(&t->cells, "  0};\n");
  return count;
}

/* The caller's pointers go into cells, which are what the code reads. */
static void write_run(const CTables *t, const char *run, int inputs, int outputs, Text *out) {
  text_printf(out,
              "int %s_run(const void *const *inputs, void *const *outputs, int64_t samples, void *workspace, size_t workspace_bytes) {\n"
              "  ft_cell in[%d], out[%d];\n"
              "  if (!inputs || !outputs || !workspace) return -1;\n"
              "  for (int i = 0; i < %d; i++) in[i].p = inputs[i];\n"
              "  for (int i = 0; i < %d; i++) out[i].p = outputs[i];\n"
              "  return (int)(int32_t)%s((char *)in, (char *)out, (uint64_t)samples, (char *)workspace, workspace_bytes,\n"
              "                          (char *)(uintptr_t)ft_tables);\n}\n",
              t->inference->prefix, inputs, outputs, inputs, outputs, run);
}

static void write_section(const Text *c, Module *module) {
  Text section = {0};
  deploy_section(".ft_c", c, &section);
  LLVMAppendModuleInlineAsm(module->llvm, text_cstr(&section), section.count);
  text_free(&section);
}

bool deploy_write_c(Module *module, const Plan *plan) {
  Inference inference;
  if (inference_find(module->arena, plan, &inference)) return false; /* deploy_add has said why */
  CTables t = {.source = csource_new(module), .plan = plan, .inference = &inference};
  InferencePort *port = ARENA_ARRAY(module->arena, InferencePort, plan->inputs.count + inference.graph->outputs.count);
  table_steps(module, &t);
  const char *run = csource_function(t.source, "ft_deploy_run", "the model's function");
  inference_inputs(plan, &inference, port);
  table_ports(&t, "ft_inputs", port, plan->inputs.count);
  int outputs = inference_outputs(&inference, port);
  table_ports(&t, "ft_outputs", port, outputs);
  int copies = table_copies(&t);
  table_head(&t, plan->inputs.count, outputs, copies);
  Text text = {0};
  bool is_good = csource_finish(t.source, &text);
  text_printf(&text, "FT_ALIGN(64) static const uint64_t ft_weights[%" PRId64 "];\nstatic const int64_t ft_numbers[] = {%s 0\n};\n%s",
              (inference.weights + PLAN_ALIGN) / 8, text_cstr(&t.numbers), text_cstr(&t.cells));
  write_run(&t, run, plan->inputs.count, outputs, &text);
  if (is_good) write_section(&text, module);
  csource_free(t.source);
  text_free(&t.cells);
  text_free(&t.numbers);
  text_free(&text);
  return is_good;
}
