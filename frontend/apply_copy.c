/* apply_copy: see apply.h. */
#include "frontend/apply.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool apply_copy(Arena *arena, Diag *diag, const Program *program, const FrontendOptions *options, const char *output) {
  VEC(const char *) choices = {0};
  FrontendOptions plain = {.allow_paths = options->allow_paths};
  Text text = {0};
  char *said = NULL;
  size_t count = 0;
  for (int i = 0; i < options->set_count; i++) VEC_PUSH(arena, choices, options->sets[i]);
  for (int i = 0; i < program->hypers.count; i++) {
    const Hyper *hyper = &program->hypers.at[i];
    if (!strcmp(hyper->from, "-D") || !strncmp(hyper->from, "preset ", 7))
      VEC_PUSH(arena, choices, arena_printf(arena, "%s=%s", hyper->name, hyper->value));
  }
  int error = text_read_file(&text, program->path);
  if (!error) error = text_write_file(output, text_cstr(&text), text.count);
  text_free(&text);
  if (error) {
    diag_error(diag, (Loc){0}, "cannot write '%s': %s", output, text_error(error));
    return false;
  }
  FILE *nobody = open_memstream(&said, &count);
  bool fine = nobody && apply_write(arena, diag, output, &plain, choices.at, choices.count, nobody);
  if (nobody) fclose(nobody);
  free(said);
  if (!fine) unlink(output);
  return fine;
}
