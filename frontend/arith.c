/* arith: operators on compile-time values and tensors. Compile-time numbers take the tensor's
 * type; two compile-time integers divide to an integer where that is exact. */
#include "frontend/builder.h"
#include <math.h>
#include <string.h>

typedef struct {
  const char *text;
  Op op;
} Operator;

static const Operator arithmetic[] = {
    {"+", OP_ADD}, {"-", OP_SUB}, {"*", OP_MUL}, {"/", OP_DIV}, {"%", OP_REM}};
static const Operator comparison[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                                      {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};

static const Operator *find_operator(const Operator *table, size_t count, const char *text) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(table[i].text, text) == 0) return &table[i];
  return NULL;
}
#define FIND(table, text) find_operator((table), sizeof(table) / sizeof *(table), (text))

static Value overflow(Builder *b, const char *operator, int64_t x, int64_t y, Loc loc) {
  builder_fail(b, loc, "%lld %s %lld does not fit 64 bits", (long long)x, operator,(long long) y);
  return value_error();
}

static Value integer_power(Builder *b, int64_t base, int64_t exponent, Loc loc) {
  if (exponent < 0) return value_float(pow((double)base, (double)exponent));
  int64_t result = 1, square = base;
  for (int64_t left = exponent; left > 0; left >>= 1) {
    bool overflows = (left & 1) && __builtin_mul_overflow(result, square, &result);
    if (overflows || (left > 1 && __builtin_mul_overflow(square, square, &square)))
      return overflow(b, "**", base, exponent, loc);
  }
  return value_int(result);
}

static Value integers(Builder *b, const char *operator, int64_t x, int64_t y, Loc loc) {
  int64_t result = 0;
  bool overflowed = false;
  switch (operator[0]) {
  case '+':
    overflowed = __builtin_add_overflow(x, y, &result);
    break;
  case '-':
    overflowed = __builtin_sub_overflow(x, y, &result);
    break;
  case '*':
    if (operator[1] == '*') return integer_power(b, x, y, loc);
    overflowed = __builtin_mul_overflow(x, y, &result);
    break;
  case '%':
  case '/':
    if (y == 0) {
      builder_fail(b, loc, "division by zero");
      return value_error();
    }
    if (y == -1) {
      if (operator[0] == '%') return value_int(0);
      overflowed = __builtin_sub_overflow(0, x, &result);
    } else if (operator[0] == '%') {
      result = x % y;
      if (result && (result < 0) != (y < 0)) result += y; /* the sign of the divisor, as Python */
    } else if (x % y == 0) {
      result = x / y;
    } else {
      return value_float((double)x / (double)y);
    }
    break;
  default:
    break;
  }
  return overflowed ? overflow(b, operator, x, y, loc) : value_int(result);
}

static Value numbers(Builder *b, const char *operator, const Value * x, const Value *y, Loc loc) {
  if (x->kind == VALUE_INT && y->kind == VALUE_INT) return integers(b, operator, x->i, y->i, loc);
  double l = value_number(x), r = value_number(y);
  switch (operator[0]) {
  case '+':
    return value_float(l + r);
  case '-':
    return value_float(l - r);
  case '*':
    return value_float(operator[1] == '*' ? pow(l, r) : l * r);
  case '/':
  case '%':
    if (r == 0) {
      builder_fail(b, loc, "division by zero");
      return value_error();
    }
    return value_float(operator[0] == '/' ? l / r : l - r * floor(l / r));
  default:
    return value_error();
  }
}

static Value arith_compare(Op op, const Value *x, const Value *y) {
  bool both = x->kind == VALUE_INT && y->kind == VALUE_INT;
  double l = value_number(x), r = value_number(y);
  int sign = both ? (x->i > y->i) - (x->i < y->i) : (l > r) - (l < r);
  switch (op) {
  case OP_LT:
    return value_bool(sign < 0);
  case OP_LE:
    return value_bool(sign <= 0);
  case OP_GT:
    return value_bool(sign > 0);
  default:
    return value_bool(sign >= 0);
  }
}

/* Lists: + joins, * repeats. Strings: + joins. */
static Value sequences(Builder *b, const char *operator, const Value * x, const Value *y, Loc loc) {
  bool join = strcmp(operator, "+") == 0 && x->kind == y->kind;
  if (join && x->kind == VALUE_STRING) {
    if (strlen(x->s) + strlen(y->s) > LIMIT_STRING) {
      builder_fail(b, loc, "a string of more than %d bytes", LIMIT_STRING);
      return value_error();
    }
    b->evaluations += (int64_t)strlen(x->s) / 16; /* memory is bounded by the work it takes */
    return value_string(arena_printf(b->arena, "%s%s", x->s, y->s));
  }
  bool repeat = strcmp(operator, "*") == 0 && x->kind == VALUE_LIST && y->kind == VALUE_INT;
  if (!repeat && !(join && (x->kind == VALUE_LIST || x->kind == VALUE_TUPLE)))
    return (Value){.kind = VALUE_ABSENT};
  int64_t times = repeat ? (y->i < 0 ? 0 : y->i) : 1;
  if (times > LIMIT_ITEMS || x->count * times + (join ? y->count : 0) > LIMIT_ITEMS) {
    builder_fail(b, loc, "a list of more than %d items", LIMIT_ITEMS);
    return value_error();
  }
  int count = (int)(x->count * times) + (join ? y->count : 0), n = 0;
  b->evaluations += count;
  Value *items = ARENA_ARRAY(b->arena, Value, count);
  for (int64_t k = 0; k < times; k++)
    for (int i = 0; i < x->count; i++) items[n++] = x->items[i];
  for (int i = 0; join && i < y->count; i++) items[n++] = y->items[i];
  return value_sequence(x->kind, items, count);
}

/* Two operands of which one at least is a tensor, as tensors of one type. */
static bool as_tensors(Builder *b, const Value *left, const Value *right, Loc loc, Node **x,
                       Node **y) {
  DType dtype = left->kind == VALUE_TENSOR ? left->node->type.dtype : right->node->type.dtype;
  *x = tensor_of(b, left, dtype, loc);
  *y = tensor_of(b, right, dtype, loc);
  return *x && *y;
}

/* x ** n as products, exact and with simple gradients, for the exponents people write. */
static Node *tensor_power(Builder *b, const Value *left, const Value *right, Loc loc) {
  Node *x, *y;
  if (left->kind == VALUE_TENSOR && value_is_number(right)) {
    double n = value_number(right);
    Node *base = left->node;
    if (n == 1) return base;
    if (n == 2) return tensor_binary(b, OP_MUL, "*", base, base, loc);
    if (n == 3)
      return tensor_binary(b, OP_MUL, "*", tensor_binary(b, OP_MUL, "*", base, base, loc), base,
                           loc);
    if (n == 0.5) return tensor_unary(b, OP_SQRT, base, loc);
    if (n == -0.5) return tensor_unary(b, OP_RSQRT, base, loc);
  }
  if (!as_tensors(b, left, right, loc, &x, &y)) return NULL;
  return tensor_binary(b, OP_POW, "**", x, y, loc);
}

static Value tensors(Builder *b, const char *operator, const Value * left, const Value *right,
                     Loc loc) {
  const Operator *found = FIND(arithmetic, operator);
  if (!found) found = FIND(comparison, operator);
  Node *x = NULL, *y = NULL, *result = NULL;
  if (strcmp(operator, "@") == 0) {
    if (left->kind != VALUE_TENSOR || right->kind != VALUE_TENSOR) {
      builder_fail(b, loc, "@ needs two tensors, not %s and %s", value_describe(b->arena, left),
                   value_describe(b->arena, right));
      return value_error();
    }
    return value_tensor(quantize_product(b, left->node, right->node, loc));
  }
  if (strcmp(operator, "**") == 0) {
    result = tensor_power(b, left, right, loc);
  } else if (strcmp(operator, "and") == 0 || strcmp(operator, "or") == 0) {
    if (as_tensors(b, left, right, loc, &x, &y))
      result = tensor_binary(b, operator[0] == 'a' ? OP_AND : OP_OR, operator, x, y, loc);
  } else if (as_tensors(b, left, right, loc, &x, &y)) {
    if (found->op == OP_DIV && !dtype_is_float(x->type.dtype)) {
      builder_fail(b, loc, "/ is for floats, not %s: cast with f32(x), or write div(x, y)",
                   dtype_text(x->type.dtype));
      return value_error();
    }
    result = tensor_binary(b, found->op, operator, x, y, loc);
  }
  return value_tensor(result);
}

static bool is_plain(const Value *v) {
  return v->kind != VALUE_TENSOR && v->kind != VALUE_LAYER && v->kind != VALUE_BLOCK;
}

Value arith_binary(Builder *b, const char *operator, Value left, Value right, Loc loc) {
  if (left.kind == VALUE_ERROR || right.kind == VALUE_ERROR) return value_error();
  bool one_tensor = left.kind == VALUE_TENSOR || right.kind == VALUE_TENSOR;
  bool fits = one_tensor &&
              (left.kind == VALUE_TENSOR || value_is_number(&left) || left.kind == VALUE_BOOL) &&
              (right.kind == VALUE_TENSOR || value_is_number(&right) || right.kind == VALUE_BOOL);
  if (fits) {
    Written before = builder_write(b, operator, true);
    Value result = tensors(b, operator, & left, &right, loc);
    b->written = before;
    return result;
  }
  if (is_plain(&left) && is_plain(&right) && !one_tensor) {
    if (strcmp(operator, "==") == 0) return value_bool(value_equal(&left, &right));
    if (strcmp(operator, "!=") == 0) return value_bool(!value_equal(&left, &right));
    const Operator *compares = FIND(comparison, operator);
    if (value_is_number(&left) && value_is_number(&right) && strcmp(operator, "@") != 0)
      return compares ? arith_compare(compares->op, &left, &right)
                      : numbers(b, operator, & left, &right, loc);
    Value joined = sequences(b, operator, & left, &right, loc);
    if (joined.kind != VALUE_ABSENT) return joined;
  }
  builder_fail(b, loc, "'%s' does not apply to %s and %s", operator,
               value_describe(b->arena, &left), value_describe(b->arena, &right));
  return value_error();
}

Value arith_unary(Builder *b, const char *operator, Value operand, Loc loc) {
  if (operand.kind == VALUE_ERROR) return operand;
  if (strcmp(operator, "not") == 0) {
    if (operand.kind == VALUE_BOOL) return value_bool(!operand.i);
    if (operand.kind == VALUE_TENSOR) {
      if (operand.node->type.dtype == DT_BOOL)
        return value_tensor(tensor_unary(b, OP_NOT, operand.node, loc));
    }
  } else if (value_is_number(&operand)) {
    if (operator[0] == '+') return operand;
    if (operand.kind == VALUE_FLOAT) return value_float(-operand.f);
    return integers(b, "-", 0, operand.i, loc);
  } else if (operand.kind == VALUE_TENSOR) {
    if (operator[0] == '+') return operand;
    Written before = builder_write(b, operator, true);
    Node *negated = tensor_unary(b, OP_NEG, operand.node, loc);
    b->written = before;
    return value_tensor(negated);
  }
  builder_fail(b, loc, "'%s' does not apply to %s", operator, value_describe(b->arena, &operand));
  return value_error();
}
