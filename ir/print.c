/* print: the text form. Everything that graph_parse reads back is written here: floats in the
 * shortest spelling that parses to the same bits, strings escaped, locations in full. */
#include "base/text.h"
#include "ir/graph.h"
#include "ir/region.h"
#include "ir/text_form.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const root_kind_text[ROOT_FACTOR + 1] = {
    [ROOT_LOSS] = "loss",           [ROOT_METRIC] = "metric",
    [ROOT_OUTPUT] = "output",       [ROOT_AUC] = "auc",
    [ROOT_ASSIGN] = "assign",       [ROOT_RESULT] = "result",
    [ROOT_GRADIENTS] = "gradients", [ROOT_PASSES] = "passes",
    [ROOT_RATE] = "rate",           [ROOT_LOSS_SCALE] = "loss_scale",
    [ROOT_DIRECTION] = "direction", [ROOT_ASCENT] = "ascent",
    [ROOT_STAYS] = "stays",
    [ROOT_SKIPPED] = "skipped",     [ROOT_OBJECTIVE] = "objective",
    [ROOT_FACTOR] = "factor",       [ROOT_GRAD_NORM] = "grad_norm",
    [ROOT_GRAD_FACTOR] = "grad_factor",
};

const char *const region_policy_text[4] = {
    [REGION_SETTING] = "",
    [REGION_NONE] = "none",
    [REGION_POINTWISE] = "pointwise",
    [REGION_BLOCK] = "block",
};

static void print_quoted(Text *out, const char *string) {
  text_append(out, "\"", 1);
  for (const char *s = string; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c == '\n')
      text_append(out, "\\n", 2);
    else if (c == '\t')
      text_append(out, "\\t", 2);
    else if (c < 0x20 || c == 0x7f)
      text_printf(out, "\\x%02x", c);
    else
      text_append(out, s, 1);
  }
  text_append(out, "\"", 1);
}

static void print_float(Text *out, double value) {
  if (isnan(value)) {
    text_printf(out, signbit(value) ? "-nan" : "nan");
  } else if (isinf(value)) {
    text_printf(out, value < 0 ? "-inf" : "inf");
  } else {
    char buffer[40];
    for (int digits = 6; digits <= 17; digits += digits == 6 ? 9 : 1) {
      snprintf(buffer, sizeof buffer, "%.*g", digits, value);
      if (strtod(buffer, NULL) == value) break;
    }
    text_printf(out, "%s", buffer);
  }
}

static void print_attr(Text *out, const Attr *attr) {
  text_printf(out, "%s=", attr_info[attr->id].text);
  switch (attr_info[attr->id].kind) {
  case ATTR_KIND_INT:
    text_printf(out, "%lld", (long long)attr->i);
    break;
  case ATTR_KIND_FLOAT:
    print_float(out, attr->f);
    break;
  case ATTR_KIND_BOOL:
    text_printf(out, attr->i ? "true" : "false");
    break;
  case ATTR_KIND_STR:
    print_quoted(out, attr->s);
    break;
  case ATTR_KIND_DTYPE:
    text_printf(out, "%s", dtype_text((DType)attr->i));
    break;
  case ATTR_KIND_INTS:
  case ATTR_KIND_FLOATS:
    for (int i = 0; i < attr->count; i++) {
      text_append(out, i ? "," : "[", 1);
      if (attr_info[attr->id].kind == ATTR_KIND_FLOATS)
        print_float(out, attr->floats[i]);
      else
        text_printf(out, "%lld", (long long)attr->ints[i]);
    }
    text_printf(out, attr->count ? "]" : "[]");
    break;
  }
}

static void print_word(Text *out, const char *before, const char *word) {
  if (!word) return;
  text_printf(out, "%s", before);
  print_quoted(out, word);
}

static void print_loc(Text *out, const Node *node) {
  const Origin *origin = &node->origin;
  Loc loc = origin->loc;
  Region region = origin->region;
  bool known = loc.file || loc.line || loc.column || region.number;
  bool is_marked =
      origin->is_backward || origin->is_recomputed || origin->is_update || origin->piece;
  if (!known && !is_marked && !origin->layer && !origin->function) return;
  text_printf(out, "  @%s%s%s", origin->is_backward ? "~" : "", origin->is_recomputed ? "+" : "",
              origin->is_update ? "!" : "");
  if (known && loc.file != 1) text_printf(out, "%u:", loc.file);
  if (known) text_printf(out, "%u:%u", loc.line, loc.column);
  if (region.number) text_printf(out, "#%u%s", region.number, region_policy_text[region.policy]);
  if (origin->piece) text_printf(out, "*%d", origin->piece);
  print_word(out, " in ", origin->layer);
  print_word(out, " of ", origin->function);
}

static void print_body(Text *out, const Graph *graph, int indent);

static void print_node(Text *out, const Node *node, int indent) {
  char type[TYPE_TEXT];
  text_printf(out, "%*s%%%d = %s", indent, "", node->id, op_info[node->op].text);
  bool is_plain = node->op == OP_PARAM ? node->role == ROLE_PARAMS : node->role == ROLE_MODEL;
  if (node->role != ROLE_NONE && !is_plain) text_printf(out, " %s", role_text(node->role));
  for (int i = 0; i < node->input_count; i++)
    text_printf(out, "%s%%%d", i ? ", " : " ", node->input[i]->id);
  for (int i = 0; i < node->attr_count; i++) {
    text_printf(out, i ? ", " : " {");
    print_attr(out, &node->attr[i]);
  }
  if (node->attr_count) text_append(out, "}", 1);
  if (node->body) {
    text_printf(out, " body ");
    print_body(out, node->body, indent);
  }
  text_printf(out, " : %s", type_text(&node->type, type));
  print_loc(out, node);
  text_append(out, "\n", 1);
}

static void print_body(Text *out, const Graph *graph, int indent) {
  if (*graph->name) {
    print_quoted(out, graph->name);
    text_append(out, " ", 1);
  }
  text_printf(out, "{\n");
  for (int i = 0; i < graph->nodes.count; i++) print_node(out, graph->nodes.at[i], indent + 2);
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    text_printf(out, "%*s%s ", indent + 2, "", root_kind_text[root->kind]);
    if (*root->name) {
      print_quoted(out, root->name);
      text_append(out, " ", 1);
    }
    text_printf(out, "%%%d\n", root->node->id);
  }
  text_printf(out, "%*s}", indent, "");
}

static Text to_text(const Graph *graph) {
  Text text = {0};
  text_printf(&text, "graph ");
  print_body(&text, graph, 0);
  text_append(&text, "\n", 1);
  return text;
}

void graph_print(const Graph *graph, FILE *out) {
  Text text = to_text(graph);
  fwrite(text_cstr(&text), 1, text.count, out);
  text_free(&text);
}

char *graph_to_text(const Graph *graph, Arena *arena) {
  Text text = to_text(graph);
  char *copy = arena_strndup(arena, text_cstr(&text), text.count);
  text_free(&text);
  return copy;
}
