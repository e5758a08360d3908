package thunderhead

import "syscall"

// allowListeners is a [net.Dialer]'s Control. Without the option that it sets, Linux keeps the port of
// a connection from every listener, even for a minute after the connection. A server on this machine
// that restarts could then not listen at its port.
func allowListeners(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// Without the option, the connection works as well.
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
}
