// placeholder: replaced by codegen
