/* transform: the rows of transforms.def, for the language, which checks what a recipe says, for the
 * plan, which holds it, and for the runtime, which does it. */
#ifndef FT_PLAN_TRANSFORM_H
#define FT_PLAN_TRANSFORM_H
#include "base/text.h"
#include "ir/type.h"

enum { TRANSFORM_PARAMETERS = 6, TRANSFORM_NUMBERS = 8, LONGEST_CHAIN = 32 };
typedef enum { TRANSFORM_WORKER, TRANSFORM_RANDOM, TRANSFORM_STEP, TRANSFORM_TRAIN, TRANSFORM_TEXT } TransformWhere;
typedef enum {
  PARAMETER_SIZE,
  PARAMETER_WHOLE,
  PARAMETER_ODD,
  PARAMETER_FLAG,
  PARAMETER_NUMBER,
  PARAMETER_RANGE,
  PARAMETER_SPREAD,
  PARAMETER_PAIR,
  PARAMETER_SHEAR,
  PARAMETER_PADDING,
  PARAMETER_COLOUR,
  PARAMETER_CHANNELS,
  PARAMETER_LENGTHS, /* no number: it is not given */
  PARAMETER_WORD /* a number from 0: which of `words` */
} ParameterType;

typedef struct {
  int count;
  double number[TRANSFORM_NUMBERS];
} TransformArgument;

typedef struct {
  const char *name;
  ParameterType type;
  double low, high;
  bool is_needed;
  TransformArgument otherwise;
  const char *words;
} TransformParameter;

typedef struct {
  const char *name;
  TransformWhere where;
  TransformParameter parameter[TRANSFORM_PARAMETERS];
} TransformKind;
extern const TransformKind transform_kinds[];
extern const int transform_kind_count;

/* One of a chain. Invariant: transform_check has passed every argument, there is one for each
 * parameter, and transform_check_together has passed all. */
typedef struct {
  const TransformKind *kind;
  TransformArgument argument[TRANSFORM_PARAMETERS];
} Transform;

/* The loader's part of a chain: so many from the first on. */
int transform_loaded(const Transform *chain, int count);
/* The one of this name in a chain; NULL: none. */
const Transform *transform_in(const Transform *chain, int count, const char *name);
/* What mixes the samples of a batch, mixup or the like; NULL: nothing does. */
const Transform *transform_mixing(const Transform *chain, int count);
/* May the last of `count` stand behind the others? NULL: yes; else why not: "hflip stands behind ..." */
const char *transform_check_chain(const Transform *chain, int count, char buffer[160]);
bool transform_is_same(const Transform *a, const Transform *b); /* kind and arguments */
/* One for images, or one for texts. NULL: there is none. */
const TransformKind *transform_find(const char *name);
const TransformKind *transform_find_text(const char *name);
int transform_parameter_count(const TransformKind *kind);
/* The argument for the parameter of this name, which the row has. */
const TransformArgument *transform_argument(const Transform *transform, const char *parameter);
/* Is this what the parameter takes? NULL: yes; else what it takes: "a whole number from 1 to 9". */
const char *transform_check(const TransformParameter *parameter, const TransformArgument *argument,
                            char buffer[96]);
/* Do its arguments, each of which has passed, go together? NULL: yes; else what is wrong. */
const char *transform_check_together(const Transform *transform, char buffer[96]);
/* The word of that number among words separated by spaces: its first byte, and its length in
 * *length; NULL: there are fewer. */
const char *transform_word(const char *words, int which, int *length);
/* The number of the word; -1: it is none of them. */
int transform_which(const char *words, const char *word, size_t length);

/* What a PADDING says: left, top, right, bottom. */
void transform_padding(const TransformArgument *argument, int side[4]);

/* As a recipe has it: " | resize(size=256, filter=bilinear) | hflip(p=0.5)". */
void transform_print(const Transform *chain, int count, Text *out);

/* How images lie in the samples of an input: [height, width], [channels, height, width] or
 * [height, width, channels], of 1 or 3 channels; the first of these that fits. */
typedef struct {
  int64_t channels, height, width;
  bool is_channels_first;
} ImageLayout;
/* Of a sample's shape, without the batch; false: such a sample is no image. */
bool image_layout(const Shape *sample, ImageLayout *out);
#endif
