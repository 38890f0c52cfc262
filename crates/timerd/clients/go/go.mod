module timerd

go 1.19
