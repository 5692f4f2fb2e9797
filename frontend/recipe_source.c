/* recipe_source: `train = idx("images", "labels", limit=1000)` in a data block, as plan/sources.def
 * has it. */
#include "frontend/recipe.h"
#include "plan/source_kind.h"
#include <string.h>

static void add_option(Builder *b, DataSource *source, const char *name, double value) {
  const char **names = ARENA_ARRAY(b->arena, const char *, source->option_count + 1);
  double *values = ARENA_ARRAY(b->arena, double, source->option_count + 1);
  for (int i = 0; i < source->option_count; i++) {
    names[i] = source->option_names[i];
    values[i] = source->option_values[i];
  }
  names[source->option_count] = name;
  values[source->option_count++] = value;
  source->option_names = names;
  source->option_values = values;
}

/* dtype=u16 or u32, of tokens. */
static bool dtype_option(Builder *b, const Ast *argument, DataSource *source) {
  const Ast *value = argument->kid[0];
  DType dtype;
  if (value->kind != AST_NAME || !dtype_parse(value->name, &dtype) || dtype != DT_U32) {
    if (value->kind == AST_NAME && !strcmp(value->name, "u16")) {
      add_option(b, source, "bits", 16);
      return true;
    }
    return builder_fail(b, value->loc, "dtype is u16 or u32: what a token file holds");
  }
  add_option(b, source, "bits", 32);
  return true;
}

static bool is_given(const DataSource *source, const char *option) {
  for (int i = 0; i < source->option_count; i++)
    if (!strcmp(source->option_names[i], option)) return true;
  return false;
}

/* What the language calls an option of sources.def. */
static const char *written(const char *option) {
  return !strcmp(option, "bits") ? "dtype" : option;
}

static bool unknown_option(Builder *b, const Ast *argument, const SourceKind *kind) {
  VEC(const char *) names = {0};
  VEC_PUSH(b->arena, names, "limit");
  for (const char *word = kind->options; *word;) {
    int count = (int)strcspn(word, " ");
    VEC_PUSH(b->arena, names, written(arena_printf(b->arena, "%.*s", count, word)));
    word += count + (word[count] == ' ');
  }
  return builder_fail(b, argument->loc, "%s has no option '%s'%s", kind->name, argument->name,
                      builder_hint(b, argument->name, names.at, names.count));
}

static bool source_option(Builder *b, const Ast *argument, const SourceKind *kind,
                          DataSource *source) {
  const char *option = !strcmp(argument->name, "dtype") ? "bits" : argument->name;
  if (!source_kind_takes(kind, option) || strcmp(written(option), argument->name) != 0)
    return unknown_option(b, argument, kind);
  if (is_given(source, option))
    return builder_fail(b, argument->loc, "'%s' is given twice", argument->name);
  if (!strcmp(option, "bits")) return dtype_option(b, argument, source);
  Value v = eval(b, argument->kid[0]);
  if (v.kind == VALUE_ERROR) return false;
  int64_t number, least = !strcmp(option, "limit");
  if (!value_to_int(&v, &number) || number < least || number > (int64_t)1 << 53)
    return builder_fail(b, argument->loc, "%s must be a %s, not %s", argument->name,
                        least ? "positive integer" : "whole number from 0",
                        value_describe(b->arena, &v));
  add_option(b, source, arena_strdup(b->arena, option), (double)number);
  return true;
}

/* name: of the kind, NULL where there is none. */
static bool no_source(Builder *b, const char *split, const Ast *at, const char *name) {
  Text kinds = {0};
  source_kind_list(&kinds);
  if (name) {
    const char **names = ARENA_ARRAY(b->arena, const char *, source_kind_count);
    for (int i = 0; i < source_kind_count; i++) names[i] = source_kinds[i].name;
    builder_fail(b, at->loc, "unknown data source '%s'%s; there are %s", name,
                 builder_hint(b, name, names, source_kind_count), text_cstr(&kinds));
  } else {
    builder_fail(b, at->loc,
                 "%s is a data source, idx(\"images\", \"labels\") or the like; there are %s",
                 split, text_cstr(&kinds));
  }
  text_free(&kinds);
  return false;
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
      out->files[out->file_count++] = v.s;
    else if (v.kind != VALUE_ERROR)
      fine = builder_fail(b, argument->loc, "a file name is a string, not %s",
                          value_describe(b->arena, &v));
    else
      fine = false;
  }
  if (fine && !out->file_count)
    fine = builder_fail(b, call->loc, "%s needs %s", kind->name,
                        kind->form == SOURCE_TEXT ? "the name of a file"
                                                  : "file names, one for each input of the model");
  return fine;
}

/* A text is one file for all inputs; of other kinds there is a file for each. */
static bool fits_model(Builder *b, const Ast *call, const SourceKind *kind, int files,
                       const Ast *model) {
  int inputs = model->kid[0]->count;
  bool fine = true;
  if (kind->form == SOURCE_TEXT) {
    if (files > 1) fine = builder_fail(b, call->loc, "a text is one file, not %d", files);
    if (inputs <= 2) return fine;
    return builder_fail(b, call->loc,
                        "a text is for a model of one input (tokens) or two (tokens and the "
                        "ones that follow), but model '%s' has %d",
                        model->name, inputs);
  }
  if (files == inputs) return true;
  builder_fail(b, call->loc, "%d file%s, but model '%s' has %d input%s", files,
               files == 1 ? "" : "s", model->name, inputs, inputs == 1 ? "" : "s");
  builder_note(b, model->loc, "the model is declared here");
  return false;
}

bool recipe_source(Builder *b, const Ast *entry, const Ast *model) {
  const Ast *call = entry->kid[0];
  const Ast *callee = call && call->kind == AST_CALL ? call->kid[0] : NULL;
  if (!callee || callee->kind != AST_NAME)
    return no_source(b, entry->name, call ? call : entry, NULL);
  const SourceKind *kind = source_kind_find(callee->name);
  if (!kind) return no_source(b, entry->name, callee, callee->name);
  DataSource source = {.split = entry->name, .kind = kind->name};
  bool fine = file_names(b, call, kind, &source);
  VEC_PUSH(b->arena, b->program->sources, source);
  return fine && (!model || fits_model(b, call, kind, source.file_count, model));
}
