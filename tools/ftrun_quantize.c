/* ftrun_quantize: see ftrun_quantize.h. ftc compiles the program twice into a folder that goes with this process: as it is, and
 * quantised, both with taps; in between runtime/command/quantize.h finds scales and ranges. */
#include "tools/ftrun_quantize.h"
#include "base/say.h"
#include "base/text.h"
#include "plan/quant_form.h"
#include "runtime/command/quantize.h"
#include "runtime/command/ranks.h"
#include "runtime/device/devices.h"
#include "tools/ftrun_compile.h"
#include "tools/ftrun_flags.h"
#include "tools/ftrun_folder.h"
#include "tools/number.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 512 };

typedef struct {
  int command;
  const char *source, *output;
  QuantizeOptions quantize;
  const char *layers[MOST_WORDS], *stay[MOST_WORDS], *pass[MOST_WORDS];
  int pass_count;
  const char *percent, *damping, *smooth;
  bool has_percent_rule;
} QuantizeLine;

bool quantize_is_command(const char *name) {
  int command = flags_command(&ftrun_line, name);
  return command >= 0 && 1 << command == QUANTIZE;
}

static int quantize_wrong(const QuantizeLine *line, const char *why, const char *what) {
  return flags_fail(&ftrun_line, line->command, why, what);
}

/* ── flags ──────────────────────────────────────────────────────────────────────────────────── */
static int take_listed_word(const QuantizeLine *line, const char *flag, const char *value, const char *const *words, int *out) {
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], value) == 0) return (*out = i, 0);
  Text text = {0};
  for (int i = 0; words[i]; i++) text_printf(&text, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
  int code = flags_fail(&ftrun_line, line->command, "%s %s: expected %s", flag, value, text_cstr(&text));
  text_free(&text);
  return code;
}

static int take_layers(QuantizeLine *line, const char *value) {
  QuantForm form;
  const char *equals = strchr(value, '=');
  if (!equals || equals == value) return quantize_wrong(line, "--layers %s: expected PATTERN=FORM, \"fc*=w8a8\"", value);
  const char *wrong = quant_form_read(equals + 1, &form);
  if (!wrong && (form.is_unsigned || form.has_factor)) wrong = "u and f follow from the calibration and --smooth";
  if (wrong) return flags_fail(&ftrun_line, line->command, "--layers %s: %s", value, wrong);
  line->layers[line->quantize.layer_count++] = value;
  return 0;
}

static int take_quantize_flag(QuantizeLine *line, const char *name, const char *value, int64_t count) {
  static const char *const ranges[] = {"minmax", "average", "percentile", "mse", NULL}, *const scales[] = {"largest", "mse", NULL};
  QuantizeOptions *o = &line->quantize;
  RunOptions *run = &o->run;
  int word = 0, code = 0;
  const struct {
    const char *name, **text;
  } texts[] = {{"--data", &run->places.data_dir}, {"--device", &run->device},     {"--weights", &o->weights}, {"--split", &o->split},
               {"--percentile", &line->percent},  {"--damping", &line->damping}, {"--smooth", &line->smooth}, {"-o", &line->output}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!strcmp(name, texts[i].name)) *texts[i].text = value;
  if (!strcmp(name, "--threads")) run->threads = (int)count;
  if (!strcmp(name, "--samples")) o->samples = count;
  if (!strcmp(name, "--allow-paths")) run->places.allow_paths = true;
  if (!strcmp(name, "--allow-commands")) run->places.allow_commands = true;
  if (!strcmp(name, "--gptq")) o->is_gptq = true;
  if (!strcmp(name, "--keep-factors")) o->keeps_factors = true;
  if (!strcmp(name, "--act-order")) o->gptq.is_ordered = true;
  if (!strcmp(name, "--stay")) line->stay[o->stay_count++] = value;
  if (!strcmp(name, "--layers")) code = take_layers(line, value);
  if (!strcmp(name, "--observer") && !(code = take_listed_word(line, name, value, ranges, &word))) o->range = (RangeRule)word;
  if (!strcmp(name, "--weight-scale") && !(code = take_listed_word(line, name, value, scales, &word))) o->scale = (ScaleRule)word;
  if (!strcmp(name, "-D") || !strcmp(name, "--preset") || !strcmp(name, "--set")) {
    line->pass[line->pass_count++] = name;
    line->pass[line->pass_count++] = value;
  }
  return code;
}

static int check_quantize(QuantizeLine *line) {
  QuantizeOptions *o = &line->quantize;
  if (!line->source) return quantize_wrong(line, "%s", "quantize needs a model, a .ft file");
  if (!text_ends_with(line->source, ".ft") || !line->output || !text_ends_with(line->output, ".ft"))
    return quantize_wrong(line, "%s", "quantize makes a quantised .ft file of a .ft file: ftrun quantize MODEL.ft --weights W -o SMALL.ft");
  if (!o->weights) return quantize_wrong(line, "%s", "quantize needs --weights W.safetensors");
  if (line->percent && o->range != RANGE_PERCENTILE) return quantize_wrong(line, "%s", "--percentile is for --observer percentile");
  if ((line->damping || o->gptq.is_ordered) && !o->is_gptq)
    return quantize_wrong(line, "%s is for --gptq", line->damping ? "--damping" : "--act-order");
  if (o->keeps_factors && !line->smooth) return quantize_wrong(line, "%s", "--keep-factors is for --smooth");
  if (line->smooth && o->range == RANGE_AVERAGE)
    return quantize_wrong(line, "%s", "--smooth changes the inputs, whose average over batches is not known then: take another --observer");
  if (o->samples < 1) return quantize_wrong(line, "%s", "--samples: calibration needs one");
  if (!number_in_range("--percentile", line->percent, 50, 100, &o->percent) ||
      !number_in_range("--damping", line->damping, 0, 1, &o->gptq.damping) || !number_in_range("--smooth", line->smooth, 0, 1, &o->smooth))
    return FLAG_EXIT_USAGE;
  if (!o->layer_count) line->layers[o->layer_count++] = "*=w8a8";
  return 0;
}

static int parse_quantize(QuantizeLine *line, int argc, char **argv) {
  for (int at = 2; at < argc; at++) {
    const Flag *flag;
    const char *value;
    int64_t count = 0;
    if (argv[at][0] == '-' && argv[at][1]) {
      int code = flags_parse(&ftrun_line, line->command, argc, argv, &at, &flag, &value, &count);
      if (!code && (line->pass_count > MOST_WORDS - 16 || line->quantize.layer_count > MOST_WORDS - 2 || line->quantize.stay_count == MOST_WORDS))
        code = quantize_wrong(line, "%s is given too often", flag->name);
      if (!code) code = take_quantize_flag(line, flag->name, value, count);
      if (code) return code;
    } else if (line->source) {
      return flags_fail(&ftrun_line, line->command, "one model at a time: %s and %s", line->source, argv[at]);
    } else {
      line->source = argv[at];
    }
  }
  return check_quantize(line);
}

/* ── steps ──────────────────────────────────────────────────────────────────────────────────── */
static int report_quantize(Status status) {
  if (status != STATUS_OK && status_message()[0]) {
    fflush(stdout);
    say_error("%s", status_message());
  }
  return status;
}

/* Compiles the program with taps of the layers that are meant, to `artifact`; setting: train.quantize, or NULL. */
static int compile_tapped(const QuantizeLine *line, const char *artifact, const char *gpu, const char *setting, Text *taps) {
  const QuantizeOptions *o = &line->quantize;
  const char **pass = calloc((size_t)(line->pass_count + 2 * o->layer_count + 8), sizeof *pass);
  char **pattern = calloc((size_t)o->layer_count + 1, sizeof *pattern);
  Text set = {0};
  int count = 0;
  if (!pass || !pattern) return say_error("out of memory"), 3;
  for (; count < line->pass_count; count++) pass[count] = line->pass[count];
  for (int i = 0; i < o->layer_count; i++) {
    pattern[i] = strdup(o->layers[i]);
    if (pattern[i]) *strchr(pattern[i], '=') = 0;
    pass[count++] = "--taps";
    pass[count++] = pattern[i] ? pattern[i] : "*";
  }
  pass[count++] = "--disable"; /* the graphs of generation, which take one output for the scores */
  pass[count++] = "decode";
  if (setting) {
    text_printf(&set, "train.quantize=%s", setting);
    pass[count++] = "--set";
    pass[count++] = text_cstr(&set);
  }
  int code = compile_and_read(
      &(Compilation){.source = line->source, .artifact = artifact, .gpu = gpu, .places = &o->run.places, .pass = pass, .pass_count = count, .is_again = setting != NULL}, taps);
  for (int i = 0; i < o->layer_count; i++) free(pattern[i]);
  free(pattern);
  free(pass);
  text_free(&set);
  return code;
}

/* The program with the setting in it. */
static int write_program(const QuantizeLine *line, const char *setting) {
  const char *pass[MOST_WORDS + 2];
  Text set = {0};
  int count = 0;
  for (; count < line->pass_count; count++) pass[count] = line->pass[count];
  text_printf(&set, "train.quantize=%s", setting);
  pass[count++] = "--set";
  pass[count++] = text_cstr(&set);
  int code = compile_source(&(Compilation){
      .source = line->source, .artifact = line->output, .places = &line->quantize.run.places, .pass = pass, .pass_count = count, .is_again = true});
  text_free(&set);
  return code;
}

static int quantize_into(QuantizeLine *line, const char *weights) {
  Quantizing *q = NULL;
  Text taps = {0}, more = {0};
  const char *artifact, *gpu;
  bool is_ptx;
  dev_compile_for(line->quantize.run.device, &is_ptx, &gpu);
  int code = folder_open(is_ptx, &artifact);
  if (code) return code;
  code = compile_tapped(line, artifact, gpu, NULL, &taps);
  line->quantize.taps = text_cstr(&taps);
  line->quantize.run.artifact = artifact;
  if (!code) code = report_quantize(quantize_new(&line->quantize, &q));
  if (!code) code = write_program(line, quantize_setting(q));
  if (!code) {
    code = report_quantize(quantize_write(q, weights));
    if (code) unlink(line->output); /* one does not go without the other */
  }
  if (!code) code = compile_tapped(line, folder_second(), gpu, quantize_setting(q), &more);
  if (!code) code = report_quantize(quantize_compare(q, folder_second(), weights));
  if (!code) printf("%s, %s\n", line->output, weights);
  quantize_free(q);
  folder_close();
  text_free(&taps);
  text_free(&more);
  return code;
}

int quantize_start(int argc, char **argv) {
  static QuantizeLine line;
  line.command = flags_command(&ftrun_line, argv[1]);
  line.quantize = (QuantizeOptions){
      .split = "train", .layers = line.layers, .stay = line.stay, .percent = 99.99, .momentum = 0.01, .smooth = -1, .samples = 512, .gptq = {0.01, false, SCALE_LARGEST}};
  int code = parse_quantize(&line, argc, argv);
  if (code) return code;
  line.quantize.source = line.source;
  line.quantize.gptq.rule = line.quantize.scale;
  if (ranks_refuse("quantize") != STATUS_OK) return report_quantize(STATUS_USER);
  Text weights = {0};
  text_append(&weights, line.output, strlen(line.output) - 3);
  text_printf(&weights, ".safetensors");
  const char *over = text_same_file(line.output, line.source)                         ? line.source
                     : text_same_file(text_cstr(&weights), line.quantize.weights) ? line.quantize.weights
                                                                                      : NULL;
  if (over) {
    say_error("%s would be written over: give another -o", over);
    code = 1;
  }
  if (!code) code = quantize_into(&line, text_cstr(&weights));
  text_free(&weights);
  return code;
}
