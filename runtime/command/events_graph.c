/* events_graph: a graph of the plan as TensorBoard's GraphDef; declared in events.h. A kernel is a
 * node; what it reads comes from the kernel that wrote that memory last, or is a parameter or an
 * input. Its box is the layer whose parameter it reads, or else its line in the program. */
#include "runtime/command/event_file.h"
#include "runtime/command/events.h"
#include <ctype.h>
#include <string.h>

typedef struct {
  int place;
  int64_t first, end; /* bytes of it */
} Extent;

typedef struct {
  const Plan *plan;
  const PlanGraph *graph;
  Text *out;
  Text node, name; /* of the step at hand */
} GraphText;

enum { GRAPH_NODE = 1, NODE_NAME = 1, NODE_OP = 2, NODE_INPUT = 3, NODE_ATTRIBUTE = 5 };

static Extent extent_of(const Plan *plan, int place, int64_t offset, const Type *type) {
  int whole = plan_whole_place(plan, place, &offset);
  return (Extent){whole, offset, offset + type_bytes(type)};
}

static Extent extent_of_arg(const GraphText *g, const PlanStep *step, int arg) {
  const PlanBuffer *buffer = &g->graph->buffers.at[step->args[arg]];
  return extent_of(g->plan, buffer->place, buffer->offset, &buffer->type);
}

static bool do_overlap(Extent one, Extent other) {
  return one.place == other.place && one.first < other.end && other.first < one.end;
}

/* TensorFlow's names: letters, digits and _ . - /; a layer's dots nest. No name of the language has
 * a '-', so that what has one is no parameter's. */
static void append_node_part(Text *out, const char *text, size_t count, bool nests) {
  for (size_t i = 0; i < count; i++) {
    char c = text[i] == '.' && nests ? '/' : text[i];
    bool is_fine = isalnum((unsigned char)c) || c == '/' || c == '.' || c == '_';
    if (!is_fine && out->count && out->at[out->count - 1] == '-') continue;
    text_append(out, is_fine ? &c : "-", 1);
  }
}

/* The only tensor that lies there, or NULL: there is none, or there are several. */
static const PlanTensor *tensor_at(const GraphText *g, const PlanTensor *tensors, int count,
                                   Extent at) {
  const PlanTensor *found = NULL;
  for (int i = 0; i < count; i++) {
    Type held = plan_held(&tensors[i]);
    if (!do_overlap(at, extent_of(g->plan, tensors[i].place, tensors[i].offset, &held))) continue;
    if (found) return NULL;
    found = &tensors[i];
  }
  return found;
}

static const PlanTensor *only_param_at(const GraphText *g, Extent at) {
  return tensor_at(g, g->plan->params.at, g->plan->params.count, at);
}

/* "h/3/mlp/dot-add-17": unique by the step's number. */
static void append_step_name(const GraphText *g, Text *out, int index) {
  const PlanStep *step = &g->graph->steps.at[index];
  const char *label = step->label ? step->label : step->name, *colon = strstr(label, ": ");
  const PlanTensor *param = NULL;
  for (int i = 0; !colon && !param && i < step->input_count; i++)
    param = only_param_at(g, extent_of_arg(g, step, i));
  if (colon) {
    append_node_part(out, label, (size_t)(colon - label), true);
    label = colon + 2;
  } else if (param) {
    const char *dot = strrchr(param->name, '.');
    append_node_part(out, param->name, dot ? (size_t)(dot - param->name) : strlen(param->name),
                     true);
  } else if (step->line) {
    text_printf(out, "line-%u", (unsigned)step->line);
  } else {
    text_printf(out, "update");
  }
  text_append(out, "/", 1);
  append_node_part(out, label, strlen(label), false);
  text_printf(out, "-%d", index);
}

static void append_attribute(Text *node, const char *key, const Text *value) {
  Text entry = {0};
  wire_string(&entry, 1, key);
  wire_message(&entry, 2, value);
  wire_message(node, NODE_ATTRIBUTE, &entry);
  text_free(&entry);
}

static void number_attribute(Text *node, const char *key, int64_t number) {
  enum { INTEGER = 3 };
  Text value = {0};
  wire_int(&value, INTEGER, number);
  append_attribute(node, key, &value);
  text_free(&value);
}

/* What the edges from a node are labelled with. */
static void append_shape(Text *list, const Type *type) {
  enum { LIST_SHAPE = 7, DIM = 2, SIZE = 1 };
  Text shape = {0}, dim = {0};
  for (int i = 0; i < type->shape.rank; i++) {
    dim.count = 0;
    wire_int(&dim, SIZE, type->shape.dim[i]);
    wire_message(&shape, DIM, &dim);
  }
  wire_message(list, LIST_SHAPE, &shape);
  text_free(&shape);
  text_free(&dim);
}

static void append_shapes(Text *node, const Text *list) {
  enum { LIST = 1 };
  Text value = {0};
  wire_message(&value, LIST, list);
  append_attribute(node, "_output_shapes", &value);
  text_free(&value);
}

/* An edge from the last step before `index` that writes there; false: there is none. */
static bool append_writer(GraphText *g, Extent at, int index) {
  for (int i = index - 1; i >= 0; i--) {
    const PlanStep *step = &g->graph->steps.at[i];
    for (int arg = step->input_count; arg < step->arg_count; arg++) {
      if (!do_overlap(at, extent_of_arg(g, step, arg))) continue;
      g->name.count = 0;
      append_step_name(g, &g->name, i);
      text_printf(&g->name, ":%d", arg - step->input_count);
      wire_string(&g->node, NODE_INPUT, g->name.at);
      return true;
    }
  }
  return false;
}

/* The node of a parameter or input has its name. */
static void append_tensor_name(Text *out, const PlanTensor *tensor, bool is_param) {
  if (!is_param) text_printf(out, "input-");
  append_node_part(out, tensor->name, strlen(tensor->name), is_param);
}

static void append_step(GraphText *g, int index) {
  const PlanStep *step = &g->graph->steps.at[index];
  const Plan *plan = g->plan;
  Text shapes = {0};
  g->node.count = g->name.count = 0;
  append_step_name(g, &g->name, index);
  wire_string(&g->node, NODE_NAME, g->name.at);
  wire_string(&g->node, NODE_OP,
              step->kind == STEP_LAUNCH && step->label ? step->label : step->name);
  for (int i = 0; i < step->input_count; i++) {
    Extent at = extent_of_arg(g, step, i);
    if (append_writer(g, at, index)) continue;
    const PlanTensor *param = only_param_at(g, at);
    const PlanTensor *input = param ? param : tensor_at(g, plan->inputs.at, plan->inputs.count, at);
    if (!input) continue;
    g->name.count = 0;
    append_tensor_name(&g->name, input, param != NULL);
    wire_string(&g->node, NODE_INPUT, g->name.at);
  }
  for (int arg = step->input_count; arg < step->arg_count; arg++)
    append_shape(&shapes, &g->graph->buffers.at[step->args[arg]].type);
  append_shapes(&g->node, &shapes);
  if (step->line) number_attribute(&g->node, "line", step->line);
  if (step->flops) number_attribute(&g->node, "flops", step->flops);
  if (step->bytes) number_attribute(&g->node, "bytes", step->bytes);
  wire_message(g->out, GRAPH_NODE, &g->node);
  text_free(&shapes);
}

static void append_tensors(GraphText *g, const PlanTensor *tensors, int count, bool are_params) {
  for (int i = 0; i < count; i++) {
    Text shapes = {0};
    g->node.count = g->name.count = 0;
    append_tensor_name(&g->name, &tensors[i], are_params);
    wire_string(&g->node, NODE_NAME, g->name.at);
    wire_string(&g->node, NODE_OP, are_params ? "Parameter" : "Input");
    append_shape(&shapes, &tensors[i].type);
    append_shapes(&g->node, &shapes);
    text_free(&shapes);
    wire_message(g->out, GRAPH_NODE, &g->node);
  }
}

void events_append_graph(Text *out, const Plan *plan, const PlanGraph *graph) {
  enum { MOST_STEPS = 5000 }; /* no browser draws more, and finding edges takes their square */
  GraphText g = {.plan = plan, .graph = graph, .out = out};
  append_tensors(&g, plan->params.at, plan->params.count, true);
  append_tensors(&g, plan->inputs.at, plan->inputs.count, false);
  for (int i = 0; i < graph->steps.count && i < MOST_STEPS; i++) append_step(&g, i);
  text_free(&g.node);
  text_free(&g.name);
}
