/* sim_parse: PTX text -> kernels. Names are resolved here: registers, variables, parameters,
 * labels; sim_decode.c makes instructions of the statements. The text is hostile: every count is
 * limited, every name looked up, and the first thing that is wrong ends the parse with one line. */
#include "runtime/sim_text.h"
#include <ctype.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum {
  MOST_WORD = 256,
  MOST_KERNELS = 16384,
  MOST_NAMES = 4096,
  MOST_REGISTERS = 1 << 15,
  MOST_VECTOR = 128,
  MOST_INSTRUCTIONS = 1 << 21,
  MOST_SHARED = 1 << 20,
  MOST_LOCAL = 1 << 20,
  MOST_GLOBAL = 1 << 26,
  MOST_PARAMS = 1024,
  MOST_SCOPES = 64,
};

typedef enum {
  NAME_REGISTER,
  NAME_SHARED,
  NAME_LOCAL,
  NAME_PARAM,
  NAME_GLOBAL,
  NAME_MODULE_SHARED, /* at: its bytes, count: its alignment */
  NAME_DYNAMIC,       /* .extern .shared name[] */
} NameKind;
typedef struct {
  const char *name;
  NameKind kind;
  bool is_range; /* %r<11>: %r0 … %r10 */
  int count, depth;
  uint64_t at; /* first register, offset or address */
} Name;

typedef struct {
  const char *name;
  int line, index; /* of the instruction, -1: not seen */
  int order;
} Label;

typedef struct {
  int instruction;
  const char *label;
  int line;
} Jump;

typedef struct {
  SimModule *module;
  Arena *scratch;
  const char *at, *end;
  int line;
  char word[MOST_WORD]; /* the token, if it is a word */
  int token;            /* a character, TOKEN_WORD, TOKEN_NUMBER, 0 at the end */
  PtxValue number;
  VEC(Name) names;
  VEC(Label) labels;
  VEC(Jump) jumps;
  int module_names; /* how many of names belong to the module */
  int depth;
  SimKernel *kernel;
  Decoder decoder;
} Parser;
enum { TOKEN_WORD = 256, TOKEN_NUMBER, TOKEN_STRING };

static Status fail(const Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static Status fail(const Parser *p, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return status_fail(STATUS_USER, "%s:%d: %s", p->module->path, p->line, text);
}

/* ── tokens ───────────────────────────────────────────────────────────────────────────────── */
static void skip_space(Parser *p) {
  while (p->at < p->end) {
    if (*p->at == '\n') {
      p->line++;
      p->at++;
    } else if (isspace((unsigned char)*p->at)) {
      p->at++;
    } else if (p->end - p->at >= 2 && p->at[0] == '/' && p->at[1] == '/') {
      const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
      p->at = eol ? eol : p->end;
    } else if (p->end - p->at >= 2 && p->at[0] == '/' && p->at[1] == '*') {
      for (p->at += 2;
           p->at < p->end && !(p->at[0] == '*' && p->end - p->at > 1 && p->at[1] == '/'); p->at++)
        if (*p->at == '\n') p->line++;
      p->at = p->end - p->at >= 2 ? p->at + 2 : p->end;
    } else {
      return;
    }
  }
}

static bool is_word_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static Status read_hex(Parser *p, int digits, uint64_t *out) {
  int seen = 0;
  *out = 0;
  while (p->at < p->end && isxdigit((unsigned char)*p->at)) {
    int c = tolower((unsigned char)*p->at++);
    if (++seen > digits) break;
    *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  if (seen == 0 || seen > digits || (digits != 16 && seen != digits))
    return fail(p, "a number has %s digits", seen > digits ? "too many" : "too few");
  return STATUS_OK;
}

static Status read_number(Parser *p) {
  char kind = p->end - p->at >= 2 && p->at[0] == '0' ? (char)tolower((unsigned char)p->at[1]) : 0;
  p->token = TOKEN_NUMBER;
  p->number = (PtxValue){.kind = VALUE_INT};
  if (kind == 'x' || kind == 'f' || kind == 'd') {
    p->at += 2;
    if (kind == 'f') p->number.kind = VALUE_F32;
    if (kind == 'd') p->number.kind = VALUE_F64;
    STATUS_TRY(read_hex(p, kind == 'f' ? 8 : 16, &p->number.bits));
  } else {
    while (p->at < p->end && isdigit((unsigned char)*p->at)) {
      uint64_t digit = (uint64_t)(*p->at++ - '0');
      if (p->number.bits > (UINT64_MAX - digit) / 10) return fail(p, "a number is too large");
      p->number.bits = p->number.bits * 10 + digit;
    }
    if (p->at < p->end && *p->at == '.')
      return fail(p, "numbers with a point are not supported; write 0f or 0d and the bits");
  }
  if (p->at < p->end && *p->at == 'U') p->at++;
  if (p->at < p->end && is_word_char(*p->at)) return fail(p, "a number ends in '%c'", *p->at);
  return STATUS_OK;
}

/* The "::" of .shared::cta, either half of it. */
static bool is_colons(const Parser *p) {
  if (*p->at != ':') return false;
  return (p->end - p->at > 1 && p->at[1] == ':') || p->at[-1] == ':';
}

static Status next(Parser *p) {
  skip_space(p);
  p->word[0] = 0;
  if (p->at >= p->end) {
    p->token = 0;
    return STATUS_OK;
  }
  unsigned char c = (unsigned char)*p->at;
  if (isdigit(c)) return read_number(p);
  if (is_word_char((char)c)) {
    size_t length = 0;
    while (p->at < p->end && (is_word_char(*p->at) || is_colons(p))) {
      if (length + 1 >= sizeof p->word) return fail(p, "a name is longer than %d", MOST_WORD - 1);
      p->word[length++] = *p->at++;
    }
    p->word[length] = 0;
    p->token = TOKEN_WORD;
    return STATUS_OK;
  }
  if (c == '"') {
    const char *close = memchr(p->at + 1, '"', (size_t)(p->end - p->at - 1));
    if (!close || memchr(p->at, '\n', (size_t)(close - p->at)))
      return fail(p, "a string has no end");
    p->at = close + 1;
    p->token = TOKEN_STRING;
    return STATUS_OK;
  }
  if (c < 32 || c > 126) return fail(p, "a byte %d that PTX does not have", c);
  p->token = c;
  p->at++;
  return STATUS_OK;
}

static const char *token_text(const Parser *p, char out[80]) {
  if (p->token == TOKEN_WORD)
    snprintf(out, 80, "'%.70s'", p->word);
  else if (p->token == TOKEN_NUMBER || p->token == TOKEN_STRING)
    snprintf(out, 80, "a %s", p->token == TOKEN_NUMBER ? "number" : "string");
  else if (p->token)
    snprintf(out, 80, "'%c'", p->token);
  else
    snprintf(out, 80, "the end of the file");
  return out;
}

static Status expect(Parser *p, int token, const char *what) {
  char text[80];
  if (p->token != token) return fail(p, "expected %s, found %s", what, token_text(p, text));
  return next(p);
}

static bool is_word(const Parser *p, const char *word) {
  return p->token == TOKEN_WORD && !strcmp(p->word, word);
}

/* A whole number from 0 to `most`. */
static Status expect_count(Parser *p, int64_t most, int64_t *out) {
  if (p->token != TOKEN_NUMBER || p->number.kind != VALUE_INT || p->number.bits > (uint64_t)most)
    return fail(p, "expected a whole number from 0 to %lld", (long long)most);
  *out = (int64_t)p->number.bits;
  return next(p);
}

/* ── names ────────────────────────────────────────────────────────────────────────────────── */
static Status add_name(Parser *p, Name name) {
  if (p->names.count >= MOST_NAMES) return fail(p, "more than %d declarations", MOST_NAMES);
  for (int i = p->names.count; i-- > 0 && p->names.at[i].depth == p->depth;)
    if (!strcmp(p->names.at[i].name, name.name)) return fail(p, "%s is declared twice", name.name);
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

static bool find_name(const Parser *p, const char *word, PtxValue *out) {
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

static bool find_special(Parser *p, const char *word, PtxValue *out) {
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
static Status type_of(Parser *p, int64_t *bytes, SimClass *class) {
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
    if (is_word(p, types[i].text)) {
      *bytes = types[i].bytes;
      *class = types[i].class;
      return next(p);
    }
  char text[80];
  return fail(p, "expected a type such as .b32, found %s", token_text(p, text));
}

/* .reg .b32 %r<11>, %x; */
static Status parse_registers(Parser *p) {
  int64_t bytes;
  SimClass class;
  STATUS_TRY(next(p));
  STATUS_TRY(type_of(p, &bytes, &class));
  if (class == CLASS_COUNT) return fail(p, "registers of 8 bits are not supported");
  for (;;) {
    if (p->token != TOKEN_WORD) return fail(p, "expected the name of a register");
    Name name = {.name = arena_strdup(p->scratch, p->word), .kind = NAME_REGISTER, .count = 1};
    int64_t count = 1;
    STATUS_TRY(next(p));
    if (p->token == '<') {
      name.is_range = true;
      STATUS_TRY(next(p));
      STATUS_TRY(expect_count(p, MOST_REGISTERS, &count));
      STATUS_TRY(expect(p, '>', "'>'"));
    }
    if (p->kernel->classes.count + count > MOST_REGISTERS)
      return fail(p, "more than %d registers", MOST_REGISTERS);
    name.count = (int)count;
    name.at = (uint64_t)p->kernel->classes.count;
    for (int64_t i = 0; i < count; i++) decode_register(&p->decoder, class);
    STATUS_TRY(add_name(p, name));
    if (p->token != ',') break;
    STATUS_TRY(next(p));
  }
  return expect(p, ';', "';'");
}

static int64_t align_up(int64_t value, int64_t align) {
  return (value + align - 1) / align * align;
}

typedef struct {
  const char *name;
  int64_t align, element, bytes;
  bool is_open; /* name[] */
} Variable;

/* .align 16 .b8 name[8448], from the word after the space. */
static Status parse_variable(Parser *p, int64_t most, Variable *out) {
  SimClass class;
  *out = (Variable){.align = 0};
  if (is_word(p, ".align")) {
    STATUS_TRY(next(p));
    STATUS_TRY(expect_count(p, 4096, &out->align));
    if (out->align == 0 || (out->align & (out->align - 1)))
      return fail(p, ".align needs a power of two");
  }
  if (is_word(p, ".v2") || is_word(p, ".v4")) return fail(p, "vector variables are not supported");
  STATUS_TRY(type_of(p, &out->element, &class));
  if (out->align < out->element) out->align = out->element;
  if (p->token != TOKEN_WORD) return fail(p, "expected the name of a variable");
  out->name = arena_strdup(p->module->arena, p->word);
  out->bytes = out->element;
  STATUS_TRY(next(p));
  while (p->token == '[') {
    int64_t count = 0;
    STATUS_TRY(next(p));
    if (p->token == ']') {
      out->is_open = true;
      out->bytes = 0;
      return next(p);
    }
    STATUS_TRY(expect_count(p, most, &count));
    if (count && out->bytes > most / count) return fail(p, "%s is too large", out->name);
    out->bytes *= count;
    STATUS_TRY(expect(p, ']', "']'"));
  }
  return STATUS_OK;
}

static Status place_variable(Parser *p, const char *name, int64_t size, int64_t align,
                             bool is_shared, uint64_t *out) {
  int64_t *bytes = is_shared ? &p->kernel->shared_bytes : &p->kernel->local_bytes;
  int64_t at = align_up(*bytes, align);
  if (at + size > (is_shared ? MOST_SHARED : MOST_LOCAL)) return fail(p, "%s does not fit", name);
  *bytes = at + size;
  *out = (uint64_t)at;
  return STATUS_OK;
}

/* The first use of a shared variable of the module in this kernel gives it a place. */
static Status use_module_shared(Parser *p, const char *name, PtxValue *value) {
  const Name *declared = &p->names.at[value->index];
  Name placed = {.name = declared->name, .kind = NAME_SHARED};
  STATUS_TRY(place_variable(p, name, (int64_t)declared->at, declared->count, true, &placed.at));
  /* for the whole kernel, though it may be an inner block that names it first */
  if (p->names.count >= MOST_NAMES) return fail(p, "more than %d declarations", MOST_NAMES);
  placed.depth = 1;
  VEC_PUSH(p->scratch, p->names, placed);
  for (int i = p->names.count - 1; i > p->module_names; i--) p->names.at[i] = p->names.at[i - 1];
  p->names.at[p->module_names] = placed;
  *value = (PtxValue){.kind = VALUE_SHARED, .bits = placed.at};
  return STATUS_OK;
}

/* .shared or .local. Shared memory of the module takes place in the kernels that name it. */
static Status parse_space(Parser *p) {
  bool is_shared = !strcmp(p->word, ".shared");
  int64_t most = is_shared ? MOST_SHARED : MOST_LOCAL;
  Variable variable;
  STATUS_TRY(next(p));
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
    return fail(p, "local memory %s needs a size, and a kernel", variable.name);
  STATUS_TRY(add_name(p, name));
  return expect(p, ';', "';'");
}

/* {1, 2, 0x3} or 5: elements of a variable. */
static Status parse_initial(Parser *p, const Variable *variable, char *at) {
  bool is_list = p->token == '{';
  int64_t count = 0;
  if (is_list) STATUS_TRY(next(p));
  while (p->token != '}') {
    bool is_negative = p->token == '-';
    if (is_negative) STATUS_TRY(next(p));
    if (p->token != TOKEN_NUMBER)
      return fail(p, "%s: only numbers can be initial values", variable->name);
    if ((count + 1) * variable->element > variable->bytes)
      return fail(p, "%s has too many initial values", variable->name);
    uint64_t bits = is_negative ? 0 - p->number.bits : p->number.bits;
    memcpy(at + count++ * variable->element, &bits, (size_t)variable->element);
    STATUS_TRY(next(p));
    if (!is_list) return STATUS_OK;
    if (p->token == ',') STATUS_TRY(next(p));
  }
  return next(p);
}

/* .global or .const of the module. */
static Status parse_global(Parser *p) {
  bool is_writable = !strcmp(p->word, ".global");
  Variable variable;
  STATUS_TRY(next(p));
  STATUS_TRY(parse_variable(p, MOST_GLOBAL, &variable));
  if (variable.is_open || arena_bytes(p->module->arena) > (size_t)4 * MOST_GLOBAL)
    return fail(p, "%s needs a size, and one that fits", variable.name);
  char *memory = arena_alloc(p->module->arena, (size_t)variable.bytes + 512);
  memory = (char *)(((uintptr_t)memory + 255) & ~(uintptr_t)255);
  if (p->token == '=') {
    STATUS_TRY(next(p));
    STATUS_TRY(parse_initial(p, &variable, memory));
  }
  VEC_PUSH(p->module->arena, p->module->variables,
           ((SimVariable){variable.name, memory, variable.bytes, is_writable}));
  STATUS_TRY(add_name(
      p, (Name){.name = variable.name, .kind = NAME_GLOBAL, .at = (uint64_t)(uintptr_t)memory}));
  return expect(p, ';', "';'");
}

/* ── operands ─────────────────────────────────────────────────────────────────────────────── */
static int label_index(Parser *p, const char *name) {
  VEC_PUSH(p->scratch, p->jumps,
           ((Jump){p->kernel->code.count, arena_strdup(p->scratch, name), p->line}));
  return p->jumps.count - 1;
}

static Status parse_value(Parser *p, PtxValue *out) {
  bool is_negative = p->token == '-';
  char text[80];
  if (is_negative) STATUS_TRY(next(p));
  if (p->token == TOKEN_NUMBER) {
    *out = p->number;
    if (is_negative && out->kind != VALUE_INT) return fail(p, "a '-' before bits");
    if (is_negative) out->bits = 0 - out->bits;
    return next(p);
  }
  if (p->token != TOKEN_WORD || is_negative)
    return fail(p, "expected an operand, found %s", token_text(p, text));
  if (!strcmp(p->word, "_")) {
    *out = (PtxValue){.kind = VALUE_SINK};
  } else if (!find_name(p, p->word, out) && !find_special(p, p->word, out)) {
    if (p->word[0] == '%') return fail(p, "there is no register %s", p->word);
    if (p->word[0] == '.') return fail(p, "expected an operand, found '%s'", p->word);
    *out = (PtxValue){.kind = VALUE_LABEL, .index = label_index(p, p->word)};
  }
  if (out->kind == VALUE_MODULE_SHARED) STATUS_TRY(use_module_shared(p, p->word, out));
  if (out->kind == VALUE_DYNAMIC) {
    int64_t align = p->names.at[out->index].count;
    if (align > p->kernel->dynamic_align) p->kernel->dynamic_align = align;
    if (p->kernel->special[SPECIAL_dynamic_at] < 0)
      p->kernel->special[SPECIAL_dynamic_at] = decode_register(&p->decoder, CLASS_32);
    out->index = p->kernel->special[SPECIAL_dynamic_at];
  }
  return next(p);
}

static Status parse_vector(Parser *p, PtxOperand *out);

/* [%rd1], [%rd1+8], [name+-4], [16], [%rd1, {%r1, %r2}] */
static Status parse_address(Parser *p, PtxOperand *out) {
  out->kind = OPERAND_ADDRESS;
  STATUS_TRY(next(p));
  STATUS_TRY(parse_value(p, &out->at[0]));
  out->count = 1;
  if (p->token == '+' || p->token == '-') {
    bool is_negative = false;
    while (p->token == '+' || p->token == '-') {
      is_negative ^= p->token == '-';
      STATUS_TRY(next(p));
    }
    if (p->token != TOKEN_NUMBER || p->number.kind != VALUE_INT)
      return fail(p, "expected a number in the address");
    out->offset = (int64_t)(is_negative ? 0 - p->number.bits : p->number.bits);
    STATUS_TRY(next(p));
  }
  if (p->token == ',') {
    PtxOperand place = {0};
    STATUS_TRY(next(p));
    if (p->token != '{') return fail(p, "expected the coordinates of a tensor, {…}");
    STATUS_TRY(parse_vector(p, &place));
    if (place.many || !place.count) return fail(p, "a tensor has 1 to 5 coordinates");
    out->coordinates = place.count;
    out->many = ARENA_ARRAY(p->scratch, PtxValue, SIM_VECTOR);
    memcpy(out->many, place.at, sizeof place.at);
  }
  return expect(p, ']', "']'");
}

static Status parse_vector(Parser *p, PtxOperand *out) {
  out->kind = OPERAND_VECTOR;
  STATUS_TRY(next(p));
  while (p->token != '}') {
    PtxValue value;
    if (out->count == MOST_VECTOR) return fail(p, "more than %d elements in a vector", MOST_VECTOR);
    STATUS_TRY(parse_value(p, &value));
    if (out->count == SIM_VECTOR) {
      out->many = ARENA_ARRAY(p->scratch, PtxValue, MOST_VECTOR);
      memcpy(out->many, out->at, sizeof out->at);
    }
    if (out->many)
      out->many[out->count++] = value;
    else
      out->at[out->count++] = value;
    if (p->token == ',') {
      STATUS_TRY(next(p));
    } else if (p->token != '}') {
      return expect(p, '}', "',' or '}'");
    }
  }
  return next(p);
}

static Status parse_operand(Parser *p, PtxOperand *out) {
  *out = (PtxOperand){.kind = OPERAND_PLAIN};
  if (p->token == '[') return parse_address(p, out);
  if (p->token == '{') return parse_vector(p, out);
  if (p->token == '!') {
    out->is_negated = true;
    STATUS_TRY(next(p));
  }
  out->count = 1;
  STATUS_TRY(parse_value(p, &out->at[0]));
  if (p->token != '|') return STATUS_OK;
  STATUS_TRY(next(p));
  out->has_second = true;
  return parse_value(p, &out->second);
}

/* ── statements ───────────────────────────────────────────────────────────────────────────── */
static Status parse_guard(Parser *p, PtxStatement *s) {
  STATUS_TRY(next(p));
  if (p->token == '!') {
    s->guard_negated = true;
    STATUS_TRY(next(p));
  }
  PtxValue value;
  STATUS_TRY(parse_value(p, &value));
  if (value.kind != VALUE_REGISTER || p->kernel->classes.at[value.index] != CLASS_PRED)
    return fail(p, "'@' needs a predicate register");
  s->guard = value.index;
  return STATUS_OK;
}

static Status parse_instruction(Parser *p, bool *is_label) {
  PtxStatement s = {.line = p->line, .guard = -1};
  char text[80];
  *is_label = false;
  if (p->token == '@') STATUS_TRY(parse_guard(p, &s));
  if (p->token != TOKEN_WORD)
    return fail(p, "expected an instruction, found %s", token_text(p, text));
  char word[MOST_WORD];
  strcpy(word, p->word);
  s.line = p->line;
  STATUS_TRY(next(p));
  if (p->token == ':' && s.guard < 0) {
    decode_block(&p->decoder);
    VEC_PUSH(p->scratch, p->labels,
             ((Label){arena_strdup(p->scratch, word), s.line, p->kernel->code.count - 1,
                      p->labels.count}));
    *is_label = true;
    return next(p);
  }
  if (strlen(word) >= sizeof s.op) return fail(p, "unsupported instruction %.80s", word);
  strcpy(s.op, word);
  while (p->token != ';') {
    if (s.count == SIM_OPERANDS) return fail(p, "%s has too many operands", s.op);
    if (p->token == TOKEN_STRING || p->token == '(')
      return fail(p, "unsupported instruction %s", s.op);
    Status status = parse_operand(p, &s.operand[s.count++]);
    if (status != STATUS_OK)
      return decode_knows(s.op) ? status : fail(p, "unsupported instruction %s", s.op);
    if (p->token == ',') {
      STATUS_TRY(next(p));
      if (p->token == ';') return fail(p, "expected an operand after ','");
    } else if (p->token != ';') {
      return fail(p, "expected ',' or ';' after an operand, found %s", token_text(p, text));
    }
  }
  if (p->kernel->code.count > MOST_INSTRUCTIONS)
    return fail(p, "more than %d instructions", MOST_INSTRUCTIONS);
  p->kernel->text_instructions++;
  STATUS_TRY(decode_statement(&p->decoder, &s));
  return next(p);
}

/* Skips to the ';' or the end of the line that closes a directive without meaning for us. */
static Status skip_directive(Parser *p) {
  while (p->token && p->token != ';') STATUS_TRY(next(p));
  return p->token ? next(p) : STATUS_OK;
}

static Status skip_line(Parser *p) {
  const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
  p->at = eol ? eol : p->end;
  return next(p);
}

static void close_scope(Parser *p) {
  while (p->names.count > p->module_names && p->names.at[p->names.count - 1].depth == p->depth)
    p->names.count--;
  p->depth--;
}

static Status parse_body(Parser *p) {
  bool is_label;
  int outside = p->depth;
  p->depth++;
  STATUS_TRY(expect(p, '{', "'{'"));
  while (p->depth > outside) {
    if (p->token == '{') {
      if (p->depth > MOST_SCOPES) return fail(p, "more than %d blocks in each other", MOST_SCOPES);
      p->depth++;
      STATUS_TRY(next(p));
    } else if (p->token == '}') {
      close_scope(p);
      STATUS_TRY(next(p));
    } else if (p->token == ';') {
      STATUS_TRY(next(p));
    } else if (is_word(p, ".reg")) {
      STATUS_TRY(parse_registers(p));
    } else if (is_word(p, ".shared") || is_word(p, ".local")) {
      STATUS_TRY(parse_space(p));
    } else if (is_word(p, ".pragma")) {
      STATUS_TRY(skip_directive(p));
    } else if (is_word(p, ".loc")) {
      STATUS_TRY(skip_line(p));
    } else if (p->token == TOKEN_WORD && p->word[0] == '.') {
      return fail(p, "unsupported directive %s in a kernel", p->word);
    } else {
      STATUS_TRY(parse_instruction(p, &is_label));
    }
  }
  return STATUS_OK;
}

/* ── kernels ──────────────────────────────────────────────────────────────────────────────── */
static Status parse_params(Parser *p) {
  if (p->token != '(') return STATUS_OK;
  STATUS_TRY(next(p));
  while (p->token != ')') {
    Variable variable;
    if (!is_word(p, ".param")) return fail(p, "expected .param");
    STATUS_TRY(next(p));
    STATUS_TRY(parse_variable(p, 4096, &variable));
    if (is_word(p, ".ptr")) return fail(p, ".ptr is not supported");
    SimKernel *kernel = p->kernel;
    int64_t at = align_up(kernel->param_bytes, variable.align);
    if (kernel->params.count >= MOST_PARAMS || at + variable.bytes > 32764)
      return fail(p, "too many parameters");
    kernel->param_bytes = at + variable.bytes;
    VEC_PUSH(p->module->arena, kernel->params, ((SimParam){at, variable.bytes}));
    STATUS_TRY(add_name(p, (Name){.name = variable.name, .kind = NAME_PARAM, .at = (uint64_t)at}));
    if (p->token == ',') STATUS_TRY(next(p));
  }
  return next(p);
}

/* .maxntid 256, 1, 1 and its kin, until the '{'. */
static Status parse_limits(Parser *p) {
  while (p->token == TOKEN_WORD && p->word[0] == '.') {
    bool is_limit = is_word(p, ".maxntid") || is_word(p, ".reqntid");
    int64_t threads = 1;
    STATUS_TRY(next(p));
    while (p->token == TOKEN_NUMBER) {
      int64_t count = 0;
      STATUS_TRY(expect_count(p, 1 << 20, &count));
      if (threads < 1 << 20) threads *= count;
      if (p->token == ',') STATUS_TRY(next(p));
    }
    if (is_limit) p->kernel->max_threads = threads < 1024 ? threads : 1024;
  }
  return STATUS_OK;
}

static int compare_labels(const void *a, const void *b) {
  const Label *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order ? order : x->order - y->order;
}

static int compare_label_name(const void *name, const void *label) {
  return strcmp(name, ((const Label *)label)->name);
}

static Status resolve_jumps(Parser *p) {
  int end = p->line;
  if (p->labels.count) qsort(p->labels.at, (size_t)p->labels.count, sizeof(Label), compare_labels);
  for (int i = 1; i < p->labels.count; i++)
    if (!strcmp(p->labels.at[i - 1].name, p->labels.at[i].name)) {
      p->line = p->labels.at[i].line;
      return fail(p, "the label %s stands here for the second time", p->labels.at[i].name);
    }
  for (int i = 0; i < p->jumps.count; i++) {
    const Label *label = p->labels.count
                             ? bsearch(p->jumps.at[i].label, p->labels.at, (size_t)p->labels.count,
                                       sizeof(Label), compare_label_name)
                             : NULL;
    p->line = p->jumps.at[i].line;
    if (!label) return fail(p, "there is nothing named %s", p->jumps.at[i].label);
    p->jumps.at[i].instruction = label->index;
  }
  p->line = end;
  for (int i = 0; i < p->kernel->code.count; i++) {
    SimInst *inst = &p->kernel->code.at[i];
    bool is_jump = inst->code == SIM_bra || inst->code == SIM_bra_if;
    if (is_jump && inst->imm >= 0) inst->imm = p->jumps.at[inst->imm].instruction;
  }
  return STATUS_OK;
}

static Status parse_entry(Parser *p) {
  STATUS_TRY(next(p));
  if (p->token != TOKEN_WORD) return fail(p, "expected the name of a kernel");
  if (p->module->kernels.count >= MOST_KERNELS)
    return fail(p, "more than %d kernels", MOST_KERNELS);
  SimKernel *kernel = ARENA_NEW(p->module->arena, SimKernel);
  kernel->module = p->module;
  kernel->name = arena_strdup(p->module->arena, p->word);
  kernel->line = p->line;
  kernel->max_threads = 1024;
  for (int i = 0; i < SPECIAL_COUNT; i++) kernel->special[i] = -1;
  if (sim_module_kernel(p->module, kernel->name))
    return fail(p, "a second kernel %s", kernel->name);
  p->kernel = kernel;
  p->module_names = p->names.count;
  p->labels.count = p->jumps.count = 0;
  p->depth = 1;
  decode_kernel(&p->decoder, kernel, p->line);
  STATUS_TRY(next(p));
  STATUS_TRY(parse_params(p));
  STATUS_TRY(parse_limits(p));
  STATUS_TRY(parse_body(p));
  decode_end(&p->decoder);
  STATUS_TRY(resolve_jumps(p));
  VEC_PUSH(p->module->arena, p->module->kernels, kernel);
  p->names.count = p->module_names;
  p->depth = 0;
  p->kernel = NULL;
  return STATUS_OK;
}

/* ── the module ───────────────────────────────────────────────────────────────────────────── */
static Status parse_version(Parser *p) {
  /* 7.0 is two numbers and a point to us */
  skip_space(p);
  if (p->at >= p->end || !isdigit((unsigned char)*p->at)) return fail(p, ".version needs a number");
  while (p->at < p->end && (isdigit((unsigned char)*p->at) || *p->at == '.')) p->at++;
  return next(p);
}

static Status parse_module(Parser *p) {
  char text[80];
  STATUS_TRY(next(p));
  while (p->token) {
    if (is_word(p, ".version")) {
      STATUS_TRY(parse_version(p));
    } else if (is_word(p, ".target")) {
      STATUS_TRY(skip_line(p));
    } else if (is_word(p, ".address_size")) {
      int64_t bits = 0;
      STATUS_TRY(next(p));
      STATUS_TRY(expect_count(p, 64, &bits));
      if (bits != 64) return fail(p, "addresses of %d bits are not supported", (int)bits);
    } else if (is_word(p, ".visible") || is_word(p, ".extern") || is_word(p, ".weak")) {
      STATUS_TRY(next(p));
    } else if (is_word(p, ".file")) {
      STATUS_TRY(skip_line(p));
    } else if (is_word(p, ".entry")) {
      STATUS_TRY(parse_entry(p));
    } else if (is_word(p, ".shared")) {
      STATUS_TRY(parse_space(p));
    } else if (is_word(p, ".global") || is_word(p, ".const")) {
      STATUS_TRY(parse_global(p));
    } else if (is_word(p, ".func")) {
      return fail(p, "unsupported directive .func: functions are expected to be inlined");
    } else if (p->token == TOKEN_WORD) {
      return fail(p, "unsupported directive %.60s", p->word);
    } else {
      return fail(p, "expected a directive, found %s", token_text(p, text));
    }
  }
  return STATUS_OK;
}

Status sim_parse(SimModule *module, const char *text, size_t length) {
  Parser p = {
      .module = module, .scratch = arena_new(), .at = text, .end = text + length, .line = 1};
  decode_begin(&p.decoder, module, p.scratch);
  Status status = parse_module(&p);
  arena_free(p.scratch);
  return status;
}
