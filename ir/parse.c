/* parse: reads the text form (docs/ir.md has the grammar). Input is hostile: every number, shape,
 * name and nesting is bounded or checked, and every node is made by graph_try_node. Parsing stops
 * at the first error. The file joins diag's list only when there is an error to show: locations in
 * the text speak of the .ft files, and must not be mistaken for places in this one. */
#include "base/text.h"
#include "ir/graph.h"
#include "ir/region.h"
#include "ir/text_form.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 4, LONGEST_WORD = 128, MOST_ATTRS = ATTR_COUNT };

typedef struct {
  Arena *arena;
  Diag *diag;
  const char *path, *text, *at;
  uint16_t last_file; /* the highest file number in a location */
  bool failed;
} Parser;

/* ── errors ─────────────────────────────────────────────────────────────────────────────────── */
static bool fail_at(Parser *p, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail_at(Parser *p, const char *place, const char *format, ...) {
  if (p->failed) return false;
  p->failed = true;
  while (p->diag->files.count < p->last_file && p->diag->files.count < 64)
    diag_add_file(p->diag, "<source>", NULL);
  Loc loc = {.file = diag_add_file(p->diag, p->path, p->text), .line = 1};
  const char *line = p->text;
  for (const char *s = p->text; s < place; s++)
    if (*s == '\n') {
      line = s + 1;
      loc.line++;
    }
  loc.column = (uint16_t)(place - line < UINT16_MAX - 1 ? place - line + 1 : UINT16_MAX);
  va_list args;
  va_start(args, format);
  diag_error(p->diag, loc, "%s", arena_vprintf(p->arena, format, args));
  va_end(args);
  return false;
}

/* Of a word that is none of these; false. */
static bool unknown(Parser *p, const char *place, const char *what, const char *text,
                    const char *const *names, int count) {
  const char *nearest = text_nearest(text, names, count);
  return fail_at(p, place, "unknown %s '%s'%s%s%s", what, text, nearest ? "; did you mean '" : "",
                 nearest ? nearest : "", nearest ? "'?" : "");
}

/* ── words ──────────────────────────────────────────────────────────────────────────────────── */
static void skip(Parser *p) {
  for (;;) {
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r') p->at++;
    if (*p->at != ';' && !(p->at[0] == '/' && p->at[1] == '/')) return;
    while (*p->at && *p->at != '\n') p->at++;
  }
}

static bool peek(Parser *p, char c) {
  skip(p);
  return *p->at == c;
}

static bool accept(Parser *p, char c) {
  if (!peek(p, c)) return false;
  p->at++;
  return true;
}

static bool expect(Parser *p, char c) {
  if (accept(p, c)) return true;
  if (!*p->at) return fail_at(p, p->at, "expected '%c' before the end of the file", c);
  return fail_at(p, p->at, "expected '%c'", c);
}

static bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

/* Reads [A-Za-z0-9_.]+ into buffer. */
static bool parse_word(Parser *p, const char *what, char buffer[LONGEST_WORD]) {
  skip(p);
  size_t length = 0;
  while (is_word_character(p->at[length])) length++;
  if (!length) return fail_at(p, p->at, "expected %s", what);
  if (length >= LONGEST_WORD) return fail_at(p, p->at, "%s is too long", what);
  memcpy(buffer, p->at, length);
  buffer[length] = 0;
  p->at += length;
  return true;
}

static bool parse_integer(Parser *p, int64_t low, int64_t high, int64_t *out) {
  skip(p);
  char *end;
  errno = 0;
  if (*p->at != '-' && (*p->at < '0' || *p->at > '9'))
    return fail_at(p, p->at, "expected a number");
  long long value = strtoll(p->at, &end, 10);
  if (end == p->at) return fail_at(p, p->at, "expected a number");
  if (errno || value < low || value > high)
    return fail_at(p, p->at, "this number must be between %lld and %lld", (long long)low,
                   (long long)high);
  p->at = end;
  *out = value;
  return true;
}

static bool floating(Parser *p, double *out) {
  skip(p);
  char buffer[64];
  size_t length = 0;
  while (is_word_character(p->at[length]) || p->at[length] == '-' || p->at[length] == '+') length++;
  if (!length || length >= sizeof buffer) return fail_at(p, p->at, "expected a number");
  memcpy(buffer, p->at, length);
  buffer[length] = 0;
  char *end;
  *out = strtod(buffer, &end);
  if (*end) return fail_at(p, p->at, "'%s' is not a number", buffer);
  p->at += length;
  return true;
}

static int hex(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool string(Parser *p, const char **out) {
  if (!expect(p, '"')) return false;
  const char *start = p->at, *end = start;
  while (*end && *end != '"' && *end != '\n') end += end[0] == '\\' && end[1] ? 2 : 1;
  if (*end != '"') return fail_at(p, start - 1, "this string has no end");
  char *copy = arena_alloc(p->arena, (size_t)(end - start) + 1);
  char *to = copy;
  for (const char *s = start; s < end; s++) {
    if (*s != '\\') {
      *to++ = *s;
    } else if (s[1] == '"' || s[1] == '\\') {
      *to++ = *++s;
    } else if (s[1] == 'n' || s[1] == 't') {
      *to++ = *++s == 'n' ? '\n' : '\t';
    } else if (s[1] == 'x' && hex(s[2]) >= 0 && hex(s[3]) >= 0 && (hex(s[2]) || hex(s[3]))) {
      *to++ = (char)(hex(s[2]) * 16 + hex(s[3]));
      s += 3;
    } else {
      return fail_at(p, s, "unknown escape in a string");
    }
  }
  p->at = end + 1;
  *out = copy;
  return true;
}

/* ── names of nodes ─────────────────────────────────────────────────────────────────────────── */
/* Reads %name; the name itself stays in the text. */
static bool node_name(Parser *p, const char **at, size_t *length) {
  if (!expect(p, '%')) return false;
  *at = p->at;
  while (is_word_character(*p->at)) p->at++;
  *length = (size_t)(p->at - *at);
  return *length || fail_at(p, p->at, "expected the name of a node after '%%'");
}

static Node *used_node(Parser *p, const Graph *graph, const Lookup *names) {
  const char *at;
  size_t length;
  if (!node_name(p, &at, &length)) return NULL;
  int id = lookup_find(names, at, length);
  if (id >= 0) return graph->nodes.at[id];
  fail_at(p, at - 1, "there is no node %%%.*s before this one", (int)(length < 100 ? length : 100),
          at);
  return NULL;
}

/* ── attributes ─────────────────────────────────────────────────────────────────────────────── */
static bool find_attr(Parser *p, const char *text, const char *place, AttrId *out) {
  const char *names[ATTR_COUNT];
  for (int i = 0; i < ATTR_COUNT; i++) {
    names[i] = attr_info[i].text;
    if (!strcmp(names[i], text)) {
      *out = (AttrId)i;
      return true;
    }
  }
  return unknown(p, place, "attribute", text, names, ATTR_COUNT);
}

static bool attr_list(Parser *p, Attr *attr, bool is_float) {
  VEC(int64_t) ints = {0};
  VEC(double) floats = {0};
  if (!expect(p, '[')) return false;
  while (!peek(p, ']')) {
    int64_t i = 0;
    double f = 0;
    if (is_float ? !floating(p, &f) : !parse_integer(p, INT64_MIN, INT64_MAX, &i)) return false;
    if (is_float)
      VEC_PUSH(p->arena, floats, f);
    else
      VEC_PUSH(p->arena, ints, i);
    if (!accept(p, ',')) break;
  }
  attr->count = is_float ? floats.count : ints.count;
  if (is_float)
    attr->floats = floats.at;
  else
    attr->ints = ints.at;
  return expect(p, ']');
}

static bool parse_attr_value(Parser *p, Attr *attr) {
  char buffer[LONGEST_WORD];
  skip(p);
  const char *place = p->at;
  DType dtype;
  switch (attr_info[attr->id].kind) {
  case ATTR_KIND_INT:
    return parse_integer(p, INT64_MIN, INT64_MAX, &attr->i);
  case ATTR_KIND_FLOAT:
    return floating(p, &attr->f);
  case ATTR_KIND_BOOL:
    if (!parse_word(p, "true or false", buffer)) return false;
    attr->i = !strcmp(buffer, "true");
    return attr->i || !strcmp(buffer, "false") || fail_at(p, place, "expected true or false");
  case ATTR_KIND_STR:
    return string(p, &attr->s);
  case ATTR_KIND_DTYPE:
    if (!parse_word(p, "an element type", buffer)) return false;
    if (!dtype_parse(buffer, &dtype)) return fail_at(p, place, "unknown element type '%s'", buffer);
    attr->i = dtype;
    return true;
  case ATTR_KIND_INTS:
    return attr_list(p, attr, false);
  case ATTR_KIND_FLOATS:
    return attr_list(p, attr, true);
  }
  return false;
}

static bool attributes(Parser *p, Attr *attrs, int *count) {
  bool seen[ATTR_COUNT] = {false};
  *count = 0;
  if (!accept(p, '{')) return true;
  while (!peek(p, '}')) {
    char key[LONGEST_WORD];
    const char *place = p->at;
    Attr attr = {0};
    if (!parse_word(p, "the name of an attribute", key) || !find_attr(p, key, place, &attr.id))
      return false;
    if (seen[attr.id]) return fail_at(p, place, "the attribute '%s' stands here twice", key);
    seen[attr.id] = true;
    if (!expect(p, '=') || !parse_attr_value(p, &attr)) return false;
    attrs[(*count)++] = attr;
    if (!accept(p, ',')) break;
  }
  return expect(p, '}');
}

/* ── types and locations ────────────────────────────────────────────────────────────────────── */
static bool type(Parser *p, Type *out) {
  char buffer[LONGEST_WORD];
  skip(p);
  const char *place = p->at;
  *out = (Type){0};
  if (!parse_word(p, "a type", buffer)) return false;
  if (!dtype_parse(buffer, &out->dtype))
    return fail_at(p, place, "unknown element type '%s'", buffer);
  if (!expect(p, '[')) return false;
  while (!peek(p, ']')) {
    if (out->shape.rank == MAX_RANK)
      return fail_at(p, p->at, "a shape has at most %d dimensions", MAX_RANK);
    if (!parse_integer(p, 0, MAX_ELEMENTS, &out->shape.dim[out->shape.rank])) return false;
    out->shape.rank++;
    if (!accept(p, ',')) break;
  }
  if (accept(p, ':') && !parse_integer(p, 1, MAX_ELEMENTS, &out->pitch)) return false;
  if (!expect(p, ']')) return false;
  if (!shape_is_legal(&out->shape))
    return fail_at(p, place, "this tensor has more than 2^40 elements");
  return type_has_legal_pitch(out) ||
         fail_at(p, place, "a pitch is a multiple of %d bytes, at least a row and at most two", PITCH_UNIT);
}

/* "#3", "#3block": the region, at p->at without space before it. */
static bool region(Parser *p, Region *out) {
  int64_t number;
  if (*p->at != '#') return true;
  p->at++;
  if (!parse_integer(p, 1, REGION_MOST, &number)) return false;
  out->number = (uint32_t)number;
  out->policy = REGION_SETTING;
  for (int i = REGION_NONE; i <= REGION_BLOCK; i++)
    if (!strncmp(p->at, region_policy_text[i], strlen(region_policy_text[i])))
      out->policy = (RegionPolicy)i;
  p->at += strlen(region_policy_text[out->policy]);
  return true;
}

/* "*2": the piece of the batch. */
static bool piece(Parser *p, int *out) {
  int64_t number;
  if (*p->at != '*') return true;
  p->at++;
  if (!parse_integer(p, 1, PIECES_MOST, &number)) return false;
  *out = (int)number;
  return true;
}

/* A mark at p->at, without space before it. */
static bool origin_mark(Parser *p, char mark) {
  if (*p->at != mark) return false;
  p->at++;
  return true;
}

/* `in "h.0.attn"`, `of "gelu"`, if it is there. */
static bool origin_word(Parser *p, const char *before, const char **out) {
  skip(p);
  size_t length = strlen(before);
  if (strncmp(p->at, before, length) || is_word_character(p->at[length])) return true;
  p->at += length;
  return string(p, out);
}

static bool origin_place(Parser *p, Origin *out) {
  int64_t number[3];
  int count = 0;
  do
    if (!parse_integer(p, 0, UINT32_MAX, &number[count++])) return false;
  while (count < 3 && *p->at == ':' && p->at++);
  if (count < 2) return fail_at(p, p->at, "a location is line:column or file:line:column");
  int64_t file = count == 3 ? number[0] : 1, column = number[count - 1];
  if (file > UINT16_MAX || column > UINT16_MAX)
    return fail_at(p, p->at, "a file or column number is at most %d", UINT16_MAX);
  out->loc = (Loc){(uint16_t)file, (uint16_t)column, (uint32_t)number[count - 2]};
  if (file > p->last_file) p->last_file = (uint16_t)file;
  return region(p, &out->region) && piece(p, &out->piece);
}

static bool origin(Parser *p, Origin *out) {
  *out = (Origin){0};
  if (!accept(p, '@')) return true;
  const char *place = p->at;
  out->is_backward = origin_mark(p, '~');
  out->is_recomputed = origin_mark(p, '+');
  out->is_update = origin_mark(p, '!');
  bool is_placed = *p->at >= '0' && *p->at <= '9';
  if (!(is_placed ? origin_place(p, out) : piece(p, &out->piece))) return false;
  const char *end = p->at;
  if (!origin_word(p, "in", &out->layer) || !origin_word(p, "of", &out->function)) return false;
  return end > place || out->layer || out->function ||
         fail_at(p, place, "expected a line number after '@'");
}

/* ── nodes and graphs ───────────────────────────────────────────────────────────────────────── */
static Graph *block(Parser *p, int depth);

static bool parse_find_op(Parser *p, Op *out) {
  char text[LONGEST_WORD];
  skip(p);
  const char *place = p->at, *names[OP_COUNT];
  if (!parse_word(p, "an operation", text)) return false;
  if (op_parse(text, out)) return true;
  for (int i = 0; i < OP_COUNT; i++) names[i] = op_info[i].text;
  return unknown(p, place, "operation", text, names, OP_COUNT);
}

/* "moment" in `state moment {name="@adamw.m"}`; left out: a parameter, the program's own state. */
static bool role(Parser *p, Op op, LeafRole *out) {
  char text[LONGEST_WORD];
  skip(p);
  const char *place = p->at, *names[ROLES_END];
  *out = op == OP_PARAM ? ROLE_PARAMS : op == OP_STATE ? ROLE_MODEL : ROLE_NONE;
  if (*out == ROLE_NONE || !is_word_character(*p->at)) return true;
  if (!parse_word(p, "a role", text)) return false;
  if (role_parse(text, out)) return true;
  for (int i = 1; i < ROLES_END; i++) names[i - 1] = role_text((LeafRole)i);
  return unknown(p, place, "role", text, names, ROLES_END - 1);
}

static bool body(Parser *p, int depth, Graph **out) {
  *out = NULL;
  skip(p);
  if (strncmp(p->at, "body", 4) || is_word_character(p->at[4])) return true;
  const char *place = p->at;
  p->at += 4;
  if (depth >= DEEPEST) return fail_at(p, place, "bodies are nested too deeply");
  *out = block(p, depth + 1);
  return *out;
}

static bool node(Parser *p, Graph *graph, Lookup *names, int depth) {
  const char *name, *why = NULL;
  size_t length;
  Op op;
  VEC(Node *) inputs = {0};
  Attr attrs[MOST_ATTRS];
  int attr_count;
  Graph *inner;
  Type given;
  LeafRole part;
  if (!node_name(p, &name, &length) || !expect(p, '=')) return false;
  skip(p);
  const char *place = p->at;
  if (!parse_find_op(p, &op) || !role(p, op, &part)) return false;
  if (peek(p, '%')) do {
      Node *input = used_node(p, graph, names);
      if (!input) return false;
      VEC_PUSH(p->arena, inputs, input);
    } while (accept(p, ','));
  if (!attributes(p, attrs, &attr_count) || !body(p, depth, &inner)) return false;
  if (!expect(p, ':')) return false;
  skip(p);
  const char *type_place = p->at;
  if (!type(p, &given) || !origin(p, &graph->origin)) return false;
  if (!inner != (op != OP_FUSED))
    return fail_at(p, place, inner ? "only a fused node has a body" : "a fused node needs a body");
  Node *made = graph_try_node(graph, op, inputs.at, inputs.count, attrs, attr_count, &given, &why);
  if (!made) return fail_at(p, place, "%s", why);
  char text[TYPE_TEXT];
  if (!type_equal(&made->type, &given))
    return fail_at(p, type_place, "this node's type is %s", type_text(&made->type, text));
  made->type.pitch = given.pitch;
  made->body = inner;
  made->role = part;
  return lookup_add(names, name, length, made->id) == made->id ||
         fail_at(p, name - 1, "the name of this node is taken");
}

static bool root(Parser *p, Graph *graph, const Lookup *names) {
  char text[LONGEST_WORD];
  const char *place = p->at, *name = "";
  if (!parse_word(p, "a node, a root or '}'", text)) return false;
  int kind = 0, kinds = (int)(sizeof root_kind_text / sizeof *root_kind_text);
  while (kind < kinds && strcmp(root_kind_text[kind], text)) kind++;
  if (kind == kinds)
    return fail_at(
        p, place,
        "'%s' is not a root: loss, metric, output, auc, assign, result, gradients, passes, rate, "
        "loss_scale, skipped, objective or factor",
        text);
  if (peek(p, '"') && !string(p, &name)) return false;
  Node *target = used_node(p, graph, names);
  if (!target) return false;
  graph_add_root(graph, (RootKind)kind, name, target);
  return true;
}

/* [name] { node* root* } */
static Graph *block(Parser *p, int depth) {
  char buffer[LONGEST_WORD];
  const char *name = "";
  if (peek(p, '"')) {
    if (!string(p, &name)) return NULL;
  } else if (!peek(p, '{')) {
    if (!parse_word(p, "a name or '{'", buffer)) return NULL;
    name = buffer;
  }
  Graph *graph = graph_new(p->arena, name);
  Lookup names = {.arena = p->arena};
  if (!expect(p, '{')) return NULL;
  while (!accept(p, '}')) {
    bool good = *p->at == '%' ? node(p, graph, &names, depth) : root(p, graph, &names);
    if (!good) return NULL;
  }
  return graph;
}

int graph_parse(Arena *arena, Diag *diag, const char *path, const char *text, Graph **out,
                int max) {
  Parser parser = {.arena = arena, .diag = diag, .path = path, .text = text, .at = text};
  Parser *p = &parser;
  int count = 0;
  for (skip(p); *p->at; skip(p)) {
    char keyword[LONGEST_WORD];
    const char *place = p->at;
    if (!parse_word(p, "'graph'", keyword)) return -1;
    if (strcmp(keyword, "graph")) {
      fail_at(p, place, "expected 'graph'");
      return -1;
    }
    if (count == max) {
      fail_at(p, place, "this file has more than %d graph%s", max, max == 1 ? "" : "s");
      return -1;
    }
    Graph *graph = block(p, 0);
    if (!graph) return -1;
    out[count++] = graph;
  }
  return p->failed ? -1 : count;
}
