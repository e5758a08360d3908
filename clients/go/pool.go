package thunderhead

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Why a connection was not made, or ended.
var (
	errNotOurs        = errors.New("the program at the address does not speak this protocol")
	errOtherVersion   = errors.New("the program at the address speaks other versions of the protocol: upgrade the older side")
	errOtherCluster   = errors.New("the program at the address belongs to another cluster")
	errClusterLearned = errors.New("the client has learned its cluster; it connects again")
	errMalformed      = errors.New("the peer sent bytes that are not valid in this protocol")
	errTooLong        = errors.New("the peer sent a message that is longer than allowed")
	errNoGreeting     = errors.New("the peer did not send its greeting in time")
	errPoolClosed     = errors.New("the client is closed")
)

// A dialFunc makes a connection, as [net.Dialer.DialContext] does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A pool has one endpoint for each address, and decides which peers the client accepts.
//
// Ids of servers and tables start at 1 in every cluster, so a client must not talk to two clusters.
// The first peer that names a cluster decides the cluster of the client, unless its user chose one.
type pool struct {
	dial   dialFunc
	ctx    context.Context
	cancel context.CancelFunc
	base   time.Time
	// running counts the goroutines of connections.
	running sync.WaitGroup

	mu        sync.Mutex
	endpoints map[netip.AddrPort]*endpoint
	conns     map[*conn]struct{}
	// cluster is the cluster of this client; 0: not known yet.
	cluster uint64
	closed  bool
}

func newPool(dial dialFunc, cluster uint64) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &pool{
		dial: dial, ctx: ctx, cancel: cancel, base: time.Now(),
		endpoints: map[netip.AddrPort]*endpoint{}, conns: map[*conn]struct{}{}, cluster: cluster,
	}
}

// now returns the monotonic time in nanoseconds.
func (p *pool) now() int64 { return int64(time.Since(p.base)) }

// endpoint returns the endpoint of an address.
func (p *pool) endpoint(address netip.AddrPort) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := p.endpoints[address]
	if it == nil {
		it = &endpoint{pool: p, address: address}
		it.readsMax.Store(partsMax)
		p.endpoints[address] = it
	}
	return it
}

// greetAs notes that a connection greets now, and returns the cluster that its greeting names.
func (p *pool) greetAs(c *conn) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.hasGreeted, c.said = true, p.cluster
	return c.said
}

// meet judges the peer of a connection by the cluster that its greeting names, 0 for none.
//
// When the client learns its cluster, each connection on which it named no cluster ends unless the
// other end named this one: otherwise a connection could have ends of two clusters without either
// end's knowledge.
func (p *pool) meet(c *conn, theirs uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.theirs = theirs
	switch {
	case p.cluster != 0 && theirs != 0 && theirs != p.cluster:
		return errOtherCluster
	case p.cluster != 0 && theirs == 0 && c.said == 0:
		return errClusterLearned
	case p.cluster == 0 && theirs != 0:
		p.cluster = theirs
		for other := range p.conns {
			if other != c && other.hasGreeted && other.said == 0 && other.theirs != theirs {
				// On its own goroutine, because the end of a connection takes the lock of the pool.
				p.running.Add(1)
				go func() {
					defer p.running.Done()
					other.fail(errClusterLearned)
				}()
			}
		}
	}
	return nil
}

// add notes a new connection, unless the pool is closed.
func (p *pool) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	p.running.Add(1)
	return true
}

func (p *pool) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *pool) list() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var conns []*conn
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

// dropAll ends all calls in flight, and keeps the connections.
func (p *pool) dropAll() {
	for _, c := range p.list() {
		c.drop()
	}
}

// close closes all connections and waits for their goroutines.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	for _, c := range p.list() {
		c.fail(errPoolClosed)
	}
	p.running.Wait()
}
