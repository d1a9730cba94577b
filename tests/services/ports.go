package services

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken below the range from which Linux numbers outgoing connections (32768 and up): a server that is
// stopped and started again would else find a client on its port.
const lowestPort, highestPort = 20000, 32000

// handed are the ports given out by this process, some of which nobody listens on yet.
var handed = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePorts finds n ports of the loopback interface that nobody listens on. Two processes look at random places, so
// that they hardly ever meet between a look and a start.
func freePorts(n int) ([]int, error) {
	handed.Lock()
	defer handed.Unlock()
	var found []int
	for range 1000 {
		if len(found) == n {
			return found, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if handed.ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = listener.Close()
		handed.ports[port] = true
		found = append(found, port)
	}
	return nil, fmt.Errorf("services: no %d free ports between %d and %d on 127.0.0.1", n, lowestPort, highestPort)
}
