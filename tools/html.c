/* html: see html.h. The page is tools/html.page (embedded at build time) with JSON in place of its one marker, an element
 * each for the index, for every graph and for the kernels' bodies: the page reads a graph when it is looked at, so that one
 * of many megabytes opens at once. Drawing happens in the page. Invariant: everything from the .ft
 * file is escaped, so that a hostile source cannot leave its string. */
#include "tools/html.h"
#include "base/lookup.h"
#include "codegen/cost.h"
#include <math.h>
#include <string.h>

extern const char embed_html_page[], embed_html_page_end[];
static const char MARKER[] = "<!--FT_DATA-->";

typedef struct {
  const char *pass, *graph, *text, *json;
  int nodes;
} Snapshot;

struct HtmlPage {
  Arena *arena;
  const Diag *diag;
  const char *model;
  VEC(Snapshot) snapshots;
  VEC(const char *) bodies; /* of kernels, each once: passes behind fuse leave most as they are */
  Lookup body_of;
  const Plan *plan;
};

HtmlPage *html_new(Arena *arena, const Diag *diag, const char *model) {
  HtmlPage *page = ARENA_NEW(arena, HtmlPage);
  *page = (HtmlPage){.arena = arena, .diag = diag, .model = model, .body_of = {.arena = arena}};
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

/* ── graphs ───────────────────────────────────────────────────────────────────────────────── */

static const char *phase_of(const Node *node) {
  const Origin *origin = &node->origin;
  return origin->is_update       ? "update"
         : origin->is_recomputed ? "recomputed"
         : origin->is_backward   ? "backward"
         : origin->loc.line      ? "forward"
                                 : "none";
}

static void html_place(Text *out, const char *phase, const char *layer, const char *function) {
  text_printf(out, ",\"phase\":\"%s\"", phase);
  if (layer) text_printf(out, ",\"layer\":");
  if (layer) json_string(out, layer);
  if (function) text_printf(out, ",\"of\":");
  if (function) json_string(out, function);
}

static const char *graph_json(HtmlPage *page, const Graph *graph);

static int html_body(HtmlPage *page, const Graph *body) {
  const char *json = graph_json(page, body);
  int known = lookup_find_text(&page->body_of, json);
  if (known >= 0) return known;
  VEC_PUSH(page->arena, page->bodies, json);
  return lookup_add_text(&page->body_of, json, page->bodies.count - 1);
}

static void node_json(HtmlPage *page, Text *out, const Node *node) {
  char type[TYPE_TEXT];
  int64_t flops = cost_flops(node);
  text_printf(out, "{\"id\":%d,\"op\":\"%s\",\"type\":\"%s\",\"in\":[", node->id,
              op_info[node->op].text, type_text(&node->type, type));
  for (int i = 0; i < node->input_count; i++)
    text_printf(out, "%s%d", i ? "," : "", node->input[i]->id);
  text_printf(out, "],\"at\":[%u,%u,%u]", node->origin.loc.file, node->origin.loc.line,
              node->origin.loc.column);
  html_place(out, phase_of(node), node->origin.layer, node->origin.function);
  text_printf(out, ",\"bytes\":%lld", (long long)type_bytes(&node->type));
  if (flops) text_printf(out, ",\"flops\":%lld", (long long)flops);
  if (node->attr_count) text_printf(out, ",\"attrs\":{");
  for (int i = 0; i < node->attr_count; i++) {
    Text value = {0};
    html_attr_value(&value, &node->attr[i]);
    text_printf(out, "%s\"%s\":", i ? "," : "", attr_info[node->attr[i].id].text);
    json_string(out, text_cstr(&value));
    text_free(&value);
  }
  if (node->attr_count) text_append(out, "}", 1);
  if (node->body) text_printf(out, ",\"body\":%d", html_body(page, node->body));
  text_append(out, "}", 1);
}

static const char *graph_json(HtmlPage *page, const Graph *graph) {
  Text out = {0};
  text_printf(&out, "{\"nodes\":[");
  for (int i = 0; i < graph->nodes.count; i++) {
    if (i) text_append(&out, ",\n", 2);
    node_json(page, &out, graph->nodes.at[i]);
  }
  text_printf(&out, "],\"roots\":[");
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    text_printf(&out, "%s{\"kind\":\"%s\",\"name\":", i ? "," : "", root_kind_text[root->kind]);
    json_string(&out, root->name);
    text_printf(&out, ",\"node\":%d}", root->node->id);
  }
  text_printf(&out, "]}");
  const char *json = arena_strdup(page->arena, text_cstr(&out));
  text_free(&out);
  return json;
}

void html_observe(void *user, const char *pass, const Graph *graph) {
  HtmlPage *page = user;
  const char *text = graph_to_text(graph, page->arena);
  for (int i = page->snapshots.count - 1; i >= 0; i--)
    if (strcmp(page->snapshots.at[i].graph, graph->name) == 0) {
      if (strcmp(page->snapshots.at[i].text, text) == 0) return;
      break;
    }
  Snapshot snapshot = {arena_strdup(page->arena, pass), arena_strdup(page->arena, graph->name),
                       text, graph_json(page, graph), graph->nodes.count};
  VEC_PUSH(page->arena, page->snapshots, snapshot);
}

/* ── the plan ─────────────────────────────────────────────────────────────────────────────── */

static void step_json(Text *out, int index, const PlanStep *step) {
  text_printf(out, "%s{\"id\":%d,\"op\":\"%s\",\"type\":\"queue %s\",\"in\":[", index ? ",\n" : "",
              index, step_kind_text(step->kind), queue_text(step->queue));
  for (int i = 0; i < step->after_count; i++)
    text_printf(out, "%s%d", i ? "," : "", step->after[i]);
  text_printf(out, "],\"at\":[%u,%u,0]", step->line ? 1 : 0, step->line);
  html_place(out, phase_text(step->phase), step->layer, NULL);
  text_printf(out, ",\"flops\":%lld,\"moves\":%lld,\"attrs\":{\"name\":", (long long)step->flops,
              (long long)step->bytes);
  json_string(out, step->label);
  text_printf(out, ",\"kernel\":");
  json_string(out, step->name);
  text_printf(out, "}}");
}

static void html_steps(HtmlPage *page, const PlanGraph *graph) {
  Text json = {0};
  text_printf(&json, "{\"nodes\":[");
  for (int i = 0; i < graph->steps.count; i++) step_json(&json, i, &graph->steps.at[i]);
  text_printf(&json, "],\"roots\":[]}");
  Snapshot snapshot = {"plan", arena_strdup(page->arena, graph->name), "",
                       arena_strdup(page->arena, text_cstr(&json)), graph->steps.count};
  text_free(&json);
  VEC_PUSH(page->arena, page->snapshots, snapshot);
}

void html_add_plan(HtmlPage *page, const Plan *plan) {
  page->plan = plan;
  for (int i = 0; i < plan->graphs.count; i++) html_steps(page, &plan->graphs.at[i]);
}

static void memory_json(const HtmlPage *page, Text *out) {
  text_printf(out, ",\"memory\":[");
  for (int i = 0; page->plan && i < page->plan->memory.count; i++) {
    text_printf(out, i ? ",[" : "[");
    json_string(out, page->plan->memory.at[i].category);
    text_printf(out, ",%lld]", (long long)page->plan->memory.at[i].bytes);
  }
  text_printf(out, "]");
}

/* ── the page ─────────────────────────────────────────────────────────────────────────────── */

static void index_json(const HtmlPage *page, Text *out) {
  text_printf(out, "{\"model\":");
  json_string(out, page->model);
  memory_json(page, out);
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
    text_printf(out, "%s\n{\"pass\":\"%s\",\"name\":\"%s\",\"nodes\":%d}", i ? "," : "", s->pass,
                s->graph, s->nodes);
  }
  text_printf(out, "]}");
}

static void element_begin(Text *out, const char *id) {
  text_printf(out, "<script type=\"application/json\" id=\"%s\">", id);
}

static void data_elements(const HtmlPage *page, Text *out) {
  static const char end[] = "</script>\n";
  char id[32];
  element_begin(out, "index");
  index_json(page, out);
  text_printf(out, "%s", end);
  for (int i = 0; i < page->snapshots.count; i++) {
    snprintf(id, sizeof id, "graph-%d", i);
    element_begin(out, id);
    text_append(out, page->snapshots.at[i].json, strlen(page->snapshots.at[i].json));
    text_printf(out, "%s", end);
  }
  element_begin(out, "bodies");
  for (int i = 0; i < page->bodies.count; i++) {
    text_append(out, i ? ",\n" : "[", i ? 2 : 1);
    text_append(out, page->bodies.at[i], strlen(page->bodies.at[i]));
  }
  text_printf(out, "%s]%s", page->bodies.count ? "" : "[", end);
}

void html_write(const HtmlPage *page, Text *out) {
  const char *marker = strstr(embed_html_page, MARKER);
  size_t before = (size_t)(marker - embed_html_page);
  text_append(out, embed_html_page, before);
  data_elements(page, out);
  const char *rest = marker + sizeof MARKER - 1;
  text_append(out, rest, (size_t)(embed_html_page_end - rest));
}
