/* ftopt_flags: see ftopt_flags.h. */
#include "tools/ftopt_flags.h"
#include "passes/pass.h"
#include <stddef.h>

static const Command ftopt_commands[] = {
    {NULL, "ftopt IN.ftir [--passes=a,b,...] [options]     (IN.ftir may be -, standard input)",
     NULL}};

static const Flag ftopt_flags[] = {
    {"--passes", FLAG_TEXT, 1, "LIST", FLAG_NAMES,
     "run these passes, in this order, verifying before and after each"},
    {"--interp", FLAG_SWITCH, 1, NULL, NULL,
     "evaluate the result on made-up leaf values and print the roots"},
    {"--all-values", FLAG_SWITCH, 1, NULL, NULL,
     "with --interp: leaves as well, every value, all digits"},
    {"--steps", FLAG_TEXT, 1, "N", NULL,
     "with --interp: N steps, one after the other; states go on (default 1)"},
    {"--seed", FLAG_TEXT, 1, "N", NULL, "of those values (default 0)"},
    {"--eval", FLAG_SWITCH, 1, NULL, NULL,
     "treat the graphs as evaluation graphs (those named 'eval' are anyway)"},
    {"--micro", FLAG_SWITCH, 1, NULL, NULL,
     "treat them as those of a part of a batch (train.accumulate)"},
    {"--gpu", FLAG_SWITCH, 1, NULL, NULL, "compile for PTX instead of the CPU"},
    {"--along-k", FLAG_SWITCH, 1, NULL, NULL, "with --gpu: one that multiplies 8-bit floats along k only, as sm_90a does"},
    {"--sparse", FLAG_TEXT, 1, "NAMES", NULL, "parameters that have two of each four neighbours of a row, as ftc --sparse"},
    {"--set", FLAG_TEXT, 1, "KEY=VALUE", FLAG_SETTINGS,
     "a setting that passes read, such as train.optimizer=adamw"},
    {"--dot", FLAG_SWITCH, 1, NULL, NULL, "print the result as a Graphviz graph"},
    {"--verify-each", FLAG_SWITCH, 1, NULL, NULL, "it always does"},
    {"--list-passes", FLAG_SWITCH, 1, NULL, NULL, "print the pipeline, one pass a line, and stop"},
};

static const char *const ftopt_paragraphs[] = {NULL};
static const FlagNote ftopt_codes[] = {{"0", "done"},
                                       {"1", "a graph, a pass or a setting is wrong"},
                                       {"2", "the command line is wrong"},
                                       {"3", "a fault of the machine"},
                                       {NULL, NULL}};

const CommandLine ftopt_line = {
    .program = "ftopt",
    .about = "runs passes over graphs in text form",
    .commands = ftopt_commands,
    .command_count = sizeof ftopt_commands / sizeof *ftopt_commands,
    .flags = ftopt_flags,
    .flag_count = sizeof ftopt_flags / sizeof *ftopt_flags,
    .files = ".ftir",
    .paragraphs = ftopt_paragraphs,
    .names_are = "passes",
    .name = pass_name,
    .codes = ftopt_codes,
    .prefix = "ftopt: ",
};
