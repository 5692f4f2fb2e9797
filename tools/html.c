/* html: see html.h. The page is tools/html.page (embedded at build time) with the graphs as JSON in
 * place of its one marker; drawing happens in the page. Invariant: everything from the .ft file is
 * escaped, so that a hostile source cannot leave its string. */
#include "tools/html.h"
#include <math.h>
#include <string.h>

extern const char embed_html_page[], embed_html_page_end[];
static const char MARKER[] = "/*FT_DATA*/null";

typedef struct {
  const char *pass, *graph, *text, *json;
} Snapshot;

struct HtmlPage {
  Arena *arena;
  const Diag *diag;
  const char *model;
  VEC(Snapshot) snapshots;
};

HtmlPage *html_new(Arena *arena, const Diag *diag, const char *model) {
  HtmlPage *page = ARENA_NEW(arena, HtmlPage);
  *page = (HtmlPage){.arena = arena, .diag = diag, .model = model};
  return page;
}

/* A JSON string that is also safe inside <script>: '<' and non-ASCII control bytes are escaped. */
static void json_string(Text *out, const char *text) {
  text_append(out, "\"", 1);
  for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++) {
    if (*c == '"' || *c == '\\')
      text_printf(out, "\\%c", *c);
    else if (*c < 0x20 || *c == '<' || *c == '>' || *c == '&' || *c == 0x7f)
      text_printf(out, "\\u%04x", *c);
    else
      text_append(out, (const char *)c, 1);
  }
  text_append(out, "\"", 1);
}

static void html_attr_value(Text *out, const Attr *attr) {
  switch (attr_info[attr->id].kind) {
  case ATTR_KIND_INT:
    text_printf(out, "%lld", (long long)attr->i);
    break;
  case ATTR_KIND_BOOL:
    text_printf(out, "%s", attr->i ? "true" : "false");
    break;
  case ATTR_KIND_DTYPE:
    text_printf(out, "%s", dtype_text((DType)attr->i));
    break;
  case ATTR_KIND_FLOAT:
    text_printf(out, "%g", attr->f);
    break;
  case ATTR_KIND_STR:
    text_printf(out, "%s", attr->s);
    break;
  case ATTR_KIND_INTS:
    for (int i = 0; i < attr->count; i++)
      text_printf(out, "%s%lld", i ? " " : "", (long long)attr->ints[i]);
    break;
  case ATTR_KIND_FLOATS:
    for (int i = 0; i < attr->count; i++) text_printf(out, "%s%g", i ? " " : "", attr->floats[i]);
    break;
  }
}

static void graph_json(Text *out, const Graph *graph);

static void node_json(Text *out, const Node *node) {
  char type[TYPE_TEXT];
  text_printf(out, "{\"id\":%d,\"op\":\"%s\",\"type\":\"%s\",\"in\":[", node->id,
              op_info[node->op].text, type_text(&node->type, type));
  for (int i = 0; i < node->input_count; i++)
    text_printf(out, "%s%d", i ? "," : "", node->input[i]->id);
  text_printf(out, "],\"at\":[%u,%u,%u],\"back\":%d,\"attrs\":{", node->origin.loc.file,
              node->origin.loc.line, node->origin.loc.column, node->origin.is_backward);
  for (int i = 0; i < node->attr_count; i++) {
    Text value = {0};
    html_attr_value(&value, &node->attr[i]);
    text_printf(out, "%s\"%s\":", i ? "," : "", attr_info[node->attr[i].id].text);
    json_string(out, text_cstr(&value));
    text_free(&value);
  }
  const char *const known[][2] = {{"layer", node->origin.layer}, {"of", node->origin.function}};
  bool is_first = !node->attr_count;
  for (int i = 0; i < 2; i++) {
    if (!known[i][1]) continue;
    text_printf(out, "%s\"%s\":", is_first ? "" : ",", known[i][0]);
    json_string(out, known[i][1]);
    is_first = false;
  }
  text_append(out, "}", 1);
  if (node->body) {
    text_printf(out, ",\"body\":");
    graph_json(out, node->body);
  }
  text_append(out, "}", 1);
}

static void graph_json(Text *out, const Graph *graph) {
  text_printf(out, "{\"nodes\":[");
  for (int i = 0; i < graph->nodes.count; i++) {
    if (i) text_append(out, ",\n", 2);
    node_json(out, graph->nodes.at[i]);
  }
  text_printf(out, "],\"roots\":[");
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    text_printf(out, "%s{\"kind\":\"%s\",\"name\":", i ? "," : "", root_kind_text[root->kind]);
    json_string(out, root->name);
    text_printf(out, ",\"node\":%d}", root->node->id);
  }
  text_printf(out, "]}");
}

void html_observe(void *user, const char *pass, const Graph *graph) {
  HtmlPage *page = user;
  const char *text = graph_to_text(graph, page->arena);
  for (int i = page->snapshots.count - 1; i >= 0; i--)
    if (strcmp(page->snapshots.at[i].graph, graph->name) == 0) {
      if (strcmp(page->snapshots.at[i].text, text) == 0) return;
      break;
    }
  Text json = {0};
  graph_json(&json, graph);
  Snapshot snapshot = {arena_strdup(page->arena, pass), arena_strdup(page->arena, graph->name),
                       text, arena_strdup(page->arena, text_cstr(&json))};
  text_free(&json);
  VEC_PUSH(page->arena, page->snapshots, snapshot);
}

static void step_json(Text *out, int index, const PlanStep *step) {
  text_printf(out, "%s{\"id\":%d,\"op\":\"%s\",\"type\":\"queue %s\",\"in\":[", index ? ",\n" : "",
              index, step_kind_text(step->kind), queue_text(step->queue));
  for (int i = 0; i < step->after_count; i++)
    text_printf(out, "%s%d", i ? "," : "", step->after[i]);
  text_printf(out, "],\"at\":[0,%u,0],\"back\":0,\"attrs\":{\"name\":", step->line);
  json_string(out, step->label);
  text_printf(out, ",\"kernel\":");
  json_string(out, step->name);
  if (step->layer) text_printf(out, ",\"layer\":");
  if (step->layer) json_string(out, step->layer);
  text_printf(out, ",\"phase\":\"%s\",\"flops\":\"%lld\",\"moves\":\"%lld\"}}",
              phase_text(step->phase), (long long)step->flops, (long long)step->bytes);
}

void html_add_steps(HtmlPage *page, const PlanGraph *graph) {
  Text json = {0};
  text_printf(&json, "{\"nodes\":[");
  for (int i = 0; i < graph->steps.count; i++) step_json(&json, i, &graph->steps.at[i]);
  text_printf(&json, "],\"roots\":[]}");
  Snapshot snapshot = {"plan", arena_strdup(page->arena, graph->name), "",
                       arena_strdup(page->arena, text_cstr(&json))};
  text_free(&json);
  VEC_PUSH(page->arena, page->snapshots, snapshot);
}

static void data_json(const HtmlPage *page, Text *out) {
  text_printf(out, "{\"model\":");
  json_string(out, page->model);
  text_printf(out, ",\"files\":[");
  for (int i = 0; i < page->diag->files.count; i++) {
    text_printf(out, "%s{\"path\":", i ? "," : "");
    json_string(out, page->diag->files.at[i].path);
    text_printf(out, ",\"text\":");
    json_string(out, page->diag->files.at[i].text);
    text_printf(out, "}");
  }
  text_printf(out, "],\"stages\":[");
  for (int i = 0; i < page->snapshots.count; i++) {
    const Snapshot *s = &page->snapshots.at[i];
    text_printf(out, "%s\n{\"pass\":\"%s\",\"name\":\"%s\",\"graph\":%s}", i ? "," : "", s->pass,
                s->graph, s->json);
  }
  text_printf(out, "]}");
}

void html_write(const HtmlPage *page, Text *out) {
  const char *marker = strstr(embed_html_page, MARKER);
  size_t before = (size_t)(marker - embed_html_page);
  text_append(out, embed_html_page, before);
  data_json(page, out);
  const char *rest = marker + sizeof MARKER - 1;
  text_append(out, rest, (size_t)(embed_html_page_end - rest));
}
