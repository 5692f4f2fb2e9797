/* call: matching arguments to parameters, and calls of functions, blocks, layers, built-ins. */
#include "frontend/builder.h"
#include <string.h>

static char *signature(Builder *b, const char *callee, const Parameter *parameters, int count) {
  char *text = arena_printf(b->arena, "%s(", callee);
  for (int i = 0; i < count; i++)
    text = arena_printf(b->arena, "%s%s%s%s", text, i ? ", " : "", parameters[i].name,
                        parameters[i].is_rest       ? "..."
                        : parameters[i].is_optional ? "="
                                                    : "");
  return arena_printf(b->arena, "%s)", text);
}

static int find_parameter(const Parameter *parameters, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(parameters[i].name, name) == 0) return i;
  return -1;
}

static bool fail_keyword(Builder *b, const char *callee, Loc loc, const Parameter *parameters,
                         int count, const char *name) {
  const char **names = ARENA_ARRAY(b->arena, const char *, count);
  for (int i = 0; i < count; i++) names[i] = parameters[i].name;
  return builder_fail(b, loc, "%s has no argument '%s'%s", signature(b, callee, parameters, count),
                      name, builder_hint_as(b, FOREIGN_ARGUMENT, name, names, count));
}

bool call_match(Builder *b, const char *callee, Loc loc, const Parameter *parameters, int count,
                const Arguments *arguments, Value *out, Loc *locs) {
  for (int i = 0; i < count; i++) {
    out[i] = (Value){.kind = VALUE_ABSENT};
    locs[i] = loc;
  }
  int next = 0;
  for (int k = 0; k < arguments->count; k++) {
    const Argument *argument = &arguments->at[k];
    if (argument->value.kind == VALUE_ERROR) return false;
    int i = argument->name ? find_parameter(parameters, count, argument->name) : next++;
    if (argument->name && i < 0)
      return fail_keyword(b, callee, argument->loc, parameters, count, argument->name);
    if (!argument->name && i < count && parameters[i].is_rest) {
      int rest = arguments->count - k;
      Value *items = ARENA_ARRAY(b->arena, Value, rest);
      int n = 0;
      locs[i] = argument->loc;
      for (; k < arguments->count && !arguments->at[k].name; k++) {
        if (arguments->at[k].value.kind == VALUE_ERROR) return false;
        items[n++] = arguments->at[k].value;
      }
      k--;
      out[i] = value_sequence(VALUE_TUPLE, items, n);
      continue;
    }
    if (i >= count)
      return builder_fail(b, argument->loc, "too many arguments for %s%s",
                          signature(b, callee, parameters, count), hint_call(b, callee));
    if (out[i].kind != VALUE_ABSENT)
      return builder_fail(b, argument->loc, "argument '%s' is given twice%s", parameters[i].name,
                          hint_call(b, callee));
    out[i] = argument->value;
    locs[i] = argument->loc;
  }
  for (int i = 0; i < count; i++)
    if (out[i].kind == VALUE_ABSENT && !parameters[i].is_optional && !parameters[i].is_rest)
      return builder_fail(b, loc, "argument '%s' is missing: %s", parameters[i].name,
                          signature(b, callee, parameters, count));
  return true;
}

/* `precision=bf16`, `recompute=gelu` of a layer: a word, not the function of this name. */
static bool call_is_word(const Ast *keyword) {
  static const char *const words[][2] = {
      {"precision", "f32"},       {"precision", "tf32"}, {"precision", "bf16"},
      {"precision", "fp16"},      {"precision", "fp8"},  {"recompute", "gelu"},
      {"recompute", "block"},     {"recompute", "pointwise"},
  };
  if (keyword->kid[0]->kind != AST_NAME) return false;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(keyword->name, words[i][0]) == 0 && strcmp(keyword->kid[0]->name, words[i][1]) == 0)
      return true;
  return false;
}

static bool evaluate_arguments(Builder *b, const Ast *call, Arguments *out) {
  bool fine = true;
  for (int i = 1; i < call->count; i++) {
    const Ast *ast = call->kid[i];
    bool keyword = ast->kind == AST_KEYWORD;
    Value value = keyword && call_is_word(ast) ? value_string(ast->kid[0]->name)
                                               : eval(b, keyword ? ast->kid[0] : ast);
    Argument argument = {value, ast->loc, keyword ? ast->name : NULL};
    if (keyword && argument.value.kind != VALUE_ERROR) argument.loc = ast->loc;
    if (!keyword && out->count && out->at[out->count - 1].name)
      fine = builder_fail(b, ast->loc, "a positional argument cannot follow a named one");
    if (argument.value.kind == VALUE_ERROR) fine = false;
    VEC_PUSH(b->arena, *out, argument);
  }
  return fine;
}

/* ── functions ────────────────────────────────────────────────────────────────────────────── */
static bool check_plain(Builder *b, const Ast *type, Value *v, Loc loc, const char *name) {
  static const char *const names[] = {"int", "float", "bool", "str", "init", "list"};
  const char *want = type->name;
  int64_t integer;
  if (!want) return true;
  if (strcmp(want, "int") == 0) {
    if (value_to_int(v, &integer)) {
      *v = value_int(integer);
      return true;
    }
  } else if (strcmp(want, "float") == 0) {
    if (value_is_number(v)) return true;
  } else if (strcmp(want, "bool") == 0) {
    if (v->kind == VALUE_BOOL) return true;
  } else if (strcmp(want, "str") == 0) {
    if (v->kind == VALUE_STRING) return true;
  } else if (strcmp(want, "list") == 0) {
    if (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) return true;
  } else if (strcmp(want, "init") == 0) {
    if (v->kind == VALUE_BUILTIN) *v = init_named(b, v->builtin->name);
    if (v->kind == VALUE_INIT || value_is_number(v)) return true;
  } else {
    return builder_fail(b, type->loc,
                        "unknown type '%s'%s; there are int, float, bool, str, init "
                        "and tensors such as f32[B, 10]",
                        want, builder_hint_as(b, FOREIGN_TYPE, want, names, 6));
  }
  return builder_fail(b, loc, "'%s' must be %s, not %s", name,
                      want[0] == 'i' && want[2] == 't' ? "an integer"
                      : want[0] == 'i'                 ? "an initialiser"
                      : want[0] == 'f'                 ? "a number"
                      : want[0] == 'b'                 ? "true or false"
                      : want[0] == 's'                 ? "a string"
                                                       : "a list",
                      value_describe(b->arena, v));
}

bool call_check_argument(Builder *b, const Ast *parameter, Value *v, Loc loc) {
  const Ast *type = parameter->kid[0];
  DType dtype;
  if (!type) return true;
  bool flag = strcmp(type->name ? type->name : "", "bool") == 0; /* a mask is written bool[...] */
  if (!type->kid[0] && (flag || !(type->name && dtype_parse_named(type->name, &dtype))))
    return v->kind == VALUE_NONE && parameter->kid[1] && parameter->kid[1]->kind == AST_NONE
               ? true
               : check_plain(b, type, v, loc, parameter->name);
  if (v->kind == VALUE_LAYER)
    return builder_fail(b, loc, "'%s' must be a tensor, but this layer was not applied to one",
                        parameter->name);
  if (v->kind != VALUE_TENSOR)
    return builder_fail(b, loc, "'%s' must be a tensor, not %s", parameter->name,
                        value_describe(b->arena, v));
  return block_check_type(b, type, v->node, loc, arena_printf(b->arena, "'%s'", parameter->name));
}

const Parameter *call_parameters(Builder *b, const Ast *list) {
  Parameter *parameters = ARENA_ARRAY(b->arena, Parameter, list->count);
  for (int i = 0; i < list->count; i++)
    parameters[i] = (Parameter){list->kid[i]->name, list->kid[i]->kid[1] != NULL, false};
  return parameters;
}

static bool is_standard(const Builder *b, const Ast *definition) {
  return definition->loc.file >= b->std_first && definition->loc.file <= b->std_last;
}

bool call_enter(Builder *b, Frame *frame, const Ast *definition, const Scope *scope, Loc loc) {
  if (b->calls >= LIMIT_CALLS) {
    b->exhausted = true;
    return builder_fail(b, loc, "calls nest more than %d deep; does '%s' call itself without end?",
                        LIMIT_CALLS, definition->name);
  }
  *frame = (Frame){.up = b->frame,
                   .definition = definition,
                   .scope = scope,
                   .call = loc,
                   .is_std = is_standard(b, definition),
                   .prefix = "",
                   .result = {.kind = VALUE_ABSENT}};
  frame->site = builder_site(b, loc);
  b->calls++;
  b->frame = frame;
  return true;
}

void call_leave(Builder *b) {
  b->calls--;
  b->frame = b->frame->up;
}

/* Binds parameters in the new frame (on top of the stack), defaults evaluated in order; types are
 * checked with the caller's place for messages. */
bool call_bind(Builder *b, const Ast *list, Value *values, const Loc *locs) {
  Frame *frame = b->frame;
  for (int i = 0; i < list->count; i++) {
    const Ast *parameter = list->kid[i];
    Loc loc = locs[i];
    if (values[i].kind == VALUE_ABSENT && parameter->kid[1]) {
      values[i] = eval(b, parameter->kid[1]);
      loc = parameter->kid[1]->loc;
      if (values[i].kind == VALUE_ERROR) return false;
      if (!call_check_argument(b, parameter, &values[i], loc)) return false;
    } else {
      /* a wrong argument is the caller's: report it there */
      bool is_std = frame->is_std;
      frame->is_std = frame->up && frame->up->is_std;
      frame->is_binding = true;
      bool fits = call_check_argument(b, parameter, &values[i], loc);
      frame->is_std = is_std;
      frame->is_binding = false;
      if (!fits) return false;
    }
    builder_bind(b, parameter->name, values[i], parameter->loc, false);
  }
  return true;
}

bool call_check_returns(Builder *b, const Ast *returns, const Value *result) {
  if (!returns || result->kind == VALUE_ERROR) return true;
  int count = result->kind == VALUE_TUPLE ? result->count : 1;
  if (count != returns->count)
    return builder_fail(b, b->frame->returned_at, "'%s' promises %d results but returns %d",
                        b->frame->definition->name, returns->count, count);
  for (int i = 0; i < count; i++) {
    const Value *v = result->kind == VALUE_TUPLE ? &result->items[i] : result;
    const Ast *type = returns->kid[i];
    if (!type->kid[0] && !type->name) continue;
    if (v->kind != VALUE_TENSOR) {
      Value copy = *v;
      if (type->kid[0] || !check_plain(b, type, &copy, type->loc, "the result"))
        return builder_fail(b, type->loc, "the result must be a tensor, not %s",
                            value_describe(b->arena, v));
      continue;
    }
    if (!block_check_type(b, type, v->node, b->frame->returned_at, "the result")) return false;
  }
  return true;
}

static Value call_function(Builder *b, const Ast *fn, const Scope *scope, Loc loc,
                           const Arguments *arguments) {
  const Ast *list = fn->kid[0];
  Value *values = ARENA_ARRAY(b->arena, Value, list->count);
  Loc *locs = ARENA_ARRAY(b->arena, Loc, list->count);
  if (!call_match(b, fn->name, loc, call_parameters(b, list), list->count, arguments, values, locs))
    return value_error();
  Frame frame;
  if (!call_enter(b, &frame, fn, scope, loc)) return value_error();
  frame.instance = NULL;
  const char *function = b->function;
  bool is_std = b->is_std_function;
  if (!function || (frame.is_std && !is_std)) { /* people know the outermost standard one */
    b->function = fn->name;
    b->is_std_function = frame.is_std;
  }
  Written before = frame.is_std ? builder_write(b, fn->name, false) : b->written;
  Value result = value_error();
  int errors = b->diag->errors;
  if (call_bind(b, list, values, locs)) {
    build_body(b, fn->kid[2]);
    result = frame.result;
    if (result.kind == VALUE_ABSENT) {
      if (!b->exhausted && b->diag->errors == errors)
        builder_fail(b, fn->loc, "function '%s' ends without return", fn->name);
      result = value_error();
    }
    if (!call_check_returns(b, fn->kid[1], &result)) result = value_error();
  }
  b->function = function;
  b->is_std_function = is_std;
  b->written = before;
  call_leave(b);
  if (b->frame) b->frame->flops += frame.flops;
  if (frame.is_std && list->count) warn_scores(b, fn->name, &values[0], loc);
  return result;
}

const Ast *call_definition(const Builder *b, const char *name) {
  for (int i = 0; i < b->std.names.count; i++)
    if (strcmp(b->std.names.at[i].name, name) == 0) return b->std.names.at[i].value.definition;
  return NULL;
}

Value call_standard(Builder *b, const char *name, const Arguments *arguments, Loc loc) {
  return call_function(b, call_definition(b, name), &b->std, loc, arguments);
}

/* ── any callee ───────────────────────────────────────────────────────────────────────────── */
/* Standard functions work on tensors: a layer among their arguments was not applied. */
static bool no_layers(Builder *b, const Ast *fn, const Arguments *arguments) {
  for (int i = 0; i < arguments->count && is_standard(b, fn); i++)
    if (arguments->at[i].value.kind == VALUE_LAYER)
      return builder_fail(b, arguments->at[i].loc,
                          "%s() needs a tensor; this layer was not applied to one: %s(...)(x)",
                          fn->name, arguments->at[i].value.layer->block->name);
  return true;
}

static const Scope *scope_of(Builder *b, const Ast *definition) {
  return is_standard(b, definition) ? &b->std : &b->user;
}

/* What is called: `metric f1 = f1(...)` gives a tensor the name of a function, and nobody calls a
 * tensor. */
static Value call_callee(Builder *b, const Ast *ast) {
  Value callee = eval(b, ast);
  bool is_data = callee.kind == VALUE_TENSOR || callee.kind == VALUE_RANKING;
  if (!is_data || ast->kind != AST_NAME) return callee;
  for (const Scope *scope = b->frame->scope; scope; scope = scope->up)
    for (int i = scope->names.count - 1; i >= 0; i--)
      if (strcmp(scope->names.at[i].name, ast->name) == 0 &&
          scope->names.at[i].value.kind == VALUE_FUNCTION)
        return scope->names.at[i].value;
  const Builtin *builtin = builtin_find(ast->name);
  return builtin ? (Value){.kind = VALUE_BUILTIN, .builtin = builtin} : callee;
}

/* stop_gradient(layer)(x), average(layer, decay=0.99)(x), frozen(layer, "w.safetensors")(x): the layers
 * inside of it are meant, too. */
static Value apply_layer(Builder *b, const Value *layer, Loc loc, const Arguments *arguments) {
  bool was_on = b->average.is_on;
  double decay = b->average.decay;
  const Frozen frozen = b->frozen;
  if (layer->is_average && frozen.file) {
    builder_fail(b, loc, "a frozen layer has no averages inside of it: nothing in it changes");
    return value_error();
  }
  if (layer->is_average) b->average.is_on = true, b->average.decay = layer->decay;
  if (layer->file) b->frozen = (Frozen){layer->file, layer->layer, layer->is_bf16};
  b->stops += layer->count;
  Value result = block_apply(b, layer->layer, loc, arguments);
  b->stops -= layer->count;
  b->average.is_on = was_on, b->average.decay = decay;
  b->frozen = frozen;
  return result;
}

Value call_eval(Builder *b, const Ast *call, const char *bound_to) {
  Value callee = call_callee(b, call->kid[0]);
  Arguments arguments = {0};
  bool fine = evaluate_arguments(b, call, &arguments);
  if (callee.kind == VALUE_ERROR || !fine) return value_error();
  Loc loc = call->loc;
  switch (callee.kind) {
  case VALUE_BUILTIN:
    return builtin_call(b, callee.builtin, loc, &arguments);
  case VALUE_FUNCTION:
    if (!no_layers(b, callee.definition, &arguments)) return value_error();
    return call_function(b, callee.definition, scope_of(b, callee.definition), loc, &arguments);
  case VALUE_BLOCK:
    return block_instance(b, callee.definition, scope_of(b, callee.definition), call, &arguments,
                          bound_to);
  case VALUE_LAYER:
    return apply_layer(b, &callee, loc, &arguments);
  default:
    builder_fail(b, loc, "%s cannot be called%s", value_describe(b->arena, &callee),
                 hint_called(b, call->kid[0], &callee));
    if (call->kid[0]->kind == AST_NAME) {
      Variable *bound = builder_find(b, call->kid[0]->name);
      if (bound) builder_note(b, bound->loc, "'%s' means this here", bound->name);
    }
    return value_error();
  }
}
