/* deploy_onnx: see deploy_onnx.h. The section may come from anyone: its lines are checked, and names are looked up in the plan. Fields
 * of Protocol Buffers that stand twice are merged, so the model is what ftc wrote and behind it one more field `graph` for each initializer. */
#include "runtime/command/deploy_onnx.h"
#include "runtime/artifact/elf.h"
#include "runtime/common/permute.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = INT32_MAX }; /* of a message */

/* ── bytes ──────────────────────────────────────────────────────────────────────────────────── */
static size_t varint_bytes(uint64_t value) {
  size_t count = 1;
  for (; value > 0x7f; value >>= 7) count++;
  return count;
}

static void deploy_onnx_varint(Text *out, uint64_t value) {
  for (; value > 0x7f; value >>= 7) text_append(out, (char[]){(char)(value | 0x80)}, 1);
  text_append(out, (char[]){(char)value}, 1);
}

static void deploy_onnx_field(Text *out, int field, uint64_t bytes) {
  deploy_onnx_varint(out, (uint64_t)(field << 3 | 2));
  deploy_onnx_varint(out, bytes);
}

/* TensorProto.DataType; 0: none of a weight. */
static int deploy_onnx_type(DType dtype) {
  return dtype == DT_F32 ? 1 : dtype == DT_I32 ? 6 : dtype == DT_I64 ? 7 : dtype == DT_F64 ? 11 : dtype == DT_BF16 ? 16 : 0;
}

/* graph { initializer { dims, data_type, name, raw_data } } */
static void append_initializer(Text *out, const PlanTensor *tensor, const char *name, const char *bytes, size_t count) {
  Text head = {0};
  for (int i = 0; i < tensor->type.shape.rank; i++) {
    deploy_onnx_varint(&head, 1 << 3);
    deploy_onnx_varint(&head, (uint64_t)tensor->type.shape.dim[i]);
  }
  deploy_onnx_varint(&head, 2 << 3);
  deploy_onnx_varint(&head, (uint64_t)deploy_onnx_type(tensor->type.dtype));
  deploy_onnx_field(&head, 8, strlen(name));
  text_append(&head, name, strlen(name));
  deploy_onnx_field(&head, 9, count);
  uint64_t tensor_bytes = head.count + count;
  deploy_onnx_field(out, 7, 1 + varint_bytes(tensor_bytes) + tensor_bytes);
  deploy_onnx_field(out, 5, tensor_bytes);
  text_append(out, head.at, head.count);
  if (count) text_append(out, bytes, count);
  text_free(&head);
}

/* ── weights ────────────────────────────────────────────────────────────────────────────────── */
static Status onnx_weight(Exec *exec, const PlanTensor *tensor, const char *name, Text *out) {
  int64_t bytes = type_bytes(&tensor->type);
  if (!deploy_onnx_type(tensor->type.dtype))
    return status_fail(STATUS_USER, "'%s' is %s, which an ONNX file cannot hold", tensor->name, dtype_text(tensor->type.dtype));
  if (bytes + (int64_t)out->count > MOST_BYTES - (1 << 20))
    return status_fail(STATUS_USER, "an ONNX file holds up to 2 GiB, and the weights up to '%s' are more", tensor->name);
  char *values = malloc((size_t)bytes + 1);
  if (!values) return status_errno(ENOMEM, "deploy");
  Status status = exec_read(exec, tensor->place, tensor->offset, bytes, values);
  if (status == STATUS_OK) status = permute_in_place(tensor, false, values);
  if (status == STATUS_OK) append_initializer(out, tensor, name, values, (size_t)bytes);
  free(values);
  return status;
}

/* ── what ftc says ──────────────────────────────────────────────────────────────────────────── */
static Status onnx_damaged(const Artifact *artifact) {
  return status_fail(STATUS_USER, "%s is damaged: what it says of its ONNX model cannot be read", artifact->path);
}

/* The line at *at without its end, or NULL. */
static char *onnx_line(Text *said, size_t *at) {
  char *line = said->at + *at, *end = *at < said->count ? memchr(line, '\n', said->count - *at) : NULL;
  if (!end) return NULL;
  *end = 0;
  *at += (size_t)(end - line) + 1;
  return line;
}

static Status onnx_named(Exec *exec, const Artifact *artifact, char *line, Text *out) {
  const Plan *plan = artifact->plan;
  char *kind = strtok(line, " "), *name = strtok(NULL, " "), *as = strtok(NULL, " ");
  bool is_param = kind && !strcmp(kind, "param"), is_state = kind && !strcmp(kind, "state");
  if ((!is_param && !is_state) || !as) return onnx_damaged(artifact);
  int index = is_param ? plan_find_tensor(plan->params.at, plan->params.count, name)
                       : plan_find_tensor(plan->states.at, plan->states.count, name);
  if (index < 0) return onnx_damaged(artifact);
  return onnx_weight(exec, is_param ? &plan->params.at[index] : &plan->states.at[index], as, out);
}

static Status onnx_write(Exec *exec, const Artifact *artifact, Text *said, Text *out) {
  size_t at = 0;
  char *line = onnx_line(said, &at), *end;
  if (line && !strncmp(line, "refused ", 8))
    return status_fail(STATUS_USER, "%s cannot be written as ONNX: %s", artifact->plan->source, line + 8);
  if (!line || strcmp(line, "onnx 1") != 0) return onnx_damaged(artifact);
  Text weights = {0};
  Status status = STATUS_OK;
  while (status == STATUS_OK && (line = onnx_line(said, &at)) && strncmp(line, "model ", 6) != 0)
    status = onnx_named(exec, artifact, line, &weights);
  unsigned long long bytes = line && status == STATUS_OK ? strtoull(line + 6, &end, 10) : 0;
  if (status == STATUS_OK && (!line || *end || bytes != said->count - at)) status = onnx_damaged(artifact);
  if (status == STATUS_OK) {
    text_append(out, said->at + at, (size_t)bytes);
    if (weights.count) text_append(out, weights.at, weights.count);
  }
  text_free(&weights);
  return status;
}

Status deploy_onnx(Exec *exec, const Artifact *artifact, Text *out) {
  Text said = {0};
  int fd = open(artifact->path, O_RDONLY | O_CLOEXEC);
  off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
  if (fd < 0) return status_errno(errno, "%s", artifact->path);
  Status status = elf_read_section(fd, size, ".ft_onnx", &said);
  close(fd);
  if (status != STATUS_OK)
    status = status_fail(STATUS_USER, "%s says nothing of an ONNX model: compile it again with ftc --inference", artifact->path);
  if (status == STATUS_OK) status = onnx_write(exec, artifact, &said, out);
  text_free(&said);
  return status;
}
