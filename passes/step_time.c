/* step_time: see step_time.h. */
#include "passes/step_time.h"
#include "passes/fuse.h"
#include <string.h>

/* The ranks of an axis are so far apart in their order. */
static Fabric fabric_of_axis(const Machine *machine, bool for_gpu, const Mesh *mesh,
                             MeshAxis axis) {
  enum { OF_A_NODE = 8 };
  int ranks = mesh_size(mesh, axis), stride = mesh_stride(mesh, axis);
  int local = !for_gpu ? ranks : stride < OF_A_NODE ? OF_A_NODE / stride : 1;
  if (local > ranks) local = ranks;
  return fabric_of(machine, (ranks + local - 1) / local, local);
}

StepTimes step_times(const PassContext *context) {
  const SettingValue *settings = context->settings;
  const char *precision = setting_text(settings, "train.precision");
  bool is_half = !strcmp(precision, "bf16") || !strcmp(precision, "fp16") || !strcmp(precision, "fp8");
  const Machine *machine = machine_find(context->for_gpu ? "h100" : "cpu");
  double peak = is_half && machine->half > 0                      ? machine->half
                : !strcmp(precision, "tf32") && machine->tf32 > 0 ? machine->tf32
                                                                  : machine->f32;
  StepTimes times = {.machine = machine,
                     .products = peak * STEP_PRODUCTS,
                     .bytes = machine->memory_rate * STEP_COPIES,
                     .narrow = is_half ? 2 : 4};
  int data = (int)setting_ranks(settings);
  Mesh mesh = {data ? data : 4, (int)setting_pipeline(settings), (int)setting_tensor(settings)};
  for (MeshAxis axis = MESH_ALL; axis < MESH_AXIS_COUNT; axis++)
    times.fabric[axis] = fabric_of_axis(machine, context->for_gpu, &mesh, axis);
  return times;
}

int64_t step_flops(const Node *node) {
  if (node->op != OP_FUSED) return contraction_flops(node);
  const Node *product = kernel_contraction(node);
  return product ? contraction_flops(product) : 0;
}

double step_seconds(const StepTimes *times, const Node *node) {
  int64_t bytes = 0;
  for (int k = 0; k < node->input_count; k++) bytes += type_bytes(&node->input[k]->type);
  for (int k = 0; k < node_result_count(node); k++) {
    Type type = node_result_type(node, k);
    bytes += type_bytes(&type);
  }
  double work = (double)step_flops(node) / times->products, moves = (double)bytes / times->bytes;
  return (work > moves ? work : moves) + STEP_LAUNCH;
}

double step_collective_seconds(const StepTimes *times, const Node *node) {
  CostKind kind = comm_cost_kind(op_info[node->op].text);
  int64_t in = 0, out = 0;
  for (int k = 0; k < node->input_count; k++) in += type_bytes(&node->input[k]->type);
  for (int k = 0; k < node_result_count(node); k++) {
    Type type = node_result_type(node, k);
    out += type_bytes(&type);
  }
  if (kind == COST_KINDS) kind = COST_BROADCAST;
  return comm_cost(&times->fabric[node_axis(node)], kind, in > out ? in : out).seconds;
}
