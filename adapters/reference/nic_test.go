package reference

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testNIC(t *testing.T) (*NIC, *pool) {
	t.Helper()
	p := newPool("kv", "kv", 4, blockBytes)
	n, err := newNIC("127.0.0.1:0", map[string]*pool{"kv": p})
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n, p
}

func TestNICWritesAndReadsWithoutTheScheduler(t *testing.T) {
	n, p := testNIC(t)
	peer := &nicPeer{addr: n.Addr()}
	defer peer.close()
	_, err := peer.do(t.Context(), &nicRequest{op: nicWrite, key: "room-1", pool: "kv", off: blockBytes, n: 3, data: []byte("abc")})
	require.NoError(t, err)
	got, err := peer.do(t.Context(), &nicRequest{op: nicRead, key: "room-1", pool: "kv", off: blockBytes, n: 3})
	require.NoError(t, err)
	require.Equal(t, "abc", string(got))
	require.Equal(t, "abc", string(p.readBlocks([]int64{1}, 3)))
}

func TestNICRevokeTurnsAwayEveryLaterAccessOfThatHandoffOnly(t *testing.T) {
	n, p := testNIC(t)
	peer := &nicPeer{addr: n.Addr()}
	defer peer.close()
	n.Revoke("room-1")
	_, err := peer.do(t.Context(), &nicRequest{op: nicWrite, key: "room-1", pool: "kv", n: 1, data: []byte("x")})
	require.ErrorIs(t, err, ErrRevoked)
	_, err = peer.do(t.Context(), &nicRequest{op: nicRead, key: "room-1", pool: "kv", n: 1})
	require.ErrorIs(t, err, ErrRevoked)
	require.Equal(t, []byte{0}, p.readBlocks([]int64{0}, 1), "a revoked write touched memory")
	_, err = peer.do(t.Context(), &nicRequest{op: nicWrite, key: "room-1#1", pool: "kv", n: 1, data: []byte("y")})
	require.NoError(t, err, "the next use of the key is another handoff")
}

func TestNICRevokeWaitsForWhatTouchesMemory(t *testing.T) {
	n, p := testNIC(t)
	p.mu.Lock() // the bus is busy: an access that has passed the key check waits here
	peer := &nicPeer{addr: n.Addr()}
	defer peer.close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = peer.do(context.Background(), &nicRequest{op: nicWrite, key: "room-1", pool: "kv", n: 1, data: []byte("x")})
	})
	require.Eventually(t, func() bool { // until the access holds the NIC
		if n.mu.TryLock() {
			n.mu.Unlock()
			return false
		}
		return true
	}, 5*time.Second, time.Millisecond)
	revoked := make(chan struct{})
	wg.Go(func() { n.Revoke("room-1"); close(revoked) })
	select {
	case <-revoked:
		t.Fatal("revoked while an access was under way")
	case <-time.After(20 * time.Millisecond):
	}
	p.mu.Unlock()
	<-revoked
	wg.Wait()
	require.Equal(t, "x", string(p.readBlocks([]int64{0}, 1)), "the access that came first is complete")
}

func TestNICRefusesAddressesOutsideItsPools(t *testing.T) {
	n, _ := testNIC(t)
	for name, r := range map[string]*nicRequest{
		"beyond the end": {op: nicWrite, key: "k", pool: "kv", off: 4*blockBytes - 1, n: 2, data: []byte("xx")},
		"negative":       {op: nicRead, key: "k", pool: "kv", off: -1, n: 1},
		"no such pool":   {op: nicRead, key: "k", pool: "aux", n: 1},
	} {
		peer := &nicPeer{addr: n.Addr()}
		_, err := peer.do(t.Context(), r)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, ErrRevoked, name)
		peer.close()
	}
}

func TestNICEndsAConnectionThatSendsGarbage(t *testing.T) {
	n, _ := testNIC(t)
	c, err := net.Dial("tcp", n.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	var nerr net.Error
	if ok := asNetError(err, &nerr); ok {
		require.False(t, nerr.Timeout(), "the connection was left open")
	}
}

func asNetError(err error, target *net.Error) bool {
	e, ok := err.(net.Error)
	*target = e
	return ok
}

func TestPoolIsLastInFirstOut(t *testing.T) {
	p := newPool("kv", "kv", 4, 8)
	a, ok := p.take(2)
	require.True(t, ok)
	require.Equal(t, []int64{0, 1}, a)
	_, ok = p.take(3)
	require.False(t, ok, "none rather than some")
	p.put(a)
	b, _ := p.take(1)
	require.Equal(t, []int64{1}, b, "the block freed last is handed out first")
	require.Len(t, p.free, 3)
}

func TestWriteBlocksCrossesBlocks(t *testing.T) {
	p := newPool("kv", "kv", 4, 8)
	p.writeBlocks([]int64{3, 1}, 6, []byte("abcd"))
	require.Equal(t, "\x00\x00\x00\x00\x00\x00abcd", string(p.readBlocks([]int64{3, 1}, 10)))
}

func TestTombstonesKeepTheFirstWordAndAreBounded(t *testing.T) {
	ts := newTombstones(2)
	ts.add("a", sigRejected)
	ts.add("a", sigFailed)
	require.Equal(t, sigRejected, ts.get("a"))
	ts.add("b", sigFailed)
	ts.add("c", sigFailed)
	require.False(t, ts.has("a"))
	require.True(t, ts.has("b"))
	require.True(t, ts.has("c"))
}
