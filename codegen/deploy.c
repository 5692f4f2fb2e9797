/* deploy: see deploy.h. The tables are assembly of the module: rows of numbers and addresses, as
 * kernels/deploy_x86.c reads them. Kernels that are not listed any more become internal, and LLVM removes
 * them. */
#include "codegen/deploy.h"
#include "codegen/nvptx_private.h"
#include "plan/plan_inference.h"
#include "plan/plan_prepare.h"
#include <inttypes.h>
#include <string.h>

enum { DEPLOY_MOST_ARGS = 256 }; /* MOST_ARGS there */

static bool graph_launches(const PlanGraph *graph, const char *name) {
  for (int i = 0; i < graph->steps.count; i++)
    if (graph->steps.at[i].kind == STEP_LAUNCH && !strcmp(graph->steps.at[i].name, name)) return true;
  return false;
}

/* Those of the evaluation, and those that ftrun deploy runs to prepare its weights. */
static void keep_kernels(Module *module, const Plan *plan, const PlanGraph *graph) {
  int kept = 0, prepare = plan_prepare_of(plan, graph);
  for (int i = 0; i < module->kernels.count; i++)
    if (graph_launches(graph, module->kernels.at[i]) ||
        (prepare >= 0 && graph_launches(&plan->graphs.at[prepare], module->kernels.at[i])))
      module->kernels.at[kept++] = module->kernels.at[i];
  module->kernels.count = kept;
}

int deploy_step_kind(const PlanStep *step) {
  return step->kind == STEP_LAUNCH            ? 0
         : step->kind == STEP_COPY            ? 1
         : step->kind == STEP_FILL            ? 2
         : strcmp(step->name, "gemm") == 0    ? 3
                                              : 4;
}

static void write_steps(const Inference *inference, Text *out) {
  const PlanGraph *graph = inference->graph;
  for (int i = 0; i < inference->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[inference->steps.at[i]];
    text_printf(out, ".Lft_args%d:\n", i);
    for (int k = 0; k < step->arg_count; k++) {
      const PlanBuffer *buffer = &graph->buffers.at[step->args[k]];
      bool is_kept;
      int64_t at = inference_at(inference, buffer->place, buffer->offset, &is_kept);
      text_printf(out, ".quad %" PRId64 "\n", 2 * at + !is_kept);
    }
    text_printf(out, ".Lft_ints%d:\n", i); /* in the order of plan/calls.def */
    for (int k = 0; k < step->int_count; k++)
      text_printf(out, ".quad %" PRId64 "\n", step->ints[k].value);
  }
  text_printf(out, ".Lft_steps:\n");
  for (int i = 0; i < inference->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[inference->steps.at[i]];
    int kind = deploy_step_kind(step);
    text_printf(out, ".quad %d, %s, %" PRId64 ", %d, .Lft_args%d, .Lft_ints%d\n", kind,
                kind ? "0" : step->name, step->work, step->arg_count, i, i);
  }
}

static void write_ports(const char *label, const InferencePort *port, int count, Text *out) {
  text_printf(out, "%s:\n", label);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < INFERENCE_PORT; k++) text_printf(out, ".quad %" PRId64 "\n", port[i].number[k]);
}

/* What each run copies of the weights; the count. */
static int write_copies(const Inference *inference, Text *out) {
  int count = 0;
  text_printf(out, ".Lft_copies:\n");
  for (const InferenceRange *range = NULL; (range = inference_next_copy(inference, range)) != NULL; count++)
    text_printf(out, ".quad %" PRId64 ", %" PRId64 ", %" PRId64 "\n", range->at, range->copy,
                range->bytes);
  return count;
}

static void write_tables(Arena *arena, const Plan *plan, const Inference *inference, Text *out) {
  const char *prefix = inference->prefix;
  InferencePort *port = ARENA_ARRAY(arena, InferencePort, plan->inputs.count + inference->graph->outputs.count);
  text_printf(out, ".section .ft_weights,\"a\",@progbits\n.balign 64\n.Lft_weights:\n.zero %" PRId64 "\n.quad 0x%" PRIx64 "\n.zero %d\n",
              inference->weights, inference->layout, PLAN_ALIGN - 8); /* ftrun deploy asks for the layout */
  text_printf(out, ".section .data.rel.ro.ft_deploy,\"aw\",@progbits\n.balign 8\n");
  write_steps(inference, out);
  inference_inputs(plan, inference, port);
  write_ports(".Lft_inputs", port, plan->inputs.count, out);
  int outputs = inference_outputs(inference, port);
  write_ports(".Lft_outputs", port, outputs, out);
  int copies = write_copies(inference, out);
  text_printf(out,
              ".Lft_tables:\n.quad .Lft_weights, %" PRId64 ", %" PRId64
              ", %d, %d, %d, %d, .Lft_steps, .Lft_inputs, .Lft_outputs, .Lft_copies\n",
              (int64_t)setting_number(plan->settings, "train.batch"), inference->workspace,
              inference->steps.count, plan->inputs.count, outputs, copies);
  text_printf(out,
              ".section .text.%s_run,\"ax\",@progbits\n.globl %s_run\n.type %s_run,@function\n"
              ".hidden ft_deploy_run\n%s_run:\nendbr64\nleaq .Lft_tables(%%rip), %%r9\n"
              "jmp ft_deploy_run\n.size %s_run, .-%s_run\n.text\n",
              prefix, prefix, prefix, prefix, prefix, prefix);
}

static bool deploy_refuse(Module *module, const char *why) {
  diag_error(module->diag, (Loc){0}, "this model cannot be deployed: %s", why);
  return false;
}

/* Who deploys reads it from the file. */
void deploy_section(const char *name, const Text *bytes, Text *out) {
  text_printf(out, ".section %s,\"\",@progbits\n", name);
  for (size_t i = 0; i < bytes->count; i++)
    text_printf(out, i % 32 ? ",%d" : "\n.byte %d", (unsigned char)bytes->at[i]);
  text_printf(out, "\n.text\n");
}

/* The kernel that looks at the caller's values. The tables are in the C header that ftrun deploy writes. */
static void add_ptx(Module *module) {
  static const char check[] = "ft_deploy_check";
  module_specialise(module, "deploy_ptx", check, "");
  VEC_PUSH(module->arena, module->kernels, check);
}

bool deploy_add(Module *const *modules, int count, const Plan *plan, const Text *onnx) {
  Module *first = modules[0];
  Inference inference;
  const char *why = inference_find(first->arena, plan, &inference);
  if (why) return deploy_refuse(first, why);
  for (int i = 0; i < inference.steps.count; i++)
    if (inference.graph->steps.at[inference.steps.at[i]].arg_count > DEPLOY_MOST_ARGS)
      return deploy_refuse(first, "a kernel has more than 256 operands");
  for (int i = 0; i < count; i++) keep_kernels(modules[i], plan, inference.graph);
  if (first->target == TARGET_PTX) {
    add_ptx(first);
    return true;
  }
  Text text = {0};
  write_tables(first->arena, plan, &inference, &text);
  if (onnx) deploy_section(".ft_onnx", onnx, &text);
  LLVMAppendModuleInlineAsm(first->llvm, text_cstr(&text), text.count);
  first->needs_library = true;
  if (first->is_portable) VEC_PUSH(first->arena, first->kernels, "ft_deploy_run"); /* which the assembly calls */
  text_free(&text);
  return true;
}
