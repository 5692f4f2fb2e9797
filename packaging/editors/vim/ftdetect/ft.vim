autocmd BufRead,BufNewFile *.ft set filetype=ft
