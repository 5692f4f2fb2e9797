/* ftrun_study_private: what a trial's point means for a training: settings of the run, and settings and hypers that are compiled in,
 * for each choice of which there is an artifact in the study's folder. */
#ifndef FT_TOOLS_FTRUN_STUDY_PRIVATE_H
#define FT_TOOLS_FTRUN_STUDY_PRIVATE_H
#include "tools/ftrun_study.h"

typedef enum { SETS_RUN, SETS_STATIC, SETS_HYPER } HowSet;

typedef struct {
  TuneOptions *o;
  HowSet how[SPACE_MOST];
  char key[SPACE_MOST][SPACE_NAME + 8]; /* "train.lr"; of a hyper its name */
  bool is_ptx;
  const char *gpu;
  char first[4096]; /* an artifact: of the model as it is */
} StudyBuild;

/* Finds out what each dimension sets; makes the study's folder and the first artifact. */
STATUS_CHECKED Status build_begin(StudyBuild *build, TuneOptions *options);
/* --goal, or what the recipe's best checkpoint is chosen by, or the loss. */
STATUS_CHECKED Status build_goal(const StudyBuild *build, char *out, size_t capacity);
/* Has the log of a training, of the model as it is, the numbers that the goals name? */
STATUS_CHECKED Status build_check_goals(const StudyBuild *build, const Goals *goals, const char *text);
/* What the goals ask of the artifact itself: model.parameters and the like, into values. */
STATUS_CHECKED Status build_measure(const char *artifact, const Goals *goals, double *values);
/* The artifact of a point, compiled if it is not there. 0, or it fails with why[200]. */
int build_artifact(const StudyBuild *build, const double *point, char path[4096], char why[200]);
/* Behind a trial: removes what no other trial will use. */
void build_drop(const StudyBuild *build, const double *point, const char *path);
/* "train.lr=0.003" …, ends with NULL; owned by the caller. NULL: no memory. */
char **build_runtime_sets(const StudyBuild *build, const double *point);
/* A sum of the .ft file's text as it is now; "" of an artifact, or if it cannot be read. */
void build_source(const StudyBuild *build, char out[20]);
/* Writes them into the .ft file: an exit code; failures have been told. */
int build_apply(const StudyBuild *build, const double *point);
/* A command line that trains with these. */
void build_command(const StudyBuild *build, const double *point, Text *out);
#endif
