/* codegen_check: with --check-memory a kernel that reads outside of a tensor ends the process with
 * exit code 3 and a sentence. The kernels are made wrong behind the verifier's back: a slice that
 * begins further on, in a loop, in a row and in an epilogue. */
#include "codegen_help.h"
#include <sys/wait.h>

static const char *const graphs[] = {
    "graph \"train\" { %x = input {name=\"x\"} : f32[4,6] %s = slice %x {start=[1,2], step=[1,1]} : "
    "f32[3,4] %e = exp %s : f32[3,4] output \"y\" %e }",
    "graph \"train\" { %x = input {name=\"x\"} : f32[4,6] %s = slice %x {start=[1,2], step=[1,1]} : "
    "f32[3,4] %e = sum %s {axes=[1]} : f32[3,1] output \"y\" %e }",
    "graph \"train\" { %x = input {name=\"x\"} : f32[4,6] %s = slice %x {start=[1,2], step=[1,1]} : "
    "f32[3,4] %e = sum %s {axes=[0]} : f32[1,4] output \"y\" %e }",
    "graph \"train\" { %x = input {name=\"x\"} : f32[4,6] %a = input {name=\"a\"} : f32[3,3] "
    "%b = input {name=\"b\"} : f32[3,4] %p = dot %a, %b : f32[3,4] "
    "%s = slice %x {start=[1,2], step=[1,1]} : f32[3,4] %e = add %p, %s : f32[3,4] output \"y\" %e }",
};

/* Moves every slice in a kernel's body to a place where it does not fit. */
static void spoil(Graph *graph) {
  int slices = 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    Graph *body = graph->nodes.at[i]->body;
    for (int k = 0; body && k < body->nodes.count; k++) {
      if (body->nodes.at[k]->op != OP_SLICE) continue;
      node_set_attr(body, body->nodes.at[k], attr_ints(ATTR_START, (int64_t[]){1, 9}, 2));
      slices++;
    }
  }
  assert_true(slices > 0);
}

/* The child's exit code; what it wrote goes to `said`. */
static int run_apart(HelpRun *run, char said[256]) {
  int pipes[2], status;
  assert_int_equal(pipe(pipes), 0);
  pid_t child = fork();
  if (!child) {
    dup2(pipes[1], 2);
    for (int a = 0; a < STANDARD_PLACE_COUNT; a++)
      memset(run->memory[a], 0, (size_t)run->code.plan->places.at[a].bytes);
    help_execute(run, 0, 1);
    _exit(0);
  }
  close(pipes[1]);
  ssize_t got = read(pipes[0], said, 255);
  said[got > 0 ? got : 0] = 0;
  close(pipes[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void outside(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    for (int is_spoilt = 0; is_spoilt < 2; is_spoilt++) {
      Arena *arena = arena_new();
      Diag diag;
      HelpRun run;
      char said[256];
      CodegenOptions options = {.target = TARGET_CPU, .check_memory = true};
      diag_init(&diag, arena, stderr);
      Program program = {.arena = arena,
                         .model_name = "check",
                         .path = "check.ft",
                         .train = help_parse(arena, graphs[i]),
                         .eval = help_parse(arena, graphs[i]),
                         .settings = settings_new(arena)};
      assert_true(passes_run(&program, &diag, &(PassOptions){.verify = true}, false));
      if (is_spoilt) spoil(program.train);
      help_compile(&run, arena, &diag, &program, &options);
      assert_int_equal(run_apart(&run, said), is_spoilt ? 3 : 0);
      if (is_spoilt && !strstr(said, "reads outside of a tensor: element ")) fail_msg("%s", said);
      help_free(&run);
      arena_free(arena);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(outside)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
