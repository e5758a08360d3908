module thunderhead.dev/thunderhead/examples

go 1.23

require thunderhead.dev/thunderhead v0.0.0

replace thunderhead.dev/thunderhead => ../../clients/go
