/* ir_infer: what the shape rules refuse, and in which words: a user of the language reads them.
 * What they accept is in ir_text (every op) and ir_interp. */
#include "ir_help.h"

#define A "%a = input {name=\"a\"} : "
#define B " %b = input {name=\"b\"} : "

/* Node lines whose last node is illegal, and a part of the reason. */
static const char *const wrong[][2] = {
    {A "f32[2]" B "f32[3] %r = add %a, %b : f32[2]", "the shapes of add disagree: [2] and [3]"},
    {A "f32[2]" B "i32[2] %r = add %a, %b : f32[2]",
     "add cannot mix f32 and i32: convert one of them, for example with f32(x)"},
    {A "i32[2]" B "f32[2] %r = mul %a, %b : f32[2]", "for example with f32(x)"},
    {A "bool[2] %r = neg %a : bool[2]", "neg does not apply to bool"},
    {A "i32[2] %r = exp %a : i32[2]", "exp is for floating-point tensors, not for i32"},
    {A "i32[2]" B "i32[2] %r = pow %a, %b : i32[2]", "pow is for floating-point tensors"},
    {A "i32[2] %r = isfinite %a : bool[2]", "isfinite is for floating-point tensors"},
    {A "f32[2] %r = not %a : f32[2]", "not is for bool and integer tensors, not for f32"},
    {A "f32[2]" B "f32[2] %r = rem %a, %b : f32[2]", "a remainder is for integer tensors"},
    {A "f32[2] %r = add %a : f32[2]", "add takes 2 inputs, not 1"},
    {A "f32[2] %r = neg %a, %a : f32[2]", "neg takes 1 input, not 2"},
    {"%r = concat {axis=0} : f32[2]", "concat takes at least 1 input, not 0"},
    {A "f32[2] %r = select %a, %a, %a : f32[2]", "the condition of a selection must be bool"},
    {A "bool[2]" B "f32[2] %r = select %a, %b, %a : f32[2]",
     "the two branches of a selection differ"},
    {A "bool[3]" B "f32[2] %r = select %a, %b, %b : f32[2]",
     "the shapes of a selection disagree: condition [3], branches [2] and [2]"},
    {A "f32[2] %r = sum %a : f32[1]", "sum needs the attribute 'axes'"},
    {A "f32[2] %r = sum %a {axes=[1]} : f32[1]",
     "sum over axis 1 of a tensor with 1 dimensions, [2]"},
    {A "f32[2,2] %r = sum %a {axes=[1,0]} : f32[1,1]", "must be different and in ascending order"},
    {A "bool[2] %r = sum %a {axes=[0]} : bool[1]", "sum does not apply to bool"},
    {A "f32[2,2] %r = argmax %a {axes=[0,1]} : i32[1,1]", "argmax works along one axis, not 2"},
    {A "f32[2,0] %r = argmax %a {axes=[1]} : i32[2,1]", "[2,0] has no element to choose"},
    {A "f32[64,784]" B "f32[100,10] %r = dot %a, %b : f32[64,10]",
     "the inner dimensions of a matrix product disagree: [64,784] and [100,10]"},
    {A "f32[64,784]" B "f32[784,10] %r = dot %a, %b {tb=true} : f32[64,10]",
     "disagree: [64,784] and [784,10] transposed"},
    {A "f32[2,3,4]" B "f32[3,4,5] %r = dot %a, %b : f32[2,3,5]",
     "the batch dimensions of a matrix product disagree"},
    {A "f32[3]" B "f32[3] %r = dot %a, %b : f32[]", "the same number of dimensions, at least 2"},
    {A "i32[2,2] %r = dot %a, %a : i32[2,2]", "needs two floating-point tensors of one type"},
    {A "f32[2,3] %r = reshape %a : f32[7]",
     "a tensor of 6 elements, [2,3], cannot be reshaped to 7 elements, [7]"},
    {A "f32[2,3] %r = transpose %a {perm=[0,0]} : f32[2,2]", "name each of the 2 dimensions once"},
    {A "f32[2,3] %r = transpose %a {perm=[0]} : f32[2]", "'perm' of transpose must have 2 numbers"},
    {A "f32[2,3] %r = broadcast %a : f32[2,6]", "[2,3] cannot be broadcast to [2,6]"},
    {A "f32[3] %r = broadcast %a : f32[2,3]", "[3] cannot be broadcast to [2,3]"},
    {A "f32[4] %r = slice %a {start=[2]} : f32[3]", "a slice of 3 elements from 2 in steps of 1"},
    {A "f32[4] %r = slice %a {start=[0], step=[2]} : f32[3]",
     "in steps of 2 leaves dimension 0 of [4]"},
    {A "f32[4] %r = slice %a {start=[1], step=[9223372036854775807]} : f32[2]",
     "leaves dimension 0"},
    {A "f32[4] %r = slice %a {start=[0], step=[0]} : f32[1]", "must be at least 1"},
    {A "f32[4] %r = slice %a {start=[-1]} : f32[1]", "from -1"},
    {A "f32[4] %r = slice %a {start=[5]} : f32[0]", "from 5"},
    {A "f32[4] %r = slice %a {start=[0,0]} : f32[1,1]", "a slice keeps the number of dimensions"},
    {A "f32[4] %r = pad %a {low=[-1], high=[0]} : f32[3]", "must be between 0 and 2^40"},
    {A "f32[4] %r = pad %a {low=[1099511627776], high=[1]} : f32[1]", "more than 2^40 elements"},
    {A "u8[4] %r = pad %a {low=[1], high=[1], value=0.5} : u8[6]", "0.5 does not exist in u8"},
    {A "f32[2,3]" B "f32[2,4] %r = concat %a, %b {axis=0} : f32[4,3]",
     "concatenated along axis 0 must agree in everything else: f32[2,3] and f32[2,4]"},
    {A "f32[2] %r = concat %a {axis=1} : f32[2]", "along axis 1 of tensors with 1 dimensions"},
    {A "f32[2]" B "f32[2] %r = gather %a, %b : f32[2]", "must be i32 or i64, not f32"},
    {A "f32[]" B "i32[2] %r = gather %a, %b : f32[2]", "a table with at least one dimension"},
    {A "f32[1,1,1,1,1]" B "i32[1,1,1,1,1] %r = gather %a, %b : f32[]", "more than 8 dimensions"},
    {A "f32[2,5]" B "i32[2] %r = scatter_add %a, %b : f32[3,4]",
     "needs updates of shape [2,4], not [2,5]"},
    {A "f32[2,5]" B "i32[] %r = put %a, %a, %b : f32[2,5]", "put needs the attribute 'axis'"},
    {A "f32[2,5]" B "i32[] %r = put %a, %a, %b {axis=2} : f32[2,5]",
     "put along axis 2 of a tensor with 2 dimensions"},
    {A "f32[2,5]" B "f32[2,4] %i = const {value=0} : i32[] %r = put %a, %b, %i {axis=0} : f32[2,5]",
     "tensors that agree in everything else: f32[2,5] and f32[2,4]"},
    {A "f32[2]" B "i32[1] %r = put %a, %a, %b {axis=0} : f32[2]",
     "the place of put must be i32[] or i64[], not i32[1]"},
    {A "f32[1,3,8,8]" B "f32[4,2,3,3] %r = conv %a, %b : f32[1,4,6,6]",
     "the channels of a convolution disagree: the image [1,3,8,8] has 3"},
    {A "f32[1,3,8,8]" B "f32[4,1,3,3] %r = conv %a, %b {groups=3} : f32[1,4,6,6]",
     "the groups of a convolution, 3, must divide its 3 input and 4 output channels"},
    {A "f32[1,3,2,8]" B "f32[4,3,3,3] %r = conv %a, %b : f32[1,4,6,6]",
     "the kernel of a convolution, 3x3, does not fit the image [1,3,2,8]"},
    {A "f32[3,8,8]" B "f32[4,3,3,3] %r = conv %a, %b : f32[4,6,6]", "with 4 dimensions"},
    {A "f32[1,3,8,8]" B "f32[4,3,3,3] %r = conv %a, %b {stride=[0,1]} : f32[1,4,6,6]",
     "the stride of conv must be between 1 and 1048576, not 0"},
    {A "f32[1,3,8,8]" B "f32[4,3,3,3] %r = conv %a, %b {layout=\"hwcn\"} : f32[1,4,6,6]",
     "must be \"nchw\" or \"nhwc\""},
    {A "f32[1,3,8,8]" B "f32[4,3,3,3] %r = conv %a, %b {padding=[1,1]} : f32[1,4,6,6]",
     "'padding' of conv must have 4 numbers, not 2"},
    {A "f32[1,1,4,4]" B "f32[1,1,3,3] %r = conv_grad_input %a, %b : f32[1,1,4,4]",
     "conv_grad_input needs a gradient of type f32[1,1,2,2], not f32[1,1,4,4]"},
    {A "f32[1,1,4,4] %r = pool_max %a : f32[1,1,4,4]", "pool_max needs the attribute 'kernel'"},
    {A "f32[1,1,4,4] %r = pool_max %a {kernel=[2,2], padding=[2,0,0,0]} : f32[1,1,4,4]",
     "the padding of a pooling, 2, must be smaller than its window, 2"},
    {A "f32[1,1,4,4] %r = pool_avg %a {kernel=[5,1]} : f32[1,1,4,4]",
     "the window of a pooling, 5x1, does not fit the image [1,1,4,4]"},
    {A "f32[1,1,40,40] %r = pool_index %a {kernel=[17,16]} : u8[1,1,2,2]",
     "may have at most 256 elements, not 17x16"},
    {A "f32[]" B "i64[] %r = random %a, %b {stream=0} : f32[2]", "the seed of a random tensor"},
    {A "i64[] %r = random %a, %a {stream=0} : f64[2]", "random numbers are f32, not f64"},
    {A "i64[] %r = random %a, %a {stream=-1} : f32[2]", "must fit 32 bits"},
    {"%r = iota {axis=0} : f32[2]", "iota counts in i32 or i64, not in f32"},
    {"%r = iota {axis=1} : i32[2]", "iota along axis 1 of i32[2]"},
    {"%r = const {value=0.5} : i32[]", "the constant 0.5 does not exist in i32"},
    {"%r = const {value=nan} : bool[]", "does not exist in bool"},
    {"%r = state {name=\"n\", init=\"const\", init_args=[0.5]} : i32[]", "the constant 0.5 does not exist in i32"},
    {"%r = state {name=\"n\", init=\"const\", init_args=[inf]} : u8[2]", "the constant inf does not exist in u8"},
    {"%r = param {name=\"w\"} : i32[2]", "a parameter must be floating-point, not i32"},
    {"%r = setting {name=\"train.lr\"} : f32[]", "a setting is f64[], not f32[]"},
    {A "f32[2]" B "f32[2] %r = pack %a, %b {offsets=[0,1]} : f32[4]",
     "overlap or are out of order"},
    {A "f32[2] %r = pack %a {offsets=[3]} : f32[4]", "operand 0 of pack leaves f32[4]"},
    {A "f32[2] %r = pack %a {offsets=[0]} : f64[4]", "pack of f32[2] to f64[4]"},
    {A "f32[2] %r = all_gather %a {ranks=0} : f32[2]",
     "all_gather of 0 ranks; there may be 1 to 1048576"},
    {A "f32[2] %r = all_gather %a : f32[2]", "all_gather needs the attribute 'ranks'"},
    {A "f32[2] %r = all_gather %a {ranks=2, over=\"rows\"} : f32[4]",
     "all_gather over 'rows', which is none of data, pipeline, tensor and all"},
    {A "u8[5] %r = all_to_all %a {ranks=2} : u8[5]",
     "the first dimension of u8[5] has no 2 equal parts"},
    {A "f32[] %r = transfer %a {from=2, to=2} : f32[]", "transfer from rank 2 to itself"},
    {A "f32[] %r = transfer %a {from=0} : f32[]", "transfer needs the attribute 'to'"},
    {A "f32[] %r = transfer %a {from=0, to=1048576} : f32[]", "'to' of transfer is rank 1048576"},
    {A "f32[] %r = broadcast_from %a {root=-1} : f32[]",
     "'root' of broadcast_from is rank -1; there may be 0 to 1048575"},
    {A "f32[] %r = all_gather %a {ranks=2} : f32[2]",
     "all_gather goes along the first dimension, and f32[] has none"},
    {A "u8[1048576,1048576] %r = all_gather %a {ranks=1048576} : u8[2]",
     "would have more than 2^40 elements"},
    {A "f32[5,2] %r = reduce_scatter %a {reduction=\"sum\", ranks=2} : f32[2,2]",
     "the first dimension of f32[5,2] has no 2 equal parts"},
    {A "f32[4] %r = reduce_scatter %a {reduction=\"mean\", ranks=2} : f32[2]",
     "reduce_scatter by 'mean', which is none of sum, prod, rmax and rmin"},
    {A "bool[4] %r = reduce_scatter %a {reduction=\"sum\", ranks=2} : bool[2]",
     "reduce_scatter of numbers, not of bool[4]"},
    {A "f32[2] %r = result %a {index=0} : f32[2]",
     "result projects a fused node, attention or all_reduce, not input"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %k = input {name=\"k\"} : f32[2,3,6,5] "
     "%r = attention %q, %k, %k {scale=1} : f32[2,4,3,5]",
     "4 heads of q cannot share 3 heads of k and v"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %k = input {name=\"k\"} : f32[2,2,6,4] "
     "%r = attention %q, %k, %k {scale=1} : f32[2,4,3,5]",
     "q and k of attention have 5 and 4 features"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %k = input {name=\"k\"} : f32[1,2,6,5] "
     "%r = attention %q, %k, %k {scale=1} : f32[2,4,3,5]",
     "the shapes of attention disagree: q [2,4,3,5], k [1,2,6,5], v [1,2,6,5]"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %r = attention %q, %q, %q : f32[2,4,3,5]",
     "attention needs the attribute 'scale'"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %r = attention %q, %q, %q {scale=1, softcap=0} : "
     "f32[2,4,3,5]",
     "'softcap' of attention is 0, not a number above 0"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %r = attention %q, %q, %q {scale=1, dropout=0.1} : f32[2,4,3,5]",
     "attention cannot have 3 operands"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %r = attention %q, %q, %q, %q {scale=1, dropout=0.1} : f32[2,4,3,5]",
     "operand 3 of attention must be f32[2,4,3,3], not f32[2,4,3,5]"},
    {"%q = input {name=\"q\"} : f32[2,4,3,3] %r = attention %q, %q, %q, %q {scale=1, dropout=1} : f32[2,4,3,3]",
     "'dropout' of attention is 1, not between 0 and 1"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %s = input {name=\"s\"} : i64[] "
     "%r = attention %q, %q, %q, %s, %s, %s {scale=1, dropout=0.1} : f32[2,4,3,5]",
     "attention cannot have 6 operands"},
    {"%q = input {name=\"q\"} : f32[2,4,3,5] %s = input {name=\"s\"} : i64[] "
     "%r = attention %q, %q, %q, %s, %s, %s, %s {scale=1, dropout=0.1} : f32[2,4,3,5]",
     "operand 5 of attention must be i64[2,4,1,1], not i64[]"},
    {"%q = input {name=\"q\"} : f32[4,3,5] %r = attention %q, %q, %q {scale=1} : f32[4,3,5]",
     "attention needs q, k and v of four dimensions"},
    {"%q = input {name=\"q\"} : i32[1,4,3,5] %r = attention %q, %q, %q {scale=1} : i32[1,4,3,5]",
     "attention needs floating-point q, k and v"},
    {"%q = input {name=\"q\"} : f32[1,4,3,5] %m = input {name=\"m\"} : bool[1,4,3,1] "
     "%r = attention %q, %q, %q, %m {scale=1} : f32[1,4,3,5]",
     "the mask of attention, [1,4,3,1], does not fit scores [1,4,3,3]"},
    {"%q = input {name=\"q\"} : f32[1,4,3,5] %m = input {name=\"m\"} : i32[1,4,3,3] "
     "%r = attention %q, %q, %q, %m {scale=1} : f32[1,4,3,5]",
     "the mask of attention must be bool or f32, not i32"},
    {"%q = input {name=\"q\"} : f32[2,3,20] %r = attention %q, %q, %q {scale=1, heads=[2,2,5], "
     "start=[0,5,11]} : f32[2,3,10]",
     "the heads of attention are not in its operand 2, f32[2,3,20]"},
    {"%q = input {name=\"q\"} : f32[2,3,30] %r = attention %q, %q, %q {scale=1, heads=[3,2,5], "
     "start=[0,5,11]} : f32[2,3,15]",
     "3 heads of q cannot share 2 heads of k and v"},
    {"%q = input {name=\"q\"} : f32[2,3,30] %r = attention %q, %q, %q {scale=1, heads=[2,2,5]} : "
     "f32[2,3,10]",
     "attention needs the attribute 'start'"},
    {"%q = input {name=\"q\"} : f32[1,4,3,5] %r = attention %q, %q, %q {scale=1, joined=true} : "
     "f32[1,4,3,5]",
     "'start' and 'joined' of attention need the attribute 'heads'"},
    {"%q = input {name=\"q\"} : f32[1,4,3,5] %a = attention %q, %q, %q {scale=1} : f32[1,4,3,5] "
     "%r = result %a {index=2} : f32[1,4,3,5]",
     "result 2 of attention with 2 results"},
    {"%f = fused {kind=\"loop\"} body { %c = const {value=1} : f32[] result %c } : f32[]"
     "%r = result %f {index=1} : f32[]",
     "result 1 of a fused node with 1 results"},
    {"%f = fused {kind=\"loop\"} body { %c = const {value=1} : f32[] result %c } : f32[]"
     "%r = result %f {index=0} : f32[2]",
     "result 0 is f32[], not f32[2]"},
    {A "f32[2] %r = assign %a : f32[2]", "assign needs the attribute 'target'"},
};

static void refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Arena *arena = arena_new();
    char *message;
    if (help_try(arena, arena_printf(arena, "graph {\n%s\n}", wrong[i][0]), &message))
      fail_msg("accepted: %s", wrong[i][0]);
    if (!strstr(message, wrong[i][1]))
      fail_msg("%s\ngives: %s\nnot: %s", wrong[i][0], message, wrong[i][1]);
    free(message);
    arena_free(arena);
  }
}

/* The largest that is allowed, where a limit is off by one most easily. */
static void accepted(void **state) {
  (void)state;
  static const char *const right[] = {
      A "f32[1,1,1,1,1]" B "i32[1,1,1,1] %r = gather %a, %b : f32[1,1,1,1,1,1,1,1]",
      A "f32[5] %r = slice %a {start=[0], step=[2]} : f32[3]",
      A "f32[5] %r = slice %a {start=[5]} : f32[0]",
      A "f32[5] %r = slice %a {start=[4], step=[9223372036854775807]} : f32[1]",
      A "f32[0] %r = pad %a {low=[1099511627776], high=[0]} : f32[1099511627776]",
      A "f32[1,1,40,40] %r = pool_index %a {kernel=[16,16]} : u8[1,1,2,2]",
      A "f32[2]" B "f32[2] %r = pack %a, %b {offsets=[0,2]} : f32[4]",
      "%r = const {value=-2147483648} : i32[]",
      "%r = const {value=1} : f32[1048576,1048576,0]",
  };
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    Arena *arena = arena_new();
    help_graph(arena, right[i]);
    arena_free(arena);
  }
}

/* Defaults are spelled out or left out, so that equal nodes look equal to cse. */
static void one_spelling(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *graph = help_graph(arena, A "f32[1,1,4,4]" B "f32[1,1,3,3]"
                                     "%c = conv %a, %b : f32[1,1,2,2]"
                                     "%p = pool_max %a {kernel=[2,2]} : f32[1,1,2,2]"
                                     "%d = dot %a, %a {ta=false, tb=false} : f32[1,1,4,4]");
  const Node *conv = graph->nodes.at[2], *pool = graph->nodes.at[3], *dot = graph->nodes.at[4];
  assert_int_equal(node_attr(conv, ATTR_STRIDE)->ints[1], 1);
  assert_int_equal(node_attr(conv, ATTR_PADDING)->count, 4);
  assert_int_equal(node_int(conv, ATTR_GROUPS, 0), 1);
  assert_string_equal(node_str(conv, ATTR_LAYOUT), "nchw");
  assert_int_equal(node_attr(pool, ATTR_STRIDE)->ints[0], 2); /* a pooling's stride is its window */
  assert_int_equal(dot->attr_count, 0);
  arena_free(arena);
}

static void dtypes_and_shapes(void **state) {
  (void)state;
  for (int i = 0; i < DT_COUNT; i++) {
    DType back;
    assert_true(dtype_parse(dtype_text((DType)i), &back));
    assert_int_equal(back, i);
    assert_true(dtype_bytes((DType)i) >= 1);
  }
  DType none;
  assert_false(dtype_parse("float", &none));
  Shape a = shape_of(3, (int64_t[]){5, 1, 3}), b = shape_of(2, (int64_t[]){4, 1}), out;
  assert_true(shape_broadcast(&a, &b, &out));
  assert_true(shape_equal(&out, &(Shape){3, {5, 4, 3}}));
  Shape c = shape_of(1, (int64_t[]){2});
  assert_false(shape_broadcast(&a, &c, &out));
  Shape empty = shape_of(2, (int64_t[]){0, 1});
  assert_true(shape_broadcast(&empty, &b, &out) == false);
  assert_int_equal(shape_elements(&empty), 0);
  Shape scalar = shape_scalar();
  assert_int_equal(shape_elements(&scalar), 1);
  int64_t stride[MAX_RANK];
  shape_strides(&a, stride);
  assert_int_equal(stride[0], 3);
  assert_int_equal(stride[2], 1);
  char text[TYPE_TEXT];
  Type type = {DT_BF16, a};
  assert_string_equal(type_text(&type, text), "bf16[5,1,3]");
  assert_int_equal(type_bytes(&type), 30);
  Shape large = shape_of(2, (int64_t[]){MAX_ELEMENTS, 2});
  assert_false(shape_is_legal(&large));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(accepted),
                                     cmocka_unit_test(one_spelling),
                                     cmocka_unit_test(dtypes_and_shapes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
