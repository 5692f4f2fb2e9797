/* deploy_c: see deploy_c.h. GCC takes some 32 bytes of memory for a byte of an array, hence the limit. */
#include "runtime/command/deploy_c.h"
#include "runtime/artifact/elf.h"
#include "runtime/command/deploy_header.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WEIGHTS = 256 << 20 };

static Status read_text(const Artifact *artifact, Text *out) {
  int fd = open(artifact->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return status_errno(errno, "%s", artifact->path);
  Status status = elf_read_section(fd, lseek(fd, 0, SEEK_END), ".ft_c", out);
  close(fd);
  if (status != STATUS_OK)
    status = status_fail(STATUS_USER,
                         "%s has no C in it: `ftrun deploy %s -o MODEL.c` compiles so that it has, as does "
                         "`ftc %s --inference --cpu portable -o MODEL.so`",
                         artifact->path, artifact->plan->source, artifact->plan->source);
  return status;
}

/* Numbers of eight bytes, in as few characters as they take. */
static void append_weights(Text *out, const char *bytes, int64_t count) {
  text_printf(out, "\nFT_ALIGN(64) static const uint64_t ft_weights[%" PRId64 "] = {", count / 8);
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    uint64_t word = 0;
    memcpy(&word, bytes + i, sizeof word);
    text_printf(out, word < 10 ? "%s%" PRIu64 : "%s0x%" PRIx64, i ? i % 64 ? "," : ",\n" : "\n", word);
  }
  text_printf(out, "};\n");
}

Status deploy_c(const Artifact *artifact, const char *name, Text *library) {
  char bytes[2][32];
  Text text = {0}, said = {0};
  STATUS_TRY(deploy_header_name("the C file includes", name));
  if (artifact->weights > MOST_WEIGHTS)
    return status_fail(STATUS_USER, "the weights are %s, and a C file holds up to %s of them; -o MODEL.so has no such limit",
                       text_bytes(artifact->weights, bytes[0]), text_bytes(MOST_WEIGHTS, bytes[1]));
  Status status = read_text(artifact, &said);
  if (status == STATUS_OK) {
    text_printf(&text, "/* Written by ftrun deploy: the model %s for prediction; %.*s.h says how to call it. */\n#include \"%.*s.h\"\n",
                artifact->plan->model, (int)strlen(name) - 2, name, (int)strlen(name) - 2, name);
    text_append(&text, said.at, said.count);
    append_weights(&text, library->at + artifact->weights_at, artifact->weights);
    Text before = *library;
    *library = text;
    text = before;
  }
  text_free(&text);
  text_free(&said);
  return status;
}
