//go:build unix

package thunderhead

import (
	"net"
	"syscall"
)

// A directWriter writes to a socket without waiting for room in it. So a caller writes its request
// by itself, and no slow peer can hold it.
type directWriter struct {
	raw   syscall.RawConn
	write func(fd uintptr) bool
	bytes []byte
	n     int
	err   error
}

// newDirectWriter returns nil if the connection is no socket of the system.
func newDirectWriter(nc net.Conn) *directWriter {
	it, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := it.SyscallConn()
	if err != nil {
		return nil
	}
	w := &directWriter{raw: raw}
	w.write = func(fd uintptr) bool {
		for {
			w.n, w.err = syscall.Write(int(fd), w.bytes)
			if w.err != syscall.EINTR {
				return true
			}
		}
	}
	return w
}

// tryWrite writes as much as the socket takes at once. One caller at a time may use it.
func (w *directWriter) tryWrite(b []byte) (int, error) {
	w.bytes, w.n, w.err = b, 0, nil
	err := w.raw.Write(w.write)
	w.bytes = nil
	switch {
	case err != nil:
		return 0, err
	case w.err == syscall.EAGAIN:
		return 0, nil
	case w.err != nil:
		return 0, w.err
	}
	return max(w.n, 0), nil
}
