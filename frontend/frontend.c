/* frontend: from a path to a Program: files and imports, top-level names, hypers, then the recipe
 * and the two graphs. */
#include "base/text.h"
#include "frontend/builder.h"
#include "frontend/hypers.h"
#include "frontend/parse.h"
#include "frontend/tune.h"
#include "frontend/watch.h"
#include "plan/tuned.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The standard library's files, embedded by the build; ends with zeros. */
extern const struct {
  const char *name, *start, *end;
} embed_std[];

typedef struct Loading {
  const struct Loading *up;
  const char *path;
  Loc loc;
} Loading;

typedef struct {
  Builder *b;
  const FrontendOptions *options;
  VEC(const Ast *) files; /* imported ones first */
  VEC(const char *) paths;
} Source;

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
static const char *path_beside(Arena *arena, const char *path, const char *name) {
  const char *slash = strrchr(path, '/');
  if (name[0] == '/' || !slash) return name;
  return arena_printf(arena, "%.*s/%s", (int)(slash - path), path, name);
}

/* One file by whatever path it is reached. */
static const char *identity(Arena *arena, const char *path) {
  char *real = realpath(path, NULL);
  const char *copy = arena_strdup(arena, real ? real : path);
  free(real);
  return copy;
}

/* Is it in the folder of the main file, or deeper? Both without links. */
static bool is_below_main(const Source *source, const char *real) {
  Arena *arena = source->b->arena;
  const char *path = source->b->program->path, *slash = strrchr(path, '/');
  const char *folder = slash ? arena_strndup(arena, path, (size_t)(slash - path) + 1) : ".";
  folder = identity(arena, folder);
  size_t length = strlen(folder);
  return strcmp(folder, "/") == 0 || (strncmp(real, folder, length) == 0 && real[length] == '/');
}

/* A program may come from someone else, and what the compiler says of an import shows its lines: so
 * it must be a .ft file, below the folder of the main one. */
static bool may_import(Source *source, const Ast *ast, const char *path, const char *real) {
  Diag *diag = source->b->diag;
  struct stat info;
  size_t length = strlen(real);
  bool is_free = source->options->allow_paths, is_found = stat(path, &info) == 0;
  int error = errno;
  if (!is_free && (ast->name[0] == '/' || (is_found && !is_below_main(source, real))))
    diag_error(diag, ast->loc,
               "\"%s\" is not below the folder of the file that is compiled; --allow-paths lets it "
               "be imported",
               ast->name);
  else if (!is_found)
    diag_error(diag, ast->loc, "cannot read \"%s\": %s", path, strerror(error));
  else if (length < 4 || strcmp(real + length - 3, ".ft") != 0)
    diag_error(diag, ast->loc, "\"%s\" is no .ft file: only those are imported", ast->name);
  else if (!S_ISREG(info.st_mode))
    diag_error(diag, ast->loc, "cannot read \"%s\": it is no regular file", path);
  else
    return true;
  return false;
}

static void load_text(Source *source, const char *path, const char *text, size_t length,
                      const Loading *up);

static void import(Source *source, const Ast *ast, const char *importer, const Loading *up) {
  Builder *b = source->b;
  const char *path = path_beside(b->arena, importer, ast->name);
  const char *same = identity(b->arena, path);
  for (const Loading *l = up; l; l = l->up) {
    if (strcmp(l->path, same) != 0) continue;
    diag_error(b->diag, ast->loc, "\"%s\" is being imported already: the imports go in a circle",
               ast->name);
    for (const Loading *k = up; k != l; k = k->up) diag_note(b->diag, k->loc, "imported from here");
    return;
  }
  for (int i = 0; i < source->paths.count; i++)
    if (strcmp(source->paths.at[i], same) == 0) return;
  if (source->paths.count >= LIMIT_FILES) {
    diag_error(b->diag, ast->loc, "more than %d files are imported", LIMIT_FILES);
    return;
  }
  if (!may_import(source, ast, path, same)) return;
  Loading loading = {up, same, ast->loc};
  const Watch *watch = source->options->watch;
  size_t length = 0;
  const char *shown = watch && watch->text_of ? watch->text_of(watch->user, same, &length) : NULL;
  if (shown) {
    load_text(source, path, shown, length, &loading);
    return;
  }
  Text text = {0};
  int error = text_read_file(&text, path);
  if (error) {
    if (text_is_fault(error)) b->diag->is_fault = true;
    diag_error(b->diag, ast->loc, "cannot read \"%s\": %s", path, text_error(error));
  } else {
    load_text(source, path, text_cstr(&text), text.count, &loading);
  }
  text_free(&text);
}

static void load_text(Source *source, const char *path, const char *text, size_t length,
                      const Loading *up) {
  Builder *b = source->b;
  VEC_PUSH(b->arena, source->paths, up->path);
  const Ast *file = parse_text(b->arena, b->diag, path, text, length);
  for (int i = 0; i < file->count; i++)
    if (file->kid[i]->kind == AST_IMPORT) import(source, file->kid[i], path, up);
  VEC_PUSH(b->arena, source->files, file);
}

/* ── top-level names ──────────────────────────────────────────────────────────────────────── */
static bool define(Builder *b, Scope *scope, const char *name, Value value, Loc loc) {
  for (int i = 0; i < scope->names.count; i++) {
    if (strcmp(scope->names.at[i].name, name) != 0) continue;
    builder_fail(b, loc, "'%s' is defined twice", name);
    builder_note(b, scope->names.at[i].loc, "its first definition is here");
    return false;
  }
  VEC_PUSH(b->arena, scope->names, ((Variable){name, value, loc, false}));
  return true;
}

static void define_file(Builder *b, Scope *scope, const Ast *file) {
  for (int i = 0; i < file->count; i++) {
    const Ast *ast = file->kid[i];
    ValueKind kind = ast->kind == AST_FN      ? VALUE_FUNCTION
                     : ast->kind == AST_BLOCK ? VALUE_BLOCK
                     : ast->kind == AST_MODEL ? VALUE_MODEL
                     : ast->kind == AST_DATA  ? VALUE_DATA
                                              : VALUE_ERROR;
    if (kind != VALUE_ERROR)
      define(b, scope, ast->name, (Value){.kind = kind, .definition = ast}, ast->loc);
  }
}

static void load_std(Builder *b) {
  b->std_first = (uint16_t)(b->diag->files.count + 1);
  if (b->watch) b->watch->std_first = b->std_first;
  for (int i = 0; embed_std[i].name; i++) {
    const char *name = arena_printf(b->arena, "std/%s.ft", embed_std[i].name + strlen("std_"));
    const Ast *file = parse_text(b->arena, b->diag, name, embed_std[i].start,
                                 (size_t)(embed_std[i].end - embed_std[i].start));
    b->std_last = file->loc.file;
    define_file(b, &b->std, file);
  }
  b->user.up = &b->std;
}

/* ── hypers ───────────────────────────────────────────────────────────────────────────────── */
static const char *type_of_hyper(const Ast *hyper, const Value *fallback) {
  const Ast *type = hyper->kid[0];
  if (type) return type->name && !type->kid[0] ? type->name : "";
  return fallback->kind == VALUE_INT     ? "int"
         : fallback->kind == VALUE_FLOAT ? "float"
         : fallback->kind == VALUE_BOOL  ? "bool"
                                         : "str";
}

/* A value of -D hidden=512 by the hyper's type. */
static bool parse_value(Builder *b, const char *text, const char *type, Value *out) {
  HyperValue value;
  if (!hyper_read(type, text, &value)) return false;
  *out = !strcmp(type, "int")     ? value_int(value.integer)
         : !strcmp(type, "float") ? value_float(value.number)
         : !strcmp(type, "bool")  ? value_bool(value.integer != 0)
                                  : value_string(arena_strdup(b->arena, text));
  return true;
}

static const char *define_for(const FrontendOptions *options, const char *name) {
  const char *found = NULL; /* the last one wins */
  size_t length = strlen(name);
  for (int i = 0; i < options->define_count; i++)
    if (strncmp(options->defines[i], name, length) == 0 && options->defines[i][length] == '=')
      found = options->defines[i] + length + 1;
  return found;
}

static const Ast *find_preset(const Source *source, const char *name) {
  for (int f = 0; f < source->files.count; f++)
    for (int i = 0; i < source->files.at[f]->count; i++) {
      const Ast *ast = source->files.at[f]->kid[i];
      if (ast->kind == AST_PRESET && strcmp(ast->name, name) == 0) return ast;
    }
  return NULL;
}

static const Ast *preset_value(const Ast *preset, const char *name) {
  for (int i = 0; preset && i < preset->count; i++)
    if (preset->kid[i]->kind == AST_ENTRY && strcmp(preset->kid[i]->name, name) == 0)
      return preset->kid[i]->kid[0];
  return NULL;
}

static bool is_literal(const Ast *value) {
  AstKind kind = value->kind == AST_UNARY ? value->kid[0]->kind : value->kind;
  return kind == AST_INT || kind == AST_FLOAT || kind == AST_STRING || kind == AST_BOOL;
}

/* Where a hyper's value is from, for people. */
static const char *origin_of(const Source *source, const Ast *hyper, bool is_defined,
                             bool is_of_preset) {
  Builder *b = source->b;
  if (is_defined) return "-D";
  if (is_of_preset) return arena_printf(b->arena, "preset %s", source->options->preset);
  if (is_literal(hyper->kid[1])) return "default";
  const char *declared = hypers_source(b->arena, b->diag, hyper->loc, ";");
  const char *equals = strchr(declared, '=');
  return equals ? arena_printf(b->arena, "default, =%s", equals + 1) : "default";
}

static void define_hyper(Source *source, const Ast *hyper, const Ast *preset) {
  Builder *b = source->b;
  const Ast *chosen = preset_value(preset, hyper->name);
  if (!chosen) chosen = hyper->kid[1];
  Value v = eval(b, chosen);
  const char *type = type_of_hyper(hyper, &v);
  static const char *const types[] = {"int", "float", "bool", "str"};
  bool known = false;
  for (int i = 0; i < 4; i++) known = known || strcmp(types[i], type) == 0;
  if (!known) {
    builder_fail(b, hyper->kid[0]->loc, "a hyper is an int, float, bool or str%s",
                 builder_hint(b, type, types, 4));
    v = value_error();
  }
  const char *text = define_for(source->options, hyper->name);
  if (known && text && !parse_value(b, text, type, &v)) {
    diag_error(b->diag, (Loc){0}, "-D %s=%s: %s", hyper->name, text, hyper_refusal(type));
    builder_note(b, hyper->loc, "hyper '%s' is declared here", hyper->name);
    v = value_error();
  }
  Ast parameter = {.kind = AST_PARAMETER,
                   .name = hyper->name,
                   .loc = hyper->loc,
                   .count = 2,
                   .kid = (Ast *[]){hyper->kid[0], NULL}};
  if (v.kind != VALUE_ERROR && known && !call_check_argument(b, &parameter, &v, chosen->loc))
    v = value_error();
  if (v.kind == VALUE_INT && strcmp(type, "float") == 0) v = value_float((double)v.i);
  define(b, &b->user, hyper->name, v, hyper->loc);
  watch_mention(b, hyper->name, &(Variable){hyper->name, v, hyper->loc, false}, hyper->loc);
  Hyper row = {.name = hyper->name,
               .value = value_text(b->arena, &v),
               .type = type,
               .doc = hypers_comment(b->arena, b->diag, hyper->loc),
               .from = origin_of(source, hyper, text, chosen != hyper->kid[1]),
               .loc = chosen->loc};
  VEC_PUSH(b->arena, b->program->hypers, row);
}

static void check_defines(Source *source) {
  Builder *b = source->b;
  VEC(const char *) names = {0};
  for (int i = 0; i < b->program->hypers.count; i++)
    VEC_PUSH(b->arena, names, b->program->hypers.at[i].name);
  for (int i = 0; i < source->options->define_count; i++) {
    const char *define = source->options->defines[i], *equals = strchr(define, '=');
    if (!equals) {
      diag_error(b->diag, (Loc){0}, "-D %s: write name=value", define);
      continue;
    }
    const char *name = arena_strndup(b->arena, define, (size_t)(equals - define));
    bool known = false;
    for (int k = 0; k < names.count; k++) known = known || strcmp(names.at[k], name) == 0;
    if (!known && setting_find(name) >= 0)
      diag_error(b->diag, (Loc){0}, "-D: '%s' is a setting, and no hyper: --set %s", name, define);
    else if (!known)
      diag_error(b->diag, (Loc){0}, "-D %s: there is no hyper '%s'%s", define, name,
                 builder_hint(b, name, names.at, names.count));
  }
}

static void check_preset(Source *source, const Ast *preset) {
  Builder *b = source->b;
  VEC(const char *) names = {0};
  for (int i = 0; i < b->program->hypers.count; i++)
    VEC_PUSH(b->arena, names, b->program->hypers.at[i].name);
  for (int i = 0; i < preset->count; i++) {
    const Ast *entry = preset->kid[i];
    bool known = false;
    for (int k = 0; k < names.count; k++) known = known || strcmp(names.at[k], entry->name) == 0;
    if (entry->kind != AST_ENTRY || !entry->kid[0])
      builder_fail(b, entry->loc, "a preset sets hypers: name = value");
    else if (!known)
      builder_fail(b, entry->loc, "there is no hyper '%s'%s", entry->name,
                   builder_hint(b, entry->name, names.at, names.count));
  }
}

static void list_preset(Source *source, const Ast *ast) {
  Builder *b = source->b;
  Preset preset = {ast->name, "", hypers_comment(b->arena, b->diag, ast->loc)};
  for (int i = 0; i < ast->count; i++)
    preset.values = arena_printf(b->arena, "%s%s%s", preset.values, i ? "; " : "",
                                 hypers_source(b->arena, b->diag, ast->kid[i]->loc, ";}"));
  VEC_PUSH(b->arena, b->program->presets, preset);
}

static void define_hypers(Source *source) {
  Builder *b = source->b;
  const char *name = source->options->preset;
  const Ast *preset = name ? find_preset(source, name) : NULL;
  if (name && !preset) {
    VEC(const char *) names = {0};
    for (int f = 0; f < source->files.count; f++)
      for (int i = 0; i < source->files.at[f]->count; i++)
        if (source->files.at[f]->kid[i]->kind == AST_PRESET)
          VEC_PUSH(b->arena, names, source->files.at[f]->kid[i]->name);
    diag_error(b->diag, (Loc){0}, "--preset %s: there is no such preset%s", name,
               names.count ? builder_hint(b, name, names.at, names.count)
                           : "; the file declares none");
  }
  for (int f = 0; f < source->files.count && !b->exhausted; f++)
    for (int i = 0; i < source->files.at[f]->count && !b->exhausted; i++)
      if (source->files.at[f]->kid[i]->kind == AST_HYPER)
        define_hyper(source, source->files.at[f]->kid[i], preset);
  check_defines(source);
  for (int f = 0; f < source->files.count; f++)
    for (int i = 0; i < source->files.at[f]->count; i++)
      if (source->files.at[f]->kid[i]->kind == AST_PRESET) {
        check_preset(source, source->files.at[f]->kid[i]);
        list_preset(source, source->files.at[f]->kid[i]);
      }
}

/* ── the graphs ───────────────────────────────────────────────────────────────────────────── */
Graph *build_graph(Builder *b, const Ast *model, bool training) {
  b->graph = graph_new(b->arena, training ? "train" : "eval");
  b->training = training;
  b->streams = b->instances = b->evaluations = 0;
  b->seed = b->step = NULL;
  memset(&b->mix, 0, sizeof b->mix);
  b->product_places = (Lookup){.arena = b->arena};
  memset(&b->product_uses, 0, sizeof b->product_uses);
  b->declared.count = b->weights.count = b->copies.count = b->running.count = b->matrices.count = 0;
  bool fine = build_model(b, model);
  fine = fine && !b->exhausted && recipe_prune_outputs(b, b->graph) && recipe_prune_parts(b, b->graph);
  return fine ? b->graph : NULL;
}

/* The one behind *at of what both graphs must have; NULL: there is none. */
static const Declared *next_of_both(const Declared *list, int count, int *at) {
  while (*at < count && list[*at].node->role == ROLE_GIVEN) ++*at;
  return *at < count ? &list[(*at)++] : NULL;
}

/* Of frozen layers that both graphs have, the leaves are the same, too. */
static bool same_given(Builder *b, const Declared *train, int train_count) {
  for (int i = 0; i < b->declared.count; i++)
    for (int k = 0; k < train_count; k++) {
      const Declared *e = &b->declared.at[i], *t = &train[k];
      if (strcmp(t->name, e->name) != 0) continue;
      bool is_given = t->node->role == ROLE_GIVEN;
      if (!is_given && e->node->role != ROLE_GIVEN) break;
      if (is_given == (e->node->role == ROLE_GIVEN) && type_equal(&t->node->type, &e->node->type) &&
          !strcmp(node_str(t->node, ATTR_FILE), node_str(e->node, ATTR_FILE)))
        break;
      diag_error(b->diag, t->loc,
                 "'%s' is frozen with the weights of a file, and is another one in training than in "
                 "evaluation",
                 t->name);
      return false;
    }
  return true;
}

static bool same_declarations(Builder *b, Declared *train, int train_count) {
  int i = 0, k = 0;
  for (;;) {
    const Declared *t = next_of_both(train, train_count, &i);
    const Declared *e = next_of_both(b->declared.at, b->declared.count, &k);
    if (!t && !e) return same_given(b, train, train_count);
    if (t && e && strcmp(t->name, e->name) == 0 && t->node->op == e->node->op &&
        type_equal(&t->node->type, &e->node->type))
      continue;
    const Declared *odd = t ? t : e;
    if (quantize_refuse_scales(b, odd)) return false;
    diag_error(b->diag, odd->loc,
               "'%s' is not the same in training and evaluation; declare "
               "parameters and states outside `if training`",
               odd->name);
    return false;
  }
}

static bool has_evaluated(Builder *b) {
  for (int i = 0; i < b->evaluated.count; i++) {
    const Ast *metric = b->evaluated.at[i];
    if (graph_find_root(b->program->eval, ROOT_METRIC, metric->name) ||
        graph_find_root(b->program->eval, ROOT_AUC, metric->name))
      continue;
    diag_error(b->diag, metric->loc,
               "metric '%s' is for evaluations only, as a row, a table or an AUC is: a training "
               "step has one batch; declare it outside `if training`",
               metric->name);
    return false;
  }
  return true;
}

static bool build_graphs(Builder *b, const Ast *model) {
  b->program->products = ARENA_NEW(b->arena, Lookup);
  b->program->products->arena = b->arena;
  b->program->train = build_graph(b, model, true);
  if (!b->program->train || !statistics_check(b) || !recipe_check_groups(b) || !widths_check(b) || !quantize_check(b) || !quantize_check_switches(b)) return false;
  recipe_note_outputs(b, b->program->train);
  Declared *train = b->declared.at;
  int train_count = b->declared.count;
  b->declared.at = NULL;
  b->declared.count = b->declared.capacity = 0;
  b->program->eval = build_graph(b, model, false);
  if (b->program->eval) quantize_list_matrices(b);
  if (!b->program->eval || !same_declarations(b, train, train_count) || !has_evaluated(b) ||
      !recipe_check_rules(b) || !taps_check(b))
    return false;
  folds_find(b);
  if (b->watch) return variants_build(b, model, train, train_count);
  sizes_note(b, model, b->program->train, true);
  sizes_note(b, model, b->program->eval, false);
  return variants_build(b, model, train, train_count);
}

/* Declarations for others to import: no model, and no recipe. */
static bool is_for_imports(const Source *source) {
  for (int f = 0; f < source->files.count; f++)
    for (int i = 0; i < source->files.at[f]->count; i++) {
      AstKind kind = source->files.at[f]->kid[i]->kind;
      if (kind == AST_MODEL || kind == AST_TRAIN) return false;
    }
  return true;
}

bool frontend_std(int index, const char **name, const char **text) {
  if (!embed_std[index].name) return false;
  *name = embed_std[index].name + strlen("std_");
  *text = embed_std[index].start;
  return true;
}

bool frontend_compile_text(Arena *arena, Diag *diag, const char *path, const char *text,
                           const FrontendOptions *options, Program *out) {
  return frontend_compile_bytes(arena, diag, path, text, strlen(text), options, out);
}

bool frontend_compile_bytes(Arena *arena, Diag *diag, const char *path, const char *text,
                            size_t length, const FrontendOptions *options, Program *out) {
  static const FrontendOptions plain;
  int errors = diag->errors;
  *out = (Program){.arena = arena, .path = arena_strdup(arena, path)};
  out->settings = settings_new(arena);
  Builder *b = ARENA_NEW(arena, Builder);
  Source source = {.b = b, .options = options ? options : &plain};
  *b = (Builder){.arena = arena, .diag = diag, .program = out, .watch = source.options->watch,
                  .taps = source.options->taps, .tap_count = source.options->tap_count};
  Loading loading = {NULL, identity(arena, path), {0}};
  load_text(&source, path, text, length, &loading);
  if (diag->errors > errors || source.options->parse_only) return diag->errors == errors;
  load_std(b);
  for (int i = 0; i < diag->files.count; i++) VEC_PUSH(arena, out->files, diag->files.at[i].path);
  Frame top = {.scope = &b->user, .prefix = ""};
  b->frame = &top;
  for (int i = 0; i < source.files.count; i++) define_file(b, &b->user, source.files.at[i]);
  define_hypers(&source);
  tune_read(b, source.files.at[source.files.count - 1]);
  if (source.options->hypers_only) return diag->errors == errors;
  if (b->watch && is_for_imports(&source)) return diag->errors == errors;
  const Ast *model = NULL;
  bool fine = recipe_read(b, source.files.at, source.files.count, source.options, &model);
  if (!fine || diag->errors > errors || !widths_read(b) || !quantize_read(b)) return false;
  out->model_name = model->name;
  b->frame = NULL;
  if (!build_graphs(b, model) || diag->errors > errors) return false;
  unused_warn(b, source.files.at, source.files.count);
  warn_untrained(b, out->train);
  return diag->errors == errors;
}

Program frontend_stage(const Program *program, int stage) {
  Program out = *program;
  out.stage = stage;
  out.params = (typeof(out.params)){0};
  for (int i = 0; i < program->train->nodes.count; i++) {
    const Node *node = program->train->nodes.at[i];
    if (node->op == OP_PARAM) VEC_PUSH(out.arena, out.params, node_str(node, ATTR_NAME));
  }
  out.train = graph_rewrite(program->train, NULL, NULL);
  out.eval = graph_rewrite(program->eval, NULL, NULL);
  return out;
}

static bool frontend_read(Diag *diag, const char *path, Text *text) {
  int error = text_read_file(text, path);
  if (text_is_fault(error)) diag->is_fault = true;
  if (error) diag_error(diag, (Loc){0}, "cannot read '%s': %s", path, text_error(error));
  return !error;
}

bool frontend_compile(Arena *arena, Diag *diag, const char *path, const FrontendOptions *options,
                      Program *out) {
  Text text = {0};
  bool fine = frontend_read(diag, path, &text) &&
              frontend_compile_bytes(arena, diag, path, text_cstr(&text), text.count, options, out);
  text_free(&text);
  return fine;
}

bool frontend_print_ast(Arena *arena, Diag *diag, const char *path, FILE *out) {
  Text text = {0};
  int errors = diag->errors;
  if (frontend_read(diag, path, &text)) {
    const Ast *file = parse_text(arena, diag, path, text_cstr(&text), text.count);
    if (diag->errors == errors) ast_print(file, out);
  }
  text_free(&text);
  return diag->errors == errors;
}
