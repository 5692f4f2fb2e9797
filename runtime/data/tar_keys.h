/* tar_keys: which files of a sample of WebDataset's are for which input, as keys= says it:
 * keys="jpg;png, cls, json:age" gives the first input a sample's .jpg or, where it has none, .png; the
 * second its .cls; the third the member "age" of its .json. Without it these are "jpg;jpeg;png, cls". */
#ifndef FT_RUNTIME_TAR_KEYS_H
#define FT_RUNTIME_TAR_KEYS_H
#include "plan/source_kind.h"
#include "runtime/common/status.h"

enum { TAR_WAYS = 4, TAR_KEY_MOST = 63 };
typedef enum { TAR_IMAGE, TAR_WHOLE, TAR_JSON, TAR_NPY } TarContent;
/* One of the ways to have an input. */
typedef struct {
  char ending[TAR_KEY_MOST + 1]; /* all behind the first dot, in small letters */
  char field[TAR_KEY_MOST + 1];  /* of JSON; "": the whole */
  TarContent content;
} TarWay;
typedef struct {
  TarWay way[TAR_WAYS];
  int count;
} TarKey;
/* keys: as many as the model has inputs. */
STATUS_CHECKED Status tar_keys_read(const DataSource *data, const PlanTensor *inputs,
                                    int input_count, TarKey *keys);
/* What a file's name is made of, as WebDataset has it: a key up to the first dot of its last part, and
 * what is behind the dot. False: such files are left out. */
bool tar_keys_split(const char *name, size_t *key, const char **ending);
#endif
