/* sim_parse_declare: names and what declares them: registers, shared and local memory, variables of
 * the module. */
#include "runtime/device/sim/sim_parse.h"
#include <ctype.h>
#include <string.h>

enum {
  MOST_NAMES = 4096,
  MOST_REGISTERS = 1 << 15,
  MOST_SHARED = 1 << 20,
  MOST_LOCAL = 1 << 20,
  MOST_GLOBAL = 1 << 26,
};

/* ── names ────────────────────────────────────────────────────────────────────────────────── */
Status parse_add_name(Parser *p, Name name) {
  if (p->names.count >= MOST_NAMES) return parse_fail(p, "more than %d declarations", MOST_NAMES);
  for (int i = p->names.count; i-- > 0 && p->names.at[i].depth == p->depth;)
    if (!strcmp(p->names.at[i].name, name.name))
      return parse_fail(p, "%s is declared twice", name.name);
  name.depth = p->depth;
  VEC_PUSH(p->scratch, p->names, name);
  return STATUS_OK;
}

/* %rd12 of %rd<20>; the number, or -1. */
static int range_index(const Name *name, const char *word) {
  size_t length = strlen(name->name);
  if (strncmp(word, name->name, length) != 0 || !word[length]) return -1;
  int number = 0;
  if (word[length] == '0' && word[length + 1]) return -1;
  for (const char *c = word + length; *c; c++) {
    if (!isdigit((unsigned char)*c) || number > MOST_REGISTERS) return -1;
    number = number * 10 + (*c - '0');
  }
  return number < name->count ? number : -1;
}

bool parse_find_name(const Parser *p, const char *word, PtxValue *out) {
  static const PtxValueKind kinds[] = {VALUE_REGISTER, VALUE_SHARED, VALUE_LOCAL,
                                       VALUE_PARAM,    VALUE_GLOBAL, VALUE_MODULE_SHARED,
                                       VALUE_DYNAMIC};
  for (int i = p->names.count; i-- > 0;) {
    const Name *name = &p->names.at[i];
    int index = 0;
    if (name->is_range ? (index = range_index(name, word)) < 0 : strcmp(name->name, word) != 0)
      continue;
    *out = (PtxValue){.kind = kinds[name->kind], .bits = name->at};
    out->index = name->kind == NAME_REGISTER ? (int)name->at + index : i;
    return true;
  }
  return false;
}

bool parse_find_special(Parser *p, const char *word, PtxValue *out) {
  static const char *const texts[] = {
#define X(name, text) text,
      SIM_SPECIALS(X)
#undef X
  };
  for (int i = 0; i < SPECIAL_COUNT; i++) {
    if (strcmp(texts[i], word) != 0) continue;
    if (p->kernel->special[i] < 0) p->kernel->special[i] = decode_register(&p->decoder, CLASS_32);
    *out = (PtxValue){.kind = VALUE_REGISTER, .index = p->kernel->special[i]};
    return true;
  }
  return false;
}

/* ── declarations ─────────────────────────────────────────────────────────────────────────── */
/* .b32 and the like: the bytes, and the class of a register. */
static Status parse_type(Parser *p, int64_t *bytes, SimClass *class) {
  static const struct {
    const char *text;
    int bytes;
    SimClass class;
  } types[] = {
      {".pred", 1, CLASS_PRED}, {".b8", 1, CLASS_COUNT}, {".u8", 1, CLASS_COUNT},
      {".s8", 1, CLASS_COUNT},  {".b16", 2, CLASS_16},   {".u16", 2, CLASS_16},
      {".s16", 2, CLASS_16},    {".f16", 2, CLASS_16},   {".bf16", 2, CLASS_16},
      {".b32", 4, CLASS_32},    {".u32", 4, CLASS_32},   {".s32", 4, CLASS_32},
      {".f32", 4, CLASS_32},    {".f16x2", 4, CLASS_32}, {".bf16x2", 4, CLASS_32},
      {".b64", 8, CLASS_64},    {".u64", 8, CLASS_64},   {".s64", 8, CLASS_64},
      {".f64", 8, CLASS_64},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (parse_is_word(p, types[i].text)) {
      *bytes = types[i].bytes;
      *class = types[i].class;
      return parse_next(p);
    }
  char text[TOKEN_TEXT];
  return parse_fail(p, "expected a type such as .b32, found %s", parse_token_text(p, text));
}

Status parse_registers(Parser *p) {
  int64_t bytes;
  SimClass class;
  STATUS_TRY(parse_next(p));
  STATUS_TRY(parse_type(p, &bytes, &class));
  if (class == CLASS_COUNT) return parse_fail(p, "registers of 8 bits are not supported");
  for (;;) {
    if (p->token != TOKEN_WORD) return parse_fail(p, "expected the name of a register");
    Name name = {.name = arena_strdup(p->scratch, p->word), .kind = NAME_REGISTER, .count = 1};
    int64_t count = 1;
    STATUS_TRY(parse_next(p));
    if (p->token == '<') {
      name.is_range = true;
      STATUS_TRY(parse_next(p));
      STATUS_TRY(parse_count(p, MOST_REGISTERS, &count));
      STATUS_TRY(parse_expect(p, '>', "'>'"));
    }
    if (p->kernel->classes.count + count > MOST_REGISTERS)
      return parse_fail(p, "more than %d registers", MOST_REGISTERS);
    name.count = (int)count;
    name.at = (uint64_t)p->kernel->classes.count;
    for (int64_t i = 0; i < count; i++) decode_register(&p->decoder, class);
    STATUS_TRY(parse_add_name(p, name));
    if (p->token != ',') break;
    STATUS_TRY(parse_next(p));
  }
  return parse_expect(p, ';', "';'");
}

int64_t parse_align_up(int64_t value, int64_t align) { return (value + align - 1) / align * align; }

/* .ptr .global .align 16: what a parameter points to; addresses are checked as they are used. */
static Status skip_pointer(Parser *p) {
  int64_t align;
  STATUS_TRY(parse_next(p));
  if (p->token == TOKEN_WORD && p->word[0] == '.' && !parse_is_word(p, ".align")) STATUS_TRY(parse_next(p));
  if (!parse_is_word(p, ".align")) return STATUS_OK;
  STATUS_TRY(parse_next(p));
  return parse_count(p, 4096, &align);
}

Status parse_variable(Parser *p, int64_t most, Variable *out) {
  SimClass class;
  *out = (Variable){.align = 0};
  if (parse_is_word(p, ".align")) {
    STATUS_TRY(parse_next(p));
    STATUS_TRY(parse_count(p, 4096, &out->align));
    if (out->align == 0 || (out->align & (out->align - 1)))
      return parse_fail(p, ".align needs a power of two");
  }
  if (parse_is_word(p, ".v2") || parse_is_word(p, ".v4"))
    return parse_fail(p, "vector variables are not supported");
  STATUS_TRY(parse_type(p, &out->element, &class));
  if (out->align < out->element) out->align = out->element;
  if (parse_is_word(p, ".ptr")) STATUS_TRY(skip_pointer(p));
  if (p->token != TOKEN_WORD) return parse_fail(p, "expected the name of a variable");
  out->name = arena_strdup(p->module->arena, p->word);
  out->bytes = out->element;
  STATUS_TRY(parse_next(p));
  while (p->token == '[') {
    int64_t count = 0;
    STATUS_TRY(parse_next(p));
    if (p->token == ']') {
      out->is_open = true;
      out->bytes = 0;
      return parse_next(p);
    }
    STATUS_TRY(parse_count(p, most, &count));
    if (count && out->bytes > most / count) return parse_fail(p, "%s is too large", out->name);
    out->bytes *= count;
    STATUS_TRY(parse_expect(p, ']', "']'"));
  }
  return STATUS_OK;
}

static Status place_variable(Parser *p, const char *name, int64_t size, int64_t align,
                             bool is_shared, uint64_t *out) {
  int64_t *bytes = is_shared ? &p->kernel->shared_bytes : &p->kernel->local_bytes;
  int64_t at = parse_align_up(*bytes, align);
  if (at + size > (is_shared ? MOST_SHARED : MOST_LOCAL))
    return parse_fail(p, "%s does not fit", name);
  *bytes = at + size;
  *out = (uint64_t)at;
  return STATUS_OK;
}

Status parse_use_module_shared(Parser *p, const char *name, PtxValue *value) {
  const Name *declared = &p->names.at[value->index];
  Name placed = {.name = declared->name, .kind = NAME_SHARED};
  STATUS_TRY(place_variable(p, name, (int64_t)declared->at, declared->count, true, &placed.at));
  /* for the whole kernel, though it may be an inner block that names it first */
  if (p->names.count >= MOST_NAMES) return parse_fail(p, "more than %d declarations", MOST_NAMES);
  placed.depth = 1;
  VEC_PUSH(p->scratch, p->names, placed);
  for (int i = p->names.count - 1; i > p->module_names; i--) p->names.at[i] = p->names.at[i - 1];
  p->names.at[p->module_names] = placed;
  *value = (PtxValue){.kind = VALUE_SHARED, .bits = placed.at};
  return STATUS_OK;
}

Status parse_space(Parser *p) {
  bool is_shared = !strcmp(p->word, ".shared");
  int64_t most = is_shared ? MOST_SHARED : MOST_LOCAL;
  Variable variable;
  STATUS_TRY(parse_next(p));
  STATUS_TRY(parse_variable(p, most, &variable));
  Name name = {.name = variable.name, .kind = is_shared ? NAME_SHARED : NAME_LOCAL};
  if (variable.is_open) {
    name.kind = NAME_DYNAMIC;
    name.count = (int)variable.align;
  } else if (!p->kernel) {
    name.kind = NAME_MODULE_SHARED;
    name.at = (uint64_t)variable.bytes;
    name.count = (int)variable.align;
  } else {
    STATUS_TRY(
        place_variable(p, variable.name, variable.bytes, variable.align, is_shared, &name.at));
  }
  if (!is_shared && name.kind != NAME_LOCAL)
    return parse_fail(p, "local memory %s needs a size, and a kernel", variable.name);
  STATUS_TRY(parse_add_name(p, name));
  return parse_expect(p, ';', "';'");
}

/* {1, 2, 0x3} or 5: elements of a variable. */
static Status parse_initial(Parser *p, const Variable *variable, char *at) {
  bool is_list = p->token == '{';
  int64_t count = 0;
  if (is_list) STATUS_TRY(parse_next(p));
  while (p->token != '}') {
    bool is_negative = p->token == '-';
    if (is_negative) STATUS_TRY(parse_next(p));
    if (p->token != TOKEN_NUMBER)
      return parse_fail(p, "%s: only numbers can be initial values", variable->name);
    if ((count + 1) * variable->element > variable->bytes)
      return parse_fail(p, "%s has too many initial values", variable->name);
    uint64_t bits = is_negative ? 0 - p->number.bits : p->number.bits;
    memcpy(at + count++ * variable->element, &bits, (size_t)variable->element);
    STATUS_TRY(parse_next(p));
    if (!is_list) return STATUS_OK;
    if (p->token == ',') STATUS_TRY(parse_next(p));
  }
  return parse_next(p);
}

Status parse_global(Parser *p) {
  bool is_writable = !strcmp(p->word, ".global");
  Variable variable;
  STATUS_TRY(parse_next(p));
  STATUS_TRY(parse_variable(p, MOST_GLOBAL, &variable));
  if (variable.is_open || arena_bytes(p->module->arena) > (size_t)4 * MOST_GLOBAL)
    return parse_fail(p, "%s needs a size, and one that fits", variable.name);
  char *memory = arena_alloc(p->module->arena, (size_t)variable.bytes + 512);
  memory = (char *)(((uintptr_t)memory + 255) & ~(uintptr_t)255);
  if (p->token == '=') {
    STATUS_TRY(parse_next(p));
    STATUS_TRY(parse_initial(p, &variable, memory));
  }
  VEC_PUSH(p->module->arena, p->module->variables,
           ((SimVariable){variable.name, memory, variable.bytes, is_writable}));
  STATUS_TRY(parse_add_name(
      p, (Name){.name = variable.name, .kind = NAME_GLOBAL, .at = (uint64_t)(uintptr_t)memory}));
  return parse_expect(p, ';', "';'");
}
