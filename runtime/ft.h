/* ft.h: train and run a compiled model from another program.
 *
 *   FtModel *model;
 *   if (ft_open("model.so", 0, &model)) { fputs(ft_error(), stderr); ... }
 *   ft_set(model, "train.lr", "3e-4");
 *   ft_init(model, 42);
 *   const void *batch[] = {images, labels};          // in the order of the model's arguments
 *   double loss;
 *   for (...) ft_train_step(model, batch, &loss);
 *   ft_predict(model, batch);
 *   ft_read_output(model, "logits", logits, sizeof logits);
 *   ft_close(model);
 *
 * Link with libft_runtime, libft_plan, libft_type, libft_base and what they need (OpenBLAS, oneDNN,
 * libgomp, zlib, jansson, PCRE2). A model is used by one thread at a time; several models may be open.
 * Functions that return int: 0 is success, 1 the caller's mistake, 3 a fault of the machine;
 * ft_error says it in one line. Pointers that are returned live until ft_close. */
#ifndef FT_H
#define FT_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct FtModel FtModel;

typedef struct {
  const char *name;
  const char *dtype; /* bool u8 i32 u32 i64 f16 bf16 f32 f64 */
  int rank;
  int64_t dim[8];
  int64_t bytes; /* row-major, contiguous */
} FtTensor;

/* The message of this thread's last failure. */
const char *ft_error(void);

/* Opens an artifact and allocates everything that it will need. threads 0: FT_THREADS, then
 * OMP_NUM_THREADS, then the cores at hand. Parameters are zero until ft_init or ft_write_param. */
int ft_open(const char *path, int threads, FtModel **out);
void ft_close(FtModel *model); /* NULL is fine */

/* A runtime setting, e.g. "train.lr", "3e-4"; what is compiled in (train.batch) cannot change. A
 * schedule that decays needs train.total_steps, which ftrun derives: set it with ft_set_total. */
int ft_set(FtModel *model, const char *key, const char *value);
int ft_set_total(FtModel *model, int64_t steps_per_epoch, int64_t total_steps);
/* Initial parameters and states from a seed; the step counter becomes 0. */
int ft_init(FtModel *model, uint64_t seed);

/* What the model takes, gives and learns. index counts from 0; nonzero if there is no such one. */
int ft_input(const FtModel *model, int index, FtTensor *out);
int ft_output(const FtModel *model, int index, FtTensor *out); /* of ft_predict */
int ft_param(const FtModel *model, int index, FtTensor *out);

/* One training step. inputs[i] is a whole batch of input i, copied before the call returns.
 * *loss is the loss before the update; loss may be NULL. If the model was compiled with
 * train.accumulate = k, a call takes one of k parts, and every k-th call makes the update: *loss is
 * then that of all k parts, before it the part's own. */
int ft_train_step(FtModel *model, const void *const *inputs, double *loss);
/* The evaluation graph on one batch. Inputs that no output needs (labels) may be NULL: they are
 * taken as zero. Then read outputs, the loss or metrics by name. */
int ft_predict(FtModel *model, const void *const *inputs);
int ft_read_output(FtModel *model, const char *name, void *to, size_t bytes);

/* Parameters, and states such as running statistics, by name. */
int ft_read_param(FtModel *model, const char *name, void *to, size_t bytes);
int ft_write_param(FtModel *model, const char *name, const void *from, size_t bytes);
/* Training steps done since ft_init. */
int64_t ft_steps(FtModel *model);

#ifdef __cplusplus
}
#endif
#endif
