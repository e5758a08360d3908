package thunderhead

import (
	"encoding/json"
	"net/netip"
)

// The bodies of messages about the cluster. They are JSON. A reader skips fields that it does not
// know.

type mapRequest struct {
	Table  string      `json:"table,omitempty"`
	From   *uint64     `json:"from,omitempty"`
	IsNews bool        `json:"is_news,omitempty"`
	Since  uint64      `json:"since,omitempty"`
	Tables [][2]uint64 `json:"tables,omitempty"`
}

type mapReply struct {
	Version uint64      `json:"version"`
	Tables  []tableInfo `json:"tables"`
	Since   uint64      `json:"since,omitempty"`
	IsPart  bool        `json:"is_part,omitempty"`
	Gone    []uint64    `json:"gone,omitempty"`
	More    *uint64     `json:"more,omitempty"`
}

type tableInfo struct {
	ID      uint64         `json:"id"`
	Name    string         `json:"name"`
	Tablets []tabletInfo   `json:"tablets"`
	Since   uint64         `json:"since,omitempty"`
	Options *createOptions `json:"options,omitempty"`
}

// createOptions are the options of a table.
type createOptions struct {
	// TTLms is the default time to live; 0 for none.
	TTLms  uint64 `json:"ttl_ms,omitempty"`
	Policy string `json:"policy,omitempty"`
	// Max is the most bytes of the table; 0 for no limit.
	Max      uint64 `json:"max_bytes,omitempty"`
	Reserved uint64 `json:"reserved_bytes,omitempty"`
}

type tabletInfo struct {
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Master uint64 `json:"master"`
	// Address is nil while the tablet is being recovered.
	Address *netip.AddrPort `json:"address"`
}

// isServed tells whether each tablet has a master that serves it.
func (t *tableInfo) isServed() bool {
	for _, tablet := range t.Tablets {
		if tablet.Address == nil {
			return false
		}
	}
	return true
}

type createTableRequest struct {
	Name       string `json:"name"`
	ServerSpan uint32 `json:"server_span"`
	// Options is nil for a table without any.
	Options *createOptions `json:"options,omitempty"`
}

type dropTableRequest struct {
	Name string `json:"name"`
	ID   uint64 `json:"id"`
}

type splitTabletRequest struct {
	Table string `json:"table"`
	At    uint64 `json:"at"`
}

type migrateTabletRequest struct {
	Table string `json:"table"`
	First uint64 `json:"first"`
	To    uint64 `json:"to"`
}

type leaseOpened struct {
	Lease   uint64 `json:"lease"`
	TTLms   uint64 `json:"ttl_ms"`
	Cluster uint64 `json:"cluster"`
}

type leaseRequest struct {
	Lease uint64 `json:"lease"`
}

// body encodes a message. The types above always have an encoding.
func body(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic("thunderhead: a message about the cluster has no encoding: " + err.Error())
	}
	return b
}

// parse decodes a message, and tells whether the bytes have one.
func parse[T any](b []byte) (*T, bool) {
	message := new(T)
	if json.Unmarshal(b, message) != nil {
		return nil, false
	}
	return message, true
}
