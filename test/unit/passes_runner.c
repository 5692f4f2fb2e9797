/* The pass runner: order, dumps of what changed, stopping, switching off, the observer, and what it
 * does when a pass fails. */
#include "base/text.h"
#include "passes/pass.h"
#include <signal.h>
#include <sys/wait.h>
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Linear regression in one weight; nothing here for simplify to do. */
#define MODEL(name)                                                                                \
  "graph \"" name "\" {\n%x = input {name=\"x\"} : f32[4,3]\n"                                     \
  "%w = param {name=\"w\", init=\"zeros\"} : f32[3,1]\n%y = dot %x, %w : f32[4,1]\n"               \
  "%q = mul %y, %y : f32[4,1]\n%s = sum %q {axes=[0]} : f32[1,1]\n%l = reshape %s : f32[]\n"       \
  "loss \"loss\" %l\noutput \"y\" %y\n}\n"

typedef struct {
  Arena *arena;
  Diag diag;
  Program program;
  PassOptions options;
  char folder[64];
  FILE *messages;
} Bench;

static int setup(void **state) {
  Bench *b = calloc(1, sizeof *b);
  b->arena = arena_new();
  b->messages = tmpfile();
  diag_init(&b->diag, b->arena, b->messages);
  Graph *graphs[2];
  if (graph_parse(b->arena, &b->diag, "model", MODEL("train") MODEL("eval"), graphs, 2) != 2)
    return -1;
  b->program = (Program){.arena = b->arena, .train = graphs[0], .eval = graphs[1]};
  b->program.settings = settings_new(b->arena);
  strcpy(b->folder, "/tmp/ft-passes-XXXXXX");
  if (!mkdtemp(b->folder)) return -1;
  b->options = (PassOptions){.dump_dir = b->folder, .verify = true};
  *state = b;
  return 0;
}

static char *path_of(Bench *b, const char *file) {
  return arena_printf(b->arena, "%s/%s", b->folder, file);
}

static int teardown(void **state) {
  Bench *b = *state;
  DIR *folder = opendir(b->folder);
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    if (entry->d_name[0] != '.') unlink(path_of(b, entry->d_name));
  if (folder) closedir(folder);
  rmdir(b->folder);
  fclose(b->messages);
  arena_free(b->arena);
  free(b);
  return 0;
}

static bool exists(Bench *b, const char *file) { return access(path_of(b, file), F_OK) == 0; }

static char *messages(Bench *b) {
  char *text = arena_alloc(b->arena, 4096);
  fflush(b->messages);
  rewind(b->messages);
  size_t got = fread(text, 1, 4095, b->messages);
  text[got] = 0;
  return text;
}

static bool run(Bench *b) { return passes_run(&b->program, &b->diag, &b->options, false); }

static void dumps_what_changed(void **state) {
  Bench *b = *state;
  b->options.dump = "all";
  b->options.stop_after = "optimizer";
  assert_true(run(b));
  assert_false(exists(b, "03-shapes.train.ftir"));
  assert_false(exists(b, "04-simplify.train.ftir"));
  assert_true(exists(b, "11-autodiff.train.ftir"));
  assert_true(exists(b, "11-autodiff.eval.ftir")); /* the params have offsets now */
  assert_true(exists(b, "22-optimizer.train.ftir"));
  assert_false(exists(b, "22-optimizer.eval.ftir"));
  Text text = {0};
  Graph *again;
  assert_int_equal(text_read_file(&text, path_of(b, "22-optimizer.train.ftir")), 0);
  assert_int_equal(graph_parse(b->arena, &b->diag, "dump", text_cstr(&text), &again, 1), 1);
  assert_string_equal(graph_to_text(again, b->arena), graph_to_text(b->program.train, b->arena));
  text_free(&text);
}

static void dumps_one(void **state) {
  Bench *b = *state;
  b->options.dump = "autodiff";
  b->options.stop_after = "optimizer";
  assert_true(run(b));
  assert_true(exists(b, "11-autodiff.train.ftir"));
  assert_false(exists(b, "22-optimizer.train.ftir"));
}

static void stops(void **state) {
  Bench *b = *state;
  b->options.stop_after = "autodiff";
  assert_true(run(b));
  assert_non_null(graph_find_root(b->program.train, ROOT_GRADIENTS, NULL));
  assert_null(graph_find_root(b->program.eval, ROOT_GRADIENTS, NULL));
}

/* Graphs between two passes go, and so does what passes note for themselves. */
static void leaves_nothing_behind(void **state) {
  Bench *b = *state;
  size_t before = arena_bytes(b->arena);
  b->options.stop_after = "memplan";
  assert_true(run(b));
  assert_in_range(arena_bytes(b->arena) - before, 0, before); /* eval's copies for generation */
}

static void arenas_agree(void **state) {
  Bench *b = *state;
  b->options.stop_after = "dce2";
  assert_true(run(b));
  int compared = 0;
  for (int i = 0; i < b->program.eval->nodes.count; i++) {
    const Node *node = b->program.eval->nodes.at[i];
    if (node->op != OP_PARAM) continue;
    compared++;
    assert_int_equal(node_int(node, ATTR_OFFSET, -1), 0);
  }
  assert_int_equal(compared, 1);
}

static void observe(void *user, const char *pass, const Graph *graph) {
  char **log = user;
  size_t length = strlen(*log);
  snprintf(*log + length, 1000 - length, "%s.%s ", pass, graph->name);
}

static void switches_off(void **state) {
  Bench *b = *state;
  char *log = arena_alloc(b->arena, 1000);
  b->options.disable = "simplify,dce";
  b->options.stop_after = "autodiff";
  b->options.observe = observe;
  b->options.observe_user = &log;
  assert_true(run(b));
  assert_string_equal(
      log,
      "decode.train decode.eval totals.train totals.eval shapes.train "
      "shapes.eval cse.train cse.eval "
      "chunks.train chunks.eval stages.train stages.eval pieces.train pieces.eval tensor.train "
      "tensor.eval autodiff.train autodiff.eval ");
}

static void keeps_what_is_needed(void **state) {
  Bench *b = *state;
  b->options.disable = "autodiff";
  assert_false(run(b));
  assert_non_null(strstr(messages(b), "pass 'autodiff' cannot be switched off"));
}

static void unknown_names(void **state) {
  Bench *b = *state;
  b->options.stop_after = "autodif";
  assert_false(run(b));
  b->options.stop_after = NULL;
  b->options.dump = "everything";
  assert_false(run(b));
  char *text = messages(b);
  assert_non_null(strstr(text, "there is no pass 'autodif'; did you mean 'autodiff'?"));
  assert_non_null(strstr(text, "there is no pass 'everything'"));
}

/* A graph that the first pass must not be given is our fault, not the user's. */
static void unfit_graph(void **state) {
  Bench *b = *state;
  b->program.train->nodes.at[2]->type.shape.dim[0] = 5;
  assert_false(run(b));
  assert_non_null(strstr(messages(b), "the graph is not fit for pass 'decode'"));
}

static void users_error(void **state) {
  Bench *b = *state;
  Attr attr = attr_str(ATTR_NAME, "half");
  Type type = {DT_F16, shape_scalar()};
  b->program.train->origin.loc = (Loc){.line = 3, .column = 4};
  graph_node(b->program.train, OP_PARAM, NULL, 0, &attr, 1, &type);
  assert_false(run(b));
  assert_non_null(strstr(messages(b), "parameter 'half' is f16: parameters must be f32"));
  assert_false(exists(b, "reproducer-autodiff.train.ftir"));
}

/* Passes that are broken on purpose. */
static Graph *gives_up(PassContext *context, Graph *graph) {
  (void)context, (void)graph;
  return NULL;
}
static Graph *breaks_types(PassContext *context, Graph *graph) {
  (void)context;
  graph = graph_rewrite(graph, NULL, NULL);
  graph->nodes.at[3]->type.dtype = DT_F64;
  return graph;
}

static void check_reproducer(Bench *b, const char *name, PassRun *broken, const char *message) {
  PassContext context = {b->arena, &b->diag, b->program.settings, PASS_OF_TRAIN, false};
  const char *why;
  setting_set(b->arena, b->program.settings, setting_find("train.optimizer"), "adam", &why);
  b->program.settings[setting_find("train.optimizer")].is_set = true;
  PassInfo info = {.name = name, .graphs = PASS_OF_TRAIN, .run = broken};
  assert_null(passes_run_one(&context, &info, b->program.train, true, b->folder));
  assert_non_null(strstr(messages(b), message));
  Text text = {0};
  Graph *again;
  char *path = arena_printf(b->arena, "%s/reproducer-%s.train.ftir", b->folder, name);
  assert_int_equal(text_read_file(&text, path), 0);
  assert_non_null(strstr(text_cstr(&text), arena_printf(b->arena,
                                                        "ftopt %s --passes=%s --set "
                                                        "train.optimizer=adam",
                                                        path, name)));
  assert_int_equal(graph_parse(b->arena, &b->diag, path, text_cstr(&text), &again, 1), 1);
  assert_string_equal(graph_to_text(again, b->arena), graph_to_text(b->program.train, b->arena));
  text_free(&text);
}

static void leaves_a_reproducer(void **state) {
  check_reproducer(*state, "lazy", gives_up, "pass 'lazy' failed on the train graph");
  check_reproducer(*state, "wild", breaks_types, "after pass 'wild' on the train graph");
}

static Graph *asserts(PassContext *context, Graph *graph) {
  (void)context, (void)graph;
  abort(); /* what a failed assertion ends in */
}

/* In a process of its own, which ends. */
static void leaves_one_when_it_aborts(void **state) {
  Bench *b = *state;
  pid_t child = fork();
  if (child == 0) {
    check_reproducer(b, "brittle", asserts, "");
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  Text text = {0};
  char *path = arena_printf(b->arena, "%s/reproducer-brittle.train.ftir", b->folder);
  assert_int_equal(text_read_file(&text, path), 0);
  assert_non_null(strstr(text_cstr(&text), "ftopt"));
  text_free(&text);
}

static void no_folder(void **state) {
  Bench *b = *state;
  b->options.dump = "all";
  b->options.dump_dir = "/nonexistent/folder";
  assert_false(run(b));
  assert_non_null(strstr(messages(b), "cannot make the folder '/nonexistent/folder'"));
}

static void nothing_to_train(void **state) {
  Bench *b = *state;
  Graph *graph;
  const char *text =
      "graph \"train\" {\n%x = input {name=\"x\"} : f32[4]\n"
      "%s = sum %x {axes=[0]} : f32[1]\n%l = reshape %s : f32[]\nloss \"loss\" %l\n}\n";
  assert_int_equal(graph_parse(b->arena, &b->diag, "model", text, &graph, 1), 1);
  PassContext context = {b->arena, &b->diag, b->program.settings, PASS_OF_TRAIN, false};
  graph = passes_run_named(&context, graph, "autodiff,optimizer");
  assert_non_null(graph);
  assert_int_equal(graph->roots.count, 2); /* the loss, and the count of steps */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(dumps_what_changed),
      TEST(dumps_one),
      TEST(stops),
      TEST(arenas_agree),
      TEST(switches_off),
      TEST(keeps_what_is_needed),
      TEST(unknown_names),
      TEST(unfit_graph),
      TEST(users_error),
      TEST(leaves_a_reproducer),
      TEST(no_folder),
      TEST(nothing_to_train),
      TEST(leaves_one_when_it_aborts),
      TEST(leaves_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
