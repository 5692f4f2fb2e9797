/* sim_parse_operand: operands of an instruction: registers, names, numbers, addresses, vectors. */
#include "runtime/device/sim/sim_parse.h"
#include <string.h>

enum { MOST_VECTOR = 128 };

static int label_index(Parser *p, const char *name) {
  VEC_PUSH(p->scratch, p->jumps,
           ((Jump){p->kernel->code.count, arena_strdup(p->scratch, name), p->line, p->block}));
  return p->jumps.count - 1;
}

Status parse_value(Parser *p, PtxValue *out) {
  bool is_negative = p->token == '-';
  char text[TOKEN_TEXT];
  if (is_negative) STATUS_TRY(parse_next(p));
  if (p->token == TOKEN_NUMBER) {
    *out = p->number;
    if (is_negative && out->kind != VALUE_INT) return parse_fail(p, "a '-' before bits");
    if (is_negative) out->bits = 0 - out->bits;
    return parse_next(p);
  }
  if (p->token != TOKEN_WORD || is_negative)
    return parse_fail(p, "expected an operand, found %s", parse_token_text(p, text));
  if (!strcmp(p->word, "_")) {
    *out = (PtxValue){.kind = VALUE_SINK};
  } else if (!parse_find_name(p, p->word, out) && !parse_find_special(p, p->word, out)) {
    if (p->word[0] == '%') return parse_fail(p, "there is no register %s", p->word);
    if (p->word[0] == '.') return parse_fail(p, "expected an operand, found '%s'", p->word);
    *out = (PtxValue){.kind = VALUE_LABEL, .index = label_index(p, p->word)};
  }
  if (out->kind == VALUE_MODULE_SHARED) STATUS_TRY(parse_use_module_shared(p, p->word, out));
  if (out->kind == VALUE_DYNAMIC) {
    int64_t align = p->names.at[out->index].count;
    if (align > p->kernel->dynamic_align) p->kernel->dynamic_align = align;
    if (p->kernel->special[SPECIAL_dynamic_at] < 0)
      p->kernel->special[SPECIAL_dynamic_at] = decode_register(&p->decoder, CLASS_32);
    out->index = p->kernel->special[SPECIAL_dynamic_at];
  }
  return parse_next(p);
}

static Status parse_vector(Parser *p, PtxOperand *out);

/* [%rd1], [%rd1+8], [name+-4], [16], [%rd1, {%r1, %r2}] */
static Status parse_address(Parser *p, PtxOperand *out) {
  out->kind = OPERAND_ADDRESS;
  STATUS_TRY(parse_next(p));
  STATUS_TRY(parse_value(p, &out->at[0]));
  out->count = 1;
  if (p->token == '+' || p->token == '-') {
    bool is_negative = false;
    while (p->token == '+' || p->token == '-') {
      is_negative ^= p->token == '-';
      STATUS_TRY(parse_next(p));
    }
    if (p->token != TOKEN_NUMBER || p->number.kind != VALUE_INT)
      return parse_fail(p, "expected a number in the address");
    out->offset = (int64_t)(is_negative ? 0 - p->number.bits : p->number.bits);
    STATUS_TRY(parse_next(p));
  }
  if (p->token == ',') {
    PtxOperand place = {0};
    STATUS_TRY(parse_next(p));
    if (p->token != '{') return parse_fail(p, "expected the coordinates of a tensor, {…}");
    STATUS_TRY(parse_vector(p, &place));
    if (place.many || !place.count) return parse_fail(p, "a tensor has 1 to 5 coordinates");
    out->coordinates = place.count;
    out->many = ARENA_ARRAY(p->scratch, PtxValue, SIM_VECTOR);
    memcpy(out->many, place.at, sizeof place.at);
  }
  return parse_expect(p, ']', "']'");
}

static Status parse_vector(Parser *p, PtxOperand *out) {
  out->kind = OPERAND_VECTOR;
  STATUS_TRY(parse_next(p));
  while (p->token != '}') {
    PtxValue value;
    if (out->count == MOST_VECTOR)
      return parse_fail(p, "more than %d elements in a vector", MOST_VECTOR);
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
      STATUS_TRY(parse_next(p));
    } else if (p->token != '}') {
      return parse_expect(p, '}', "',' or '}'");
    }
  }
  return parse_next(p);
}

Status parse_operand(Parser *p, PtxOperand *out) {
  *out = (PtxOperand){.kind = OPERAND_PLAIN};
  if (p->token == '[') return parse_address(p, out);
  if (p->token == '{') return parse_vector(p, out);
  if (p->token == '!') {
    out->is_negated = true;
    STATUS_TRY(parse_next(p));
  }
  out->count = 1;
  STATUS_TRY(parse_value(p, &out->at[0]));
  if (p->token == '+' && out->at[0].kind == VALUE_SHARED) { /* name+8: a place in a variable */
    STATUS_TRY(parse_next(p));
    if (p->token != TOKEN_NUMBER || p->number.kind != VALUE_INT)
      return parse_fail(p, "expected a number behind '+'");
    out->at[0].bits += p->number.bits;
    return parse_next(p);
  }
  if (p->token != '|') return STATUS_OK;
  STATUS_TRY(parse_next(p));
  out->has_second = true;
  return parse_value(p, &out->second);
}
