package thunderhead

import (
	"maps"
	"net/netip"
	"slices"
	"sort"
)

// A tabletMap is the shard of each tablet, as a coordinator last reported it. A client of a small
// cluster knows the whole map. A client of a large one knows the tables that it uses, each as of
// some version. A tabletMap never changes, so operations read it without a lock. News make another
// one.
type tabletMap struct {
	// version is the version of the newest report. Newer maps have higher versions.
	version uint64
	// isWhole: tables has all tables, as of version. Other tables do not exist.
	isWhole bool
	tables  map[uint64]*tableEntry
}

// A tableEntry is a known table, also one without an available tablet.
type tableEntry struct {
	// version is the version as of which the table is known, unless the map is whole.
	version uint64
	// tablets have addresses, do not overlap, and are in the order of their hashes.
	tablets []tabletEntry
}

type tabletEntry struct {
	first, last uint64
	address     netip.AddrPort
	endpoint    *endpoint
}

// wholeVersion returns the version as of which the whole map is known; 0 if it is not whole.
func (m *tabletMap) wholeVersion() uint64 {
	if m.isWhole {
		return m.version
	}
	return 0
}

// tableVersion returns the version as of which a table is known; 0 if it is not known.
func (m *tabletMap) tableVersion(table uint64) uint64 {
	if m.isWhole {
		return m.version
	}
	if entry := m.tables[table]; entry != nil {
		return entry.version
	}
	return 0
}

func (m *tabletMap) hasTable(table uint64) bool { return m.tables[table] != nil }

// find returns the endpoint of the shard that has a key, or nil, and the version as of which the
// table is known.
func (m *tabletMap) find(table, hash uint64) (*endpoint, uint64) {
	entry := m.tables[table]
	if entry == nil {
		return nil, 0
	}
	version := entry.version
	if m.isWhole {
		version = m.version
	}
	tablets := entry.tablets
	at := 0
	if len(tablets) > 1 {
		at = sort.Search(len(tablets), func(i int) bool { return tablets[i].last >= hash })
	}
	if at < len(tablets) && tablets[at].first <= hash && hash <= tablets[at].last {
		return tablets[at].endpoint, version
	}
	return nil, version
}

// merge returns the map with a coordinator's answer: the whole map, or the changes since a version
// that is known here, or some tables. Older answers change nothing. endpointAt returns the endpoint
// of an address.
func (m *tabletMap) merge(news *mapReply, endpointAt func(netip.AddrPort) *endpoint) *tabletMap {
	if news.Version < m.version {
		return m
	}
	merged := &tabletMap{version: news.Version, isWhole: m.isWhole, tables: maps.Clone(m.tables)}
	if merged.tables == nil {
		merged.tables = map[uint64]*tableEntry{}
	}
	isAll := !news.IsPart && news.More == nil
	if isAll && news.Since == 0 {
		merged.isWhole, merged.tables = true, map[uint64]*tableEntry{}
	} else if m.isWhole && (!isAll || news.Since > m.version) {
		// From now on each table has a version of its own.
		for id, entry := range merged.tables {
			merged.tables[id] = &tableEntry{m.version, entry.tablets}
		}
		merged.isWhole = false
	}
	for _, id := range news.Gone {
		delete(merged.tables, id)
	}
	for i := range news.Tables {
		table := &news.Tables[i]
		entry := &tableEntry{version: news.Version}
		if old := merged.tables[table.ID]; old != nil && table.Since != 0 {
			entry.tablets = slices.Clone(old.tablets)
		}
		if table.Since != 0 && table.Since > m.tableVersion(table.ID) {
			// Earlier changes to this table are missing, so these cannot be applied.
			continue
		}
		for _, tablet := range table.Tablets {
			entry.put(tablet, endpointAt)
		}
		slices.SortFunc(entry.tablets, func(a, b tabletEntry) int {
			if a.last < b.last {
				return -1
			}
			return 1
		})
		merged.tables[table.ID] = entry
	}
	return merged
}

// put adds a tablet. It replaces the tablets that it overlaps.
func (t *tableEntry) put(tablet tabletInfo, endpointAt func(netip.AddrPort) *endpoint) {
	if tablet.First > tablet.Last {
		return
	}
	overlaps := func(it tabletEntry) bool {
		return it.first <= tablet.Last && tablet.First <= it.last
	}
	t.tablets = slices.DeleteFunc(t.tablets, overlaps)
	if tablet.Address != nil {
		address := *tablet.Address
		t.tablets = append(t.tablets, tabletEntry{
			tablet.First, tablet.Last, address, endpointAt(address),
		})
	}
}
