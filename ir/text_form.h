/* text_form: the words that the printer and the parser share. Private to ir/. */
#ifndef FT_IR_TEXT_FORM_H
#define FT_IR_TEXT_FORM_H
extern const char *const region_policy_text[4]; /* by RegionPolicy */
#endif
