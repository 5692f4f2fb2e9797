" ft: a language for neural networks with their training. test/e2e/editors.py holds the words against the language's.
if exists("b:current_syntax")
  finish
endif

syn match ftFunction /\<\h\w*\ze\s*(/
syn match ftBlock /\<\u\w*\ze\s*(/
syn match ftArgument /\<\h\w*\ze\s*==\@!/
syn match ftDeclaration /^\s*\zs\%(block\|fn\|model\|data\|preset\|hyper\)\ze\s\+[A-Za-z_"]/ nextgroup=ftName skipwhite
syn match ftDeclaration /^\s*\zs\%(train\|distributed\|tune\)\ze\s*{/
syn match ftDeclaration /^\s*\zsimport\ze\s*"/
syn match ftName /\h\w*/ contained
syn match ftStatement /\<\%(param\|state\|update\|metric\|output\|check\)\ze\s\+[A-Za-z_(]/
syn match ftStatement /\<\%(every\|on\|per\|of\|by\)\ze\s\+[A-Za-z0-9_"(]/
syn keyword ftControl if else repeat in as return
syn keyword ftOperator and or not
syn keyword ftConstant true false none
syn match ftConstant /\<\%(training\|pi\|inf\)\>\%(\s*[(=]\)\@!/
syn match ftType /\<\%(bool\|u8\|i32\|u32\|i64\|f16\|bf16\|f32\|f64\|int\|float\|str\|list\|init\)\>\%(\s*=\)\@!/
syn match ftNumber /\%(\<\d[0-9_]*\%(\.\d\+\)\?\|\w\@<!\.\d\+\)\%([eE][+-]\?\d\+\)\?x\?/
syn match ftNumber /\<\d[0-9_]*\s\+\%(steps\?\|epochs\?\)\>/
syn match ftNumber /\<\d[0-9_]*\%(\.\d\+\)\?\s*\%([KMGT]i\?B\|s\|min\|m\|h\|d\)\>/
syn match ftEscape /\\[nt"\\]/ contained
syn region ftString start=/"/ skip=/\\./ end=/"/ oneline contains=ftEscape
syn match ftComment "//.*$" contains=@Spell
syn region ftComment start="/\*" end="\*/" contains=@Spell

hi def link ftFunction Function
hi def link ftBlock Type
hi def link ftArgument Identifier
hi def link ftDeclaration Structure
hi def link ftName Typedef
hi def link ftStatement Statement
hi def link ftControl Conditional
hi def link ftOperator Operator
hi def link ftConstant Constant
hi def link ftType Type
hi def link ftNumber Number
hi def link ftEscape SpecialChar
hi def link ftString String
hi def link ftComment Comment

let b:current_syntax = "ft"
