package thunderhead

import (
	"net"
	"testing"
)

func TestAServerCanListenAtThePortOfAConnection(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := newDialer().Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	other, err := net.Listen("tcp", client.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
}
