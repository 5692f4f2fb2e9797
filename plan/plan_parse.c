/* plan_parse: text to Plan. The text may come from anyone: every line is read by a rule, every
 * name, index, offset and size is checked when its line is read, and the first thing that is wrong
 * ends it with "line N: ...". Invariant: a Plan that is returned can be executed without looking
 * at any of its numbers again. */
#include "plan/plan_calls.h"
#include "plan/plan_text.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LENGTH = 4096 };
static const int64_t largest_arena = INT64_C(1) << 46;

typedef struct {
  Arena *arena;
  Plan *plan;
  const char *at; /* the next byte of the current line, which ends in NUL */
  int line;
  const char *why;  /* set once, by the first failure */
  PlanGraph *graph; /* the one whose lines are being read */
  int graph_count;
  bool has_arena[ARENA_COUNT], has_model, has_source, has_target;
  const char **names; /* a hash set of "<kind><name>" */
  size_t name_count, name_capacity;
} Parser;

__attribute__((format(printf, 2, 3))) static bool fail(Parser *p, const char *format, ...) {
  if (p->why) return false;
  va_list args;
  va_start(args, format);
  p->why = arena_printf(p->arena, "line %d: %s", p->line, arena_vprintf(p->arena, format, args));
  va_end(args);
  return false;
}

/* ── words of a line ──────────────────────────────────────────────────────────────────────── */
static void skip_spaces(Parser *p) {
  while (*p->at == ' ') p->at++;
}

static bool at_end(Parser *p) {
  skip_spaces(p);
  return *p->at == 0;
}

/* Takes `text` if it comes next. Words end where no letter or digit follows. */
static bool take(Parser *p, const char *text) {
  skip_spaces(p);
  size_t length = strlen(text);
  if (strncmp(p->at, text, length) != 0) return false;
  if (isalnum((unsigned char)text[length - 1]) &&
      (isalnum((unsigned char)p->at[length]) || p->at[length] == '_'))
    return false;
  p->at += length;
  return true;
}

static bool expect(Parser *p, const char *text) {
  return take(p, text) || fail(p, "expected '%s'", text);
}

/* A bare word: letters, digits, and ._- */
static const char *word(Parser *p, const char *what) {
  skip_spaces(p);
  size_t length = 0;
  while (isalnum((unsigned char)p->at[length]) || (p->at[length] && strchr("._-", p->at[length])))
    length++;
  if (!length || length > NAME_LENGTH) {
    fail(p, "expected %s", what);
    return NULL;
  }
  const char *result = arena_strndup(p->arena, p->at, length);
  p->at += length;
  return result;
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A quoted string. */
static const char *string(Parser *p, const char *what) {
  skip_spaces(p);
  if (*p->at != '"') {
    fail(p, "expected %s in quotes", what);
    return NULL;
  }
  size_t longest = 0; /* up to the closing quote: what escapes shorten is no matter */
  for (p->at++; p->at[longest] && p->at[longest] != '"'; longest++)
    if (p->at[longest] == '\\' && p->at[longest + 1]) longest++;
  char *out = arena_alloc(p->arena, longest + 1), *to = out;
  for (; *p->at && *p->at != '"'; p->at++) {
    unsigned char c = (unsigned char)*p->at;
    if (c == '\\' && (p->at[1] == '"' || p->at[1] == '\\')) {
      c = (unsigned char)*++p->at;
    } else if (c == '\\' && p->at[1] == 'x' && hex_digit(p->at[2]) >= 0 &&
               hex_digit(p->at[3]) >= 0) {
      c = (unsigned char)(hex_digit(p->at[2]) * 16 + hex_digit(p->at[3]));
      p->at += 3;
      if (c != 0 && (c < 0x20 || c > 0x7e)) { /* what the printer escapes, and nothing else */
        *to++ = (char)c;
        continue;
      }
      c = 0;
    } else if (c == '\\') {
      c = 0;
    }
    if (c < 0x20 || c > 0x7e) {
      fail(p, "%s holds a character that may not stand there", what);
      return NULL;
    }
    *to++ = (char)c;
  }
  if (*p->at != '"') {
    fail(p, "%s lacks its closing quote", what);
    return NULL;
  }
  p->at++;
  return out;
}

/* A quoted name: not empty, printable, without spaces. */
static const char *name(Parser *p, const char *what) {
  const char *text = string(p, what);
  if (!text) return NULL;
  size_t length = strlen(text);
  bool is_good = length > 0 && length <= NAME_LENGTH;
  for (size_t i = 0; i < length; i++)
    is_good = is_good && text[i] > 0x20 && text[i] < 0x7f && text[i] != '"' && text[i] != '\\';
  if (is_good) return text;
  fail(p, "%s is not a printable name", what);
  return NULL;
}

static bool integer(Parser *p, const char *what, int64_t low, int64_t high, int64_t *out) {
  skip_spaces(p);
  char *end = NULL;
  errno = 0;
  bool is_digit = isdigit((unsigned char)p->at[*p->at == '-']);
  long long value = is_digit ? strtoll(p->at, &end, 10) : 0;
  if (!is_digit || errno == ERANGE) return fail(p, "expected %s, a whole number", what);
  if (value < low || value > high)
    return fail(p, "%s is %lld; it must lie in %" PRId64 "..%" PRId64, what, value, low, high);
  p->at = end;
  *out = value;
  return true;
}

static bool number(Parser *p, const char *what, double *out) {
  skip_spaces(p);
  char *end = NULL;
  char first = p->at[*p->at == '-'];
  if (!isdigit((unsigned char)first)) return fail(p, "expected %s, a number", what);
  if (first == '0' && (p->at[(*p->at == '-') + 1] | 32) == 'x')
    return fail(p, "expected %s, a decimal number", what);
  *out = strtod(p->at, &end);
  if (!isfinite(*out)) return fail(p, "%s is not finite", what);
  p->at = end;
  return true;
}

static bool type(Parser *p, Type *out) {
  skip_spaces(p);
  char dtype[8] = "";
  size_t length = strcspn(p->at, "[ ");
  if (length < sizeof dtype) memcpy(dtype, p->at, length);
  *out = (Type){0};
  if (p->at[length] != '[' || !dtype_parse(dtype, &out->dtype))
    return fail(p, "expected a type such as f32[64,10]");
  p->at += length + 1;
  while (*p->at != ']') {
    if (out->shape.rank == MAX_RANK) return fail(p, "a type has more than %d dimensions", MAX_RANK);
    if (out->shape.rank && *p->at++ != ',') return fail(p, "expected ',' or ']' in a type");
    if (!integer(p, "a dimension", 0, INT64_MAX, &out->shape.dim[out->shape.rank++])) return false;
  }
  p->at++;
  int64_t bytes = dtype_bytes(out->dtype);
  for (int i = 0; i < out->shape.rank; i++) { /* without zeros, so that partial products fit too */
    int64_t dim = out->shape.dim[i] ? out->shape.dim[i] : 1;
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > largest_arena)
      return fail(p, "a type is too large");
  }
  return true;
}

/* ── checks ───────────────────────────────────────────────────────────────────────────────── */
static size_t name_slot(const char **names, size_t capacity, const char *key) {
  size_t slot = plan_checksum(key, strlen(key)) & (capacity - 1);
  while (names[slot] && strcmp(names[slot], key) != 0) slot = (slot + 1) & (capacity - 1);
  return slot;
}

/* Two things of one kind may not share a name. */
static bool unique(Parser *p, const char *kind, const char *text) {
  if (p->name_count * 2 >= p->name_capacity) {
    size_t capacity = p->name_capacity ? p->name_capacity * 2 : 64;
    const char **names = ARENA_ARRAY(p->arena, const char *, capacity);
    for (size_t i = 0; i < p->name_capacity; i++)
      if (p->names[i]) names[name_slot(names, capacity, p->names[i])] = p->names[i];
    p->names = names;
    p->name_capacity = capacity;
  }
  const char *key = arena_printf(p->arena, "%s %s", kind, text);
  size_t slot = name_slot(p->names, p->name_capacity, key);
  if (p->names[slot]) return fail(p, "there are two of %s \"%s\"", kind, text);
  p->names[slot] = key;
  p->name_count++;
  return true;
}

/* [offset, offset + size of type) lies in the arena, aligned: 64 bytes, or that of the element for
 * a single element. */
static bool fits(Parser *p, ArenaId arena, int64_t offset, const Type *of) {
  int64_t bytes = type_bytes(of), end;
  int64_t align = shape_elements(&of->shape) == 1 ? dtype_bytes(of->dtype) : PLAN_ALIGN;
  if (!p->has_arena[arena]) return fail(p, "arena %s has no line before this", arena_text(arena));
  if (offset < 0 || __builtin_add_overflow(offset, bytes, &end) ||
      end > p->plan->arena_bytes[arena])
    return fail(p, "%" PRId64 " bytes at %" PRId64 " lie outside of arena %s, which has %" PRId64,
                bytes, offset, arena_text(arena), p->plan->arena_bytes[arena]);
  if (offset % align)
    return fail(p, "offset %" PRId64 " is not a multiple of %" PRId64, offset, align);
  return true;
}

/* ── lines of the head ────────────────────────────────────────────────────────────────────── */
static bool read_model(Parser *p) {
  if (p->has_model) return fail(p, "a second model line");
  p->has_model = true;
  return (p->plan->model = string(p, "the model's name")) != NULL;
}

static bool read_source(Parser *p) {
  if (p->has_source) return fail(p, "a second source line");
  p->has_source = true;
  return (p->plan->source = string(p, "the path of the source")) != NULL;
}

static bool read_target(Parser *p) {
  if (p->has_target) return fail(p, "a second target line");
  p->has_target = true;
  if (!(p->plan->target = word(p, "cpu or ptx"))) return false;
  if (strcmp(p->plan->target, "cpu") != 0 && strcmp(p->plan->target, "ptx") != 0)
    return fail(p, "the target is '%s'; this ftrun knows cpu and ptx", p->plan->target);
  return (p->plan->target_cpu = string(p, "the processor's name")) != NULL;
}

static bool read_setting(Parser *p) {
  const char *key = word(p, "a setting");
  if (!key) return false;
  int index = setting_find(key);
  if (index < 0) return fail(p, "there is no setting '%s'", key);
  if (!unique(p, "setting", key)) return false;
  const char *value, *why;
  skip_spaces(p);
  if (setting_info[index].kind == SET_STR) {
    value = string(p, "the setting's value");
  } else {
    double plain;
    const char *start = p->at;
    if (!number(p, "the setting's value", &plain)) return false;
    value = arena_strndup(p->arena, start, (size_t)(p->at - start));
  }
  if (!value) return false;
  if (!setting_set(p->arena, p->plan->settings, index, value, &why))
    return fail(p, "%s: %s", key, why);
  p->plan->settings[index].is_set = take(p, "given");
  return true;
}

static bool read_data(Parser *p) {
  DataSource source = {0};
  VEC(const char *) files = {0}, options = {0};
  VEC(double) values = {0};
  if (!(source.split = name(p, "the split")) || !unique(p, "data", source.split)) return false;
  if (!(source.kind = name(p, "the kind of data"))) return false;
  while (take(p, "file")) {
    const char *file = string(p, "a file");
    if (!file) return false;
    VEC_PUSH(p->arena, files, file);
  }
  while (take(p, "option")) {
    double value;
    const char *option = name(p, "an option");
    if (!option || !number(p, "the option's value", &value)) return false;
    VEC_PUSH(p->arena, options, option);
    VEC_PUSH(p->arena, values, value);
  }
  source.files = files.at, source.file_count = files.count;
  source.option_names = options.at, source.option_values = values.at;
  source.option_count = options.count;
  VEC_PUSH(p->arena, p->plan->sources, source);
  return true;
}

static bool read_arena(Parser *p) {
  const char *text = word(p, "an arena");
  ArenaId id;
  if (!text) return false;
  if (!arena_parse(text, &id)) return fail(p, "there is no arena '%s'", text);
  if (p->has_arena[id]) return fail(p, "a second line for arena %s", text);
  p->has_arena[id] = true;
  return integer(p, "the arena's size", 0, largest_arena, &p->plan->arena_bytes[id]);
}

static bool read_memory(Parser *p) {
  PlanMemory row = {0};
  if (!(row.category = string(p, "the category")) ||
      !integer(p, "its bytes", 0, largest_arena, &row.bytes))
    return false;
  VEC_PUSH(p->arena, p->plan->memory, row);
  return true;
}

static bool read_init(Parser *p, Init *init) {
  static const struct {
    const char *text;
    int arg_count;
  } known[] = {{"zeros", 0},        {"const", 1},      {"uniform", 2}, {"normal", 2},
               {"trunc_normal", 2}, {"orthogonal", 1}, {"identity", 0}};
  int which = 0, count = (int)(sizeof known / sizeof *known);
  if (!(init->text = word(p, "an initialiser"))) return false;
  while (which < count && strcmp(known[which].text, init->text) != 0) which++;
  if (which == count) return fail(p, "there is no initialiser '%s'", init->text);
  if (!expect(p, "(")) return false;
  while (!take(p, ")")) {
    if (init->arg_count == 2) return fail(p, "an initialiser has at most two numbers");
    if (init->arg_count && !expect(p, ",")) return false;
    if (!number(p, "the initialiser's number", &init->arg[init->arg_count++])) return false;
  }
  if (init->arg_count != known[which].arg_count)
    return fail(p, "%s takes %d number(s)", init->text, known[which].arg_count);
  return true;
}

/* What the four lists of named tensors share. They stand in order and do not overlap. */
static bool read_tensor(Parser *p, const char *kind, ArenaId arena, PlanTensor *out) {
  *out = (PlanTensor){0};
  if (!(out->name = name(p, "the name")) || !unique(p, kind, out->name)) return false;
  if (!type(p, &out->type) || !expect(p, "at")) return false;
  if (!integer(p, "the offset", 0, INT64_MAX, &out->offset)) return false;
  if (!fits(p, arena, out->offset, &out->type)) return false;
  if (take(p, "init") && !read_init(p, &out->init)) return false;
  out->is_needed_for_predict = take(p, "predict");
  out->is_saved = take(p, "saved");
  return true;
}

static bool follows(Parser *p, const PlanTensor *list, int count, const PlanTensor *next) {
  if (!count || list[count - 1].offset + type_bytes(&list[count - 1].type) <= next->offset)
    return true;
  return fail(p, "\"%s\" overlaps \"%s\"", next->name, list[count - 1].name);
}

static bool read_input(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, "input", ARENA_INPUT, &t)) return false;
  if (!follows(p, p->plan->inputs.at, p->plan->inputs.count, &t)) return false;
  VEC_PUSH(p->arena, p->plan->inputs, t);
  return true;
}

static bool read_param(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, "param", ARENA_PARAMS, &t)) return false;
  if (t.type.dtype != DT_F32) return fail(p, "a param is not f32");
  if (!t.init.text) return fail(p, "a param has no init");
  if (!follows(p, p->plan->params.at, p->plan->params.count, &t)) return false;
  VEC_PUSH(p->arena, p->plan->params, t);
  return true;
}

static bool read_state(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, "state", ARENA_STATE, &t)) return false;
  if (!strcmp(t.name, "step") && (t.type.dtype != DT_I64 || t.type.shape.rank))
    return fail(p, "the state \"step\" must be i64[]");
  if (!follows(p, p->plan->states.at, p->plan->states.count, &t)) return false;
  VEC_PUSH(p->arena, p->plan->states, t);
  return true;
}

static bool read_scalar(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, "scalar", ARENA_SETTINGS, &t)) return false;
  int index = setting_find(t.name);
  if (index < 0 || setting_info[index].kind == SET_STR)
    return fail(p, "there is no numeric setting \"%s\"", t.name);
  if (t.type.dtype != DT_F64 || t.type.shape.rank) return fail(p, "a scalar is f64[]");
  if (!follows(p, p->plan->scalars.at, p->plan->scalars.count, &t)) return false;
  VEC_PUSH(p->arena, p->plan->scalars, t);
  return true;
}

/* ── lines of a graph ─────────────────────────────────────────────────────────────────────── */
static bool read_graph(Parser *p) {
  static const char *const names[2] = {"train", "eval"};
  if (p->graph_count == 2) return fail(p, "a third graph");
  const char *text = string(p, "the graph's name");
  if (!text) return false;
  if (strcmp(text, names[p->graph_count]) != 0)
    return fail(p, "graph %d must be \"%s\"", p->graph_count, names[p->graph_count]);
  p->graph = &p->plan->graph[p->graph_count++];
  p->graph->name = text;
  return true;
}

static bool read_buffer(Parser *p) {
  if (!p->graph) return fail(p, "a buffer outside of a graph");
  PlanBuffer buffer = {0};
  int64_t index;
  int next = p->graph->buffers.count;
  if (!integer(p, "the buffer's number", next, next, &index)) return false;
  const char *text = word(p, "an arena");
  if (!text) return false;
  if (!arena_parse(text, &buffer.arena)) return fail(p, "there is no arena '%s'", text);
  if (!expect(p, "+") || !integer(p, "the offset", 0, INT64_MAX, &buffer.offset)) return false;
  if (!type(p, &buffer.type) || !fits(p, buffer.arena, buffer.offset, &buffer.type)) return false;
  VEC_PUSH(p->arena, p->graph->buffers, buffer);
  return true;
}

typedef VEC(int) Indices;

static bool read_indices(Parser *p, Indices *out) {
  if (!expect(p, "(")) return false;
  while (!take(p, ")")) {
    int64_t index;
    if (!integer(p, "a buffer's number", 0, p->graph->buffers.count - 1, &index)) return false;
    VEC_PUSH(p->arena, *out, (int)index);
  }
  return true;
}

static bool read_triple(Parser *p, const char *what, int64_t high, int64_t out[3]) {
  return integer(p, what, 1, high, &out[0]) && expect(p, ",") &&
         integer(p, what, 1, high, &out[1]) && expect(p, ",") && integer(p, what, 1, high, &out[2]);
}

/* Kernels and library calls are C identifiers: they become symbols. */
static bool is_identifier(const char *text) {
  for (const char *at = text; *at; at++)
    if (!isalnum((unsigned char)*at) && *at != '_' && *at != '$') return false;
  return *text && !isdigit((unsigned char)*text);
}

static bool read_attributes(Parser *p, PlanStep *step) {
  CallId id;
  if (!call_parse(step->name, &id)) return fail(p, "there is no library call \"%s\"", step->name);
  VEC(PlanInt) ints = {0};
  for (const char *at = call_info[id].attributes; *at;) {
    size_t length = strcspn(at, " ");
    PlanInt item = {arena_strndup(p->arena, at, length), 0};
    if (!expect(p, item.key) || !expect(p, "=")) return false;
    if (!integer(p, item.key, INT64_MIN, INT64_MAX, &item.value)) return false;
    VEC_PUSH(p->arena, ints, item);
    at += length;
    while (*at == ' ') at++;
  }
  step->ints = ints.at;
  step->int_count = ints.count;
  return true;
}

/* The optional numbers, in the printer's order. */
static bool read_costs(Parser *p, PlanStep *step) {
  int64_t line = 0;
  if (take(p, "work=") && !integer(p, "work", 1, largest_arena, &step->work)) return false;
  if (take(p, "grain=") && !integer(p, "grain", 1, largest_arena, &step->grain)) return false;
  if (take(p, "grid=") && !read_triple(p, "grid", INT32_MAX, step->grid)) return false;
  if (take(p, "block=") && !read_triple(p, "block", 1024, step->block)) return false;
  if (take(p, "shared=") && !integer(p, "shared", 1, 1 << 20, &step->shared)) return false;
  if (take(p, "flops=") && !integer(p, "flops", 1, INT64_MAX, &step->flops)) return false;
  if (take(p, "moves=") && !integer(p, "moves", 1, INT64_MAX, &step->bytes)) return false;
  if (take(p, "line=") && !integer(p, "line", 1, UINT32_MAX, &line)) return false;
  step->line = (uint32_t)line;
  return (step->label = string(p, "the label")) != NULL;
}

static bool check_step(Parser *p, const PlanStep *step) {
  for (int i = step->input_count; i < step->arg_count; i++) {
    ArenaId arena = p->graph->buffers.at[step->args[i]].arena;
    if (arena == ARENA_INPUT || arena == ARENA_SETTINGS)
      return fail(p, "a step writes to arena %s", arena_text(arena));
  }
  const char *why = NULL;
  if (step->kind == STEP_CALL)
    return call_check(p->arena, step, p->graph->buffers.at, &why) || fail(p, "%s", why);
  if (!is_identifier(step->name)) return fail(p, "a kernel's name is no identifier");
  if (!strcmp(p->plan->target, "ptx")) {
    if (!step->grid[0] || !step->block[0]) return fail(p, "a launch has no grid or block");
    if (step->block[0] * step->block[1] * step->block[2] > 1024)
      return fail(p, "a block has more than 1024 threads");
  }
  return true;
}

static bool read_step(Parser *p, StepKind kind) {
  if (!p->graph) return fail(p, "a step outside of a graph");
  if (!p->has_target) return fail(p, "the target has no line before this");
  PlanStep step = {.kind = kind};
  Indices args = {0};
  if (!(step.name = name(p, "the name")) || !read_indices(p, &args)) return false;
  step.input_count = args.count;
  if (!expect(p, "->") || !read_indices(p, &args)) return false;
  step.args = args.at;
  step.arg_count = args.count;
  if (kind == STEP_CALL && !read_attributes(p, &step)) return false;
  if (!read_costs(p, &step) || !check_step(p, &step)) return false;
  VEC_PUSH(p->arena, p->graph->steps, step);
  return true;
}

static bool read_launch(Parser *p) { return read_step(p, STEP_LAUNCH); }
static bool read_call(Parser *p) { return read_step(p, STEP_CALL); }

static bool read_output(Parser *p, const char *kind) {
  if (!p->graph) return fail(p, "an output outside of a graph");
  PlanOutput output = {.kind = kind};
  if (!(output.name = name(p, "the output's name"))) return false;
  const char *scope = arena_printf(p->arena, "%s %s", p->graph->name, kind);
  if (!unique(p, scope, output.name)) return false;
  if (!type(p, &output.type) || !expect(p, "at")) return false;
  if (!integer(p, "the offset", 0, INT64_MAX, &output.offset)) return false;
  if (!fits(p, ARENA_OUTPUT, output.offset, &output.type)) return false;
  VEC_PUSH(p->arena, p->graph->outputs, output);
  return true;
}

static bool read_loss(Parser *p) { return read_output(p, "loss"); }
static bool read_metric(Parser *p) { return read_output(p, "metric"); }
static bool read_result(Parser *p) { return read_output(p, "output"); }

static const struct {
  const char *word;
  bool (*read)(Parser *p);
} rules[] = {
    {"model", read_model},     {"source", read_source}, {"target", read_target},
    {"setting", read_setting}, {"data", read_data},     {"arena", read_arena},
    {"memory", read_memory},   {"input", read_input},   {"param", read_param},
    {"state", read_state},     {"scalar", read_scalar}, {"graph", read_graph},
    {"buffer", read_buffer},   {"launch", read_launch}, {"call", read_call},
    {"loss", read_loss},       {"metric", read_metric}, {"output", read_result},
};

static bool read_line(Parser *p) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (take(p, rules[i].word)) {
      if (!rules[i].read(p)) return fail(p, "is damaged");
      return at_end(p) || fail(p, "unexpected '%.40s' at the end", p->at);
    }
  return fail(p, "this is no line of a plan: '%.40s'", p->at);
}

/* ── the whole ────────────────────────────────────────────────────────────────────────────── */
/* Version first, then checksum: a newer file says so rather than "damaged". Returns the length of
 * the text before the checksum line, or 0. */
static size_t check_envelope(Parser *p, const char *text, size_t length) {
  static const char start[] = "ft-plan ", last[] = "checksum ";
  enum { LAST_LINE = sizeof last - 1 + 16 + 1 };
  if (length < sizeof start || memcmp(text, start, sizeof start - 1) != 0)
    return fail(p, "this is not a plan of ft");
  char *end;
  char version[16] = "";
  memcpy(version, text + sizeof start - 1, length - sizeof start < 15 ? length - sizeof start : 15);
  long found = strtol(version, &end, 10);
  if (*end != '\n' || end == version) return fail(p, "the version is damaged");
  if (found != PLAN_VERSION)
    return fail(p,
                "the plan has version %ld, this program reads version %d; compile the model again "
                "or use the matching ftrun",
                found, PLAN_VERSION);
  if (length < LAST_LINE || text[length - 1] != '\n' ||
      memcmp(text + length - LAST_LINE, last, sizeof last - 1) != 0)
    return fail(p, "the plan is cut off: its last line is no checksum");
  size_t body = length - LAST_LINE;
  char expected[17];
  snprintf(expected, sizeof expected, "%016" PRIx64, plan_checksum(text, body));
  if (memcmp(expected, text + length - 17, 16) != 0)
    return fail(p, "the plan is damaged: its checksum does not fit");
  if (memchr(text, 0, body)) return fail(p, "the plan is damaged: it holds a NUL");
  return body;
}

static bool check_whole(Parser *p) {
  if (!p->has_model || !p->has_source || !p->has_target)
    return fail(p, "the model, source or target line is missing");
  for (int i = 0; i < ARENA_COUNT; i++)
    if (!p->has_arena[i]) return fail(p, "the line of arena %s is missing", arena_text((ArenaId)i));
  return p->graph_count == 2 || fail(p, "the plan lacks a graph");
}

Plan *plan_parse(Arena *arena, const char *text, size_t length, const char **why) {
  Parser p = {.arena = arena, .plan = ARENA_NEW(arena, Plan), .line = 1};
  p.plan->arena = arena;
  p.plan->settings = settings_new(arena);
  size_t body = check_envelope(&p, text, length);
  char *copy = arena_strndup(arena, text, body);
  char *next = copy + strcspn(copy, "\n");
  while (!p.why && *next) {
    char *line = next + 1;
    if (!*line) break;
    next = line + strcspn(line, "\n");
    char stop = *next;
    *next = 0;
    p.at = line;
    p.line++;
    read_line(&p);
    *next = stop;
  }
  if (!p.why) check_whole(&p);
  *why = p.why;
  return p.why ? NULL : p.plan;
}
