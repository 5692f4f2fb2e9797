/* weight_files: the tensors of one or several files of weights under one roof, with the names that
 * --init-rename gives them. A path is a .safetensors file; the index of a model in several files
 * (Hugging Face's model.safetensors.index.json); or a folder that has that, or model.safetensors.
 * Weights of 8 and 4 bits are f32 here (weight_packed.h).
 * All of it is hostile input. */
#ifndef FT_RUNTIME_WEIGHT_FILES_H
#define FT_RUNTIME_WEIGHT_FILES_H
#include "base/arena.h"
#include "runtime/data/safetensors.h"

typedef struct {
  Safetensors all;   /* the tensors, and nothing else of a file */
  const char **path; /* of each of them */
  const char *named; /* "a.safetensors", "a.safetensors, b.safetensors" */
  int replaced;      /* tensors of earlier paths that a later one has, too */
  int left_out;      /* … that a pattern without a new name takes away */
  bool is_several;   /* files */
  Arena *arena;
  VEC(Safetensors *) files;
} WeightFiles;

/* Of several paths the later ones go before. A rename is "old.*=new.*": each * of the left, which
 * takes as few letters as it can, dots among them, stands in the place of a * on the right; nothing
 * on the right leaves the tensors out. They are applied in order, each to the names that those
 * before have made, and one that no tensor's name matches is an error. */
STATUS_CHECKED Status weight_files_open(const char *const *paths, int count,
                                        const char *const *renames, int rename_count,
                                        WeightFiles *out);
void weight_files_close(WeightFiles *files); /* also after a failed open */
/* As element_converts, but whole numbers are no weights: those of a rounded layer come with a scale, and were multiplied by it. */
bool weight_files_converts(Element from, DType to);
/* Is it a range of inputs or a scale of a rounded layer? One that is no finite number is none. */
bool weight_files_is_of_rounding(const char *name);
STATUS_CHECKED Status weight_files_check(const SafeTensor *tensor, const char *path);
const char *weight_files_path(const WeightFiles *files, const SafeTensor *tensor);
#endif
