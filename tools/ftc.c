/* ftc: the compiler's command line. Flags become one Request; each kind of output is one function.
 * Exit codes: 0 done, 1 the user's program or settings are wrong, 2 the command line is, 3 the
 * machine failed (a full disk, no linker). */
#include "base/clock.h"
#include "base/output.h"
#include "base/text.h"
#include "codegen/codegen.h"
#include "codegen/onnx.h"
#include "frontend/program.h"
#include "lsp/server.h"
#include "passes/pass.h"
#include "passes/recompute.h"
#include "plan/waits.h"
#include "frontend/apply.h"
#include "tools/ftc_auto.h"
#include "tools/ftc_batch.h"
#include "tools/ftc_flags.h"
#include "tools/ftc_report.h"
#include "tools/ftc_shrink.h"
#include "tools/ftc_simulate.h"
#include "tools/ftc_stages.h"
#include "tools/html.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_USER = 1, EXIT_USAGE = 2, EXIT_MACHINE = 3, MAX_WORDS = 256 };

typedef struct {
  const char *input, *output, *emit, *memory, *stage, *shrink, *taps[MAX_WORDS];
  bool asks_auto, exact_math, find_batch, summary, hypers,
      is_done; /* done: --help and the like have said it all */
  const char *defines[MAX_WORDS], *sets[MAX_WORDS], *applied[MAX_WORDS];
  int applied_count;
  Text disabled; /* all that --disable names, however often it is given */
  FrontendOptions frontend;
  PassOptions passes;
  CodegenOptions codegen;
  SimulateRequest simulate;
} Request;

typedef struct {
  Request request;
  Arena *arena;
  Diag diag;
  Program program; /* as the front end left it */
  Stages stages;
  Text onnx; /* of --inference: what the section .ft_onnx says */
} Session;

/* ── flags ──────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const char *name;
  int (*apply)(Request *request, const char *value); /* an exit code */
} Action;

static int fail_usage(const char *format, const char *what) {
  char text[1024];
  snprintf(text, sizeof text, format, what);
  return flags_fail(&ftc_line, -1, "%s", text);
}

#define TAKES_TEXT(function, field)                                                                \
  static int function(Request *r, const char *value) { return (r->field = value, 0); }
#define SWITCHES(function, field)                                                                  \
  static int function(Request *r, const char *value) {                                             \
    (void)value;                                                                                   \
    r->field = true;                                                                               \
    return 0;                                                                                      \
  }
TAKES_TEXT(set_output, output)
TAKES_TEXT(set_emit, emit)
SWITCHES(set_summary, summary)
SWITCHES(set_hypers, hypers)
SWITCHES(set_find_batch, find_batch)
static int set_memory(Request *r, const char *value) {
  size_t length = value ? strlen(value) : 0;
  if (value && strcmp(value, "svg") && (length < 5 || strcmp(value + length - 4, ".svg")))
    return fail_usage("--memory takes svg, the name of a .svg file, or nothing, not '%s'", value);
  r->memory = value ? value : "table";
  return 0;
}
TAKES_TEXT(set_gpu, codegen.gpu)
TAKES_TEXT(set_cpu, codegen.cpu)
TAKES_TEXT(set_preset, frontend.preset)
TAKES_TEXT(set_stage, stage)
TAKES_TEXT(set_shrink, shrink)
TAKES_TEXT(set_sparse, passes.sparse)
TAKES_TEXT(set_simulate, simulate.spec)
static int append_word(const char **list, int *count, const char *value, const char *flag) {
  if (!strchr(value, '=')) return fail_usage("%s needs NAME=VALUE", flag);
  if (*count == MAX_WORDS) return fail_usage("too many %s options", flag);
  list[(*count)++] = value;
  return 0;
}
static int set_auto(Request *r, const char *value) {
  static char word[4096];
  if (r->asks_auto) return fail_usage("%s is given twice", "--auto");
  if (snprintf(word, sizeof word, "distributed.auto=%s", *value ? value : "gpus=any") >= 4096)
    return fail_usage("%s has too many words", "--auto");
  r->asks_auto = true;
  return append_word(r->sets, &r->frontend.set_count, word, "--auto");
}
TAKES_TEXT(set_times, simulate.times)
TAKES_TEXT(set_trace, simulate.trace)
TAKES_TEXT(set_dump, passes.dump)
TAKES_TEXT(set_dump_dir, passes.dump_dir)
TAKES_TEXT(set_stop_after, passes.stop_after)
static int add_disable(Request *r, const char *value) {
  if (r->disabled.count) text_append(&r->disabled, ",", 1);
  text_append(&r->disabled, value, strlen(value));
  r->passes.disable = r->codegen.disable = text_cstr(&r->disabled);
  return 0;
}
SWITCHES(set_check_memory, codegen.check_memory)
SWITCHES(set_cubin, codegen.wants_cubin)
static int set_debug_waits(Request *r, const char *value) {
  if (waits_polls(value, &r->codegen.wait_polls)) return 0;
  return fail_usage("--debug-waits takes a number of polls from 1 to 2147483647, not '%s'", value);
}
static int set_exact_math(Request *r, const char *value) {
  (void)value;
  r->exact_math = true;
  return add_disable(r, "approximate");
}
static int set_time_passes(Request *r, const char *value) {
  (void)value;
  r->passes.time_passes = r->codegen.time_passes = true;
  return 0;
}
SWITCHES(set_inference, codegen.is_inference)
SWITCHES(set_allow_paths, frontend.allow_paths)
static int add_define(Request *r, const char *value) {
  return append_word(r->defines, &r->frontend.define_count, value, "-D");
}
static int add_set(Request *r, const char *value) {
  return append_word(r->sets, &r->frontend.set_count, value, "--set");
}
static int add_applied(Request *r, const char *value) {
  return append_word(r->applied, &r->applied_count, value, "--apply");
}
static int add_tap(Request *r, const char *value) {
  if (r->frontend.tap_count == MAX_WORDS) return fail_usage("too many %s options", "--taps");
  r->taps[r->frontend.tap_count++] = value;
  return 0;
}
static int list_ops(Request *r, const char *value) {
  (void)value;
  report_ops(stdout);
  r->is_done = true;
  return 0;
}

static int serve_editor(Request *r, const char *value) {
  (void)value;
  r->is_done = true;
  return server_run(0, stdout);
}

static const Action actions[] = {
    {"-o", set_output},
    {"-D", add_define},
    {"--set", add_set},
    {"--preset", set_preset},
    {"--cpu", set_cpu},
    {"--gpu", set_gpu},
    {"--emit", set_emit},
    {"--hypers", set_hypers},
    {"--apply", add_applied},
    {"--summary", set_summary},
    {"--memory", set_memory},
    {"--inference", set_inference},
    {"--sparse", set_sparse},
    {"--shrink", set_shrink},
    {"--taps", add_tap},
    {"--stage", set_stage},
    {"--auto", set_auto},
    {"--find-batch", set_find_batch},
    {"--simulate", set_simulate},
    {"--times", set_times},
    {"--trace", set_trace},
    {"--dump", set_dump},
    {"--dump-dir", set_dump_dir},
    {"--stop-after", set_stop_after},
    {"--disable", add_disable},
    {"--time-passes", set_time_passes},
    {"--check-memory", set_check_memory},
    {"--debug-waits", set_debug_waits},
    {"--cubin", set_cubin},
    {"--exact-math", set_exact_math},
    {"--allow-paths", set_allow_paths},
    {"--lsp", serve_editor},
    {"--list-ops", list_ops},
};

static int ftc_parse_flag(Request *request, int argc, char **argv, int *at) {
  const Flag *flag;
  const char *value;
  int64_t count;
  int code = flags_parse(&ftc_line, 0, argc, argv, at, &flag, &value, &count);
  size_t i = 0;
  if (code) return code;
  while (strcmp(actions[i].name, flag->name) != 0) i++; /* test/e2e/cli.py: each flag has one */
  return actions[i].apply(request, value);
}

static int parse_command_line(Request *request, int argc, char **argv) {
  request->passes.verify = true;
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-' && argv[i][1]) {
      int code = ftc_parse_flag(request, argc, argv, &i);
      if (code || request->is_done) return code;
    } else if (request->input) {
      return fail_usage("one program at a time: '%s' is the second", argv[i]);
    } else {
      request->input = argv[i];
    }
  }
  request->frontend.defines = request->defines;
  request->frontend.sets = request->sets;
  request->frontend.taps = request->taps;
  return 0;
}

static bool has_extension(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length > tail && !strcmp(text + length - tail, end);
}

static int check_shrink(const Request *request) {
  bool is_alone = !request->emit && !request->applied_count && !request->hypers && !request->simulate.spec;
  if (!is_alone || !request->output || !has_extension(request->output, ".ft"))
    return fail_usage("%s", "--shrink writes a .ft file, and nothing else at a time: -o SMALL.ft");
  if (text_same_file(request->output, request->input))
    return fail_usage("--shrink would write over the program, %s: give another name", request->input);
  return 0;
}

/* The program itself, with the hypers and settings of the command line in it. */
static int check_copy(const Request *request) {
  if (request->emit || request->applied_count || request->hypers || request->simulate.spec || request->frontend.tap_count)
    return fail_usage("-o %s writes the program with its settings, and nothing else at a time", request->output);
  if (text_same_file(request->output, request->input))
    return fail_usage("-o would write over the program, %s: give another name, or --apply", request->input);
  return 0;
}

/* What the request means as a whole: the target, and that there is something to do. */
static int check_request(Request *request) {
  static const char *const kinds[] = {"ast", "ir",   "dot",   "llvm", "ptx",
                                      "asm", "plan", "steps", "html", NULL};
  enum { KIND_COUNT = sizeof kinds / sizeof *kinds - 1 };
  if (!request->input) return fail_usage("%s", "no program given");
  if (request->emit && !text_is_one_of(request->emit, kinds)) {
    const char *nearest = text_nearest(request->emit, kinds, KIND_COUNT);
    fprintf(stderr, "ftc: --emit does not know '%s'%s%s%s\nit knows ast, ir, dot, llvm, ptx, asm, plan, steps, html\n",
            request->emit, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    return EXIT_USAGE;
  }
  if (request->shrink) return check_shrink(request);
  if (request->output && has_extension(request->output, ".ft")) return check_copy(request);
  const Machine *machine = request->simulate.spec ? request->simulate.cluster.machine : NULL;
  if (machine && *machine->target && !request->codegen.gpu) request->codegen.gpu = machine->target;
  bool is_ptx = machine           ? *machine->target != 0
                : request->emit   ? !strcmp(request->emit, "ptx") || request->codegen.gpu
                : request->output ? has_extension(request->output, ".ptx")
                                  : request->codegen.gpu != NULL; /* --memory --gpu sm_90a */
  request->codegen.target = is_ptx ? TARGET_PTX : TARGET_CPU;
  request->passes.multiplies_float8 = codegen_multiplies_float8(&request->codegen);
  if (is_ptx && request->codegen.check_memory)
    return fail_usage("%s", "--check-memory is for the CPU; 'ftrun --device sim' checks every access of a .ptx");
  const char *gpu_only = request->codegen.wait_polls ? "--debug-waits" : request->codegen.wants_cubin ? "--cubin" : NULL;
  if (!is_ptx && gpu_only) return fail_usage("%s is for a GPU, whose code is a .ptx: -o OUT.ptx", gpu_only);
  if (!request->emit && request->output && !is_ptx && !has_extension(request->output, ".so"))
    return fail_usage("the output's name tells the target: it must end in .so, .ptx or .ft, not '%s'", request->output);
  if (!request->emit && request->output && !is_ptx && !machine && request->codegen.gpu)
    return fail_usage("--gpu %s is for a GPU, whose code is a .ptx: -o OUT.ptx", request->codegen.gpu);
  if (machine && request->output && has_extension(request->output, ".ptx") != is_ptx)
    return fail_usage("%s is not what that cluster runs: a cluster of GPUs runs a .ptx, one of gpu=cpu a .so", request->output);
  const char *whole = request->codegen.is_inference ? "--inference" : request->codegen.wants_cubin ? "--cubin" : NULL;
  if (request->passes.sparse && (!request->codegen.is_inference || !is_ptx))
    return fail_usage("%s", "--sparse is for what a GPU predicts: --inference -o OUT.ptx");
  if (whole && (request->emit || !request->output)) return fail_usage("%s is for an artifact: -o OUT.so or -o OUT.ptx", whole);
  Arena *arena = arena_new();
  const char *wrong = codegen_check_options(arena, &request->codegen);
  int code = wrong ? fail_usage("%s", wrong) : 0;
  arena_free(arena);
  if (code) return code;
  bool is_artifact = request->emit ? !strcmp(request->emit, "ptx") : request->output != NULL;
  if (request->stage && is_artifact) return fail_usage("an artifact has all stages: leave out --stage %s", request->stage);
  bool asks_more = (request->emit && strcmp(request->emit, "ast")) || request->output ||
                   request->summary || request->memory || request->passes.dump ||
                   request->passes.stop_after || request->passes.time_passes ||
                   request->simulate.spec || request->asks_auto || request->find_batch;
  request->frontend.hypers_only = request->hypers && !asks_more;
  if (request->applied_count && (asks_more || request->emit || request->hypers))
    return fail_usage("%s", "--apply writes into the program's file, and nothing else at a time");
  if (!asks_more && !request->emit && !request->hypers && !request->applied_count)
    return fail_usage("%s", "nothing to do: give -o OUT.so, -o OUT.ptx, --emit=KIND, --summary, "
                            "--hypers, --apply, --memory, --auto, --find-batch or --simulate");
  return 0;
}

/* ── output ─────────────────────────────────────────────────────────────────────────────────── */
/* To -o FILE if --emit has one, else to standard output. */
static int write_output(const Session *session, const Text *text) {
  const char *path = session->request.emit ? session->request.output : NULL;
  int error = 0;
  if (path)
    error = text_write_file(path, text_cstr(text), text->count);
  else
    fwrite(text_cstr(text), 1, text->count, stdout); /* checked at the end of main */
  if (!error) return 0;
  fprintf(stderr, "ftc: cannot write %s: %s\n", path, text_error(error));
  return text_is_fault(error) ? EXIT_MACHINE : EXIT_USER;
}

/* Runs a printer that wants a FILE and gives its text. */
static int write_printed(const Session *session, void (*print)(const Session *, FILE *)) {
  char *bytes = NULL;
  size_t count = 0;
  FILE *file = open_memstream(&bytes, &count);
  if (!file) return EXIT_MACHINE;
  print(session, file);
  fclose(file);
  Text text = {0};
  text_append(&text, bytes, count);
  free(bytes);
  int code = write_output(session, &text);
  text_free(&text);
  return code;
}

static void print_ir(const Session *session, FILE *out) {
  stages_print(&session->stages, session->arena, out);
}

/* A picture is of one graph: of several stages that of the first. */
static void print_dot(const Session *session, FILE *out) {
  graph_print_dot(session->stages.program[0].train, out);
}

/* The graph as the front end made it, or as --stop-after=PASS left it. */
static bool is_graph(const Request *request) {
  return request->emit && (!strcmp(request->emit, "ir") || !strcmp(request->emit, "dot"));
}

static int emit_graph(Session *session) {
  return write_printed(session, strcmp(session->request.emit, "ir") ? print_dot : print_ir);
}

static int emit_ast(Session *session) {
  bool good = frontend_print_ast(session->arena, &session->diag, session->request.input, stdout);
  return good && !session->diag.errors ? 0 : EXIT_USER;
}

/* ── steps ──────────────────────────────────────────────────────────────────────────────────── */
/* --time-passes: the passes and the back end have rows of their own. */
static void say_time(const Session *session, int64_t start, const char *what) {
  if (session->request.passes.time_passes)
    fprintf(stderr, "%8.2f ms  %s\n", (double)(clock_nanoseconds() - start) * 1e-6, what);
}

static int run_frontend(Session *session) {
  struct stat status;
  const char *path = session->request.input;
  if (stat(path, &status)) {
    fprintf(stderr, "ftc: cannot read %s: %s\n", path, strerror(errno));
    return EXIT_USER;
  }
  if (S_ISDIR(status.st_mode)) {
    fprintf(stderr, "ftc: cannot read %s: it is a folder\n", path);
    return EXIT_USER;
  }
  int64_t start = clock_nanoseconds();
  bool good = frontend_compile(session->arena, &session->diag, path, &session->request.frontend,
                               &session->program);
  say_time(session, start, "front end");
  return good && !session->diag.errors ? 0 : EXIT_USER;
}

/* What chooses settings before the program is compiled with them: ranks, batch. */
static int apply_choices(Session *session) {
  Request *request = &session->request;
  const char *emit = request->emit ? request->emit : "";
  AutoInput input = {.path = request->input,
                     .frontend = &request->frontend,
                     .passes = &request->passes,
                     .codegen = &request->codegen,
                     .has_target = request->output || request->codegen.gpu ||
                                   request->simulate.spec || !strcmp(emit, "ptx"),
                     .given = request->simulate.spec ? &request->simulate.cluster : NULL,
                     .out = request->output || request->emit ? stderr : stdout};
  bool good = true;
  if (request->find_batch) input.out = stdout;
  if (request->find_batch) return batch_print(&input, &session->program, &session->diag);
  if (batch_is_asked(&session->program))
    good = batch_apply(&input, &session->program, &session->diag);
  else if (auto_is_asked(&session->program))
    good = auto_apply(&input, &session->program, &session->diag);
  return good ? 0 : EXIT_USER;
}

static int run_passes(Session *session) {
  bool for_gpu = session->request.codegen.target == TARGET_PTX;
  bool good = stages_run_passes(&session->stages, &session->diag, &session->request.passes, for_gpu);
  return good ? 0 : EXIT_USER;
}

/* Of all stages, one behind the other, but pictures, which are of the first. */
static int emit_code(Session *session, const char *kind) {
  Text text = {0};
  const Code *code = session->stages.code;
  int count = session->stages.count;
  for (int i = 0; i < count && !strcmp(kind, "plan"); i++) plan_print(code[i].plan, &text);
  for (int i = 0; i < count && !strcmp(kind, "ptx"); i++) plan_to_ptx(code[i].plan, &text);
  if (!strcmp(kind, "steps")) plan_print_dot(code[0].plan, &text);
  for (int i = 0; i < count && !strcmp(kind, "llvm"); i++)
    text_append(&text, text_cstr(&code[i].llvm), code[i].llvm.count);
  for (int i = 0; i < count && (!strcmp(kind, "ptx") || !strcmp(kind, "asm")); i++)
    text_append(&text, text_cstr(&code[i].assembly), code[i].assembly.count);
  int result = write_output(session, &text);
  text_free(&text);
  return result;
}

/* plan NULL: a pass was to be the last. */
static int emit_page(Session *session, HtmlPage *page, const Plan *plan) {
  Text text = {0};
  if (plan) html_add_plan(page, plan);
  html_write(page, &text);
  int code = write_output(session, &text);
  text_free(&text);
  return code;
}

static int simulate_stages(Session *session) {
  const Stages *stages = &session->stages;
  const Plan **plan = ARENA_ARRAY(session->arena, const Plan *, stages->count);
  for (int i = 0; i < stages->count; i++) plan[i] = stages->code[i].plan;
  return simulate_report(&session->request.simulate, session->arena, plan, stages->count, stdout);
}

static int write_artifact(Session *session, const Code *code) {
  const Request *request = &session->request;
  int64_t start = clock_nanoseconds();
  bool good = codegen_write(&session->diag, code, &request->codegen, request->output);
  say_time(session, start, "artifact");
  return good ? 0 : EXIT_USER; /* of a fault of the machine, session_run says so */
}

static int run_codegen(Session *session, HtmlPage *page) {
  Request *request = &session->request;
  const Code *code = session->stages.code;
  int result = 0, count = session->stages.count;
  bool is_text = request->emit && !page && !is_graph(request);
  request->codegen.want_text = is_text;
  if (!stages_run_codegen(&session->stages, &session->diag, &request->codegen))
    result = session->diag.errors ? EXIT_USER : EXIT_MACHINE;
  if (!result && page)
    result = emit_page(session, page, code[0].plan);
  else if (!result && is_text)
    result = emit_code(session, request->emit);
  else if (!result && request->output && !request->emit)
    result = write_artifact(session, &code[count - 1]);
  if (!result && request->simulate.spec) result = simulate_stages(session);
  stages_free(&session->stages);
  return result;
}

/* The table, of a rank for each level of distributed.zero where the number of ranks is known; or the
 * picture. */
static int ftc_print_memory(Session *session) {
  const Request *request = &session->request;
  bool is_table = !strcmp(request->memory, "table");
  int code = 0;
  if (is_table && session->stages.count > 1)
    report_memory_by_stage(session->stages.program, session->stages.count, stdout);
  else
    code = report_memory(&session->stages.program[0], is_table ? NULL : request->memory, stdout);
  int64_t ranks = setting_ranks(session->program.settings);
  int group = (int)setting_group(session->program.settings);
  if (!ranks && request->simulate.spec) ranks = cluster_ranks(&request->simulate.cluster) / group;
  if (code || !is_table || ranks < 2) return code;
  report_memory_by_zero(&(ReportInput){request->input, &request->frontend, &request->passes,
                                       request->codegen.target == TARGET_PTX},
                        ranks, stdout);
  return 0;
}

/* What recomputing costs is said beneath the summary, which is of the model before the passes. */
static void say_recompute(const Session *session) {
  const char *cost = recompute_describe(session->stages.program[0].train, session->arena);
  if (cost) printf("%s\n", cost);
}

/* Of the stages that the front end made: the passes and the back end, as far as something asks for
 * them. */
static int compile_stages(Session *session, HtmlPage *page) {
  Request *request = &session->request;
  const PassOptions *passes = &request->passes;
  bool shows_graph = is_graph(request);
  bool wants_code = (request->emit && !shows_graph) || (request->output && !request->emit) || request->simulate.spec || passes->time_passes;
  const char *recompute = setting_text(session->program.settings, "train.recompute");
  bool says_recompute = request->summary && strcmp(recompute, "none");
  int code = 0;
  if (shows_graph && !passes->stop_after) code = emit_graph(session);
  bool wants_passes = wants_code || request->memory || passes->dump || passes->stop_after || says_recompute;
  if (code || !wants_passes) return code;
  code = run_passes(session);
  if (code) return code;
  if (says_recompute) say_recompute(session);
  if (passes->stop_after)
    return shows_graph ? emit_graph(session) : page ? emit_page(session, page, NULL) : 0;
  if (request->memory) code = ftc_print_memory(session);
  return !code && wants_code ? run_codegen(session, page) : code;
}

/* Of several stages the page has one. */
static const char *page_title(Session *session) {
  const Program *program = &session->stages.program[0];
  int64_t stages = setting_pipeline(program->settings);
  if (stages < 2) return program->model_name;
  return arena_printf(session->arena, "%s, stage %d of %lld", program->model_name, program->stage,
                      (long long)stages);
}

static int compile(Session *session) {
  Request *request = &session->request;
  const char *emit = request->emit ? request->emit : "";
  int code = !strcmp(emit, "ast") ? emit_ast(session) : 0;
  if (code || (!strcmp(emit, "ast") && !request->hypers)) return code;
  if (request->applied_count)
    return apply_write(session->arena, &session->diag, request->input, &request->frontend,
                       request->applied, request->applied_count, stdout)
               ? 0
               : EXIT_USER;
  code = run_frontend(session);
  if (!code && request->hypers) frontend_print_hypers(&session->program, stdout);
  if (!code && request->shrink) {
    ShrinkInput input = {request->input, request->shrink, request->output, &request->frontend, stdout};
    return ftc_shrink(&input, &session->program, &session->diag) ? 0 : EXIT_USER;
  }
  if (!code && request->output && !request->emit && has_extension(request->output, ".ft"))
    return apply_copy(session->arena, &session->diag, &session->program, &request->frontend, request->output) ? 0 : EXIT_USER;
  if (!code) report_taps(&session->program, stdout);
  if (!code && !request->frontend.hypers_only) code = apply_choices(session);
  if (code || request->find_batch || request->frontend.hypers_only) return code;
  if (request->simulate.spec)
    code = simulate_check_ranks(&request->simulate, session->program.settings);
  if (code) return code;
  code = stages_make(&session->program, request->stage, &session->stages);
  if (code) return code;
  if (request->summary) frontend_print_summary(&session->program, stdout);
  HtmlPage *page = NULL;
  if (!strcmp(emit, "html")) {
    page = html_new(session->arena, &session->diag, page_title(session));
    request->passes.observe = html_observe;
    request->passes.observe_user = page;
    html_observe(page, "frontend", session->program.train);
    html_observe(page, "frontend", session->program.eval);
  }
  if (request->codegen.is_inference) {
    onnx_describe(&session->program, &session->onnx);
    request->codegen.onnx = &session->onnx;
  }
  return compile_stages(session, page);
}

static int ftc_start(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error with a message */
  static Session session;
  int code;
  if (flags_help_asked(&ftc_line, argc, argv, &code)) return code;
  code = parse_command_line(&session.request, argc, argv);
  if (code || session.request.is_done) return code;
  session.arena = arena_new();
  code = simulate_read_request(session.arena, &session.request.simulate);
  if (!code) code = check_request(&session.request);
  if (code) {
    arena_free(session.arena);
    return code;
  }
  diag_init(&session.diag, session.arena, stderr);
  code = compile(&session);
  diag_end(&session.diag);
  if (code && session.diag.is_fault) code = EXIT_MACHINE;
  arena_free(session.arena);
  return code;
}

int main(int argc, char **argv) {
  output_start();
  codegen_handle_faults();
  return output_end("ftc", ftc_start(argc, argv));
}
