/* dot: the graph as Graphviz text. One box per node, coloured by class; a fused node is a cluster
 * that shows its body, with edges from its operands to the args that read them. Gradients are
 * drawn with a dashed border. */
#include "ir/graph.h"
#include "ir/text_form.h"
#include <string.h>

static const char *colour_of(const Node *node) {
  switch (op_info[node->op].op_class) {
  case CLASS_LEAF:
    return node->op == OP_PARAM ? "#ffe0a3" : "#dfe8f5";
  case CLASS_POINTWISE:
    return "#ffffff";
  case CLASS_REDUCE:
    return "#d8f0d8";
  case CLASS_CONTRACT:
    return "#f7c8c0";
  case CLASS_WINDOW:
    return "#f0d8ec";
  case CLASS_MOVE:
    return "#eeeeee";
  case CLASS_STRUCT:
    return "#fff8d0";
  }
  return "#ffffff";
}

/* Inside a quoted Graphviz string. */
static void put_escaped(FILE *out, const char *text) {
  for (const char *s = text; *s; s++) {
    if (*s == '"' || *s == '\\') fputc('\\', out);
    if ((unsigned char)*s >= 0x20) fputc(*s, out);
  }
}

static void put_label(FILE *out, const Node *node) {
  char type[TYPE_TEXT];
  static const AttrId shown[] = {ATTR_NAME, ATTR_TARGET};
  fprintf(out, "%%%d %s", node->id, op_info[node->op].text);
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
    const char *text = node_str(node, shown[i]);
    if (!text) continue;
    fputc(' ', out);
    put_escaped(out, text);
  }
  if (node->op == OP_CONST) fprintf(out, " %g", node_float(node, ATTR_VALUE, 0));
  if (node->op == OP_ARG || node->op == OP_RESULT)
    fprintf(out, " %lld", (long long)node_int(node, ATTR_INDEX, 0));
  fprintf(out, "\\n%s", type_text(&node->type, type));
  if (node->origin.loc.line) fprintf(out, "\\nline %u", node->origin.loc.line);
}

static void put_node(FILE *out, const char *prefix, const Node *node, int indent) {
  fprintf(out, "%*s%s%d [label=\"", indent, "", prefix, node->id);
  put_label(out, node);
  fprintf(out, "\", fillcolor=\"%s\"%s];\n", colour_of(node),
          node->origin.is_backward ? ", style=\"filled,dashed\"" : "");
}

/* The Graphviz node that stands for a value: a fused node's is the root of its body. */
static void put_source(FILE *out, const Node *node) {
  if (node->op == OP_FUSED && node->body && node->body->roots.count)
    fprintf(out, "b%d_%d", node->id, node->body->roots.at[0].node->id);
  else if (node->op == OP_RESULT && node->input[0]->body)
    fprintf(out, "b%d_%d", node->input[0]->id,
            node->input[0]->body->roots.at[node_int(node, ATTR_INDEX, 0)].node->id);
  else
    fprintf(out, "n%d", node->id);
}

static void put_cluster(FILE *out, const Node *fused) {
  char prefix[24];
  const char *kind = node_str(fused, ATTR_KIND);
  snprintf(prefix, sizeof prefix, "b%d_", fused->id);
  fprintf(out, "  subgraph cluster_%d {\n    label=\"%%%d fused ", fused->id, fused->id);
  put_escaped(out, kind ? kind : "");
  fputc(' ', out);
  put_escaped(out, fused->body->name);
  fputs("\"; style=\"rounded,filled\"; color=\"#8090b0\"; fillcolor=\"#f4f7fc\";\n", out);
  for (int i = 0; i < fused->body->nodes.count; i++) {
    const Node *node = fused->body->nodes.at[i];
    put_node(out, prefix, node, 4);
    for (int k = 0; k < node->input_count; k++)
      fprintf(out, "    %s%d -> %s%d;\n", prefix, node->input[k]->id, prefix, node->id);
  }
  fputs("  }\n", out);
  for (int i = 0; i < fused->body->nodes.count; i++) {
    const Node *node = fused->body->nodes.at[i];
    int64_t index = node_int(node, ATTR_INDEX, 0);
    if (node->op != OP_ARG || index < 0 || index >= fused->input_count) continue;
    fputs("  ", out);
    put_source(out, fused->input[index]);
    fprintf(out, " -> %s%d;\n", prefix, node->id);
  }
}

void graph_print_dot(const Graph *graph, FILE *out) {
  fputs("digraph \"", out);
  put_escaped(out, graph->name);
  fputs("\" {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"monospace\", "
        "fontsize=10];\n",
        out);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op == OP_FUSED && node->body) {
      put_cluster(out, node);
      continue;
    }
    if (node->op == OP_RESULT && node->input[0]->body) continue; /* shown by its cluster */
    put_node(out, "n", node, 2);
    for (int k = 0; k < node->input_count; k++) {
      fputs("  ", out);
      put_source(out, node->input[k]);
      fprintf(out, " -> n%d;\n", node->id);
    }
  }
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    fprintf(out, "  r%d [label=\"%s ", i, root_kind_text[root->kind]);
    put_escaped(out, root->name);
    fputs("\", shape=ellipse, fillcolor=\"#c8d8f0\"];\n  ", out);
    put_source(out, root->node);
    fprintf(out, " -> r%d;\n", i);
  }
  fputs("}\n", out);
}
