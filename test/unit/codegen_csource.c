/* codegen_csource: random functions of LLVM IR, and loops whose phis read each other, as C (codegen/csource.h) by the
 * system's compiler against LLVM's own machine code, bit for bit; and what has no form in C is refused by its name. */
#include "codegen/csource.h"
#include "codegen/target.h"
#include "test/unit/ir_help.h"
#include "test/unit/turn.h"
#include <dlfcn.h>
#include <llvm-c/IRReader.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The types of values: numbers, and vectors of four. In memory each has 32 bytes. */
typedef enum { I8, I16, I32, I64, F32, F64, V32, VF, TYPES } Kind;
static const char *const kind_text[TYPES] = {"i8", "i16", "i32", "i64", "float", "double", "<4 x i32>", "<4 x float>"};
enum { FUNCTIONS = 30, OPERATIONS = 90, INPUTS = 2 * TYPES, ROOM = 32, MOST_OUT = INPUTS + OPERATIONS };

typedef struct {
  Text text;
  uint64_t state;
  int value[MOST_OUT]; /* kinds of %x0, %x1, ... */
  int count;
} Maker;

static int pick(Maker *m, int below) {
  m->state = m->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((m->state >> 33) % (uint64_t)below);
}

/* A value of the kind, made before. */
static int operand(Maker *m, Kind kind) {
  int at = pick(m, m->count);
  while (m->value[at] != (int)kind) at = (at + 1) % m->count;
  return at;
}

static bool is_whole(Kind kind) { return kind <= I64 || kind == V32; }
static const char *words_of(Kind kind) { return kind == V32 ? ".v4i32" : kind == VF ? ".v4f32" : kind == F32 ? ".f32" : kind == F64 ? ".f64" : kind == I64 ? ".i64" : kind == I32 ? ".i32" : kind == I16 ? ".i16" : ".i8"; }

static void whole_operation(Maker *m, Kind kind, int n) {
  static const char *const binary[] = {"add", "sub", "mul", "and", "or", "xor"}, *const shift[] = {"shl", "lshr", "ashr"};
  static const char *const compare[] = {"eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle"};
  static const char *const call[] = {"smax", "smin", "umax", "umin", "usub.sat"}, *const divide[] = {"udiv", "urem", "sdiv", "srem"};
  static const int bits[] = {8, 16, 32, 64};
  const char *t = kind_text[kind];
  int a = operand(m, kind), b = operand(m, kind), which = pick(m, kind == V32 ? 5 : 9);
  if (which == 0)
    text_printf(&m->text, "%%x%d = %s %s %%x%d, %%x%d\n", n, binary[pick(m, 6)], t, a, b);
  else if (which == 1)
    text_printf(&m->text, "%%c%d = icmp %s %s %%x%d, %%x%d\n%%x%d = select %s %%c%d, %s %%x%d, %s %%x%d\n", n, compare[pick(m, 10)], t, a, b, n,
                kind == V32 ? "<4 x i1>" : "i1", n, t, a, t, b);
  else if (which == 2)
    text_printf(&m->text, "%%x%d = call %s @llvm.%s%s(%s %%x%d, %s %%x%d)\n", n, t, call[pick(m, 5)], words_of(kind), t, a, t, b);
  else if (which == 3 && kind == V32)
    text_printf(&m->text, "%%x%d = shufflevector %s %%x%d, %s %%x%d, <4 x i32> <i32 %d, i32 %d, i32 7, i32 0>\n", n, t, a, t, b, pick(m, 8), pick(m, 8));
  else if (kind == V32)
    text_printf(&m->text, "%%x%d = fptosi <4 x float> <float 1.0, float -2.5, float 3.0, float 9.0> to %s\n", n, t);
  else if (which == 3)
    text_printf(&m->text, "%%m%d = and %s %%x%d, %d\n%%x%d = %s %s %%x%d, %%m%d\n", n, t, b, bits[kind] - 1, n, shift[pick(m, 3)], t, a, n);
  else if (which == 4)
    text_printf(&m->text, "%%m%d = or %s %%x%d, 4\n%%n%d = and %s %%m%d, 7\n%%x%d = %s %s %%x%d, %%n%d\n", n, t, b, n, t, n, n, divide[pick(m, 4)], t, a, n);
  else if (which == 5) {
    Kind from = (Kind)pick(m, 4);
    const char *cast = from == kind ? "freeze" : from > kind ? "trunc" : pick(m, 2) ? "sext" : "zext";
    int x = operand(m, from);
    if (from == kind)
      text_printf(&m->text, "%%x%d = freeze %s %%x%d\n", n, t, x);
    else
      text_printf(&m->text, "%%x%d = %s %s %%x%d to %s\n", n, cast, kind_text[from], x, t);
  } else if (which == 6) {
    Kind from = pick(m, 2) ? F32 : F64;
    text_printf(&m->text, "%%x%d = call %s @llvm.fpto%s.sat%s%s(%s %%x%d)\n", n, t, pick(m, 2) ? "si" : "ui", words_of(kind), words_of(from),
                kind_text[from], operand(m, from));
  } else if (which == 7 && kind >= I32)
    text_printf(&m->text, "%%x%d = call %s @llvm.%s%s(%s %%x%d%s)\n", n, t, (const char *[]){"ctlz", "cttz", "abs"}[pick(m, 3)], words_of(kind), t, a, ", i1 false");
  else if (which == 8 && kind == I32)
    text_printf(&m->text, "%%x%d = extractelement <4 x i32> %%x%d, i32 %d\n", n, operand(m, V32), pick(m, 4));
  else
    text_printf(&m->text, "%%x%d = xor %s %%x%d, -1\n", n, t, a);
}

static void real_operation(Maker *m, Kind kind, int n) {
  static const char *const binary[] = {"fadd", "fsub", "fmul", "fdiv"};
  static const char *const compare[] = {"oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"};
  static const char *const one[] = {"fabs", "sqrt", "floor", "ceil", "trunc", "rint"}, *const two[] = {"minimum", "maximum", "copysign"};
  const char *t = kind_text[kind];
  int a = operand(m, kind), b = operand(m, kind), which = pick(m, kind == VF ? 6 : 8);
  if (which == 0 || which == 1)
    text_printf(&m->text, "%%x%d = %s %s %%x%d, %%x%d\n", n, binary[pick(m, 4)], t, a, b);
  else if (which == 2)
    text_printf(&m->text, "%%c%d = fcmp %s %s %%x%d, %%x%d\n%%x%d = select %s %%c%d, %s %%x%d, %s %%x%d\n", n, compare[pick(m, 14)], t, a, b, n,
                kind == VF ? "<4 x i1>" : "i1", n, t, a, t, b);
  else if (which == 3)
    text_printf(&m->text, "%%x%d = call %s @llvm.%s%s(%s %%x%d)\n", n, t, one[pick(m, 6)], words_of(kind), t, a);
  else if (which == 4) { /* the sign of a NaN that was computed is not told */
    int call = pick(m, 3), second = call == 2 ? (int)kind : b;
    text_printf(&m->text, "%%x%d = call %s @llvm.%s%s(%s %%x%d, %s %%x%d)\n", n, t, two[call], words_of(kind), t, a, t, second);
  } else if (which == 5)
    text_printf(&m->text, "%%x%d = %s %s %%x%d\n", n, "fneg", t, a);
  else if (which == 6) {
    Kind from = (Kind)pick(m, 4);
    text_printf(&m->text, "%%x%d = %s %s %%x%d to %s\n", n, pick(m, 2) ? "sitofp" : "uitofp", kind_text[from], operand(m, from), t);
  } else if (kind == F64)
    text_printf(&m->text, "%%x%d = fpext float %%x%d to double\n", n, operand(m, F32));
  else
    text_printf(&m->text, "%%x%d = %s\n", n, "fadd float 0x7FF0000000000000, 0x36A0000000000000");
}

/* in: the inputs, ROOM bytes each; out: all values, ROOM bytes each. */
static void make_function(Maker *m, const char *prefix, int number) {
  text_printf(&m->text, "define void @%s%d(ptr %%in, ptr %%out) {\n", prefix, number);
  for (m->count = 0; m->count < INPUTS; m->count++) {
    Kind kind = (Kind)(m->count % TYPES);
    m->value[m->count] = (int)kind;
    text_printf(&m->text, "%%p%d = getelementptr i8, ptr %%in, i64 %d\n%%x%d = load %s, ptr %%p%d, align 1\n", m->count, m->count * ROOM, m->count, kind_text[kind], m->count);
  }
  for (int i = 0; i < OPERATIONS; i++) {
    Kind kind = (Kind)(m->count * 5 % TYPES); /* in all functions alike */
    (is_whole(kind) ? whole_operation : real_operation)(m, kind, m->count);
    m->value[m->count++] = (int)kind;
  }
  for (int i = INPUTS; i < m->count; i++)
    text_printf(&m->text, "%%q%d = getelementptr i8, ptr %%out, i64 %d\nstore %s %%x%d, ptr %%q%d, align 4\n", i, i * ROOM, kind_text[m->value[i]], i, i);
  text_printf(&m->text, "ret void\n}\n");
}

static Module *open_module(Arena *arena, Diag *diag, const char *ir) {
  static const CodegenOptions options = {.target = TARGET_CPU, .cpu = "portable", .is_inference = true};
  Module *module = ARENA_NEW(arena, Module);
  char *message = NULL;
  assert_true(target_open(module, arena, diag, &options));
  LLVMModuleRef parsed = NULL;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(ir, strlen(ir), "ir");
  if (LLVMParseIRInContext(module->context, buffer, &parsed, &message)) fail_msg("%s", message);
  char *layout = LLVMCopyStringRepOfTargetData(LLVMGetModuleDataLayout(module->llvm));
  LLVMSetTarget(parsed, LLVMGetTarget(module->llvm));
  LLVMSetDataLayout(parsed, layout);
  LLVMDisposeMessage(layout);
  LLVMDisposeModule(module->llvm);
  module->llvm = parsed;
  return module;
}

static void write_bytes(const char *folder, const char *name, const Text *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(text_write_file(path, text->at, text->count), 0);
}

static void *shared(const char *folder, const char *command, const char *name) {
  char line[1000];
  snprintf(line, sizeof line, "cd %s && %s -o %s.so", folder, command, name);
  assert_int_equal(system(line), 0);
  snprintf(line, sizeof line, "%s/%s.so", folder, name);
  void *library = dlopen(line, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  return library;
}

typedef void TestFunction(const void *in, void *out);
typedef union {
  void *data;
  TestFunction *function;
} Symbol;
static TestFunction *found(void *library, const char *prefix, int number) {
  char name[40];
  snprintf(name, sizeof name, "%s%d", prefix, number);
  return ((Symbol){.data = dlsym(library, name)}).function;
}

static bool same_lanes(const char *a, const char *b, Kind kind) {
  int count = kind == V32 || kind == VF ? 4 : 1;
  for (int i = 0; i < count; i++) {
    if (kind == F64 && isnan(*(const double *)(const void *)a) && isnan(*(const double *)(const void *)b)) continue;
    float x[2];
    memcpy(x, a + 4 * i, 4);
    memcpy(x + 1, b + 4 * i, 4);
    if ((kind == F32 || kind == VF) && isnan(x[0]) && isnan(x[1])) continue;
    size_t bytes = (size_t[]){1, 2, 4, 8, 4, 8, 4, 4}[kind];
    if (memcmp(a + 4 * i, b + 4 * i, bytes) != 0) return false;
  }
  return true;
}

static void fill_inputs(Maker *m, char *in) {
  static const float special[] = {0, -0.0f, 1, -1, INFINITY, -INFINITY, 3e9f, -7e18f, 1e-40f, 0.5f, 255.75f, NAN};
  for (int i = 0; i < INPUTS; i++) {
    for (int k = 0; k < ROOM; k++) in[i * ROOM + k] = (char)(pick(m, 4) ? pick(m, 256) : pick(m, 2) ? 0 : -1);
    for (int k = 0; k < ROOM; k += 4) {
      float value = pick(m, 2) ? special[pick(m, 12)] : (float)pick(m, 2000) / 7 - 100;
      double wide = (double)value * (pick(m, 3) ? 1 : 1e30);
      if (i % TYPES == F32 || i % TYPES == VF) memcpy(in + i * ROOM + k, &value, 4);
      if (i % TYPES == F64 && k % 8 == 0) memcpy(in + i * ROOM + k, &wide, 8);
    }
  }
}

/* The text of all functions `prefix`N, each with a door that others see. */
static void as_c(Module *module, const char *prefix, int count, Text *out) {
  CSource *source = csource_new(module);
  Text doors = {0};
  for (int i = 0; i < count; i++) {
    char name[40];
    snprintf(name, sizeof name, "%s%d", prefix, i);
    const char *inner = csource_function(source, name, "a test");
    text_printf(&doors, "void %s(const void *in, void *out);\nvoid %s(const void *in, void *out) { %s((char *)(uintptr_t)in, out); }\n", name, name, inner);
  }
  assert_true(csource_finish(source, out));
  text_append(out, doors.at, doors.count);
  text_free(&doors);
  csource_free(source);
}

static char folder[] = "/tmp/ft-csource-XXXXXX";
static const char *const compilers[] = {"gcc -std=c99 -w -O0 -ffp-contract=off -shared -fPIC -x c c.c -x none -lm",
                                        /* and not GCC 12 with -O2: its pass fre fails on some of the vectors */
                                        "clang-19 -std=c11 -w -O2 -ffp-contract=off -shared -fPIC -x c c.c -x none -lm"};

static void compare_all(Maker *m, const char *prefix, int count, int rounds) {
  static char in[INPUTS * ROOM], want[MOST_OUT * ROOM], have[MOST_OUT * ROOM];
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, stderr);
  Module *module = open_module(arena, &diag, text_cstr(&m->text));
  Text c = {0}, object = {0};
  as_c(module, prefix, count, &c);
  assert_true(target_emit(module, LLVMObjectFile, &object));
  write_bytes(folder, "c.c", &c);
  write_bytes(folder, "o.o", &object);
  void *own = shared(folder, "cc -shared o.o -lm", prefix);
  for (int k = 0; k < 2; k++) {
    char name[40];
    snprintf(name, sizeof name, "%s_c%d", prefix, k);
    void *other = shared(folder, compilers[k], name);
    for (int i = 0; i < count; i++)
      for (int round = 0; round < rounds; round++) {
        fill_inputs(m, in);
        memset(want, 0, sizeof want);
        memset(have, 0, sizeof have);
        found(own, prefix, i)(in, want);
        found(other, prefix, i)(in, have);
        if (*prefix != 'f') {
          assert_memory_equal(want, have, sizeof want);
          continue;
        }
        for (int v = INPUTS; v < m->count; v++) /* the kinds of all functions */
          if (!same_lanes(want + v * ROOM, have + v * ROOM, (Kind)m->value[v])) fail_msg("function %d, value %d (%s)", i, v, kind_text[m->value[v]]);
      }
  }
  target_close(module);
  text_free(&c);
  text_free(&object);
  arena_free(arena);
}

static void test_random(void **state) {
  (void)state;
  for (int seed = 1; seed <= 5; seed++) {
    if (!help_has_its_turn(seed)) continue;
    Maker m = {.state = (uint64_t)seed * 7919};
    char prefix[8];
    snprintf(prefix, sizeof prefix, "f%d_", seed);
    for (int i = 0; i < FUNCTIONS; i++) make_function(&m, prefix, i);
    compare_all(&m, prefix, FUNCTIONS, 20);
    text_free(&m.text);
  }
}

/* in: i32 at 2 * ROOM, 10 * ROOM; i64 at 3 * ROOM. */
static const char loops[] =
    /* phis that exchange their values, and one that is read after its loop (lost copy) */
    "define void @g0(ptr %in, ptr %out) {\nentry:\n%p = getelementptr i8, ptr %in, i64 64\n%n = load i32, ptr %p\n%k = and i32 %n, 31\n%m = xor i32 %n, 77\nbr label %b\n"
    "b:\n%i = phi i32 [ 0, %entry ], [ %j, %b ]\n%x = phi i32 [ %n, %entry ], [ %y, %b ]\n%y = phi i32 [ %m, %entry ], [ %x, %b ]\n"
    "%j = add i32 %i, 1\n%c = icmp ult i32 %j, %k\nbr i1 %c, label %b, label %e\n"
    "e:\nstore i32 %x, ptr %out\n%q = getelementptr i8, ptr %out, i64 4\nstore i32 %y, ptr %q\n%r = getelementptr i8, ptr %out, i64 8\nstore i32 %i, ptr %r\nret void\n}\n"
    /* three in a ring, and a vector */
    "define void @g1(ptr %in, ptr %out) {\nentry:\n%p = getelementptr i8, ptr %in, i64 192\n%v = load <4 x i32>, ptr %p, align 1\n%n = load i32, ptr %p\n%k = and i32 %n, 15\nbr label %b\n"
    "b:\n%i = phi i32 [ 0, %entry ], [ %j, %b ]\n%x = phi i32 [ 1, %entry ], [ %y, %b ]\n%y = phi i32 [ 2, %entry ], [ %z, %b ]\n%z = phi i32 [ 3, %entry ], [ %x, %b ]\n"
    "%s = phi <4 x i32> [ zeroinitializer, %entry ], [ %t, %b ]\n%w = phi <4 x i32> [ %v, %entry ], [ %s, %b ]\n%t = add <4 x i32> %w, %v\n"
    "%j = add i32 %i, 1\n%c = icmp ult i32 %j, %k\nbr i1 %c, label %b, label %e\n"
    "e:\nstore i32 %x, ptr %out\n%q = getelementptr i8, ptr %out, i64 16\nstore <4 x i32> %s, ptr %q\nret void\n}\n"
    /* a switch with an edge twice, functions by a table, memory on the stack, a structure that is given back */
    "@table = internal constant [2 x { ptr, i64 }] [{ ptr, i64 } { ptr @twice, i64 5 }, { ptr, i64 } { ptr @less, i64 -9 }]\n"
    "define internal i64 @twice(i64 %x, i64 %y) {\n%z = mul i64 %x, 2\nret i64 %z\n}\ndefine internal i64 @less(i64 %x, i64 %y) {\n%z = sub i64 %x, %y\nret i64 %z\n}\n"
    "define internal { i64, i32 } @both(i64 %x) {\n%t = trunc i64 %x to i32\n%a = insertvalue { i64, i32 } poison, i64 %x, 0\n%b = insertvalue { i64, i32 } %a, i32 %t, 1\nret { i64, i32 } %b\n}\n"
    "define void @g2(ptr %in, ptr %out) {\nentry:\n%room = alloca [4 x ptr], align 16\n%p = getelementptr i8, ptr %in, i64 96\n%n = load i64, ptr %p\n%k = and i64 %n, 3\n"
    "switch i64 %k, label %d [ i64 0, label %a i64 1, label %a i64 2, label %f ]\n"
    "a:\n%x = phi i64 [ 11, %entry ], [ 11, %entry ]\nbr label %d\nf:\nbr label %d\n"
    "d:\n%y = phi i64 [ %n, %entry ], [ %x, %a ], [ 3, %f ]\n%which = and i64 %y, 1\n"
    "%at = getelementptr [2 x { ptr, i64 }], ptr @table, i64 0, i64 %which, i32 0\n%fun = load ptr, ptr %at\n%slot = getelementptr [4 x ptr], ptr %room, i64 0, i64 %k\nstore ptr %fun, ptr %slot\n"
    "%again = load ptr, ptr %slot\n%arg = getelementptr [2 x { ptr, i64 }], ptr @table, i64 0, i64 %which, i32 1\n%second = load i64, ptr %arg\n"
    "%z = call i64 %again(i64 %y, i64 %second)\n%g = call { i64, i32 } @both(i64 %z)\n%g0 = extractvalue { i64, i32 } %g, 0\n%g1 = extractvalue { i64, i32 } %g, 1\n"
    "store i64 %g0, ptr %out\n%q = getelementptr i8, ptr %out, i64 8\nstore i32 %g1, ptr %q\n"
    "%r = getelementptr i8, ptr %out, i64 16\ncall void @llvm.memcpy.p0.p0.i64(ptr %r, ptr %in, i64 40, i1 false)\nret void\n}\n"
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n";

static void test_loops(void **state) {
  (void)state;
  Maker m = {.state = 5};
  text_printf(&m.text, "%s", loops);
  compare_all(&m, "g", 3, 50);
  text_free(&m.text);
}

static void refuses(const char *body, const char *word) {
  Arena *arena = arena_new();
  Diag diag;
  char *said = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&said, &size);
  Text ir = {0}, out = {0};
  diag_init(&diag, arena, stream);
  text_printf(&ir, "@v = global i32 0\ndeclare i32 @other(i32)\ndefine i32 @f(ptr %%p, i32 %%x) {\n%s\n}\n", body);
  Module *module = open_module(arena, &diag, ir.at);
  CSource *source = csource_new(module);
  csource_function(source, "f", "line 3, layer 'fc'");
  assert_false(csource_finish(source, &out));
  fflush(stream);
  if (!strstr(said, word) || !strstr(said, "line 3, layer 'fc'")) fail_msg("%s: %s", body, said);
  assert_int_equal(diag.errors, 1);
  csource_free(source);
  target_close(module);
  fclose(stream);
  free(said);
  text_free(&ir);
  text_free(&out);
  arena_free(arena);
}

static void test_refusals(void **state) {
  (void)state;
  refuses("%a = atomicrmw add ptr %p, i32 1 seq_cst\nret i32 %a", "atomicrmw");
  refuses("%a = load volatile i32, ptr %p\nret i32 %a", "volatile");
  refuses("%a = zext i32 %x to i128\n%b = mul i128 %a, %a\n%c = trunc i128 %b to i32\nret i32 %c", "i128");
  refuses("%a = call i32 asm \"nop\", \"=r\"()\nret i32 %a", "assembly");
  refuses("%a = load i32, ptr @v\nret i32 %a", "variable v");
  refuses("%a = call i32 @other(i32 %x)\nret i32 %a", "other");
  refuses("%a = call i32 @llvm.bitreverse.i32(i32 %x)\nret i32 %a", "llvm.bitreverse");
  refuses("%a = load <4 x ptr>, ptr %p\n%b = extractelement <4 x ptr> %a, i32 %x\n%c = load i32, ptr %b\n%d = call <4 x ptr> @llvm.ptrmask.v4p0.v4i64(<4 x ptr> %a, <4 x i64> zeroinitializer)\n%e = extractelement <4 x ptr> %d, i32 0\n%h = load i32, ptr %e\nret i32 %h",
          "llvm.ptrmask");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_loops), cmocka_unit_test(test_refusals)};
  if (!mkdtemp(folder)) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char line[100];
  snprintf(line, sizeof line, "rm -r %s", folder);
  return system(line) || failed;
}
