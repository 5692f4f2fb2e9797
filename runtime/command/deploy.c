/* deploy: see deploy.h. Weights are read as for any prediction, in the order of memory that the compiler chose,
 * and go from there into the file. */
#include "runtime/command/deploy.h"
#include "base/say.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/deploy_c.h"
#include "runtime/command/deploy_header.h"
#include "runtime/command/deploy_onnx.h"
#include "runtime/command/deploy_ptx.h"
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
  static const char *const forms[] = {".so", ".ptx", ".c", ".onnx"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (text_ends_with(output, forms[i]) && strlen(deploy_name(output)) > strlen(forms[i])) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "-o %s: a model is deployed as a .so, a shared library with a C header, as a .c with the same "
                     "header, as a .ptx for a GPU with a C header and a file of weights, or as an .onnx",
                     output);
}

static Status open_exec(const DeployOptions *options, Artifact *artifact, Exec **out) {
  static const char *const only[] = {PROGRAMME_EVALUATE, NULL};
  ExecOptions exec = {artifact->is_shared ? "cpu" : "sim", 1, .only = only}; /* any machine deploys for a GPU */
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

static Status deploy_read_weights(Exec *exec, const Inference *inference, char *to) {
  for (int i = 0; i < inference->ranges.count; i++) {
    const InferenceRange *range = &inference->ranges.at[i];
    if (range->is_kept) STATUS_TRY(exec_read(exec, range->place, range->from, range->bytes, to + range->at));
  }
  return STATUS_OK;
}

static Status fill_weights(Exec *exec, const Inference *inference, const Artifact *artifact, Text *library) {
  int64_t size = (int64_t)library->count;
  if (inference->weights > artifact->weights || artifact->weights_at > size ||
      artifact->weights > size - artifact->weights_at)
    return status_fail(STATUS_USER, "%s is damaged: it has no room for the weights", artifact->path);
  uint64_t layout = 0;
  if (inference->weights + (int64_t)sizeof layout <= artifact->weights)
    memcpy(&layout, library->at + artifact->weights_at + inference->weights, sizeof layout);
  if (layout != inference->layout)
    return status_fail(STATUS_USER, "%s is compiled by another version of ftc, which lays out weights in another way; compile it again", artifact->path);
  return deploy_read_weights(exec, inference, library->at + artifact->weights_at);
}

/* What is written: the file of -o, and beside it under the same name but for the ending those that are not empty. */
typedef struct {
  Text file, header, weights;
} DeployFiles;

static Status deploy_write_beside(const DeployOptions *options, const char *ending, const Text *bytes, Text *said) {
  Text path = {0};
  if (!bytes->count) return STATUS_OK;
  text_append(&path, options->output, (size_t)(strrchr(options->output, '.') - options->output));
  text_printf(&path, "%s", ending);
  int error = options->dry_run ? 0 : text_write_file(path.at, bytes->at, bytes->count);
  Status status = error ? status_errno(error, "%s", path.at) : STATUS_OK;
  text_printf(said, "%s%s", said->count ? " and " : ", and ", path.at);
  text_free(&path);
  return status;
}

static Status deploy_write(const DeployOptions *options, const DeployFiles *files) {
  Text said = {0};
  char bytes[32];
  Status status = deploy_write_beside(options, ".h", &files->header, &said);
  if (status == STATUS_OK) status = deploy_write_beside(options, ".weights", &files->weights, &said);
  int error = options->dry_run || status != STATUS_OK ? 0 : text_write_file(options->output, files->file.at, files->file.count);
  if (error) status = status_errno(error, "%s", options->output);
  if (status == STATUS_OK)
    printf("%s: %s%s%s\n", options->output, text_bytes((int64_t)files->file.count, bytes), text_cstr(&said),
           options->dry_run ? " (nothing written: --dry-run)" : "");
  text_free(&said);
  return status;
}

static Status deploy_gpu(const DeployOptions *options, const Artifact *artifact, Exec *exec, const Inference *inference, DeployFiles *files) {
  const char *name = deploy_name(options->output);
  STATUS_TRY(deploy_header_name("the header says how to include", name));
  text_append(&files->file, artifact->ptx, strlen(artifact->ptx));
  char *room = calloc(1, (size_t)inference->weights + 1);
  if (!room) return status_errno(ENOMEM, "deploy");
  Status status = deploy_read_weights(exec, inference, room);
  if (status == STATUS_OK) text_append(&files->weights, room, (size_t)inference->weights);
  free(room);
  return status == STATUS_OK ? deploy_ptx(artifact, inference, name, &files->weights, &files->header) : status;
}

static Status deploy_check_kind(const DeployOptions *options, const Artifact *artifact) {
  const char *source = artifact->plan->source;
  bool is_ptx = text_ends_with(options->output, ".ptx");
  if (artifact->weights < 0)
    return status_fail(STATUS_USER,
                       "%s is compiled for training; `ftrun deploy %s` compiles for inference, as does "
                       "`ftc %s --inference -o MODEL%s`",
                       artifact->path, source, source, is_ptx ? ".ptx" : ".so");
  if (is_ptx == !artifact->is_shared) return STATUS_OK;
  return status_fail(STATUS_USER, "%s is compiled for %s, and -o %s is for %s; `ftrun deploy %s -o %s` compiles for it", artifact->path,
                     is_ptx ? "the CPU" : "a GPU", options->output, is_ptx ? "a GPU" : "the CPU", source, options->output);
}

static Status deploy_files(const DeployOptions *options, Artifact *artifact, Exec **exec, DeployFiles *files) {
  Inference inference;
  STATUS_TRY(deploy_check_kind(options, artifact));
  const char *why = inference_find(artifact->arena, artifact->plan, &inference);
  if (why) return status_fail(STATUS_USER, "%s cannot be deployed: %s", artifact->path, why);
  STATUS_TRY(open_exec(options, artifact, exec));
  if (text_ends_with(options->output, ".onnx")) return deploy_onnx(*exec, artifact, &files->file);
  if (!artifact->is_shared) return deploy_gpu(options, artifact, *exec, &inference, files);
  int error = text_read_file(&files->file, artifact->path);
  if (error) return status_errno(error, "%s", artifact->path);
  STATUS_TRY(fill_weights(*exec, &inference, artifact, &files->file));
  bool is_c = text_ends_with(options->output, ".c");
  if (is_c) STATUS_TRY(deploy_c(artifact, deploy_name(options->output), &files->file));
  deploy_header(artifact->plan, &inference, deploy_name(options->output), is_c, &files->header);
  return STATUS_OK;
}

Status deploy_run(const DeployOptions *options) {
  Artifact *artifact = NULL;
  Exec *exec = NULL;
  DeployFiles files = {0};
  STATUS_TRY(check_output(options->output));
  Status status = train_open(&options->run, &artifact);
  if (status == STATUS_OK) status = deploy_files(options, artifact, &exec, &files);
  if (status == STATUS_OK) status = deploy_write(options, &files);
  text_free(&files.file);
  text_free(&files.header);
  text_free(&files.weights);
  exec_free(exec);
  artifact_close(artifact);
  return status;
}
