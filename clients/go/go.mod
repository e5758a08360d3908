module thunderhead.dev/thunderhead

go 1.23

require (
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.1.0
)
