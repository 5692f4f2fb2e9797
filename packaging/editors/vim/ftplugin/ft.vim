" ft: a language for neural networks with their training
if exists("b:did_ftplugin")
  finish
endif
let b:did_ftplugin = 1
setlocal commentstring=//\ %s comments=s1:/*,mb:*,ex:*/,:// shiftwidth=2 expandtab suffixesadd=.ft
let b:undo_ftplugin = "setlocal commentstring< comments< shiftwidth< expandtab< suffixesadd<"
