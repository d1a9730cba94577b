package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

// A forwarder's process is this test's binary, run again with these variables set.
const (
	processDSN    = "WATERMILL_INBOX_TEST_FORWARDER_DSN"
	processOwner  = "WATERMILL_INBOX_TEST_FORWARDER_OWNER"
	processBroker = "WATERMILL_INBOX_TEST_FORWARDER_BROKER"
)

// C7, C5, C4: two processes forward rows of many ordering keys while one of them is killed every
// second. Per key the first sight of each message is in the order of appending, nothing is lost,
// and what is seen twice was in flight in a process that was killed.
func TestC7_C5_ForwarderProcessesKilledEverySecond(t *testing.T) {
	if os.Getenv(processDSN) != "" {
		forwarderProcess(t)
		return
	}
	keys, perKey := orderingKeys(size(200, 500)), size(50, 100)
	db, dsn := openPostgresDSN(t)
	store := newOutbox(db)
	appendEntries(t, store, keys, perKey)
	broker := newTCPBroker(t)

	processes := make([]*process, 2)
	started := 0
	launch := func(i int) {
		started++
		processes[i] = startProcess(t, fmt.Sprint("process-", started), dsn, broker.address())
	}
	launch(0)
	launch(1)
	inFlight := map[string]map[string]bool{} // of a process that was killed
	for n := 0; broker.distinct() < len(keys)*perKey; n++ {
		time.Sleep(time.Second) // the rhythm of the kills
		victim := processes[n%2]
		victim.kill(t)
		inFlight[victim.owner] = rowsOf(t, db, victim.owner)
		launch(n % 2)
	}
	for _, p := range processes {
		p.stop(t)
	}
	// What the last ones that were killed had is taken over by one more.
	launch(0)
	requireForwarded(t, store)
	processes[0].stop(t)

	sights := broker.all()
	var ids []string
	last := map[string]string{} // message → the process that sent it last
	for _, s := range sights {
		ids = append(ids, s.id)
		if before, again := last[s.id]; again {
			require.True(t, inFlight[before][s.id], "%s was sent by %s and again by %s, but was in flight at no kill", s.id, before, s.owner)
		}
		last[s.id] = s.owner
	}
	repeated := requireOrder(t, ids, keys, perKey)
	t.Logf("%d messages of %d keys, %d kills, %d messages seen again", len(last), len(keys), len(inFlight), len(repeated))
	require.NotEmpty(t, inFlight, "nothing was killed")
}

// rowsOf gives what a process that is gone has under lease. Its connections may have outlived it
// for a moment, and with them a statement that it had sent: that ends first.
func rowsOf(t *testing.T, db *sqlx.DB, owner string) map[string]bool {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, db.Get(&n, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, owner))
		return n == 0
	}, wait, time.Millisecond)
	var ids []string
	require.NoError(t, db.Select(&ids, `SELECT message_id FROM outbox_messages WHERE lease_owner = $1`, owner))
	rows := map[string]bool{}
	for _, id := range ids {
		rows[id] = true
	}
	return rows
}

// process is a forwarder in a process of its own. It ends when its standard input does, so that
// none outlives the test.
type process struct {
	owner string
	cmd   *exec.Cmd
	stdin io.Closer
	out   *strings.Builder
}

func startProcess(t *testing.T, owner, dsn, broker string) *process {
	t.Helper()
	p := &process{owner: owner, cmd: exec.Command(os.Args[0], "-test.run=^TestC7_C5_ForwarderProcessesKilledEverySecond$", "-test.v"), out: &strings.Builder{}}
	p.cmd.Env = append(os.Environ(), processDSN+"="+dsn, processOwner+"="+owner, processBroker+"="+broker)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.stdin = stdin
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill(), "it ended by itself: %s", p.out)
	require.Error(t, p.cmd.Wait(), "it ended by itself: %s", p.out)
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait(), "%s", p.out)
}

// forwarderProcess is the main program of such a process.
func forwarderProcess(t *testing.T) {
	owner := os.Getenv(processOwner)
	db := openPlain(t, withParameter(t, os.Getenv(processDSN), "application_name", owner))
	publisher := &tcpPublisher{owner: owner, address: os.Getenv(processBroker), idle: make(chan *tcpConn, 16)}
	f, err := outboxstore.NewForwarder(newOutbox(db), publisher, outboxstore.ForwarderConfig{
		Owner: owner, Batch: 100, PerKey: 10, Lease: 5 * time.Second, Poll: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	require.NoError(t, f.Run(ctx))
	require.NoError(t, publisher.Close())
}

// tcpBroker is the receiver of both processes: a line in, a line out.
type tcpBroker struct {
	listener net.Listener
	wait     sync.WaitGroup

	mu   sync.Mutex
	seen []sight
	ids  map[string]bool
}

type sight struct{ owner, id string }

func newTCPBroker(t *testing.T) *tcpBroker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &tcpBroker{listener: l, ids: map[string]bool{}}
	b.wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.wait.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.wait.Wait()
	})
	return b
}

func (b *tcpBroker) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		owner, id, _ := strings.Cut(lines.Text(), " ")
		b.mu.Lock()
		b.seen = append(b.seen, sight{owner, id})
		b.ids[id] = true
		b.mu.Unlock()
		if _, err := conn.Write([]byte("\n")); err != nil {
			return
		}
	}
}

func (b *tcpBroker) address() string { return b.listener.Addr().String() }

func (b *tcpBroker) distinct() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ids)
}

func (b *tcpBroker) all() []sight {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]sight(nil), b.seen...)
}

type tcpPublisher struct {
	owner, address string
	idle           chan *tcpConn
}

type tcpConn struct {
	net.Conn
	in *bufio.Reader
}

func (p *tcpPublisher) Publish(_ string, messages ...*message.Message) (err error) {
	var conn *tcpConn
	select {
	case conn = <-p.idle:
	default:
		plain, err := net.Dial("tcp", p.address)
		if err != nil {
			return outboxstore.Unavailable(err)
		}
		conn = &tcpConn{plain, bufio.NewReader(plain)}
	}
	for _, msg := range messages {
		if _, err = fmt.Fprintf(conn, "%s %s\n", p.owner, msg.UUID); err == nil {
			_, err = conn.in.ReadByte()
		}
		if err != nil {
			_ = conn.Close()
			return outboxstore.Unavailable(err)
		}
	}
	p.idle <- conn
	return nil
}

func (p *tcpPublisher) Close() error {
	close(p.idle)
	for conn := range p.idle {
		_ = conn.Close()
	}
	return nil
}
