/* ft.h: train and run a compiled model from another program. docs/embedding.md has whole programs.
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
 *   ft_save_weights(model, "w.safetensors");
 *   ft_close(model);
 *
 * Link with libft.so (`pkg-config --libs ft`), or with libft_runtime, libft_plan, libft_type, libft_base and what they need
 * (zlib, zstd, jansson, PCRE2). oneDNN and OpenBLAS are opened where a model needs them. A model is used by one thread at a time, not always the same
 * one; several models may be open. A thread's current CUDA context is after each call what it was before. Functions that return int: 0 is success, 1 the caller's mistake, 3 a fault of the machine;
 * ft_error says it in one line. Pointers that are returned live until ft_close. Nothing here ends
 * the process: NULL where a pointer is needed is a mistake, no memory a fault; what a call had
 * allocated when memory ended may be lost. Opening a .so runs code in it: see SECURITY.md. */
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
 * OMP_NUM_THREADS, then the cores at hand. Parameters are zero until ft_init, ft_load_weights or ft_write_param. */
int ft_open(const char *path, int threads, FtModel **out);
void ft_close(FtModel *model); /* NULL is fine */

/* The same with a choice; {0} is what ft_open does. */
enum { FT_TRAIN = 1, FT_PREDICT = 2, FT_GENERATE = 4 };
typedef struct {
  const char *device; /* "auto" (or NULL: a GPU for a .ptx), "cpu", "cuda", "cuda:1", "sim" */
  int threads;
  int deterministic; /* nonzero: the same bits in every run, also on a GPU */
  unsigned uses;     /* FT_..., joined by |: what it will be asked to do, and memory for no more; 0:
                        FT_TRAIN | FT_PREDICT */
} FtOptions;
int ft_open_with(const char *path, const FtOptions *options, FtModel **out);
const char *ft_device(const FtModel *model); /* "cpu, 2 threads" */

/* A runtime setting, e.g. "train.lr", "3e-4"; what is compiled in (train.batch) cannot change, and what nothing here would
 * read is refused: settings of ftrun's own loop (train.epochs, data.shuffle), a momentum that the model was compiled without.
 * A schedule that decays needs train.total_steps, which ftrun derives: set it with ft_set_total. plateau follows ftrun's
 * evaluations: here the caller lowers train.lr. */
int ft_set(FtModel *model, const char *key, const char *value);
/* Any setting as text, as the file or ft_set has it, into `bytes` bytes with a 0 at the end: "train.seed", "train.batch". */
int ft_get(FtModel *model, const char *key, char *value, size_t bytes);
int ft_set_total(FtModel *model, int64_t steps_per_epoch, int64_t total_steps);
/* Initial parameters and states from a seed up to 2^53, which becomes train.seed, from which a step draws its random numbers (dropout);
 * the step counter becomes 0. */
int ft_init(FtModel *model, uint64_t seed);

/* What the model takes, gives and learns. index counts from 0; nonzero if there is no such one. */
int ft_input(const FtModel *model, int index, FtTensor *out);
int ft_output(const FtModel *model, int index, FtTensor *out); /* of ft_predict */
int ft_param(const FtModel *model, int index, FtTensor *out);
int ft_state(const FtModel *model, int index, FtTensor *out); /* kept with the parameters and not trained: running statistics */

/* One training step. inputs[i] is a whole batch of input i, copied before the call returns. Labels
 * and tokens outside of what the model was compiled for are refused.
 * *loss is the loss before the update; loss may be NULL. If the model was compiled with
 * train.accumulate = k, a call takes one of k parts, and every k-th call makes the update: *loss is
 * then that of all k parts, before it what the part adds to that. */
int ft_train_step(FtModel *model, const void *const *inputs, double *loss);
/* The evaluation graph on one batch. Inputs that no output needs (labels) may be NULL: they are
 * taken as zero. Then read outputs, the loss or metrics by name, before anything else runs. */
int ft_predict(FtModel *model, const void *const *inputs);
int ft_read_output(FtModel *model, const char *name, void *to, size_t bytes);

/* Parameters, and states such as running statistics, by name. Elements are in row-major order,
 * whatever order the compiler chose for memory. States that nobody wrote are what the program says. */
int ft_read_param(FtModel *model, const char *name, void *to, size_t bytes);
int ft_write_param(FtModel *model, const char *name, const void *from, size_t bytes);
/* Training steps done since ft_init. */
int64_t ft_steps(FtModel *model);

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
/* Weights as `ftrun --save`, `--init` and Hugging Face's .safetensors have them: all parameters and
 * the model's own states, such as running statistics. Files are written beside and renamed. */
int ft_load_weights(FtModel *model, const char *path);
int ft_save_weights(FtModel *model, const char *path);
/* A checkpoint: all that training goes on from exactly, but for the place in the data, which is the
 * caller's. Not amid a step's parts. ft_resume takes a file, or a folder for its newest whole one.
 */
int ft_save(FtModel *model, const char *path);
int ft_resume(FtModel *model, const char *path);

/* ── generation: FT_GENERATE, of a model that `ftrun generate` takes ───────────────────────── */
typedef struct {
  double temperature; /* scores are divided by it; 0: always the likeliest token */
  int64_t top_k;      /* among the k likeliest; 0: all */
  double top_p;       /* and among the likeliest that together have this probability; 1: all */
} FtSampling;
int64_t ft_vocabulary(const FtModel *model); /* how many tokens there are; 0: no such model */
/* Begins a text with count > 0 tokens. The same seed draws the same tokens. Training, prediction
 * and new weights in between are fine: the text is then read again. */
int ft_prompt(FtModel *model, const int64_t *tokens, int64_t count, uint64_t seed);
/* Draws the next token, which the text goes on with. */
int ft_next(FtModel *model, const FtSampling *sampling, int64_t *token);
/* The text goes on with a token of the caller's, in place of one that is drawn. */
int ft_append(FtModel *model, int64_t token);
/* The scores of the next token (logits), ft_vocabulary of them; ft_next after it costs nothing
 * more. */
int ft_scores(FtModel *model, float *scores, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
