//go:build !linux

package thunderhead

import "syscall"

// Servers run on Linux.
func allowListeners(_, _ string, _ syscall.RawConn) error { return nil }
