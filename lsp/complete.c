/* complete: what may stand where somebody types. The editor filters by what is typed already. */
#include "frontend/tune.h"
#include "lsp/words.h"
#include <string.h>

/* Kinds of the protocol. */
enum {
  ITEM_FUNCTION = 3,
  ITEM_FIELD = 5,
  ITEM_VARIABLE = 6,
  ITEM_CLASS = 7,
  ITEM_MODULE = 9,
  ITEM_PROPERTY = 10,
  ITEM_VALUE = 12,
  ITEM_KEYWORD = 14,
  ITEM_CONSTANT = 21,
  ITEM_STRUCT = 22,
  ITEM_TYPE = 25
};
enum { COMPLETE_MOST = 2000 };

typedef struct {
  Desk *desk;
  OpenFile *file;
  Arena *arena;
  Place place;
  json_t *items;
  Lookup known; /* labels */
} Completion;

static void add_item(Completion *c, const char *label, int kind, const char *detail,
                     const char *said) {
  int count = c->known.entries.count;
  if (!*label || count >= COMPLETE_MOST || lookup_add_text(&c->known, label, count) != count)
    return;
  json_t *item = json_pack("{s:o, s:i}", "label", desk_string(label), "kind", kind);
  if (*detail) json_object_set_new(item, "detail", desk_string(detail));
  if (*said)
    json_object_set_new(item, "documentation",
                        json_pack("{s:s, s:o}", "kind", "markdown", "value", desk_string(said)));
  json_array_append_new(c->items, item);
}

static void add_words(Completion *c, const char *words, int kind, const char *detail) {
  char *rest = NULL, *list = arena_strdup(c->arena, words);
  for (char *w = strtok_r(list, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
    add_item(c, w, kind, detail, "");
}

/* `warmup=` of "lr_decay warmup initial:loss_scale" */
static void add_arguments(Completion *c, const char *arguments, const char *prefix) {
  char *rest = NULL, *list = arena_strdup(c->arena, arguments);
  for (char *a = strtok_r(list, " ", &rest); a; a = strtok_r(NULL, " ", &rest)) {
    char *colon = strchr(a, ':');
    if (colon) *colon = 0;
    int setting = setting_find(arena_printf(c->arena, "%s%s", prefix, colon ? colon + 1 : a));
    add_item(c, arena_printf(c->arena, "%s=", a), ITEM_FIELD, "",
             setting >= 0 ? words_setting_text(c->arena, setting) : "");
  }
}

static const char *page_of(Completion *c, ReferenceKind kind, const char *word) {
  const char *signature, *page = reference_find(c->arena, kind, word, &signature);
  return page ? page : "";
}

/* ── names in scope ───────────────────────────────────────────────────────────────────────── */
static bool is_of_kind(const Declaration *d, DeclarationKind a, DeclarationKind b) {
  return d->kind == a || d->kind == b;
}

static void add_declarations(Completion *c, const Outline *outline, DeclarationKind a,
                             DeclarationKind b, bool is_std) {
  static const int kinds[] = {[DECLARES_HYPER] = ITEM_CONSTANT,
                              [DECLARES_BLOCK] = ITEM_CLASS,
                              [DECLARES_FN] = ITEM_FUNCTION,
                              [DECLARES_MODEL] = ITEM_STRUCT,
                              [DECLARES_DATA] = ITEM_MODULE};
  for (int i = 0; i < outline->declarations.count; i++) {
    const Declaration *d = &outline->declarations.at[i];
    if (!is_of_kind(d, a, b) || !scan_is_name(outline->scan, d->name)) continue;
    const char *name = scan_word(c->arena, outline->scan, d->name);
    if (is_std && *name == '_') continue;
    const char *said =
        is_std ? page_of(c, REFERENCE_FUNCTION, name) : outline_comment(c->arena, outline, d);
    add_item(c, name, kinds[d->kind], outline_signature(c->arena, outline, d), said);
  }
}

static void add_top_level(Completion *c, DeclarationKind a, DeclarationKind b) {
  Found found;
  add_declarations(c, desk_outline(c->file), a, b, false);
  for (int i = 0; desk_import(c->arena, c->file, i, &found); i++)
    add_declarations(c, found.outline, a, b, false);
}

/* What the declaration around the place has bound in front of it, dimensions and arguments too. */
static void add_locals(Completion *c) {
  const Outline *outline = c->place.outline;
  if (!c->place.declaration) return;
  int index = (int)(c->place.declaration - outline->declarations.at);
  for (int i = 0; i < outline->bindings.count; i++) {
    const Binding *b = &outline->bindings.at[i];
    if (b->declaration != index || outline->scan->tokens.at[b->token].start >= c->place.from)
      continue;
    const Mention *mention = desk_mention(c->file, b->token);
    const char *detail = mention ? value_describe(c->arena, &mention->value) : "";
    add_item(c, scan_word(c->arena, outline->scan, b->token),
             b->kind == BINDS_DIMENSION ? ITEM_CONSTANT : ITEM_VARIABLE, detail, "");
  }
}

static void add_builtins(Completion *c) {
  Builder b = {.arena = c->arena};
  const char **names;
  int count;
  builtin_names(&b, &names, &count);
  for (int i = 0; i < count; i++) {
    const char *signature,
        *page = reference_find(c->arena, REFERENCE_FUNCTION, names[i], &signature);
    add_item(c, names[i], ITEM_FUNCTION,
             signature ? signature : words_builtin_text(c->arena, builtin_find(names[i])),
             page ? page : "");
  }
}

static void add_expression(Completion *c) {
  add_locals(c);
  add_top_level(c, DECLARES_BLOCK, DECLARES_FN);
  add_top_level(c, DECLARES_HYPER, DECLARES_HYPER);
  for (int i = 0; i < c->desk->std.count; i++)
    add_declarations(c, c->desk->std.at[i], DECLARES_BLOCK, DECLARES_FN, true);
  add_builtins(c);
  add_words(c, "training pi inf true false none", ITEM_CONSTANT, "");
}

static void add_types(Completion *c) {
  for (int i = 0; i < DT_NAMED; i++) add_item(c, dtype_text((DType)i), ITEM_TYPE, "", "");
  add_words(c, "int float str list init", ITEM_TYPE, "");
}

/* ── arguments of what is called ──────────────────────────────────────────────────────────── */
static void add_parameters(Completion *c, const Found *found) {
  const Outline *outline = found->outline;
  int index = (int)(found->declaration - outline->declarations.at);
  int open = found->declaration->first_open;
  for (int i = 0; i < outline->bindings.count; i++) {
    const Binding *b = &outline->bindings.at[i];
    if (b->declaration == index && b->kind == BINDS_PARAMETER &&
        outline->scan->tokens.at[b->token].parent == open)
      add_item(c, arena_printf(c->arena, "%s=", scan_word(c->arena, outline->scan, b->token)),
               ITEM_FIELD, "", "");
  }
  if (found->declaration->kind == DECLARES_BLOCK)
    add_words(c, "name= precision= recompute=", ITEM_FIELD, "of any layer");
}

static void add_call_arguments(Completion *c) {
  const Scan *scan = c->place.outline->scan;
  int callee = words_callee(scan, c->place.open);
  char before = words_sign(scan, c->place.before);
  bool is_argument = callee >= 0 && (before == '(' || before == ',');
  const char *name = scan_word(c->arena, scan, callee);
  Found found;
  if (!is_argument) return;
  if (desk_declaration(c->desk, c->arena, c->file, name, &found)) {
    add_parameters(c, &found);
    return;
  }
  const Builtin *builtin = builtin_find(name);
  char *rest = NULL, *list = builtin ? arena_strdup(c->arena, builtin->parameters) : NULL;
  for (char *p = list ? strtok_r(list, " ", &rest) : NULL; p; p = strtok_r(NULL, " ", &rest))
    if (strchr(p, '=')) add_item(c, p, ITEM_FIELD, "", "");
}

/* ── recipes ──────────────────────────────────────────────────────────────────────────────── */
static void add_settings(Completion *c) {
  const char *prefix = words_prefix(c->arena, &c->place);
  size_t length = strlen(prefix);
  for (int i = 0; i < setting_count && *prefix; i++) {
    const char *key = setting_info[i].key;
    if (strncmp(key, prefix, length) != 0 || strchr(key + length, '.') ||
        setting_info[i].when == WHEN_DERIVED)
      continue;
    add_item(c, key + length, ITEM_PROPERTY, "", words_setting_text(c->arena, i));
  }
  bool is_train = !strcmp(prefix, "train."), is_data = !strcmp(prefix, "data.");
  const char *const *more = is_train ? recipe_train_words : is_data ? recipe_data_words : NULL;
  for (; more && *more; more++)
    add_item(c, *more, ITEM_PROPERTY, "", is_train ? page_of(c, REFERENCE_ENTRY, *more) : "");
  if (!strcmp(prefix, "distributed."))
    add_item(c, "auto", ITEM_PROPERTY, "auto(gpus = 64, memory = 80 GiB)", "");
}

static void add_choices(Completion *c, const char *entry) {
  ReferenceKind kind = !strcmp(entry, "optimizer") ? REFERENCE_OPTIMIZER : REFERENCE_SCHEDULE;
  bool has_page = kind == REFERENCE_OPTIMIZER || !strcmp(entry, "schedule");
  for (const Choice *choice = recipe_choices(entry); choice && choice->name; choice++)
    add_item(c, choice->name, ITEM_VALUE, choice->arguments,
             has_page ? page_of(c, kind, choice->name) : "");
}

/* `valid.` and the metrics of the model. */
static void add_metrics(Completion *c) {
  const Outline *outline = c->place.outline;
  add_item(c, "loss", ITEM_PROPERTY, "", "");
  for (int i = 0; i < outline->bindings.count; i++)
    if (outline->bindings.at[i].kind == BINDS_METRIC)
      add_item(c, scan_word(c->arena, outline->scan, outline->bindings.at[i].token), ITEM_PROPERTY,
               "metric", "");
}

static void add_train_value(Completion *c, const char *entry) {
  int setting = words_setting(c->arena, &c->place, entry);
  bool is_switch = setting >= 0 && setting_info[setting].kind == SET_BOOL;
  add_choices(c, entry);
  if (!strcmp(entry, "model"))
    add_top_level(c, DECLARES_MODEL, DECLARES_MODEL);
  else if (!strcmp(entry, "data"))
    add_top_level(c, DECLARES_DATA, DECLARES_DATA);
  else if (!strcmp(entry, "clip"))
    add_words(c, "norm value none", ITEM_VALUE, "");
  else if (!strcmp(entry, "best") || !strcmp(entry, "metric"))
    add_words(c, "min max valid", ITEM_VALUE, "");
  else if (!strcmp(entry, "stop"))
    add_words(c, "early reached none", ITEM_VALUE, "");
  else if (!strcmp(entry, "batch"))
    add_words(c, "auto", ITEM_VALUE, "");
  else if (!strcmp(entry, "parameters"))
    add_words(c, "f32 bf16", ITEM_VALUE, "");
  else if (!strcmp(entry, "rounding"))
    add_words(c, "stochastic nearest", ITEM_VALUE, "");
  else if (!strcmp(entry, "eval") || !strcmp(entry, "ema") || !strcmp(entry, "max_time"))
    add_words(c, "none", ITEM_VALUE, "");
  if (!strcmp(entry, "recompute") || !strcmp(entry, "freeze")) add_words(c, "none", ITEM_VALUE, "");
  if (!strcmp(entry, "freeze") || !strcmp(entry, "quantize")) add_words(c, "after", ITEM_VALUE, "");
  if (is_switch) add_words(c, "true false", ITEM_VALUE, "");
  add_top_level(c, DECLARES_HYPER, DECLARES_HYPER);
}

static void add_train_arguments(Completion *c, const char *entry, const char *callee) {
  for (const Choice *choice = recipe_choices(entry); choice && choice->name; choice++)
    if (strcmp(choice->name, callee) == 0) add_arguments(c, choice->arguments, choice->prefix);
  if (!strcmp(callee, "early")) add_arguments(c, "metric patience threshold", "train.stop.");
  if (!strcmp(callee, "min") || !strcmp(callee, "max") || !strcmp(callee, "reached"))
    add_words(c, "valid test train", ITEM_VALUE, "");
}

static void add_transforms(Completion *c) {
  for (int i = 0; i < transform_kind_count; i++)
    add_item(c, transform_kinds[i].name, ITEM_FUNCTION,
             words_transform_text(c->arena, &transform_kinds[i]),
             page_of(c, REFERENCE_TRANSFORM, transform_kinds[i].name));
}

static void add_data_arguments(Completion *c, const char *callee) {
  const SourceKind *source = source_kind_find(callee);
  for (int i = 0; source && i < source_option_count; i++)
    if (source_option_is_of(&source_options[i], source))
      add_item(c, arena_printf(c->arena, "%s=", source_options[i].name), ITEM_FIELD,
               source_options[i].words, "");
  for (int i = 0; i < transform_kind_count && !source; i++) {
    const TransformKind *kind = &transform_kinds[i];
    if (strcmp(kind->name, callee) != 0) continue;
    for (int k = 0; k < transform_parameter_count(kind); k++)
      add_item(c, arena_printf(c->arena, "%s=", kind->parameter[k].name), ITEM_FIELD,
               kind->parameter[k].words ? kind->parameter[k].words : "", "");
  }
}

static void add_data_value(Completion *c, const char *entry) {
  bool is_split = !strcmp(entry, "train") || !strcmp(entry, "valid") || !strcmp(entry, "test");
  int setting = words_setting(c->arena, &c->place, entry);
  for (int i = 0; is_split && i < source_kind_count; i++)
    add_item(c, source_kinds[i].name, ITEM_FUNCTION, "a data source",
             page_of(c, REFERENCE_SOURCE, source_kinds[i].name));
  if (is_split) add_words(c, "fold", ITEM_VALUE, "fold of train");
  if (!strcmp(entry, "order"))
    add_words(c, "balanced oversampled weighted curriculum sorted none", ITEM_VALUE, "");
  if (!strcmp(entry, "workers") || !strcmp(entry, "prefetch")) add_words(c, "auto", ITEM_VALUE, "");
  if (setting >= 0 && setting_info[setting].kind == SET_BOOL)
    add_words(c, "true false", ITEM_VALUE, "");
  add_top_level(c, DECLARES_HYPER, DECLARES_HYPER);
}

/* Behind `=`, `(`, `,` or a word of an entry. */
static void complete_entry(Completion *c) {
  const Scan *scan = c->place.outline->scan;
  const char *entry = scan_word(c->arena, scan, c->place.statement);
  int callee = words_callee(scan, c->place.open);
  char before = words_sign(scan, c->place.before);
  bool is_data = c->place.declaration->kind == DECLARES_DATA;
  const char *name = scan_word(c->arena, scan, callee);
  if (callee >= 0 && before == '=') { /* the value of an argument: filter=bilinear */
    const char *argument = scan_word(c->arena, scan, scan_previous(scan, c->place.before));
    const TransformKind *kind = is_data ? transform_find(name) : NULL;
    for (int i = 0; kind && i < transform_parameter_count(kind); i++)
      if (!strcmp(kind->parameter[i].name, argument) && kind->parameter[i].words)
        add_words(c, kind->parameter[i].words, ITEM_VALUE, "");
    if (!strcmp(argument, "metric")) add_words(c, "min max", ITEM_VALUE, "");
    add_top_level(c, DECLARES_HYPER, DECLARES_HYPER);
  } else if (callee >= 0) {
    if (is_data)
      add_data_arguments(c, name);
    else
      add_train_arguments(c, entry, name);
  } else if (is_data && before == '|') {
    add_transforms(c);
  } else if (is_data) {
    if (before == '=')
      add_data_value(c, entry);
    else
      add_words(c, "of by train valid test", ITEM_KEYWORD, "");
  } else if (before == '=') {
    add_train_value(c, entry);
  } else {
    add_words(c, "every on per", ITEM_KEYWORD, "");
  }
}

/* ── all of it ────────────────────────────────────────────────────────────────────────────── */
static void complete_body(Completion *c) {
  const Scan *scan = c->place.outline->scan;
  bool is_model = c->place.declaration->kind == DECLARES_MODEL,
       is_fn = c->place.declaration->kind == DECLARES_FN;
  int parent = c->place.open, first = c->place.declaration->first_open,
      second = c->place.declaration->second_open;
  bool is_signature = c->place.brace < 0;
  char before = words_sign(scan, c->place.before);
  if (before == ':' && words_sign(scan, parent) != '[') {
    add_types(c);
    return;
  }
  if (is_signature && (parent == first || parent == second) && before != '=')
    return; /* a new name */
  if (c->place.statement < 0 && !is_signature) {
    add_words(c, is_fn ? "if repeat return check" : "if repeat check param state update",
              ITEM_KEYWORD, "");
    add_words(c, is_model ? "metric output loss" : "return", ITEM_KEYWORD, "");
  }
  add_call_arguments(c);
  add_expression(c);
}

static void complete_attribute(Completion *c) {
  const Scan *scan = c->place.outline->scan;
  int of = scan_previous(scan, c->place.before);
  bool is_split =
      scan_is(scan, of, "valid") || scan_is(scan, of, "train") || scan_is(scan, of, "test");
  bool is_recipe = c->place.declaration && c->place.declaration->kind == DECLARES_TRAIN;
  if (is_recipe && is_split)
    add_metrics(c);
  else if (!is_recipe)
    add_words(c, "shape rank size dtype", ITEM_PROPERTY, "of a tensor");
}

/* A name of the block, of a hyper or of a setting, or what may stand behind `=`. */
static void complete_tune(Completion *c) {
  const Scan *scan = c->place.outline->scan;
  const char *entry = scan_word(c->arena, scan, c->place.statement);
  if (c->place.brace < 0) return;
  if (c->place.statement < 0) {
    for (const TuneSetting *s = tune_settings; s->name; s++)
      add_item(c, s->name, ITEM_PROPERTY, s->form, s->doc);
    add_top_level(c, DECLARES_HYPER, DECLARES_HYPER);
    for (int i = 0; i < setting_count; i++)
      if (setting_info[i].when != WHEN_DERIVED)
        add_item(c, setting_info[i].key, ITEM_PROPERTY, "", words_setting_text(c->arena, i));
    return;
  }
  const TuneSetting *setting = tune_setting_find(entry);
  if (words_sign(scan, c->place.before) == '(' && setting && setting->kind == TUNE_GOAL)
    add_words(c, "valid test train", ITEM_VALUE, "");
  else if (words_sign(scan, c->place.before) != '=')
    add_words(c, "if", ITEM_KEYWORD, "");
  else if (setting && setting->words)
    add_words(c, setting->words, ITEM_VALUE, "");
  else if (!setting)
    add_words(c, "log range int log_int", ITEM_FUNCTION, "a range");
}

static void complete_place(Completion *c) {
  const Declaration *d = c->place.declaration;
  const Scan *scan = c->place.outline->scan;
  if (c->place.in_word) return;
  if (words_sign(scan, c->place.before) == '.') {
    complete_attribute(c);
  } else if (!d || (d->keyword == scan_at(scan, c->place.from) && d->name < 0)) {
    for (int i = 0; i <= DECLARES_TUNE; i++)
      add_item(c, outline_kind((DeclarationKind)i), ITEM_KEYWORD, "",
               page_of(c, REFERENCE_DECLARATION, outline_kind((DeclarationKind)i)));
  } else if (d->kind == DECLARES_PRESET) {
    if (c->place.statement < 0) add_top_level(c, DECLARES_HYPER, DECLARES_HYPER);
  } else if (d->kind == DECLARES_HYPER) {
    char before = words_sign(scan, c->place.before);
    if (before == ':')
      add_words(c, "int float bool str", ITEM_TYPE, "");
    else if (c->place.before > d->name)
      add_expression(c);
  } else if (d->kind == DECLARES_BLOCK || d->kind == DECLARES_FN || d->kind == DECLARES_MODEL) {
    complete_body(c);
  } else if (d->kind == DECLARES_TUNE) {
    complete_tune(c);
  } else if (d->kind != DECLARES_IMPORT && c->place.brace >= 0) {
    if (c->place.statement < 0)
      add_settings(c);
    else
      complete_entry(c);
  }
}

/* A hyper or an import ends with its line: on the next one a declaration may begin. */
static void leave_ended(Completion *c) {
  const Declaration *d = c->place.declaration;
  const Scan *scan = c->place.outline->scan;
  if (!d || d->body >= 0 || c->place.before < 0) return;
  size_t end = scan->tokens.at[c->place.before].end;
  bool is_ended = (d->kind == DECLARES_HYPER || d->kind == DECLARES_IMPORT) &&
                  end < c->place.from && memchr(scan->text + end, '\n', c->place.from - end);
  if (is_ended) c->place.declaration = NULL;
}

json_t *complete_answer(Desk *desk, OpenFile *file, size_t offset) {
  Arena *arena = arena_new();
  Completion c = {
      .desk = desk, .file = file, .arena = arena, .items = json_array(), .known = {.arena = arena}};
  c.place = words_place(arena, desk_outline(file), offset);
  leave_ended(&c);
  complete_place(&c);
  json_t *answer = json_pack("{s:b, s:o}", "isIncomplete", 0, "items", c.items);
  arena_free(arena);
  return answer;
}
