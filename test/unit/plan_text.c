/* plan_text: plans print, parse and print again to the same bytes; what is wrong is refused with
 * the line that is wrong. */
#include "plan_sample.h"

static void test_round_trip(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text first = {0}, second = {0};
  const char *why = NULL;
  plan_print(sample(arena), &first);
  Plan *again = plan_parse(arena, first.at, first.count, &why);
  if (!again) fail_msg("%s\n%s", why, first.at);
  plan_print(again, &second);
  assert_string_equal(first.at, second.at);
  assert_string_equal(again->source, "examples/my model\n.ft");
  assert_string_equal(again->graphs.at[0].steps.at[0].label, "fc1: dot + \"bias\" \\ \xc3\xa9");
  assert_string_equal(again->graphs.at[0].steps.at[0].layer, "fc1");
  assert_int_equal(again->graphs.at[0].steps.at[0].phase, PHASE_BACKWARD);
  assert_int_equal(again->graphs.at[0].steps.at[0].work_kind, WORK_PRODUCT);
  assert_true(again->settings[setting_find("train.lr")].is_set);
  assert_false(again->settings[setting_find("train.eps")].is_set);
  assert_true(again->settings[setting_find("train.eps")].number == 1e-7);
  assert_true(again->inputs.at[0].is_needed_for_predict &&
              !again->inputs.at[1].is_needed_for_predict);
  assert_true(again->inputs.at[0].below == 0 && again->inputs.at[1].below == 10);
  assert_true(again->inputs.at[1].has_ignore && again->inputs.at[1].ignore == -100);
  assert_true(again->states.at[1].is_saved);
  const Storage *storage = &again->params.at[0].storage;
  assert_true(storage->view.rank == 3 && storage->view.dim[2] == 2 && storage->perm[1] == 2);
  assert_int_equal(again->params.at[1].storage.view.rank, 0);
  assert_int_equal(again->graphs.at[1].insteads.count, 1);
  assert_int_equal(again->graphs.at[1].insteads.at[0].end, 1);
  assert_int_equal(again->graphs.at[1].insteads.at[0].call_count, 2);
  assert_string_equal(again->graphs.at[1].insteads.at[0].call[1].name, "matmul");
  text_free(&first);
  text_free(&second);
  arena_free(arena);
}

static void test_ptx_head(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text head = {0}, plain = {0};
  plan_print(sample(arena), &plain);
  plan_to_ptx(sample(arena), &head);
  text_printf(&head, ".version 7.0\n.target sm_80\n// an ordinary comment\n");
  char *found = plan_from_ptx(arena, head.at, head.count);
  assert_non_null(found);
  assert_string_equal(found, plain.at);
  assert_null(plan_from_ptx(arena, ".version 7.0\n", 13));
  assert_null(plan_from_ptx(arena, "", 0));
  text_free(&head);
  text_free(&plain);
  arena_free(arena);
}

/* The same sample for a GPU, its first launch with a map of a parameter. */
static Plan *mapped(Arena *arena) {
  Plan *plan = sample(arena);
  plan->target = "ptx";
  plan->target_cpu = "sm_90a";
  for (int g = 0; g < plan->graphs.count; g++) {
    PlanStep *step = &plan->graphs.at[g].steps.at[0];
    for (int k = 0; k < plan->graphs.at[g].steps.count; k++) {
      PlanStep *launch = &plan->graphs.at[g].steps.at[k];
      for (int i = 0; i < 3 && launch->kind == STEP_LAUNCH; i++)
        launch->grid[i] = launch->block[i] = 1;
      launch->is_early = k > 0 && launch->kind == STEP_LAUNCH;
    }
    step->grid[0] = 6;
    step->stays = step->cluster = 2;
    int64_t *parts = ARENA_ARRAY(arena, int64_t, 2);
    parts[0] = 2, parts[1] = 4;
    step->parts = parts, step->part_count = 2;
    step->args = ARENA_ARRAY(arena, int, 3);
    memcpy((int *)(uintptr_t)step->args, (int[]){0, 2, 1}, 3 * sizeof(int));
    step->arg_count = 3, step->input_count = 2;
    PlanMap *maps = ARENA_ARRAY(arena, PlanMap, 2);
    maps[0] = (PlanMap){.arg = 1,
                        .dtype = DT_F32,
                        .rank = 2,
                        .dim = {8, 4},
                        .stride = {4, 32},
                        .box = {8, 4},
                        .swizzle = 32};
    maps[1] = (PlanMap){
        .arg = 2, .offset = 64, .dtype = DT_U8, .rank = 1, .dim = {60}, .stride = {1}, .box = {16}};
    step->maps = maps, step->map_count = 2;
    plan_order_find(arena, &plan->graphs.at[g]);
  }
  return plan;
}

static const char *const refusals[][3] = {
    {"ft-plan 8", "ft-plan 1", "version 1"},
    {" after=0 ", " ", "step 1 does not wait for step 0"},
    {" after=0 ", " after=1 ", "must lie in 0..0"},
    {" after=0 ", " after=0,0 ", "waits for one that is not before it"},
    {" after=0 ", " after= ", "a step's number"},
    {"ft-plan 8", "gt-plan 6", "not a plan"},
    {"target cpu", "target tpu", "'tpu'"},
    {"option \"limit\" 1000000001", "option \"limit\" 0", "limit=0: it must be a positive integer"},
    {"option \"limit\" 1000000001", "option \"limit\" 1e300", "must be a positive integer"},
    {"option \"limit\" 1000000001", "option \"limit\" \"7\"", "must be a positive integer"},
    {"by \"label\"", "by \"label", "lacks its closing quote"},
    {"option \"limit\" 1000000001", "option \"limit\" nan", "the option's value"},
    {"option \"limit\" 1000000001", "option \"limit\"", "the option's value"},
    {"option \"limit\" 1000000001", "option \"dtype\" \"u16\"", "dtype is given twice"},
    {"option \"limit\" 1000000001", "option \"limt\" 1", "tokens has no option 'limt'"},
    {"share 0.125", "share 0", "a share is more than 0 and less than 1"},
    {"share 0.125", "share 1", "a share is more than 0 and less than 1"},
    {"share 0.125", "share nan", "the share"},
    {"share 0.125", "part", "expected 'fold'"},
    {"of \"whole\"", "of", "a split"},
    {"of \"whole\"", "of \"who\\x1ble\"", "a split"},
    {"by \"label\"", "by 3", "an input"},
    {"then resize size 256", "then resiz size 256", "there is no transform 'resiz'"},
    {"then resize size 256", "then resize size 0", "size takes a whole number or (height, width)"},
    {"then resize size 256", "then resize size 256.5", "size takes a whole number or (height"},
    {"then resize size 256", "then resize size 1e300", "size takes a whole number or (height"},
    {"then resize size 256", "then resize size 1, 2, 3", "size takes a whole number or (height"},
    {"then resize size 256", "then resize size 1, 2, 3, 4, 5, 6, 7, 8, 9", "more than 8 numbers for size"},
    {"then resize size 256", "then resize size", "size"},
    {"then resize size 256", "then resize filter", "expected 'size'"},
    {"filter bicubic", "filter lanczos9", "one of these words: nearest bilinear bicubic"},
    {"filter bicubic", "filter", "filter takes one of these words"},
    {"scale 0.08, 1", "scale 1, 0.08", "scale takes (low, high)"},
    {"scale 0.08, 1", "scale 0.08", "scale takes (low, high)"},
    {"then pack length 16", "then hflip p 0.5 then pack length 16",
     "there is no transform 'hflip' for tokens"},
    {"then pack length 16 cut 1", "then pack length 16 cut 2", "cut takes true or false"},
    {"random 0.125", "random 0.5", "replace and random are shares of the same tokens"},
    {"vocabulary 50258", "vocabulary 0", "vocabulary takes a whole number from 1"},
    {"then resize", "then shift by 1 then resize", "there is no transform 'shift' for folder"},
    {"hflip p 0.5", "hflip p 1.5", "p takes a number from 0 to 1"},
    {"hflip p 0.5", "hflip p nan", "p"},
    {"mean 0.485, 0.456, 0.406", "mean 0.485, 0.456", "mean takes a number for all channels"},
    {"std 0.25", "std 0", "std takes a number for all channels"},
    {"std 0.25", "std 0.25 then hflip p 0.5", "hflip stands behind normalize"},
    {"then hflip p 0.5", "then hflip", "expected 'p'"},
    {"option \"dtype\" \"u32\"", "option \"dtype\" \"u64\"", "it must be u16 or u32"},
    {"setting train.lr", "setting train.lx", "no setting 'train.lx'"},
    {"setting train.batch 4", "setting train.batch 0", "less than 1"},
    {"setting train.batch 4", "setting train.batch 4.5", "whole number"},
    {"setting train.batch 4 given", "setting train.lr 1", "two of setting"},
    {"place work 4096", "place work 64", "lies outside of work"},
    {"place work 4096", "place work 9223372036854775807", "must lie in"},
    {"place work 4096", "place wurk 4096", "no place 'work'"},
    {"place work 4096 for batch\n", "", "no place 'work' before this"},
    {"place state", "place params", "second line for place params"},
    {"\"fc1.bias\" f32[4] at params+128", "\"fc1.bias\" f32[4] at params+64", "overlaps"},
    {"\"fc1.bias\" f32[4] at params+128", "\"fc1.bias\" f32[4] at params+132", "multiple of 64"},
    {"\"fc1.bias\" f32[4] at params+128", "\"fc1.weight\" f32[4] at params+128", "two of param"},
    {"\"fc1.bias\" f32[4]", "\"fc1.bias\" bf16[4]", "bf16 in place params, whose elements are f32"},
    {"\"fc1.bias\" f32[4]", "\"\" f32[4]", "no name of letters"},
    {"\"fc1.bias\" f32[4]", "\"$(id)\" f32[4]", "no name of letters"},
    {"\"fc1.bias\" f32[4]", "\"-rf\" f32[4]", "no name of letters"},
    {"\"fc1.bias\" f32[4]", "\"fc1;bias\" f32[4]", "no name of letters"},
    {"\"fc1.bias\" f32[4]", "\"../bias\" f32[4]", "no name of letters"},
    {"input \"image\"", "input \"im`age\"", "no name of letters"},
    {"loss \"loss\"", "loss \"l\\x1b[2J\"", "no name of letters"},
    {"loss \"loss\"", "loss \"lo,ss\"", "no name of letters"},
    {"loss \"loss\"", "loss \"lo@ss\"", "no name of letters"},
    {"loss \"loss\"", "metric \"loss\"", "graph \"train\" has 0 losses"},
    {"  loss \"loss\" f32[] at output+0\n", "", "graph \"train\" has 0 losses"},
    {"loss \"loss\" f32[] at", "loss \"loss\" f64[] at", "writes its loss \"loss\" as f64[]"},
    {"loss \"loss\" f32[] at", "loss \"loss\" i32[] at", "not one number"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at output+4", "writes its loss"},
    {"state \"@step\" i64[] at state+0 init zeros() role step\n", "", "no state has the role step"},
    {"(6) -> (6)", "(6) -> (5)", "which does not write the state \"@step\""},
    {" below 10 ignore -100", "", "expected 'any'"},
    {" below 10 ignore -100", " any part [9999] step [1] count [1] below 3", "no box"},
    {" below 10 ignore -100", " any part [0] step [9999] count [2] below 3", "no box"},
    {" below 10 ignore -100", " any part [0] step [0] count [1] below 3", "no box"},
    {" below 10 ignore -100", " any part [0,0] step [1,1] count [1,1] below 3", "no box"},
    {"predict any", "predict", "expected 'any'"},
    {"model \"Mlp\"", "model \"M l p\"", "no name of letters"},
    {"f32[4,8] at params+0 init", "f32[4294967296,4294967296] at params+0 init", "too large"},
    {"f32[4,8] at params+0 init", "f32[-4,8] at params+0 init", "must lie in"},
    {"f32[4,8] at params+0 init", "f32[1,1,1,1,1,1,1,4,8] at params+0 init", "dimensions"},
    {"f32[4,8] at params+0 init", "f31[4,8] at params+0 init", "expected a type"},
    {"uniform(-0.1, 0.1)", "uniform(-0.1)", "takes 2"},
    {"uniform(-0.1, 0.1)", "uniform(-0.1, 1e999)", "not finite"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,2] perm [0,2,2]", "no order of the elements"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,2] perm [0,1]", "no order of the elements"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,2] perm [0,1,3]", "no order of the elements"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,3] perm [0,2,1]", "no order of the elements"},
    {"view [4,4,2] perm [0,2,1]", "view [] perm []", "no order of the elements"},
    {"view [4,4,2] perm [0,2,1]", "view [8589934592,8589934592] perm [0,1]", "no order"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,2,1,1,1,1,1,1] perm [0]", "more than 8"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,2", "expected ',' or ']'"},
    {"view [4,4,2] perm [0,2,1]", "view [4,4,2]", "expected 'perm'"},
    {"below 10", "view [4] perm [0] below 10", "expected 'any'"},
    {"below 10", "below 0", "the bound"},
    {"at input+0 predict any", "at input+0 predict any ignore 3", "ignore"},
    {"uniform(-0.1, 0.1)", "wild(-0.1, 0.1)", "no initialiser 'wild'"},
    {"\"@step\" i64[]", "\"@step\" i32[]", "must be i64[]"},
    {" role step", "", "no state has the role step"},
    {" role step", " role stop", "there is no role 'stop'"},
    {" role step", " role none", "there is no role 'none'"},
    {" role step", " role", "expected a role"},
    {" role step", " role params", "has not the role 'params'"},
    {" role step", " role gradient_sum", "has not the role 'gradient_sum'"},
    {" role step", " role cache", "has not the role 'cache'"},
    {" role step", " role moment", "a state of role moment has the order"},
    {" role step", " role pass", "the state \"@step\" must be f64[]"},
    {" role step", " role step saved", "is not the model's"},
    {" role step", " role given", "is given by no file"},
    {" role step", " role step file \"f\" \"t\"", "has a file but is not given"},
    {" role step", " role given file \"f\" \"t\"", "what is given lies in a frozen place"},
    {"init const(least)", "init const(0.5) role step", "there are two of the role \"step\""},
    {"scalar \"train.lr\" f64[]", "scalar \"train.lr\" f32[]", "is f64[]"},
    {"scalar \"train.lr\"", "scalar \"train.ls\"", "no numeric setting"},
    {"graph \"train\"", "graph \"test\"", "no graph \"train\" before this"},
    {"graph \"eval\"", "graph \"train\"", "two of graph \"train\""},
    {"buffer 1", "buffer 2", "must lie in 1..1"},
    {"work+128", "work+130", "multiple of 64"},
    {"work+128", "work+4096", "outside of place work"},
    {"work+128", "work+9223372036854775744", "outside of place work"},
    {"(0) -> (1)", "(13) -> (1)", "must lie in 0..12"},
    {"(0) -> (1)", "(0) -> (-1)", "must lie in 0..12"},
    {"(0) -> (1)", "(1) -> (0)", "writes to place input"},
    {"\"k0\"", "\"k 0\"", "identifier"},
    {"\"k0\"", "\"0k\"", "identifier"},
    {"\"gemm\"", "\"gemn\"", "no library call"},
    {" m=4", " m=5", "smaller than its attributes"},
    {" m=4", " m=-1", "out of range"},
    {" m=4", " m=2147483647", "smaller than its attributes"},
    {" k=8", " l=8", "expected 'k'"},
    {"bias=1", "bias=0", "needs 2 inputs"},
    {"instead 0 1", "instead 1 2", "step 1 is no launch"},
    {"instead 0 1", "instead 0 0", "must lie in 1..10"},
    {"instead 0 1", "instead 0 11", "must lie in 1..10"},
    {"instead 0 1", "instead 10 11", "must lie in 0..9"},
    {"instead 0 1 \"matmul\"", "call \"matmul\"", "only in place of launches"},
    {"k=8 ta=0 tb=1 compute=0", "k=9 ta=0 tb=1 compute=0", "too small"},
    {"compute=0", "compute=4", "out of range"},
    {"act=1 aux=0", "act=5 aux=0", "out of range"},
    {"act=1 aux=0", "act=1 aux=1", "needs 3 inputs and 2 output"},
    {"act=1 aux=0", "act=3 aux=0", "do not go together"},
    {"act=1 aux=0 sums=0", "act=1 aux=0 sums=1", "needs 3 inputs and 2 output"},
    {"bias=1 act=1 aux", "bias=0 act=1 aux", "needs 2 inputs"},
    {"grain=8", "grain=0", "must lie in"},
    {"grain=8", "grain=8 early", "only a launch for ptx is early"},
    {"line=12", "line=4294967296", "must lie in"},
    {"layer=\"fc1\"", "layer=fc1", "expected the layer in quotes"},
    {"layer=\"fc1\"", "layer=\"fc1\\x1b[2J\"", "no name of letters"},
    {"phase=backward", "phase=sideways", "there is no phase 'sideways"},
    {"phase=backward", "phase=", "there is no phase"},
    {"kind=product", "kind=quotient", "there is no kind 'quotient"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at output+64",
     "outside of place output"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at output+2", "multiple of 4"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at output+0 0", "unexpected '0'"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at work+0",
     "a scalar does not lie in place work"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at params+0",
     "a scalar does not lie in place params"},
    {"loss \"loss\" f32[] at output+0", "metric \"m\" f32[2,2,2] at work+128",
     "the metric of graph \"train\" is neither a number, a row nor a table"},
    {"loss \"loss\" f32[] at output+0", "auc \"a\" f32[8] at work+128",
     "the auc of graph \"train\" is not f32[n, 1 + classes]"},
    {"  loss \"loss\" f32[] at output+0\n",
     "  loss \"loss\" f32[] at output+0\n  rate \"a\" f32[] at output+0\n"
     "  rate \"b\" f32[] at output+0\n",
     "graph \"train\" has 2 outputs rate"},
    {"loss \"loss\" f32[] at output+0", "rate_of \"r\" f32[] at output+0", "no line of a plan"},
    {"loss \"loss\" f32[] at output+0", "loss \"loss\" f32[] at 0", "there is no place '0'"},
    {"model \"Mlp\"", "model \"Mlp", "closing quote"},
    {"model \"Mlp\"", "model \"M\\q\"", "may not stand"},
    {"model \"Mlp\"", "modle \"Mlp\"", "no line of a plan"},
    {"model \"Mlp\"\n", "", "is missing"},
};

static void test_refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
    expect_refusal(sample, refusals[i][0], refusals[i][1], refusals[i][2]);
}

static void test_maps(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"target ptx", "target cpu", "only a launch for ptx has maps"},
      {"stays=2", "stays=0", "must lie in 1..32"},
      {"cluster=2", "cluster=9", "must lie in 2..8"},
      {"cluster=2", "cluster=4", "a grid of 6 blocks is no multiple of cluster=4"},
      {"parts=2,4", "parts=2,3", "not all of its blocks"},
      {"parts=2,4", "parts=2,4,1", "not all of its blocks"},
      {"parts=2,4", "parts=0,6", "must lie in 1..6"},
      {"parts=2,4", "parts=7", "must lie in 1..6"},
      {"parts=2,4", "parts=1,1,1,1,1,1,1,1,1", "joins at most 8 kernels"},
      {"grid=6,1,1", "grid=6,2,1", "not all of its blocks"},
      {"map 1+0", "map 3+0", "argument 3, and there are 3"},
      {"map 1+0", "map -1+0", "must lie in"},
      {"map 1+0", "map 0+0", "a map of place input"},
      {"map 1+0", "map 1-0", "expected '+'"},
      {"map 1+0", "map 1+8", "multiple of 16 bytes"},
      {"map 1+0", "map 1+16", "outside of its argument"},
      {"map 1+0", "map 1+99999999999999999999", "a whole number"},
      {"map 2+64", "map 2+80", "outside of its argument"},
      {"f32 dims=8,4", "f31 dims=8,4", "no type 'f31'"},
      {"f32 dims=8,4", "f32 dims=8,5", "outside of its argument"},
      {"f32 dims=8,4", "f32 dims=0,4", "must lie in"},
      {"f32 dims=8,4", "f32 dims=8,4294967297", "must lie in"},
      {"f32 dims=8,4", "f32 dims=8", "expected 'box='"},
      {"f32 dims=8,4", "f32 dims=8,4,1,1,1,1", "at most 5 dimensions"},
      {"f32 dims=8,4", "f32 dims=9,4", "does not hold the dimensions before it"},
      {"f32 dims=8,4", "f32", "expected 'dims='"},
      {"strides=32", "strides=24", "no multiple of 16"},
      {"strides=32", "strides=48", "outside of its argument"},
      {"strides=32", "strides=1099511627776", "must lie in"},
      {"dims=8,4 strides=32 box=8,4", "dims=4,1,1 strides=16,24 box=8,1,1", "no multiple of 16"},
      {"dims=8,4 strides=32 box=8,4", "dims=4,1,1 strides=32,48 box=8,1,1", "does not hold"},
      {"dims=8,4 strides=32 box=8,4",
       "dims=8,4294967296,4294967296 strides=32,1099511627760 box=8,1,1", "does not hold"},
      {"box=8,4", "box=8", "expected ','"},
      {"box=8,4", "box=8,257", "must lie in"},
      {"box=8,4", "box=0,4", "must lie in"},
      {"box=8,4", "box=7,4", "no multiple of 16 bytes wide"},
      {"box=8,4", "box=4,4", "not as wide as its swizzle"},
      {"grid=1,1,1", "grid=2147483648,1,1", "must lie in 1..2147483647"},
      {"grid=1,1,1", "grid=1,65536,1", "must lie in 1..65535"},
      {"grid=1,1,1", "grid=1,1,65536", "must lie in 1..65535"},
      {"block=1,1,1", "block=1,1,65", "must lie in 1..64"},
      {"block=1,1,1", "block=512,3,1", "more than 1024 threads"},
      {"block=1,1,1", "block=1,1,1 shared=232449", "must lie in 1..232448"},
      {"swizzle=32", "swizzle=48", "32, 64 or 128"},
      {"swizzle=32", "swizzle=64", "not as wide as its swizzle"},
      {"swizzle=32", "swizzle=256", "must lie in"},
      {"swizzle=32",
       "map 1+0 u8 dims=1 box=16 map 1+0 u8 dims=1 box=16 map 1+0 u8 dims=1 box=16"
       " map 1+0 u8 dims=1 box=16 map 1+0 u8 dims=1 box=16 map 1+0 u8 dims=1 box=16"
       " map 1+0 u8 dims=1 box=16",
       "at most 8 maps"},
  };
  Arena *arena = arena_new();
  Text first = {0}, second = {0};
  const char *why = NULL;
  plan_print(mapped(arena), &first);
  Plan *again = plan_parse(arena, first.at, first.count, &why);
  if (!again) fail_msg("%s\n%s", why, first.at);
  plan_print(again, &second);
  assert_string_equal(first.at, second.at);
  assert_int_equal(again->graphs.at[1].steps.at[0].map_count, 2);
  assert_int_equal(map_parameter(&again->graphs.at[1].steps.at[0], 1), 128 + 128);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(mapped, cases[i][0], cases[i][1], cases[i][2]);
  text_free(&first);
  text_free(&second);
  arena_free(arena);
}

/* Every way to cut the text off, and every byte changed, is refused: the checksum sees to it. */
static void test_damage(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text text = {0};
  plan_print(sample(arena), &text);
  for (size_t i = 0; i < text.count; i++) {
    const char *why = NULL;
    Arena *scratch = arena_new();
    assert_null(plan_parse(scratch, text.at, i, &why));
    assert_non_null(why);
    text.at[i] ^= 1;
    why = NULL;
    assert_null(plan_parse(scratch, text.at, text.count, &why));
    assert_non_null(why);
    text.at[i] ^= 1;
    arena_free(scratch);
  }
  text_free(&text);
  arena_free(arena);
}

static void test_calls_table(void **state) {
  (void)state;
  static const char *const names[CALL_COUNT] = {"gemm", "conv", "conv_grad_input",
                                                "conv_grad_weight", "matmul"};
  for (int i = 0; i < CALL_COUNT; i++) {
    CallId id;
    assert_true(call_parse(names[i], &id));
    assert_int_equal(id, i);
  }
}

static void test_settings(void **state) {
  (void)state;
  Arena *arena = arena_new();
  SettingValue *values = settings_new(arena);
  const char *why = NULL;
  assert_true(setting_number(values, "train.batch") == 32);
  assert_string_equal(setting_text(values, "train.optimizer"), "sgd");
  assert_int_equal(setting_find("nothing"), -1);
  assert_string_equal(setting_nearest("lr"), "train.lr");
  assert_string_equal(setting_nearest("train.bach"), "train.batch");
  assert_string_equal(setting_nearest("weight_deca"), "train.weight_decay");
  assert_null(setting_nearest("zzzzzzzzzzzzzzzzzzzz"));
  char hint[200];
  setting_hint("ranks", hint, sizeof hint);
  assert_string_equal(hint, "; distributed.ranks follows from how the run is started and from its data, and cannot be set");
  setting_hint("train.bach", hint, sizeof hint);
  assert_string_equal(hint, "; did you mean 'train.batch'?");
  static const struct {
    const char *key, *value;
    bool is_good;
  } cases[] = {{"train.lr", "3e-4", true},
               {"train.lr", "inf", false},
               {"train.lr", "nan", false},
               {"train.lr", "1e999", false},
               {"train.lr", "-1", false},
               {"train.lr", "", false},
               {"train.lr", "1x", false},
               {"train.lr", "0x10", false},
               {"train.batch", "1e2", true},
               {"train.batch", "0", false},
               {"train.batch", "2.5", false},
               {"train.epochs", "-1", false},
               {"data.shuffle", "false", true},
               {"data.shuffle", "maybe", false},
               {"data.shuffle", "", false},
               {"train.optimizer", "adam", true},
               {"train.optimizer", "adamax", false},
               {"train.optimizer", "ada", false},
               {"train.log.jsonl", "any thing", true},
               {"train.momentum", "1.5", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    why = NULL;
    bool is_good = setting_set(arena, values, setting_find(cases[i].key), cases[i].value, &why);
    if (is_good != cases[i].is_good) fail_msg("%s = '%s'", cases[i].key, cases[i].value);
    if (!is_good) assert_non_null(why);
  }
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_ptx_head),
      cmocka_unit_test(test_refusals),    cmocka_unit_test(test_damage),
      cmocka_unit_test(test_calls_table), cmocka_unit_test(test_settings),
      cmocka_unit_test(test_maps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
