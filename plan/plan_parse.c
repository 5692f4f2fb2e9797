/* plan_parse: text to Plan. The text may come from anyone: every line is read by a rule, every
 * name, index, offset and size is checked when its line is read, and the first thing that is wrong
 * ends it with "line N: ...". Invariant: a Plan that is returned can be executed without looking
 * at any of its numbers again. */
#include "base/lookup.h"
#include "plan/data_part.h"
#include "plan/plan_body.h"
#include "plan/plan_check.h"
#include "plan/plan_programme.h"
#include "plan/plan_step.h"
#include "plan/plan_text.h"
#include "plan/plan_words.h"
#include "plan/source_kind.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Words words; /* the current line, and the failure */
  Plan *plan;
  PlanGraph *graph; /* the one whose lines are being read */
  bool has_model, has_source, has_target, has_stage;
  Lookup names; /* "<kind> <name>" */
} Parser;

/* ── checks ───────────────────────────────────────────────────────────────────────────────── */
/* Two things of one kind may not share a name. */
static bool unique(Parser *p, const char *kind, const char *text) {
  const char *key = arena_printf(p->words.arena, "%s %s", kind, text);
  int count = p->names.entries.count;
  lookup_add_text(&p->names, key, 0);
  return p->names.entries.count > count ||
         words_fail(&p->words, "there are two of %s \"%s\"", kind, text);
}

/* PLACE+OFFSET */
static bool read_address(Parser *p, int *place, int64_t *offset) {
  return (*place = plan_read_place_name(&p->words, p->plan)) >= 0 && words_expect(&p->words, "+") &&
         words_integer(&p->words, "the offset", 0, INT64_MAX, offset);
}

/* [offset, offset + size of type) lies in the place, aligned: 64 bytes, or that of the element for
 * a single element. */
static bool fits(Parser *p, int place, int64_t offset, const Type *of) {
  int64_t bytes = type_bytes(of), end;
  int64_t align = shape_elements(&of->shape) == 1 ? dtype_bytes(of->dtype) : PLAN_ALIGN;
  const PlanPlace *in = &p->plan->places.at[place];
  if (__builtin_add_overflow(offset, bytes, &end) || end > in->bytes)
    return words_fail(
        &p->words, "%" PRId64 " bytes at %" PRId64 " lie outside of place %s, which has %" PRId64,
        bytes, offset, in->name, in->bytes);
  if (offset % align)
    return words_fail(&p->words, "offset %" PRId64 " is not a multiple of %" PRId64, offset, align);
  if (in->elements && in->dtype != of->dtype && shape_elements(&of->shape))
    return words_fail(&p->words, "%s in place %s, whose elements are %s", dtype_text(of->dtype),
                      in->name, dtype_text(in->dtype));
  return true;
}

/* ── lines of the head ────────────────────────────────────────────────────────────────────── */
static bool read_model(Parser *p) {
  if (p->has_model) return words_fail(&p->words, "a second model line");
  p->has_model = true;
  return (p->plan->model = words_name(&p->words, "the model's name")) != NULL;
}

static bool read_source(Parser *p) {
  if (p->has_source) return words_fail(&p->words, "a second source line");
  p->has_source = true;
  return (p->plan->source = words_string(&p->words, "the path of the source")) != NULL;
}

static bool read_target(Parser *p) {
  if (p->has_target) return words_fail(&p->words, "a second target line");
  p->has_target = true;
  if (!(p->plan->target = words_word(&p->words, "cpu or ptx"))) return false;
  if (strcmp(p->plan->target, "cpu") != 0 && strcmp(p->plan->target, "ptx") != 0)
    return words_fail(&p->words, "the target is '%s'; this ftrun knows cpu and ptx",
                      p->plan->target);
  return (p->plan->target_cpu = words_string(&p->words, "the processor's name")) != NULL;
}

static bool read_setting(Parser *p) {
  const char *key = words_word(&p->words, "a setting");
  if (!key) return false;
  int index = setting_find(key);
  if (index < 0) return words_fail(&p->words, "there is no setting '%s'", key);
  if (!unique(p, "setting", key)) return false;
  const char *value, *why;
  words_skip(&p->words);
  if (setting_info[index].kind == SET_STR) {
    value = words_string(&p->words, "the setting's value");
  } else if (setting_info[index].kind == SET_INT && words_take(&p->words, "auto")) {
    value = "auto";
  } else {
    double plain;
    const char *start = p->words.at;
    if (!words_number(&p->words, "the setting's value", &plain)) return false;
    value = arena_strndup(p->words.arena, start, (size_t)(p->words.at - start));
  }
  if (!value) return false;
  if (!setting_set(p->words.arena, p->plan->settings, index, value, &why))
    return words_fail(&p->words, "%s: %s", key, why);
  p->plan->settings[index].is_set = words_take(&p->words, "given");
  return true;
}

/* Behind the settings. */
static bool read_stage(Parser *p) {
  int64_t pipeline = setting_pipeline(p->plan->settings), stage;
  if (p->has_stage) return words_fail(&p->words, "a second stage line");
  p->has_stage = true;
  if (!words_integer(&p->words, "the stage", 0, pipeline - 1, &stage) ||
      !words_expect(&p->words, "of") ||
      !words_integer(&p->words, "distributed.pipeline", pipeline, pipeline, &pipeline))
    return false;
  p->plan->stage = (int)stage;
  return true;
}

/* A number, or a text in quotes. */
static bool read_option(Parser *p, DataOption *out) {
  *out = (DataOption){0};
  if (!(out->name = words_name(&p->words, "an option"))) return false;
  words_skip(&p->words);
  if (*p->words.at != '"') return words_number(&p->words, "the option's value", &out->number);
  return (out->text = words_string(&p->words, "the option's value")) != NULL;
}

/* A kind that is not known is told when the data is opened: other uses of the plan need none. */
static bool check_options(Parser *p, const DataSource *source) {
  const SourceKind *kind = source_kind_find(source->kind);
  Text why = {0};
  bool is_fine = !kind || source_kind_check(kind, source, &why) ||
                 words_fail(&p->words, "%s data: %s", source->split, text_cstr(&why));
  text_free(&why);
  return is_fine;
}

static bool read_data(Parser *p) {
  DataSource source = {0};
  VEC(const char *) files = {0};
  VEC(DataOption) options = {0};
  if (!(source.split = words_name(&p->words, "the split")) || !unique(p, "data", source.split))
    return false;
  if (!(source.kind = words_name(&p->words, "the kind of data"))) return false;
  while (words_take(&p->words, "file")) {
    const char *file = words_string(&p->words, "a file");
    if (!file) return false;
    VEC_PUSH(p->words.arena, files, file);
  }
  while (words_take(&p->words, "option")) {
    DataOption option;
    if (!read_option(p, &option)) return false;
    VEC_PUSH(p->words.arena, options, option);
  }
  source.files = files.at, source.file_count = files.count;
  source.options = options.at, source.option_count = options.count;
  if (!data_part_read(&p->words, &source.part) || !plan_read_chain(&p->words, &source))
    return false;
  VEC_PUSH(p->words.arena, p->plan->sources, source);
  return check_options(p, &source);
}

static bool read_place(Parser *p) { return plan_read_place(&p->words, p->plan); }

static bool read_memory(Parser *p) {
  PlanMemory row = {0};
  if (!(row.category = words_string(&p->words, "the category")) ||
      !words_integer(&p->words, "its bytes", 0, LARGEST_PLACE, &row.bytes))
    return false;
  VEC_PUSH(p->words.arena, p->plan->memory, row);
  return true;
}

static bool read_init(Parser *p, Init *init) {
  static const struct {
    const char *text;
    int arg_count;
  } known[] = {{"zeros", 0},        {"const", 1},      {"uniform", 2}, {"normal", 2},
               {"trunc_normal", 2}, {"orthogonal", 1}, {"identity", 0}};
  int which = 0, count = (int)(sizeof known / sizeof *known);
  if (!(init->text = words_word(&p->words, "an initialiser"))) return false;
  while (which < count && strcmp(known[which].text, init->text) != 0) which++;
  if (which == count) return words_fail(&p->words, "there is no initialiser '%s'", init->text);
  if (!words_expect(&p->words, "(")) return false;
  while (!words_take(&p->words, ")")) {
    if (init->arg_count == 2)
      return words_fail(&p->words, "an initialiser has at most two numbers");
    if (init->arg_count && !words_expect(&p->words, ",")) return false;
    if (!words_value(&p->words, "the initialiser's number", &init->arg[init->arg_count++]))
      return false;
  }
  if (init->arg_count != known[which].arg_count)
    return words_fail(&p->words, "%s takes %d number(s)", init->text, known[which].arg_count);
  return true;
}

static bool read_storage(Parser *p, const Shape *shape, Storage *out) {
  Shape perm;
  if (!words_take(&p->words, "view")) return true;
  if (!words_shape(&p->words, &out->view) || !words_expect(&p->words, "perm") ||
      !words_shape(&p->words, &perm))
    return false;
  memcpy(out->perm, perm.dim, sizeof out->perm);
  if (perm.rank == out->view.rank && storage_is_legal(out, shape)) return true;
  return words_fail(&p->words, "view and perm tell no order of the elements");
}

/* ── named tensors ────────────────────────────────────────────────────────────────────────── */
typedef enum { KIND_INPUT, KIND_PARAM, KIND_STATE, KIND_SCALAR } TensorKind;
static const char *const tensor_kind_text[] = {"input", "param", "state", "scalar"};

static bool lies_where_it_may(const PlanPlace *place, TensorKind kind) {
  switch (kind) {
  case KIND_INPUT:
    return place->host == HOST_FROM && place->life == FOR_BATCH;
  case KIND_SCALAR:
    return place->host == HOST_FROM && place->life == FOR_EVER;
  case KIND_PARAM:
    return place->saved == SAVED_WEIGHTS && place->elements == ELEMENTS_FLAT;
  case KIND_STATE:
    return place->life == FOR_EVER && !place->host && place->saved != SAVED_WEIGHTS &&
           (place->elements == ELEMENTS_NONE || place->elements == ELEMENTS_LIKE);
  }
  return false;
}

/* What a state is for; without the word it is the model's own. */
static bool read_role(Parser *p, TensorKind kind, LeafRole *out) {
  *out = kind == KIND_PARAM ? ROLE_PARAMS : kind == KIND_STATE ? ROLE_MODEL : ROLE_NONE;
  if (kind != KIND_STATE || !words_take(&p->words, "role")) return true;
  const char *text = words_word(&p->words, "a role");
  if (!text) return false;
  if (!role_parse(text, out)) return words_fail(&p->words, "there is no role '%s'", text);
  if (!role_has(*out, ROLE_OF_STATE) || role_has(*out, ROLE_APART))
    return words_fail(&p->words, "a state of a plan has not the role '%s'", text);
  return !role_has(*out, ROLE_ONE) || unique(p, "the role", text);
}

static bool read_cut(Parser *p, PlanTensor *out) {
  PlanCut *cut = &out->cut;
  const Shape *shape = &out->type.shape;
  int64_t dim, elements = shape_elements(shape);
  if (!words_take(&p->words, "cut")) return true;
  if (!words_integer(&p->words, "the dimension", 0, MAX_RANK - 1, &dim) ||
      !words_expect(&p->words, "run") ||
      !words_integer(&p->words, "the run", 1, LARGEST_PLACE, &cut->run) ||
      !words_expect(&p->words, "of") ||
      !words_integer(&p->words, "the ranks", 2, SETTING_MOST_RANKS, &cut->ranks))
    return false;
  cut->dim = (int)dim;
  if (cut->ranks != setting_tensor(p->plan->settings))
    return words_fail(&p->words, "cut for %" PRId64 " ranks, but distributed.tensor is another",
                      cut->ranks);
  bool fine = dim < shape->rank && shape->dim[dim] % cut->run == 0 && elements > 0 &&
              elements <= LARGEST_PLACE / cut->ranks;
  if (fine) cut->length = shape->dim[dim] * cut->ranks;
  if (fine && words_take(&p->words, "length")) {
    int64_t least = cut->run * (cut->ranks - 1) + 1, most = cut->length - 1;
    if (!words_integer(&p->words, "the length", least, most, &cut->length)) return false;
    fine = shape->dim[dim] == cut->run;
  }
  if (fine) return true;
  return words_fail(&p->words, "that is no part of a larger tensor");
}

/* All parameters, over as many ranks as the training has. */
static bool read_shared(Parser *p, PlanTensor *out) {
  int64_t ranks = setting_ranks(p->plan->settings);
  const PlanTensor *first = p->plan->params.count ? &p->plan->params.at[0] : out;
  if (words_take(&p->words, "shared") &&
      !words_integer(&p->words, "the ranks", 2, SETTING_MOST_RANKS, &out->shared))
    return false;
  if (out->shared && out->shared != ranks)
    return words_fail(&p->words, "shared by %" PRId64 " ranks, but distributed.data is %s",
                      out->shared, setting_text(p->plan->settings, "distributed.data"));
  return out->shared == first->shared ||
         words_fail(&p->words, "some parameters are shared by ranks, and some are not");
}

/* What the four lists of named tensors share. They stand in order and do not overlap. */
static bool read_tensor(Parser *p, TensorKind kind, int index, PlanTensor *out) {
  int64_t stream = index;
  *out = (PlanTensor){0};
  if (!(out->name = words_name(&p->words, "the name")) ||
      !unique(p, tensor_kind_text[kind], out->name))
    return false;
  if (!words_type(&p->words, &out->type) || !words_expect(&p->words, "at")) return false;
  if (!read_address(p, &out->place, &out->offset)) return false;
  if (!lies_where_it_may(&p->plan->places.at[out->place], kind))
    return words_fail(&p->words, "a %s does not lie in place %s", tensor_kind_text[kind],
                      p->plan->places.at[out->place].name);
  if (words_take(&p->words, "init") && !read_init(p, &out->init)) return false;
  if (kind == KIND_PARAM && (!read_storage(p, &out->type.shape, &out->storage) ||
                             !read_cut(p, out) || !read_shared(p, out)))
    return false;
  if (kind == KIND_PARAM && words_take(&p->words, "rests") &&
      !words_integer(&p->words, "the group", 1, PLAN_MOST_RESTS, &out->rests))
    return false;
  out->is_output = kind == KIND_PARAM && words_take(&p->words, "outputs");
  Type held = plan_held(out);
  if (!fits(p, out->place, out->offset, &held)) return false;
  out->is_needed_for_predict = words_take(&p->words, "predict");
  if (words_take(&p->words, "below")) {
    if (!words_integer(&p->words, "the bound", 1, INT64_MAX, &out->below)) return false;
  } else if (kind == KIND_INPUT && plan_takes_bound(out) && !words_expect(&p->words, "any")) {
    return false;
  }
  out->has_ignore = out->below && words_take(&p->words, "ignore");
  if (out->has_ignore &&
      !words_integer(&p->words, "the value to ignore", INT64_MIN, INT64_MAX, &out->ignore))
    return false;
  while (words_take(&p->words, "part"))
    if (!plan_read_part(&p->words, out)) return false;
  if (!read_role(p, kind, &out->role)) return false;
  if (words_take(&p->words, "file") &&
      (!(out->file = words_name(&p->words, "the file")) ||
       !(out->file_name = words_name(&p->words, "the name in the file"))))
    return false;
  out->is_saved = words_take(&p->words, "saved");
  if (words_take(&p->words, "stream") &&
      !words_integer(&p->words, "the stream", 0, INT32_MAX / 2, &stream))
    return false;
  out->stream = (int)stream;
  return true;
}

static bool follows(Parser *p, const PlanTensor *list, int count, const PlanTensor *next) {
  if (!count) return true;
  Type before = plan_held(&list[count - 1]);
  int64_t end = list[count - 1].offset + type_bytes(&before), at = next->offset;
  int last = plan_whole_place(p->plan, list[count - 1].place, &end);
  int place = plan_whole_place(p->plan, next->place, &at);
  if (place > last || (place == last && at >= end)) return true;
  return words_fail(&p->words, "\"%s\" overlaps \"%s\"", next->name, list[count - 1].name);
}

static bool read_input(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, KIND_INPUT, p->plan->inputs.count, &t)) return false;
  if (t.below && dtype_is_float(t.type.dtype))
    return words_fail(&p->words, "only integers are below something");
  if (!follows(p, p->plan->inputs.at, p->plan->inputs.count, &t)) return false;
  VEC_PUSH(p->words.arena, p->plan->inputs, t);
  return true;
}

static bool read_param(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, KIND_PARAM, p->plan->params.count, &t)) return false;
  if (p->plan->places.at[t.place].is_window)
    return words_fail(&p->words, "a param lies in a window");
  if (t.type.dtype != DT_F32 && t.type.dtype != DT_BF16)
    return words_fail(&p->words, "a param is neither f32 nor bf16");
  if (!t.init.text) return words_fail(&p->words, "a param has no init");
  if (!follows(p, p->plan->params.at, p->plan->params.count, &t)) return false;
  VEC_PUSH(p->words.arena, p->plan->params, t);
  return true;
}

static bool read_state(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, KIND_STATE, p->plan->states.count, &t)) return false;
  bool is_count = role_has(t.role, ROLE_COUNTER), is_number = role_has(t.role, ROLE_NUMBER);
  bool is_like = p->plan->places.at[t.place].elements == ELEMENTS_LIKE;
  if (role_has(t.role, ROLE_SLICED) != is_like)
    return words_fail(&p->words, "a state of role %s %s the order of the parameters",
                      role_text(t.role), is_like ? "has not" : "has");
  if (is_like && (t.type.dtype != DT_F32 || t.type.shape.rank != 1 || t.offset))
    return words_fail(&p->words, "a %s is flat and f32, and all of its place", role_text(t.role));
  if ((is_count && t.type.dtype != DT_I64) || (is_number && t.type.dtype != DT_F64) ||
      ((is_count || is_number) && t.type.shape.rank))
    return words_fail(&p->words, "the state \"%s\" must be %s[]", t.name, is_count ? "i64" : "f64");
  bool is_given = t.role == ROLE_GIVEN;
  if (is_given != (t.file != NULL))
    return words_fail(&p->words, "\"%s\" %s", t.name,
                      is_given ? "is given by no file" : "has a file but is not given");
  if (is_given != p->plan->places.at[t.place].is_frozen)
    return words_fail(&p->words, "what is given lies in a frozen place, and no other state does");
  if (is_given && t.type.dtype != DT_F32 && t.type.dtype != DT_BF16)
    return words_fail(&p->words, "what is given is f32 or bf16");
  if (t.is_saved && t.role != ROLE_MODEL && t.role != ROLE_FLOAT8)
    return words_fail(&p->words, "\"%s\" is not the model's", t.name);
  if (!follows(p, p->plan->states.at, p->plan->states.count, &t)) return false;
  VEC_PUSH(p->words.arena, p->plan->states, t);
  return true;
}

static bool read_scalar(Parser *p) {
  PlanTensor t;
  if (!read_tensor(p, KIND_SCALAR, p->plan->scalars.count, &t)) return false;
  int index = setting_find(t.name);
  if (index < 0 || setting_info[index].kind == SET_STR)
    return words_fail(&p->words, "there is no numeric setting \"%s\"", t.name);
  if (t.type.dtype != DT_F64 || t.type.shape.rank)
    return words_fail(&p->words, "a scalar is f64[]");
  if (!follows(p, p->plan->scalars.at, p->plan->scalars.count, &t)) return false;
  VEC_PUSH(p->words.arena, p->plan->scalars, t);
  return true;
}

/* ── lines of a graph ─────────────────────────────────────────────────────────────────────── */
static bool read_graph(Parser *p) {
  PlanGraph graph = {.name = words_name(&p->words, "the graph's name")};
  if (!graph.name || !unique(p, "graph", graph.name)) return false;
  if (words_take(&p->words, "prepare") &&
      !(graph.prepare = words_name(&p->words, "the name of the graph that prepares weights")))
    return false;
  if (p->plan->graphs.count == PLAN_MOST_GRAPHS)
    return words_fail(&p->words, "a plan has at most %d graphs", PLAN_MOST_GRAPHS);
  VEC_PUSH(p->words.arena, p->plan->graphs, graph);
  p->graph = &p->plan->graphs.at[p->plan->graphs.count - 1];
  return true;
}

static bool read_programme(Parser *p) {
  p->graph = NULL;
  return plan_read_programme(&p->words, p->plan);
}

static bool read_refused(Parser *p) {
  p->plan->decode_refused = words_string(&p->words, "why there is no graph for generation");
  return p->plan->decode_refused != NULL;
}

static bool read_buffer(Parser *p) {
  if (!p->graph) return words_fail(&p->words, "a buffer outside of a graph");
  PlanBuffer buffer = {0};
  int64_t index;
  int next = p->graph->buffers.count;
  if (!words_integer(&p->words, "the buffer's number", next, next, &index)) return false;
  if (!read_address(p, &buffer.place, &buffer.offset) ||
      !words_type_in_memory(&p->words, &buffer.type, true) ||
      !fits(p, buffer.place, buffer.offset, &buffer.type))
    return false;
  buffer.place = plan_whole_place(p->plan, buffer.place, &buffer.offset);
  VEC_PUSH(p->words.arena, p->graph->buffers, buffer);
  return true;
}

static bool read_step(Parser *p, StepKind kind) {
  return plan_read_step(&p->words, p->plan, p->graph, kind);
}
static bool read_launch(Parser *p) { return read_step(p, STEP_LAUNCH); }
static bool read_call(Parser *p) { return read_step(p, STEP_CALL); }
static bool read_copy(Parser *p) { return read_step(p, STEP_COPY); }
static bool read_fill(Parser *p) { return read_step(p, STEP_FILL); }
static bool read_begin(Parser *p) { return read_step(p, STEP_BEGIN); }
static bool read_end(Parser *p) { return read_step(p, STEP_END); }
static bool read_instead(Parser *p) { return plan_read_instead(&p->words, p->plan, p->graph); }
static bool read_also(Parser *p) { return plan_read_also(&p->words, p->plan, p->graph); }

static bool read_does(Parser *p) { return body_read(&p->words, p->graph); }
static bool read_op(Parser *p) { return body_read_op(&p->words, p->graph); }
static bool read_gives(Parser *p) { return body_read_results(&p->words, p->graph); }

static bool read_output(Parser *p, OutputKind kind) {
  if (!p->graph) return words_fail(&p->words, "an output outside of a graph");
  PlanOutput output = {.kind = kind};
  if (!(output.name = words_name(&p->words, "the output's name"))) return false;
  const char *scope = arena_printf(p->words.arena, "%s %s", p->graph->name, output_kind_text(kind));
  if (!unique(p, scope, output.name)) return false;
  if (!words_type(&p->words, &output.type) || !words_expect(&p->words, "at")) return false;
  if (!read_address(p, &output.place, &output.offset) ||
      !fits(p, output.place, output.offset, &output.type))
    return false;
  bool is_scalar = shape_elements(&output.type.shape) == 1;
  const PlanPlace *place = &p->plan->places.at[output.place];
  if (place->life != FOR_BATCH || place->host != (is_scalar ? HOST_TO : HOST_NONE))
    return words_fail(&p->words, "%s does not lie in place %s", is_scalar ? "a scalar" : "a tensor",
                      place->name);
  bool fits_kind = kind == OUTPUT_METRIC ? type_is_metric(&output.type)
                   : kind == OUTPUT_AUC  ? type_is_auc(&output.type)
                                         : is_scalar || kind == OUTPUT_RESULT;
  if (!fits_kind)
    return words_fail(&p->words, "the %s of graph \"%s\" is %s", output_kind_text(kind),
                      p->graph->name,
                      kind == OUTPUT_METRIC ? "neither a number, a row nor a table"
                      : kind == OUTPUT_AUC  ? "not f32[n, 1 + classes]"
                                            : "not one number");
  output.place = plan_whole_place(p->plan, output.place, &output.offset);
  VEC_PUSH(p->words.arena, p->graph->outputs, output);
  return true;
}

static const struct {
  const char *word;
  bool (*read)(Parser *p);
} rules[] = {
    {"model", read_model},     {"source", read_source},
    {"target", read_target},   {"setting", read_setting},
    {"stage", read_stage},     {"data", read_data},
    {"place", read_place},     {"memory", read_memory},
    {"input", read_input},     {"param", read_param},
    {"state", read_state},     {"scalar", read_scalar},
    {"graph", read_graph},     {"buffer", read_buffer},
    {"launch", read_launch},   {"call", read_call},
    {"instead", read_instead}, {"also", read_also},
    {"refused", read_refused}, {"programme", read_programme},
    {"copy", read_copy},       {"fill", read_fill},
    {"begin", read_begin},     {"end", read_end},
    {"does", read_does},       {"op", read_op},
    {"gives", read_gives},
};

static bool at_end(Parser *p) {
  return words_at_end(&p->words) ||
         words_fail(&p->words, "unexpected '%.40s' at the end", p->words.at);
}

static bool read_line(Parser *p) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (words_take(&p->words, rules[i].word)) {
      if (!rules[i].read(p)) return words_fail(&p->words, "is damaged");
      return at_end(p);
    }
  for (int i = 0; i < OUTPUT_KINDS; i++)
    if (words_take(&p->words, output_kind_text((OutputKind)i)))
      return read_output(p, (OutputKind)i) && at_end(p);
  return words_fail(&p->words, "this is no line of a plan: '%.40s'", p->words.at);
}

/* ── the whole ────────────────────────────────────────────────────────────────────────────── */
static bool check_whole(Parser *p) {
  if (!p->has_model || !p->has_source || !p->has_target)
    return words_fail(&p->words, "the model, source or target line is missing");
  if (!p->has_stage && setting_pipeline(p->plan->settings) > 1)
    return words_fail(&p->words, "the stage line is missing");
  for (int i = 0; i < p->plan->graphs.count; i++)
    if (!bodies_are_whole(&p->plan->graphs.at[i]))
      return words_fail(&p->words, "what a kernel gives has no line");
  const char *why = plan_check(p->words.arena, p->plan);
  return !why || words_fail(&p->words, "%s", why);
}

Plan *plan_parse(Arena *arena, const char *text, size_t length, const char **why) {
  Parser p = {.words = {.arena = arena, .line = 1},
              .plan = ARENA_NEW(arena, Plan),
              .names = {.arena = arena}};
  p.plan->arena = arena;
  p.plan->settings = settings_new(arena);
  size_t body = plan_check_envelope(&p.words, text, length);
  char *copy = arena_strndup(arena, text, body);
  char *next = copy + strcspn(copy, "\n");
  while (!p.words.why && *next) {
    char *line = next + 1;
    if (!*line) break;
    next = line + strcspn(line, "\n");
    char stop = *next;
    *next = 0;
    p.words.at = line;
    p.words.line++;
    read_line(&p);
    *next = stop;
  }
  if (!p.words.why) check_whole(&p);
  *why = p.words.why;
  return p.words.why ? NULL : p.plan;
}
