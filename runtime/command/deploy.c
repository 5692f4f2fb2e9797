/* deploy: see deploy.h. Weights are read as for any prediction, in the order of memory that the compiler chose,
 * and go from there into the file. */
#include "runtime/command/deploy.h"
#include "base/say.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/deploy_c.h"
#include "runtime/command/deploy_header.h"
#include "runtime/command/deploy_onnx.h"
#include "runtime/execute/exec_fetch.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *deploy_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static Status check_output(const char *output) {
  static const char *const forms[] = {".so", ".c", ".onnx"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (text_ends_with(output, forms[i]) && strlen(deploy_name(output)) > strlen(forms[i])) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "-o %s: a model is deployed as a .so, a shared library with a C header, as a .c with the same "
                     "header, or as an .onnx; other forms are not written yet",
                     output);
}

static Status open_exec(const DeployOptions *options, Artifact *artifact, Exec **out) {
  static const char *const only[] = {PROGRAMME_EVALUATE, NULL};
  ExecOptions exec = {"cpu", 1, .only = only};
  Text notes = {0};
  STATUS_TRY(exec_new(artifact, &exec, out));
  STATUS_TRY(exec_write_settings(*out));
  STATUS_TRY(exec_init_states(*out, 0));
  Status status = given_load_all(*out, &options->run.places, options->weights, &notes);
  if (status == STATUS_OK && notes.count) say_note("%s", text_cstr(&notes));
  text_free(&notes);
  if (status == STATUS_OK) /* copies of the parameters in bf16 and f16, prepared weights: otherwise a run makes them */
    status = exec_ready(*out, exec_result_graph(*out, PROGRAMME_EVALUATE));
  return status;
}

static Status fill_weights(Exec *exec, const Inference *inference, const Artifact *artifact,
                           Text *library) {
  int64_t size = (int64_t)library->count;
  if (inference->weights > artifact->weights || artifact->weights_at > size ||
      artifact->weights > size - artifact->weights_at)
    return status_fail(STATUS_USER, "%s is damaged: it has no room for the weights", artifact->path);
  for (int i = 0; i < inference->ranges.count; i++) {
    const InferenceRange *range = &inference->ranges.at[i];
    if (range->is_kept)
      STATUS_TRY(exec_read(exec, range->place, range->from, range->bytes,
                           library->at + artifact->weights_at + range->at));
  }
  return STATUS_OK;
}

/* header NULL: there is none. */
static Status deploy_write(const DeployOptions *options, const Text *library, const Text *header) {
  Text path = {0};
  text_append(&path, options->output, (size_t)(strrchr(options->output, '.') - options->output));
  text_printf(&path, ".h");
  Status status = STATUS_OK;
  char bytes[32];
  int error = options->dry_run || !header ? 0 : text_write_file(path.at, header->at, header->count);
  if (error) status = status_errno(error, "%s", path.at);
  if (!error && !options->dry_run) {
    error = text_write_file(options->output, library->at, library->count);
    if (error) status = status_errno(error, "%s", options->output);
  }
  if (!error)
    printf("%s: %s%s%s%s\n", options->output, text_bytes((int64_t)library->count, bytes), header ? ", and " : "",
           header ? path.at : "", options->dry_run ? " (nothing written: --dry-run)" : "");
  text_free(&path);
  return status;
}

static Status deploy_files(const DeployOptions *options, Artifact *artifact, Exec **exec,
                           Text *library, Text *header) {
  Inference inference;
  if (artifact->weights < 0)
    return status_fail(STATUS_USER,
                       "%s is compiled for training; `ftrun deploy %s` compiles for inference, as does "
                       "`ftc %s --inference -o MODEL.so`",
                       artifact->path, artifact->plan->source, artifact->plan->source);
  const char *why = inference_find(artifact->arena, artifact->plan, &inference);
  if (why) return status_fail(STATUS_USER, "%s cannot be deployed: %s", artifact->path, why);
  STATUS_TRY(open_exec(options, artifact, exec));
  if (text_ends_with(options->output, ".onnx")) {
    STATUS_TRY(deploy_onnx(*exec, artifact, library));
    return deploy_write(options, library, NULL);
  }
  int error = text_read_file(library, artifact->path);
  if (error) return status_errno(error, "%s", artifact->path);
  STATUS_TRY(fill_weights(*exec, &inference, artifact, library));
  bool is_c = text_ends_with(options->output, ".c");
  if (is_c) STATUS_TRY(deploy_c(artifact, deploy_name(options->output), library));
  deploy_header(artifact->plan, &inference, deploy_name(options->output), is_c, header);
  return deploy_write(options, library, header);
}

Status deploy_run(const DeployOptions *options) {
  Artifact *artifact = NULL;
  Exec *exec = NULL;
  Text library = {0}, header = {0};
  STATUS_TRY(check_output(options->output));
  Status status = train_open(&options->run, &artifact);
  if (status == STATUS_OK) status = deploy_files(options, artifact, &exec, &library, &header);
  text_free(&library);
  text_free(&header);
  exec_free(exec);
  artifact_close(artifact);
  return status;
}
