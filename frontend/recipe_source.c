/* recipe_source: `train = idx("images", "labels", limit=1000)` in a data block, as plan/sources.def
 * has it. */
#include "frontend/recipe.h"
#include "plan/data_part.h"
#include "plan/source_kind.h"
#include "plan/text_form.h"
#include <math.h>
#include <string.h>

static void add_option(Builder *b, DataSource *source, DataOption option) {
  DataOption *options = ARENA_ARRAY(b->arena, DataOption, source->option_count + 1);
  for (int i = 0; i < source->option_count; i++) options[i] = source->options[i];
  options[source->option_count++] = option;
  source->options = options;
}

static bool unknown_option(Builder *b, const Ast *argument, const SourceKind *kind) {
  VEC(const char *) names = {0};
  for (int i = 0; i < source_option_count; i++)
    if (source_option_is_of(&source_options[i], kind))
      VEC_PUSH(b->arena, names, source_options[i].name);
  const char *hint = builder_hint(b, argument->name, names.at, names.count);
  if (!*hint) hint = hint_list(b, "it has", names.at, names.count);
  return builder_fail(b, argument->loc, "%s has no option '%s'%s", kind->name, argument->name,
                      hint);
}

static bool wrong_option(Builder *b, const Ast *argument, const SourceOption *option,
                         const char *have) {
  Text wants = {0};
  source_option_wants(option, &wants);
  builder_fail(b, argument->loc, "%s must be %s, not %s", argument->name, text_cstr(&wants), have);
  text_free(&wants);
  return false;
}

/* A word of the option's own is no name of anything else. */
static bool option_value(Builder *b, const Ast *argument, const SourceOption *option,
                         DataOption *out) {
  const Ast *given = argument->kid[0];
  out->name = option->name;
  if (given->kind == AST_NAME && source_option_has_word(option, given->name)) {
    out->text = given->name;
    return true;
  }
  if (given->kind == AST_NAME && option->type == OPTION_WORD)
    return wrong_option(b, argument, option, given->name);
  Value v = eval(b, given);
  int64_t whole;
  if (v.kind == VALUE_ERROR) return false;
  if (v.kind == VALUE_STRING)
    out->text = v.s;
  else if (v.kind == VALUE_NONE) /* as a word, where the option has it */
    out->text = "none";
  else if (v.kind == VALUE_BOOL && option->type != OPTION_TEXT)
    out->text = v.i ? "true" : "false";
  else if (value_to_int(&v, &whole)) /* 2^53 + 1 is not to become a number that may be given */
    out->number = whole > (int64_t)1 << 53 ? INFINITY : (double)whole;
  else if (value_is_number(&v))
    out->number = value_number(&v);
  else
    return wrong_option(b, argument, option, value_describe(b->arena, &v));
  bool is_none = v.kind == VALUE_NONE && !source_option_has_word(option, "none");
  return (source_option_takes(option, out) && !is_none) ||
         wrong_option(b, argument, option, value_describe(b->arena, &v));
}

static bool source_option(Builder *b, const Ast *argument, const SourceKind *kind,
                          DataSource *source) {
  const SourceOption *option = source_option_find(kind, argument->name);
  if (!option) return unknown_option(b, argument, kind);
  for (int i = 0; i < source->option_count; i++)
    if (!strcmp(source->options[i].name, option->name))
      return builder_fail(b, argument->loc, "'%s' is given twice", argument->name);
  DataOption value = {0};
  if (!option_value(b, argument, option, &value)) return false;
  add_option(b, source, value);
  return true;
}

/* name: of the kind, NULL where there is none. */
static bool no_source(Builder *b, const char *split, const Ast *at, const char *name) {
  Text kinds = {0};
  source_kind_list(&kinds);
  if (name) {
    const char **names = ARENA_ARRAY(b->arena, const char *, source_kind_count);
    for (int i = 0; i < source_kind_count; i++) names[i] = source_kinds[i].name;
    const char *hint = builder_hint_as(b, FOREIGN_SOURCE, name, names, source_kind_count);
    builder_fail(b, at->loc, "unknown data source '%s'%s", name,
                 *hint ? hint : hint_list(b, "there are", names, source_kind_count));
  } else {
    builder_fail(b, at->loc,
                 "%s is a data source, idx(\"images\", \"labels\") or the like; there are %s",
                 split, text_cstr(&kinds));
  }
  text_free(&kinds);
  return false;
}

static bool add_source_file(Builder *b, const Ast *argument, const char *file, DataSource *out) {
  Text why = {0};
  out->files[out->file_count++] = file;
  bool is_remote = source_file_is_remote(file, &why);
  if (is_remote) builder_fail(b, argument->loc, "%s", text_cstr(&why));
  text_free(&why);
  return !is_remote;
}

static bool file_names(Builder *b, const Ast *call, const SourceKind *kind, DataSource *out) {
  bool fine = true;
  out->files = ARENA_ARRAY(b->arena, const char *, call->count);
  for (int i = 1; i < call->count; i++) {
    const Ast *argument = call->kid[i];
    if (argument->kind == AST_KEYWORD) {
      fine = source_option(b, argument, kind, out) && fine;
      continue;
    }
    Value v = eval(b, argument);
    if (v.kind == VALUE_STRING)
      fine = add_source_file(b, argument, v.s, out) && fine;
    else if (v.kind != VALUE_ERROR)
      fine = builder_fail(b, argument->loc, "a file name is a string, not %s",
                          value_describe(b->arena, &v));
    else
      fine = false;
  }
  if (fine && !out->file_count)
    fine = builder_fail(b, call->loc, "%s needs %s", kind->name,
                        kind->form == SOURCE_ARRAYS ? "file names, one for each input of the model"
                        : kind->form == SOURCE_SAMPLES ? "the name of a folder"
                        : kind->form == SOURCE_SHARDS  ? "the names of its shards"
                        : kind->form == SOURCE_TEXT    ? "the name of a file, or of several"
                                                       : "the name of a file");
  return fine;
}

/* What its transforms make of a text is what the model takes. */
static bool fits_text(Builder *b, Loc loc, const DataSource *source, const Ast *model) {
  TextForm form;
  Text why = {0};
  bool fine = text_form(source, model->kid[0]->count, &form, &why) ||
              builder_fail(b, loc, "model '%s': %s", model->name, text_cstr(&why));
  text_free(&why);
  return fine;
}

/* A file of a text or of records is for all inputs, and there may be several; of arrays there is a file
 * for each. */
static bool fits_model(Builder *b, const Ast *call, const SourceKind *kind,
                       const DataSource *source, const Ast *model) {
  int inputs = model->kid[0]->count, files = source->file_count;
  bool fine = true;
  if (kind->form == SOURCE_TEXT) return fits_text(b, call->loc, source, model);
  if (kind->form == SOURCE_RECORDS || kind->form == SOURCE_SHARDS) return true;
  if (kind->form == SOURCE_SAMPLES) {
    if (files > 1)
      fine = builder_fail(b, call->loc, "%s(...) takes one folder, not %d", kind->name, files);
    if (inputs <= 2) return fine;
    return builder_fail(
        b, call->loc,
        "%s is for a model of one input (images) or two (images and their classes), "
        "but model '%s' has %d",
        kind->name, model->name, inputs);
  }
  if (files == inputs) return true;
  builder_fail(b, call->loc,
               "%d file%s, but model '%s' has %d input%s; %s(...) takes a file for each", files,
               files == 1 ? "" : "s", model->name, inputs, inputs == 1 ? "" : "s", kind->name);
  builder_note(b, model->loc, "the model is declared here");
  return false;
}

static const DataSource *find_source(const Builder *b, const char *split) {
  for (int i = 0; i < b->program->sources.count; i++)
    if (!strcmp(b->program->sources.at[i].split, split)) return &b->program->sources.at[i];
  return NULL;
}

static bool part_share(Builder *b, const Ast *ast, double *out) {
  if (ast->kind == AST_NAME && !strcmp(ast->name, "fold") && !builder_find(b, "fold")) return true;
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return false;
  *out = value_is_number(&v) ? value_number(&v) : 0;
  return (*out > 0 && *out < 1) ||
         builder_fail(b, ast->loc,
                      "a part of a split is a share between 0 and 1, or fold (data.fold of "
                      "data.folds), not %s",
                      value_describe(b->arena, &v));
}

static bool part_label(Builder *b, const Ast *head, const Ast *model) {
  const Ast *inputs = model ? model->kid[0] : NULL;
  const char **names = ARENA_ARRAY(b->arena, const char *, inputs ? inputs->count + 1 : 1);
  if (!head->text || !inputs) return true;
  for (int i = 0; i < inputs->count; i++) {
    names[i] = inputs->kid[i]->name;
    if (!strcmp(names[i], head->text)) return true;
  }
  return builder_fail(b, head->loc, "by %s: model '%s' has no input '%s'%s", head->text,
                      model->name, head->text, builder_hint(b, head->text, names, inputs->count));
}

bool recipe_is_part(const Ast *entry) {
  const Ast *head = recipe_pipe_head(entry->kid[0]);
  return head && head->kind == AST_OF;
}

bool recipe_part(Builder *b, const Ast *entry, const Ast *model) {
  const Ast *head = recipe_pipe_head(entry->kid[0]);
  const DataSource *whole = head->name ? find_source(b, head->name) : NULL;
  if (!whole)
    return builder_fail(b, head->loc,
                        "there is no split '%s' with files that %s could have a part of",
                        head->name ? head->name : "", entry->name);
  DataSource source = *whole;
  source.split = entry->name;
  source.part = (DataPart){.of = head->name, .label = head->text};
  bool fine = part_share(b, head->kid[0], &source.part.share);
  fine = part_label(b, head, model) && fine;
  fine = recipe_pipe(b, entry->kid[0], &source) && fine;
  if (fine && text_moves(&source) && (head->text || !source.part.share))
    fine = builder_fail(b, head->loc,
                        "a text is cut where it ends: 0.1 of %s takes its last tenth, and "
                        "folds and `by` are for samples apart from each other",
                        head->name);
  if (fine && model && source_kind_find(source.kind)->form == SOURCE_TEXT)
    fine = fits_text(b, entry->kid[0]->loc, &source, model);
  VEC_PUSH(b->arena, b->source_locs, head->loc);
  VEC_PUSH(b->arena, b->program->sources, source);
  Text why = {0};
  int last = b->program->sources.count - 1;
  if (fine && !data_part_check(b->program->sources.at, last + 1, last, &why))
    fine = builder_fail(b, head->loc, "%s", text_cstr(&why));
  text_free(&why);
  return fine;
}

bool recipe_source(Builder *b, const Ast *entry, const Ast *model) {
  const Ast *call = recipe_pipe_head(entry->kid[0]);
  const Ast *callee = call && call->kind == AST_CALL ? call->kid[0] : NULL;
  if (!callee || callee->kind != AST_NAME)
    return no_source(b, entry->name, call ? call : entry, NULL);
  const SourceKind *kind = source_kind_find(callee->name);
  if (!kind) return no_source(b, entry->name, callee, callee->name);
  DataSource source = {.split = entry->name, .kind = kind->name};
  bool fine = file_names(b, call, kind, &source);
  fine = recipe_pipe(b, entry->kid[0], &source) && fine;
  bool is_of_pixels = transform_loaded(source.transforms, source.transform_count) ||
                      transform_in(source.transforms, source.transform_count, "normalize");
  if (fine && is_of_pixels && kind->form == SOURCE_SHARDS && !source_makes_images(&source))
    fine = builder_fail(b, entry->kid[0]->loc,
                        "transforms are for images, and keys= gives the first input another file");
  const Ast *last = entry->kid[0]->kind == AST_BINARY ? entry->kid[0]->kid[1] : call;
  VEC_PUSH(b->arena, b->source_locs, last->loc);
  VEC_PUSH(b->arena, b->program->sources, source);
  return fine && (!model || fits_model(b, call, kind, &source, model));
}
