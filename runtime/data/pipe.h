/* pipe: the transforms of a split that run on pixels, checked once and then run by any thread on
 * any sample. What a random one draws depends on the draw's three numbers and its own place in the
 * chain, never on the thread, on ranks, or on what was drawn before. */
#ifndef FT_RUNTIME_PIPE_H
#define FT_RUNTIME_PIPE_H
#include "plan/plan.h"
#include "runtime/image/image.h"

typedef struct {
  uint64_t seed, epoch, sample; /* sample < 2^48, epoch < 2^32 */
} PipeDraw;

/* data->transforms up to those of the step. */
typedef struct {
  const Transform *transforms; /* the plan's */
  int count;
  ImageLayout layout; /* of the input */
} Pipe;

/* `now` is no whole picture of its own size but, of one of height x width that was decoded `scale` times smaller, the
 * pixels from (left, top) on. Behind random_resized_crop's part, `inside` is what of them is resampled. */
typedef struct {
  bool is_cut;
  int scale, left, top, height, width;
  double inside[4];
} PipePart;

/* What the first transforms look at of a picture: at which scale it may be decoded, and which pixels {x0, y0, x1, y1}
 * of the file. Whoever starts the chain with them puts `part` in the worker, and for `is_box` fills in its `inside`. */
typedef struct {
  int scale;
  bool is_part; /* not all pixels; else those of the box are all */
  bool is_box;  /* the box is what random_resized_crop cuts out */
  int box[4];
  PipePart part;
} PipeNeeds;

/* What a thread has to itself: pictures, which grow to the largest that it has met. The first is
 * what the chain starts from. */
typedef struct {
  ImageWorker *images;
  Image *now, picture[2];
  bool flip_x, flip_y; /* still to be done */
  PipePart part;
  ImageWindow resize; /* of `now`, still to be done; in_width 0: none */
} PipeWorker;

Pipe pipe_of(const DataSource *data, const ImageLayout *layout);
/* Does it draw anything? Else a sample is the same in every epoch. */
bool pipe_is_random(const Pipe *pipe);
/* Are all pictures of one size behind it, whatever they were in front? */
bool pipe_fixes_size(const Pipe *pipe);

STATUS_CHECKED Status pipe_worker_new(PipeWorker *out); /* freed after a failure too */
void pipe_worker_free(PipeWorker *worker);
int64_t pipe_worker_memory(const PipeWorker *worker); /* of its pictures and decoder, bytes */
/* The picture that the chain starts from, to be written. */
Image *pipe_start(PipeWorker *worker);
/* … in the layout `from`, from memory. */
STATUS_CHECKED Status pipe_load(PipeWorker *worker, const ImageLayout *from, const uint8_t *at);
/* Of a picture of this size; may_scale: JPEG's, if the chain pipe_scales. */
PipeNeeds pipe_needs(const Pipe *pipe, PipeDraw draw, int height, int width, bool may_scale);
/* Does the chain begin with a transform that makes pictures smaller? */
bool pipe_scales(const Pipe *pipe);
/* How many of its transforms, from the first on, make the same of a picture each time. */
int pipe_fixed(const Pipe *pipe);
/* Transforms [first, end) of the chain. A failure says what is wrong with the picture. */
STATUS_CHECKED Status pipe_run(const Pipe *pipe, int first, int end, PipeWorker *worker,
                               PipeDraw draw);
/* Writes the picture as the layout has it. */
STATUS_CHECKED Status pipe_write(const Pipe *pipe, const PipeWorker *worker, uint8_t *out);
#endif
