package bench

import (
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// TestLargePipelines has clients send batches of large values and of gets while they read the replies. The server calls
// receiving off and begins it again all the time; no client may be forgotten over it.
func TestLargePipelines(t *testing.T) {
	for _, engine := range []string{"io_uring", "epoll", "net"} {
		t.Run(engine, func(t *testing.T) {
			d := servers.StartDaemon(t, "-m", "1000", "-t", "1", "--server.engine", engine)
			exit, output, f := measure(t, "--address", d.Addr(), "--workload", "mixed", "--gets", "0.5", "--connections", "50", "--depth", "8",
				"--size", "100000-500000", "--keys", "2000", "--no-fill", "--rounds", "1", "--duration", "2s")
			if exit != 0 || f.Results[0].Targets[0].Median.Errors != 0 {
				t.Errorf("exit %d\n%s", exit, output)
			}
		})
	}
}
