/* ptx_text: see ptx_text.h. */
#define _GNU_SOURCE /* memmem */
#include "codegen/ptx_text.h"
#include <stdlib.h>
#include <string.h>

static const char entry_word[] = ".entry ";

/* Is what begins at `name`, up to its parameters, one of these? */
static bool is_entry_named(const char *const *names, int count, const char *name) {
  size_t length = strcspn(name, "(");
  for (int i = 0; i < count; i++)
    if (strlen(names[i]) == length && !memcmp(names[i], name, length)) return true;
  return false;
}

/* Appends PTX in which blocks of the kernels in module->paired form clusters of two (PTX ISA 7.8).
 * The directives of a kernel stand behind its parameters, .maxntid first. False: there is none. */
static bool append_paired(const Module *module, const char *text, size_t count, Text *out) {
  static const char limit[] = "\n.maxntid ";
  static const char cluster[] = "\n.explicitcluster\n.reqnctapercluster 2, 1, 1";
  const char *end = text + count, *at = text;
  while (module->paired.count &&
         (at = memmem(at, (size_t)(end - at), entry_word, strlen(entry_word)))) {
    at += strlen(entry_word);
    if (!is_entry_named(module->paired.at, module->paired.count, at)) continue;
    at = memmem(at, (size_t)(end - at), limit, strlen(limit));
    if (!at) return false;
    text_append(out, text, (size_t)(at - text));
    text_append(out, cluster, strlen(cluster));
    text = at;
  }
  text_append(out, text, (size_t)(end - text));
  return true;
}

bool ptx_launches_early(const Module *module) {
  return module->target == TARGET_PTX && atoi(module->cpu + strlen("sm_")) >= 90 &&
         !module_leaves_out(module, "early_launch");
}

/* Appends [text, end), of an ordinary kernel as it is, else without .nc. */
static void append_loads(const char *text, const char *end, bool is_ordinary, Text *out) {
  static const char load[] = "ld.global.nc.";
  const char *at;
  while (!is_ordinary && (at = memmem(text, (size_t)(end - text), load, strlen(load)))) {
    text_append(out, text, (size_t)(at - text) + strlen("ld.global."));
    text = at + strlen(load);
  }
  text_append(out, text, (size_t)(end - text));
}

/* Behind the declarations of each kernel: the rule's two instructions. */
static bool append_early(const Module *module, const char *text, Text *out) {
  static const char body[] = "\n{\n";
  static const char waits[] = "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n";
  const char *at = text;
  bool is_ordinary = false; /* the kernel that `text` is in */
  while ((at = strstr(at, entry_word))) {
    bool next = is_entry_named(module->ordinary.at, module->ordinary.count, at + strlen(entry_word));
    at = strstr(at, body);
    if (!at) return false;
    at += strlen(body);
    while (*at == '\n' || !strncmp(at, "\t.", 2) || !strncmp(at, "\t// demoted", 11)) {
      const char *line_end = strchr(at, '\n');
      if (!line_end) return false;
      at = line_end + 1;
    }
    append_loads(text, at, is_ordinary, out);
    text_append(out, waits, strlen(waits));
    text = at;
    is_ordinary = next;
  }
  append_loads(text, text + strlen(text), is_ordinary, out);
  return true;
}

bool ptx_text_append(const Module *module, const char *text, size_t count, Text *out) {
  if (!ptx_launches_early(module)) return append_paired(module, text, count, out);
  Text paired = {0};
  bool is_good =
      append_paired(module, text, count, &paired) && append_early(module, text_cstr(&paired), out);
  text_free(&paired);
  return is_good;
}
