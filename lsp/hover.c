/* hover: what an editor shows beside a word: of a value its type and shape, of a layer its parameters, of
 * what is declared its signature and comment, of a word of the language its row of the reference. */
#include "lsp/words.h"
#include <inttypes.h>
#include <string.h>

/* 7,850 */
static const char *grouped(Arena *arena, int64_t count) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%" PRId64, count);
  char *out = arena_alloc(arena, 48), *to = out;
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0 && digits[i - 1] != '-') *to++ = ',';
    *to++ = digits[i];
  }
  return out;
}

/* ── layers ───────────────────────────────────────────────────────────────────────────────── */
enum { SHOWN_PARAMETERS = 12, SHOWN_DEPTH = 100 };

static void add_owned(Text *out, const Instance *instance, int depth, int64_t *parameters,
                      int *shown) {
  char type[TYPE_TEXT];
  for (int i = 0; i < instance->owned.count; i++) {
    const Node *node = instance->owned.at[i].node;
    if (node->op == OP_PARAM) *parameters += shape_elements(&node->type.shape);
    if (++*shown <= SHOWN_PARAMETERS)
      text_printf(out, "- `%s` %s%s\n", node_str(node, ATTR_NAME), type_text(&node->type, type),
                  node->op == OP_PARAM ? "" : " (state)");
  }
  for (int i = 0; i < instance->children.count && depth < SHOWN_DEPTH; i++)
    add_owned(out, instance->children.at[i].instance, depth + 1, parameters, shown);
}

static const char *layer_text(Arena *arena, const Instance *layer) {
  Text config = {0}, list = {0};
  int64_t parameters = 0;
  int shown = 0;
  for (int i = 0; i < layer->config.count; i++)
    text_printf(&config, "%s%s=%s", i ? ", " : "", layer->config.at[i].name,
                value_text(arena, &layer->config.at[i].value));
  add_owned(&list, layer, 0, &parameters, &shown);
  if (shown > SHOWN_PARAMETERS) text_printf(&list, "- and %d more\n", shown - SHOWN_PARAMETERS);
  const char *text =
      arena_printf(arena, "%s(%s)\n```\n%s parameters%s\n\n%s", layer->block->name,
                   text_cstr(&config), grouped(arena, parameters),
                   layer->applications ? "" : " (it is not applied yet)", text_cstr(&list));
  text_free(&config);
  text_free(&list);
  return text;
}

/* The layers that are made at a place: `Linear(10)` in a repeat is several. */
static const char *made_text(Arena *arena, const Analysis *analysis, Loc loc) {
  const Program *program = &analysis->program;
  const Layer *first = NULL;
  int count = 0;
  int64_t parameters = 0, flops = 0;
  for (int i = 0; i < program->layers.count; i++) {
    const Layer *layer = &program->layers.at[i];
    if (!loc_equal(layer->loc, loc)) continue;
    if (!first) first = layer;
    count++;
    flops += layer->flops;
    parameters += layer->parameters;
    for (int k = i + 1; k < program->layers.count && program->layers.at[k].depth > layer->depth;
         k++)
      parameters += program->layers.at[k].parameters;
  }
  if (!first) return "";
  char type[TYPE_TEXT];
  const char *path = *first->path ? arena_printf(arena, " `%s`", first->path) : "";
  const char *result = first->output.shape.rank || *first->path
                           ? arena_printf(arena, ", gives %s", type_text(&first->output, type))
                           : "";
  return arena_printf(
      arena, "\n\nhere%s%s: %s parameters%s%s", path,
      count > 1 ? arena_printf(arena, " and %d more", count - 1) : "", grouped(arena, parameters),
      result, flops ? arena_printf(arena, ", %s FLOPs forward", grouped(arena, flops)) : "");
}

/* ── values ───────────────────────────────────────────────────────────────────────────────── */
static const char *value_hover(Arena *arena, const Mention *mention) {
  const Value *v = &mention->value;
  char type[TYPE_TEXT];
  const char *name = mention->name,
             *also = mention->differs ? "\n\nwith other types or values where it is evaluated again"
                                      : "";
  if (v->kind == VALUE_TENSOR) {
    const Node *node = v->node;
    const char *what = node->op == OP_PARAM   ? "param "
                       : node->op == OP_STATE ? "state "
                       : node->op == OP_INPUT ? "input "
                                              : "";
    const char *size = node->op == OP_PARAM
                           ? arena_printf(arena, "\n%s parameters, `%s` in files",
                                          grouped(arena, shape_elements(&node->type.shape)),
                                          node_str(node, ATTR_NAME))
                           : "";
    return arena_printf(arena, "```ft\n%s%s: %s\n```%s%s", what, name, type_text(&node->type, type),
                        size, also);
  }
  if (v->kind == VALUE_LAYER)
    return arena_printf(arena, "```ft\n%s = %s%s", name, layer_text(arena, v->layer), also);
  if (v->kind == VALUE_RANKING) return arena_printf(arena, "```ft\n%s: AUC\n```", name);
  if (v->kind >= VALUE_FUNCTION || v->kind == VALUE_ERROR || v->kind == VALUE_ABSENT) return NULL;
  const char *text = v->kind == VALUE_INIT ? value_describe(arena, v) : value_text(arena, v);
  if (strlen(text) > 400) text = value_describe(arena, v);
  return arena_printf(arena, "```ft\n%s = %s%s\n```%s", name, text,
                      mention->is_dimension ? "    // a dimension" : "", also);
}

static const char *declaration_hover(Arena *arena, const Found *found) {
  const char *comment = outline_comment(arena, found->outline, found->declaration), *signature,
             *page = NULL;
  const Declaration *d = found->declaration;
  if (found->is_std)
    page = reference_find(arena, REFERENCE_FUNCTION,
                          scan_word(arena, found->outline->scan, d->name), &signature);
  const char *text =
      arena_printf(arena, "```ft\n%s\n```", outline_signature(arena, found->outline, d));
  if (*comment) text = arena_printf(arena, "%s\n%s", text, comment);
  if (page) text = arena_printf(arena, "%s\n\n%s", text, page);
  return found->is_std ? arena_printf(arena, "%s\n\n*standard library*", text) : text;
}

static const char *page_hover(Arena *arena, ReferenceKind kind, const char *word,
                              const char *written) {
  const char *signature, *page = reference_find(arena, kind, word, &signature);
  if (!page && !written) return NULL;
  return arena_printf(arena, "```ft\n%s\n```\n%s",
                      written     ? written
                      : signature ? signature
                                  : word,
                      page ? page : "");
}

static const char *builtin_hover(Arena *arena, const char *word) {
  const Builtin *builtin = builtin_find(word);
  if (!builtin) return NULL;
  const char *signature, *page = reference_find(arena, REFERENCE_FUNCTION, word, &signature);
  const char *text = arena_printf(arena, "```ft\n%s\n```",
                                  signature ? signature : words_builtin_text(arena, builtin));
  Op op;
  if (page) return arena_printf(arena, "%s\n%s", text, page);
  return op_parse(word, &op) && op_has(op, TRAIT_FUNCTION)
             ? arena_printf(arena, "%s\nelement by element", text)
             : text;
}

/* ── recipes ──────────────────────────────────────────────────────────────────────────────── */
static const char *setting_hover(Arena *arena, const Place *place, const char *word) {
  int setting = words_setting(arena, place, word);
  const char *signature, *page = NULL;
  bool is_train = place->declaration->kind == DECLARES_TRAIN && !*place->section;
  if (is_train) page = reference_find(arena, REFERENCE_ENTRY, word, &signature);
  if (setting < 0 && !page) return NULL;
  const char *key =
      setting >= 0 ? setting_info[setting].key : arena_printf(arena, "train.%s", word);
  const char *text = arena_printf(arena, "```ft\n%s\n```", key);
  if (setting >= 0) text = arena_printf(arena, "%s\n%s", text, words_setting_text(arena, setting));
  return page ? arena_printf(arena, "%s\n\n%s", text, page) : text;
}

/* A choice of the entry, or an argument of one: `cosine`, and `warmup` in its brackets. */
static const char *choice_hover(Arena *arena, const Place *place, const char *entry,
                                const char *word) {
  const Choice *choices = recipe_choices(entry);
  const Scan *scan = place->outline->scan;
  for (const Choice *c = choices; c && c->name; c++)
    if (strcmp(c->name, word) == 0) {
      ReferenceKind kind = !strcmp(entry, "optimizer")  ? REFERENCE_OPTIMIZER
                           : !strcmp(entry, "schedule") ? REFERENCE_SCHEDULE
                                                        : REFERENCE_ENTRY;
      const char *page = page_hover(arena, kind, kind == REFERENCE_ENTRY ? entry : word, NULL);
      return page;
    }
  int callee = words_callee(scan, place->open);
  for (const Choice *c = choices; c && c->name && callee >= 0; c++) {
    if (!scan_is(scan, callee, c->name)) continue;
    char *rest = NULL, *list = arena_strdup(arena, c->arguments);
    for (char *a = strtok_r(list, " ", &rest); a; a = strtok_r(NULL, " ", &rest)) {
      size_t length = strcspn(a, ":");
      if (strlen(word) != length || memcmp(a, word, length) != 0) continue;
      int setting =
          setting_find(arena_printf(arena, "%s%s", c->prefix, a[length] ? a + length + 1 : a));
      if (setting >= 0)
        return arena_printf(arena, "```ft\n%s\n```\n%s", setting_info[setting].key,
                            words_setting_text(arena, setting));
    }
  }
  bool is_word = !strcmp(entry, "clip") || !strcmp(entry, "stop");
  return is_word && (text_is_one_of(
                        word, (const char *const[]){"norm", "value", "early", "reached", NULL}))
             ? page_hover(arena, REFERENCE_ENTRY, entry, NULL)
             : NULL;
}

static const char *data_hover(Arena *arena, const Place *place, const char *word) {
  const TransformKind *kind = transform_find(word);
  if (!kind) kind = transform_find_text(word);
  const char *entry = scan_word(arena, place->outline->scan, place->statement);
  if (!strcmp(entry, "order")) return page_hover(arena, REFERENCE_ORDER, word, NULL);
  if (words_sign(place->outline->scan, place->before) == '|' && kind)
    return page_hover(arena, REFERENCE_TRANSFORM, word, words_transform_text(arena, kind));
  return source_kind_find(word) ? page_hover(arena, REFERENCE_SOURCE, word, NULL) : NULL;
}

static const char *recipe_hover(Arena *arena, const Place *place, const char *word) {
  if (!place->declaration) return NULL;
  DeclarationKind kind = place->declaration->kind;
  if (kind != DECLARES_TRAIN && kind != DECLARES_DATA && kind != DECLARES_DISTRIBUTED) return NULL;
  if (place->statement < 0) return setting_hover(arena, place, word);
  const char *found = NULL;
  if (kind == DECLARES_DATA) found = data_hover(arena, place, word);
  if (!found && kind == DECLARES_TRAIN)
    found =
        choice_hover(arena, place, scan_word(arena, place->outline->scan, place->statement), word);
  bool is_key = !found && !strcmp(word, "every"); /* `eval every 1 epoch` */
  if (!is_key) return found;
  int setting = setting_find(arena_printf(
      arena, "train.%s.every", scan_word(arena, place->outline->scan, place->statement)));
  return setting < 0 ? NULL
                     : arena_printf(arena, "```ft\n%s\n```\n%s", setting_info[setting].key,
                                    words_setting_text(arena, setting));
}

/* ── all of it ────────────────────────────────────────────────────────────────────────────── */
static const char *keyword_hover(Arena *arena, const Outline *outline, int token,
                                 const char *word) {
  const Declaration *d = outline_around(outline, token);
  if (d && d->keyword == token) return page_hover(arena, REFERENCE_DECLARATION, word, NULL);
  static const char *const words[] = {"param",  "state",  "update", "metric", "output", "check",
                                      "repeat", "return", "if",     "loss",   NULL};
  bool is_statement = text_is_one_of(word, words) && outline->scan->tokens.at[token].is_first;
  return is_statement ? page_hover(arena, REFERENCE_STATEMENT, word, NULL) : NULL;
}

static const char *constant_hover(const char *word) {
  return !strcmp(word, "training")
             ? "```ft\ntraining\n```\ntrue while the training step is built, false for evaluation"
         : !strcmp(word, "pi")  ? "```ft\npi = 3.141592653589793\n```"
         : !strcmp(word, "inf") ? "```ft\ninf\n```\ninfinity"
                                : NULL;
}

static const char *name_hover(Desk *desk, Arena *arena, OpenFile *file, int token,
                              const char *word) {
  const Outline *outline = desk_outline(file);
  const Mention *mention = outline_is_reference(outline, token) ? desk_mention(file, token) : NULL;
  bool is_called = words_sign(outline->scan, scan_next(outline->scan, token)) == '(';
  const char *text = mention ? value_hover(arena, mention) : NULL;
  bool is_tensor = mention && mention->value.kind == VALUE_TENSOR;
  Found found;
  if (text && !(is_called && is_tensor)) {
    bool is_hyper = desk_declaration(desk, arena, file, word, &found) &&
                    found.declaration->kind == DECLARES_HYPER &&
                    outline_binding(outline, token) < 0;
    const char *comment = is_hyper ? outline_comment(arena, found.outline, found.declaration) : "";
    return *comment ? arena_printf(arena, "%s\n%s", text, comment) : text;
  }
  if (outline_binding(outline, token) >= 0 && !is_called) return NULL; /* not evaluated yet */
  if (desk_declaration(desk, arena, file, word, &found)) {
    text = declaration_hover(arena, &found);
    const ScanToken *t = &outline->scan->tokens.at[token];
    const Analysis *of = file->last ? file->last : file->good;
    Loc loc;
    if (of &&
        analysis_place(of, outline->scan->text, outline->scan->length, t->start, t->end, &loc))
      text = arena_printf(arena, "%s%s", text, made_text(arena, of, loc));
    return text;
  }
  text = builtin_hover(arena, word);
  return text ? text : constant_hover(word);
}

/* `causal=true`: what is called. */
static const char *argument_hover(Desk *desk, Arena *arena, OpenFile *file, const Place *place,
                                  int token) {
  const Scan *scan = place->outline->scan;
  int callee = words_callee(scan, scan->tokens.at[token].parent);
  if (callee < 0 || words_sign(scan, scan_next(scan, token)) != '=') return NULL;
  const char *name = scan_word(arena, scan, callee);
  Found found;
  if (place->declaration && place->declaration->kind == DECLARES_DATA)
    return data_hover(arena, place, name);
  if (!outline_is_reference(place->outline, callee)) return NULL;
  return desk_declaration(desk, arena, file, name, &found) ? declaration_hover(arena, &found)
                                                           : builtin_hover(arena, name);
}

json_t *hover_answer(Desk *desk, OpenFile *file, size_t offset) {
  const Outline *outline = desk_outline(file);
  int token = scan_at(outline->scan, offset);
  if (!scan_is_name(outline->scan, token)) return json_null();
  Arena *arena = arena_new();
  const char *word = scan_word(arena, outline->scan, token);
  Place place = words_place(arena, outline, outline->scan->tokens.at[token].start);
  const char *text = keyword_hover(arena, outline, token, word);
  if (!text) text = recipe_hover(arena, &place, word);
  if (!text && outline_is_reference(outline, token))
    text = name_hover(desk, arena, file, token, word);
  if (!text) text = argument_hover(desk, arena, file, &place, token);
  json_t *answer = json_null();
  if (text)
    answer = json_pack("{s:{s:s, s:o}, s:o}", "contents", "kind", "markdown", "value",
                       desk_string(text), "range", desk_token_range(desk, file, token));
  arena_free(arena);
  return answer;
}
