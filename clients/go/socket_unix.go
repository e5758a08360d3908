//go:build unix

package thunderhead

import (
	"net"
	"syscall"
)

// allowListeners is a [net.Dialer]'s Control. Without the option that it sets, the system keeps the
// port of a connection from every listener, even for a minute after the connection. A server on this
// machine that restarts could then not listen at its port.
func allowListeners(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// Without the option, the connection works as well.
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
}

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
