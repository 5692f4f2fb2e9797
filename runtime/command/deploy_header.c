/* deploy_header: see deploy_header.h. */
#include "runtime/command/deploy_header.h"
#include <ctype.h>
#include <inttypes.h>

static const char *c_type(DType dtype) {
  switch (dtype) {
  case DT_BOOL:
  case DT_U8:
    return "uint8_t";
  case DT_I32:
    return "int32_t";
  case DT_U32:
    return "uint32_t";
  case DT_I64:
    return "int64_t";
  case DT_F32:
    return "float";
  case DT_F64:
    return "double";
  default:
    return "uint16_t"; /* the bits of an f16 or bf16 */
  }
}

void deploy_header_upper(const char *name, Text *out) {
  for (; *name; name++) {
    char c = isalnum((unsigned char)*name) ? (char)toupper((unsigned char)*name) : '_';
    text_append(out, &c, 1);
  }
}

/* " *   inputs[0]   image: uint8_t [samples][28][28] (u8)" */
static void append_port(Text *out, const char *list, int index, const char *name, const Type *type) {
  text_printf(out, " *   %s[%d]  %s: %s [samples]", list, index, name, c_type(type->dtype));
  for (int d = 1; d < type->shape.rank; d++) text_printf(out, "[%" PRId64 "]", type->shape.dim[d]);
  if (dtype_is_narrow(type->dtype)) text_printf(out, ", bits of %s", dtype_text(type->dtype));
}

static void append_inputs(Text *out, const Plan *plan) {
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    append_port(out, "inputs", i, input->name, &input->type);
    if (input->below) text_printf(out, ", values 0 to %" PRId64, input->below - 1);
    if (input->has_ignore) text_printf(out, " or %" PRId64, input->ignore);
    text_printf(out, "%s\n", input->is_needed_for_predict ? "" : "; not used: NULL");
  }
}

static int append_outputs(Text *out, const PlanGraph *graph) {
  int count = 0;
  for (int i = 0; i < graph->outputs.count; i++) {
    if (graph->outputs.at[i].kind != OUTPUT_RESULT) continue;
    append_port(out, "outputs", count++, graph->outputs.at[i].name, &graph->outputs.at[i].type);
    text_printf(out, "\n");
  }
  return count;
}

int deploy_header_ports(const Plan *plan, const PlanGraph *graph, Text *out) {
  append_inputs(out, plan);
  return append_outputs(out, graph);
}

Status deploy_header_name(const char *what, const char *name) {
  for (; *name; name++)
    if (*name == '"' || *name == '\\' || (unsigned char)*name < ' ' || *name == 127)
      return status_fail(STATUS_USER, "%s its header by name, and so its name (-o) has no quotes, backslashes and control characters", what);
  return STATUS_OK;
}

void deploy_header(const Plan *plan, const Inference *inference, const char *file, bool is_c, Text *out) {
  Text upper = {0}, runs = {0};
  if (!is_c) text_printf(&runs, "It runs on processors that have what %s has.", plan->target_cpu);
  if (is_c) text_printf(&runs, "It runs on any little-endian processor, as fast as its C compiler makes it.");
  deploy_header_upper(inference->prefix, &upper);
  const char *name = text_cstr(&upper), *prefix = inference->prefix;
  text_printf(out,
              "/* Written by ftrun deploy: how to call %s, the model %s for prediction.\n *\n"
              " * %s_run predicts samples, 1 to %s_BATCH, whose values lie one behind the other:\n",
              file, plan->model, prefix, name);
  int outputs = deploy_header_ports(plan, inference->graph, out);
  text_printf(
      out,
      " * workspace: %s_WORKSPACE bytes at a multiple of 64, which the call uses; nothing of it counts\n"
      " * afterwards. The time is that of %s_BATCH samples, however few there are.\n"
      " * Returns 0; -1: samples, a pointer or the workspace is not as it says here; 1 + i: inputs[i] has a\n"
      " * value outside of those named above. The outputs are written on 0 only.\n"
      " * Any number of threads may call it, each with a workspace of its own: it allocates\n"
      " * nothing, starts no thread and writes no memory but outputs and workspace.\n"
      " * %s */\n"
      "#ifndef %s_H\n#define %s_H\n#include <stddef.h>\n#include <stdint.h>\n"
      "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
      "#define %s_BATCH %" PRId64 "\n#define %s_INPUTS %d\n#define %s_OUTPUTS %d\n#define %s_WORKSPACE "
      "%" PRId64 "\n\n"
      "int %s_run(const void *const *inputs, void *const *outputs, int64_t samples, void *workspace,\n"
      "           size_t workspace_bytes);\n\n#ifdef __cplusplus\n}\n#endif\n#endif\n",
      name, name, text_cstr(&runs), name, name, name,
      (int64_t)setting_number(plan->settings, "train.batch"), name, plan->inputs.count, name, outputs,
      name, inference->workspace, prefix);
  text_free(&upper);
  text_free(&runs);
}
