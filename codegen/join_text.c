/* join_text: the text of joined kernels: see join.h. A kernel's body becomes a block of the joined one, in which its
 * names mean what they meant: registers are the block's own; parameters, labels and the numbers of blocks and threads
 * are other words. What the parts have in shared memory lies in the same bytes, since a block runs one of them. */
#define _GNU_SOURCE /* memmem */
#include "codegen/join.h"
#include "codegen/ptx_text.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A kernel in the text of the modules. */
typedef struct {
  const char *name;
  size_t name_length;
  const char *begin, *limits, *body, *code, *end; /* limits: behind the parameters; code: behind declarations */
} KernelText;

enum { MOST_SHARED_VARIABLES = 64 };
typedef struct {
  const char *name;
  size_t length;
  int64_t offset;
} SharedVariable;

typedef struct {
  const Join *join;
  const JoinPart *part;
  int number; /* of the part */
  SharedVariable variable[MOST_SHARED_VARIABLES];
  int variable_count;
  int64_t shared_bytes;
  Text *out;
  const char **what;
} PartText;

/* ── kernels in the text ──────────────────────────────────────────────────────────────────── */
static const char visible_entry[] = ".visible .entry ", constant_load[] = "ld.global.nc";

static const char *behind_word(const char *at, const char *end, const char *word) {
  const char *found = at ? memmem(at, (size_t)(end - at), word, strlen(word)) : NULL;
  return found ? found + strlen(word) : NULL;
}

static bool is_declaration(const char *line) {
  return *line == '\n' || !strncmp(line, "\t.reg", 5) || !strncmp(line, "\t.shared", 8) ||
         !strncmp(line, "\t.local", 7) || !strncmp(line, "\t// demoted", 11);
}

/* False: there is no kernel from `at` on. */
static bool find_kernel_text(const char *at, const char *end, KernelText *out) {
  const char *name = behind_word(at, end, visible_entry);
  if (!name) return false;
  *out = (KernelText){.name = name, .name_length = strcspn(name, "("), .begin = name - strlen(visible_entry)};
  out->limits = behind_word(name, end, "\n)");
  out->body = behind_word(out->limits, end, "\n{\n");
  out->end = out->body ? behind_word(out->body - 1, end, "\n}\n") : NULL;
  if (!out->end) return false;
  for (out->code = out->body; out->code < out->end && is_declaration(out->code);)
    out->code = strchr(out->code, '\n') + 1;
  return true;
}

static bool is_kernel_named(const KernelText *kernel, const char *name) {
  return strlen(name) == kernel->name_length && !memcmp(name, kernel->name, kernel->name_length);
}

static bool is_launched(const Plan *plan, const KernelText *kernel) {
  for (int g = 0; g < plan->graphs.count; g++)
    for (int i = 0; i < plan->graphs.at[g].steps.count; i++)
      if (plan->graphs.at[g].steps.at[i].kind == STEP_LAUNCH &&
          is_kernel_named(kernel, plan->graphs.at[g].steps.at[i].name))
        return true;
  return false;
}

/* ── shared memory ────────────────────────────────────────────────────────────────────────── */
static int64_t element_bytes(const char *type) {
  int bits = atoi(type + 2); /* .b8, .u32, .f64 */
  return bits >= 8 ? bits / 8 : 0;
}

/* One declaration, "\t.shared .align 16 .b8 panels[16896];". */
static bool take_shared(PartText *p, const char *line) {
  char type[16], name[256];
  int64_t align = 0, count = 1;
  int read = sscanf(line, "\t.shared .align %" SCNd64 " %15s %255[^[;][%" SCNd64 "]", &align, type, name, &count);
  if (read < 3 || align < 1 || count < 1 || !element_bytes(type) || p->variable_count == MOST_SHARED_VARIABLES)
    return false;
  SharedVariable *variable = &p->variable[p->variable_count++];
  variable->name = strstr(line, name);
  variable->length = strlen(name);
  variable->offset = (p->shared_bytes + align - 1) / align * align;
  p->shared_bytes = variable->offset + count * element_bytes(type);
  return true;
}

static bool take_all_shared(PartText *p, const KernelText *kernel, int64_t *align) {
  for (const char *line = kernel->body; line < kernel->code; line = strchr(line, '\n') + 1) {
    int64_t own = 0;
    if (strncmp(line, "\t.shared", 8) != 0) continue;
    if (!take_shared(p, line)) return false;
    if (sscanf(line, "\t.shared .align %" SCNd64, &own) == 1 && own > *align) *align = own;
  }
  return true;
}

/* ── words ────────────────────────────────────────────────────────────────────────────────── */
static bool is_word(const char *word, size_t length, const char *is) {
  return strlen(is) == length && !memcmp(word, is, length);
}

static bool begins(const char *word, size_t length, const char *with) {
  return strlen(with) <= length && !memcmp(word, with, strlen(with));
}

/* Of a special register: what stands for it in this part. NULL: it is the same in all. */
static const char *special_of(const PartText *p, const char *word, size_t length, char *number) {
  static const char *const own[3][2] = {
      {"%ctaid.x", "%join_x"}, {"%ctaid.y", "%join_y"}, {"%ctaid.z", "%join_z"}};
  static const char *const counts[6] = {"%nctaid.x", "%nctaid.y", "%nctaid.z",
                                        "%ntid.x",   "%ntid.y",   "%ntid.z"};
  for (int i = 0; i < 3; i++)
    if (is_word(word, length, own[i][0])) return own[i][1];
  for (int i = 0; i < 6; i++) {
    if (!is_word(word, length, counts[i])) continue;
    snprintf(number, 32, "%" PRId64, i < 3 ? p->part->grid[i] : i == 3 ? p->part->threads : 1);
    return number;
  }
  return NULL;
}

/* "name+8" of a variable: what follows the name is read too. The end of what was read. */
static const char *append_shared(PartText *p, const SharedVariable *variable, const char *at) {
  int64_t offset = variable->offset;
  if (*at == '+' && isdigit((unsigned char)at[1])) offset += strtoll(at + 1, (char **)(uintptr_t)&at, 10);
  text_printf(p->out, "%s_shared", p->join->name);
  if (offset) text_printf(p->out, "+%" PRId64, offset);
  return at;
}

/* A barrier of all threads of the part, of which the joined kernel may have more. NULL: it is another one. */
static const char *append_barrier(PartText *p, const char *word, const char *at) {
  if (p->part->threads == p->join->threads) {
    text_append(p->out, word, (size_t)(at - word));
    return at;
  }
  const char *number = at + strspn(at, " \t");
  if (!is_word(word, (size_t)(at - word), "bar.sync") || strncmp(number, "0;", 2) != 0) return NULL;
  text_printf(p->out, "bar.sync \t0, %d", p->part->threads);
  return number + 1;
}

/* Appends what stands for a word; the end of what was read, NULL if nothing does. */
static const char *append_join_word(PartText *p, const char *word, size_t length) {
  const char *at = word + length, *other;
  char number[32];
  size_t own = strlen(p->part->name);
  for (int i = 0; i < p->variable_count; i++)
    if (length == p->variable[i].length && !memcmp(word, p->variable[i].name, length))
      return append_shared(p, &p->variable[i], at);
  if (begins(word, length, p->part->name) && begins(word + own, length - own, "_param_")) {
    int parameter = atoi(word + own + strlen("_param_"));
    if (parameter < 0 || parameter >= p->part->parameter_count) return NULL;
    text_printf(p->out, "%s_param_%d", p->join->name, p->part->parameters[parameter]);
  } else if ((other = special_of(p, word, length, number)) != NULL) {
    text_printf(p->out, "%s", other);
  } else if (begins(word, length, "%cluster") || begins(word, length, "%ncluster") ||
             begins(word, length, "%gridid")) {
    return NULL;
  } else if (begins(word, length, "griddepcontrol.")) { /* the joined kernel has waited */
    return at + strspn(at, ";");
  } else if (p->part->is_followed && is_word(word, length, "ret")) {
    text_printf(p->out, "bra \t$join_behind_%d", p->number);
  } else if ((p->part->follows || p->part->is_followed) && begins(word, length, constant_load)) { /* another part may write there */
    text_printf(p->out, "ld.global%.*s", (int)(length - strlen(constant_load)), word + strlen(constant_load));
  } else if (*word == '$') {
    text_printf(p->out, "$join%d_%.*s", p->number, (int)length - 1, word + 1);
  } else if ((begins(word, length, "bar.") || begins(word, length, "barrier.")) &&
             !is_word(word, length, "bar.warp.sync")) {
    return append_barrier(p, word, at);
  } else {
    text_append(p->out, word, length);
  }
  return at;
}

static bool append_words(PartText *p, const char *at, const char *end) {
  while (at < end) {
    const char *word = at;
    while (at < end && (isalnum((unsigned char)*at) || strchr("_$%.", *at))) at++;
    if (at == word) {
      text_append(p->out, at++, 1);
      continue;
    }
    const char *next = append_join_word(p, word, (size_t)(at - word));
    if (!next) {
      *p->what = arena_strndup(p->join->arena, word, (size_t)(at - word));
      return false;
    }
    at = next;
  }
  return true;
}

/* ── a part ───────────────────────────────────────────────────────────────────────────────── */
/* low = from % by, high = from / by. */
static void append_split(Text *out, const char *low, const char *high, const char *from, int64_t by) {
  int shift = 0;
  while (INT64_C(1) << shift < by) shift++;
  if (INT64_C(1) << shift == by)
    text_printf(out, "\tand.b32 \t%s, %s, %" PRId64 ";\n\tshr.u32 \t%s, %s, %d;\n", low, from, by - 1, high, from,
                shift);
  else
    text_printf(out, "\trem.u32 \t%s, %s, %" PRId64 ";\n\tdiv.u32 \t%s, %s, %" PRId64 ";\n", low, from, by, high,
                from, by);
}

static void append_join_place(PartText *p, int64_t first_block) {
  const int64_t *grid = p->part->grid;
  text_printf(p->out, "\t.reg .b32 \t%%join_x, %%join_y, %%join_z, %%join_own;\n");
  if (p->part->threads < p->join->threads && !p->part->follows)
    text_printf(p->out,
                "\tmov.u32 \t%%join_own, %%tid.x;\n\tsetp.ge.u32 \t%%join_beyond, %%join_own, %d;\n"
                "\t@%%join_beyond bra \t$join_end;\n",
                p->part->threads);
  text_printf(p->out, "\tsub.s32 \t%%join_own, %%join_block, %" PRId64 ";\n", first_block);
  if (grid[1] == 1 && grid[2] == 1) {
    text_printf(p->out, "\tmov.u32 \t%%join_x, %%join_own;\n\tmov.b32 \t%%join_y, 0;\n\tmov.b32 \t%%join_z, 0;\n");
    return;
  }
  append_split(p->out, "%join_x", "%join_own", "%join_own", grid[0]);
  append_split(p->out, "%join_y", "%join_z", "%join_own", grid[1]);
}

/* next: the first part of the blocks behind these. */
static bool append_join_part(PartText *p, const KernelText *kernel, int64_t first_block, int64_t end_block, int next_line) {
  bool is_last = next_line == p->join->part_count;
  if (p->part->follows) { /* what the part before has written, all threads of the block may read now */
    text_printf(p->out, "$join_behind_%d:\n\t", p->number - 1);
    const char barrier[] = "bar.sync \t0;";
    append_barrier(p, barrier, barrier + strlen("bar.sync"));
    text_printf(p->out, "%s\n", p->part->threads == p->join->threads ? " \t0;" : ";");
  } else if (!is_last)
    text_printf(p->out, "\tsetp.ge.u32 \t%%join_beyond, %%join_block, %" PRId64 ";\n\t@%%join_beyond bra \t$join_%d;\n",
                end_block, next_line);
  text_printf(p->out, "{\n");
  for (const char *line = kernel->body; line < kernel->code;) {
    const char *next = strchr(line, '\n') + 1;
    bool is_dropped = *line == '\n' || !strncmp(line, "\t.shared", 8) || !strncmp(line, "\t//", 3);
    if (!is_dropped) text_append(p->out, line, (size_t)(next - line));
    line = next;
  }
  append_join_place(p, first_block);
  if (!append_words(p, kernel->code, kernel->end - 2)) return false;
  text_printf(p->out, "}\n");
  if (!is_last && !p->part->is_followed) text_printf(p->out, "$join_%d:\n", next_line);
  return true;
}

/* ── a joined kernel ──────────────────────────────────────────────────────────────────────── */
/* The blocks that must fit a multiprocessor, where each part says some; 0: one does not, -1: another word stands
 * there. */
static int least_resident(const KernelText *const *kernel, int count) {
  int least = 0;
  for (int i = 0; i < count; i++) {
    int threads, blocks = 0, length = 0;
    const char *at = kernel[i]->limits, *end = kernel[i]->body - strlen("\n{\n");
    if (sscanf(at, "\n.maxntid %d, 1, 1%n", &threads, &length) < 1 || !length) return -1;
    at += length;
    if (at < end && sscanf(at, "\n.minnctapersm %d%n", &blocks, &length) == 1) at += length;
    if (at != end) return -1;
    least = i == 0 || blocks < least ? blocks : least;
  }
  return least;
}

static void append_head(const Join *join, int resident, int64_t shared, int64_t align, bool is_early, Text *out) {
  text_printf(out, "\t// .globl\t%s\n// joins", join->name);
  for (int i = 0; i < join->part_count; i++) text_printf(out, "%s %s", i ? "," : "", join->part[i].name);
  text_printf(out, "\n.visible .entry %s(\n", join->name);
  for (int i = 0; i < join->parameter_count; i++)
    text_printf(out, "\t.param .u64 %s_param_%d%s\n", join->name, i, i + 1 < join->parameter_count ? "," : "");
  text_printf(out, ")\n.maxntid %d, 1, 1\n", join->threads);
  if (resident) text_printf(out, ".minnctapersm %d\n", resident);
  text_printf(out, "{\n\t.reg .pred \t%%join_beyond;\n\t.reg .b32 \t%%join_block;\n");
  if (shared) text_printf(out, "\t.shared .align %" PRId64 " .b8 %s_shared[%" PRId64 "];\n", align, join->name, shared);
  if (is_early) text_printf(out, "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n");
  text_printf(out, "\tmov.u32 \t%%join_block, %%ctaid.x;\n");
}

static bool append_join(const Join *join, const KernelText *const *kernel, bool is_early, Text *out,
                        const char **what) {
  PartText *parts = ARENA_ARRAY(join->arena, PartText, join->part_count);
  int64_t shared = 0, align = 16, blocks = 0;
  int resident = least_resident(kernel, join->part_count);
  *what = "the limits of a kernel that is joined";
  if (resident < 0) return false;
  for (int i = 0; i < join->part_count; i++) {
    parts[i] = (PartText){.join = join, .part = &join->part[i], .number = i, .out = out, .what = what};
    *what = "a variable in shared memory";
    if (!take_all_shared(&parts[i], kernel[i], &align)) return false;
    if (parts[i].shared_bytes > shared) shared = parts[i].shared_bytes;
  }
  append_head(join, resident, shared, align, is_early, out);
  for (int i = 0; i < join->part_count; i++) {
    const int64_t *grid = join->part[i].grid;
    int64_t end = blocks + grid[0] * grid[1] * grid[2];
    int next_line = i + 1;
    while (next_line < join->part_count && join->part[next_line].follows) next_line++;
    if (!append_join_part(&parts[i], kernel[i], blocks, end, next_line)) return false;
    if (!join->part[i].is_followed) blocks = end;
  }
  text_printf(out, "$join_end:\n\tret;\n\n}\n");
  return true;
}

static bool append_joins(const Module *first, const KernelText *kernels, int count, Text *out, const char **what) {
  for (int j = 0; j < first->joins.count; j++) {
    const Join *join = first->joins.at[j];
    const KernelText *found[JOIN_MOST_PARTS] = {NULL};
    for (int i = 0; i < join->part_count; i++) {
      for (int k = 0; k < count && !found[i]; k++)
        if (is_kernel_named(&kernels[k], join->part[i].name)) found[i] = &kernels[k];
      *what = join->part[i].name;
      if (!found[i]) return false;
    }
    if (!append_join(join, found, ptx_launches_early(first), out, what)) return false;
  }
  return true;
}

bool join_ptx(const Module *first, const Plan *plan, const char *text, Text *out, const char **what) {
  const char *end = text + strlen(text), *at = text;
  if (!first->joins.count) {
    text_append(out, text, (size_t)(end - text));
    return true;
  }
  VEC(KernelText) kernels = {0};
  KernelText kernel;
  for (; find_kernel_text(at, end, &kernel); at = kernel.end) {
    VEC_PUSH(first->arena, kernels, kernel);
    const char *until = is_launched(plan, &kernel) ? kernel.end : kernel.begin;
    text_append(out, at, (size_t)(until - at));
  }
  text_append(out, at, (size_t)(end - at));
  return append_joins(first, kernels.at, kernels.count, out, what);
}
