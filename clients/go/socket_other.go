//go:build !unix

package thunderhead

import "net"

// A directWriter exists only on systems with sockets that can be written to without waiting.
// Elsewhere a goroutine of the connection writes everything.
type directWriter struct{}

func newDirectWriter(net.Conn) *directWriter { return nil }

func (w *directWriter) tryWrite([]byte) (int, error) { return 0, nil }
