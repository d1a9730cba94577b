package e2e

import (
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// moment is when, relative to COMMIT, a connection is killed.
type moment int

const (
	never  moment = iota
	before        // the server has not seen COMMIT
	during        // the server has committed, the client has no answer
	after         // the client has its answer, the connection dies then
)

// commitProxy stands between lib/pq and Postgres and kills connections around COMMIT. It speaks
// just enough of the protocol to find COMMIT and its answer:
// https://www.postgresql.org/docs/15/protocol-message-formats.html
type commitProxy struct {
	listener net.Listener
	server   string
	admin    *sql.DB
	next     atomic.Int32 // moment for the next COMMIT that passes
	killed   [after + 1]atomic.Int32
	wait     sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
}

// newCommitProxy returns the proxy and the DSN that leads through it.
func newCommitProxy(t *testing.T, dsn string, admin *sql.DB) (*commitProxy, string) {
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &commitProxy{listener: l, server: u.Host, admin: admin, open: map[net.Conn]bool{}}
	p.wait.Go(p.accept)
	t.Cleanup(p.close)
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *commitProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		link := &proxyLink{proxy: p, client: client, server: server}
		p.track(client, server)
		p.wait.Go(link.toServer)
		p.wait.Go(link.toClient)
	}
}

func (p *commitProxy) track(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
}

func (p *commitProxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.wait.Wait()
}

// proxyLink is one connection. Its two directions are a goroutine each.
type proxyLink struct {
	proxy          *commitProxy
	client, server net.Conn
	pid            atomic.Int32
	kill           atomic.Int32 // moment at which the answer to the COMMIT under way is treated
}

func (l *proxyLink) cut() {
	l.client.Close()
	l.server.Close()
}

// terminate ends the server's side by pg_terminate_backend, as an operator would.
func (l *proxyLink) terminate(m moment) {
	_, _ = l.proxy.admin.Exec(`SELECT pg_terminate_backend($1)`, l.pid.Load())
	l.proxy.killed[m].Add(1)
}

func (l *proxyLink) toServer() {
	defer l.cut()
	for started := false; ; started = true {
		frame, err := readFrame(l.client, started)
		if err != nil {
			return
		}
		if started && frame[0] == 'Q' && strings.HasPrefix(string(frame[5:]), "COMMIT") {
			switch m := moment(l.proxy.next.Swap(int32(never))); m {
			case before:
				l.terminate(before)
				return
			default:
				l.kill.Store(int32(m))
			}
		}
		if _, err := l.server.Write(frame); err != nil {
			return
		}
	}
}

func (l *proxyLink) toClient() {
	defer l.cut()
	for {
		frame, err := readFrame(l.server, true)
		if err != nil {
			return
		}
		if frame[0] == 'K' {
			l.pid.Store(int32(binary.BigEndian.Uint32(frame[5:9])))
		}
		committed := frame[0] == 'C' && strings.HasPrefix(string(frame[5:]), "COMMIT")
		if committed && moment(l.kill.Load()) == during {
			l.terminate(during)
			return
		}
		if _, err := l.client.Write(frame); err != nil {
			return
		}
		// 'Z' ends the answer: only with it the client's COMMIT returns.
		if frame[0] == 'Z' && moment(l.kill.Load()) == after {
			l.terminate(after)
			return
		}
	}
}

// readFrame reads one message: a type byte, unless it is the client's first, and a length that
// counts itself.
func readFrame(from io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 64)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	body := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	frame := append(head, make([]byte, body)...)
	_, err := io.ReadFull(from, frame[len(head):])
	return frame, err
}
