/* machine: see machine.h. */
#include "plan/machine.h"
#include "base/text.h"
#include <string.h>

const Machine machine_table[] = {
#define MACHINE(name, what, target, gibibytes, rate, f32, tf32, half, count, mhz, kind, link,      \
                reached, network)                                                                  \
  {name,                                                                                           \
   what,                                                                                           \
   target,                                                                                         \
   gibibytes * 0x1p30,                                                                             \
   (rate) * 1e9,                                                                                   \
   (f32) * 1e12,                                                                                   \
   (tf32) * 1e12,                                                                                  \
   (half) * 1e12,                                                                                  \
   count,                                                                                          \
   (mhz) * 1e6,                                                                                    \
   LINK_##kind,                                                                                    \
   (link) * 1e9,                                                                                   \
   (reached) * 1e9,                                                                                \
   (network) * 1e9 / 8},
#include "plan/machines.def"
#undef MACHINE
};
enum { COUNT = sizeof machine_table / sizeof *machine_table };
const int machine_count = COUNT;

const Machine *machine_find(const char *name) {
  for (int i = 0; i < COUNT; i++)
    if (!strcmp(machine_table[i].name, name)) return &machine_table[i];
  return NULL;
}

const char *machine_nearest(const char *name) {
  const char *names[COUNT];
  for (int i = 0; i < COUNT; i++) names[i] = machine_table[i].name;
  return text_nearest(name, names, COUNT);
}

const char *link_kind_text(LinkKind kind) {
  static const char *const text[LINK_KINDS] = {"NVLink", "PCIe", "memory", "network"};
  return text[kind];
}
