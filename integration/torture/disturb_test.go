package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// disturb breaks one thing after the other, until ctx ends.
func (w *world) disturb(ctx context.Context, r *rand.Rand) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(300+r.IntN(2500)) * time.Millisecond):
		}
		w.quiet.RLock()
		err := w.disturbance(r)
		w.quiet.RUnlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) disturbance(r *rand.Rand) error {
	words := []string{"kill", "kill", "term", "dump", "dump", "cut", "slow", "stall", "flush", "purge", "server", "failover"}
	word := words[r.IntN(len(words))]
	if w.avoids(word) {
		return nil
	}
	site := w.sites[0]
	pause := time.Duration(r.IntN(1500)) * time.Millisecond
	switch word {
	case "kill":
		w.daemon.Kill()
		w.count.kills.Add(1)
		return w.startDaemon(pause)
	case "term":
		if code := w.daemon.Stop(); code != 0 {
			return fmt.Errorf("the daemon's exit code after SIGTERM is %d", code)
		}
		w.count.stops.Add(1)
		return w.startDaemon(pause)
	case "dump":
		n, err := killDumps(site.server)
		w.count.dumps.Add(int64(n))
		return err
	case "cut":
		w.count.cuts.Add(1)
		site.link.cut()
		time.Sleep(pause)
		return site.link.mend()
	case "slow":
		w.count.slowed.Add(1)
		if err := site.link.spoil("latency", `"latency":20,"jitter":20`); err != nil {
			return err
		}
		time.Sleep(pause)
		site.link.heal()
	case "stall":
		w.count.stalls.Add(1)
		if err := site.link.spoil("bandwidth", `"rate":0`); err != nil {
			return err
		}
		time.Sleep(pause)
		site.link.heal()
	case "flush":
		return run(site.server, "FLUSH BINARY LOGS")
	case "purge":
		if r.IntN(3) != 0 {
			return nil
		}
		w.count.purges.Add(1)
		defer w.keepWritersOut()()
		if len(w.sites) > 1 {
			if err := w.caughtUp(w.sites[1], site); err != nil {
				return err
			}
		}
		return run(site.server, "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	case "server":
		if r.IntN(3) != 0 {
			return nil
		}
		w.count.restarts.Add(1)
		if r.IntN(2) == 0 {
			site.server.Kill()
		}
		site.server.Restart()
	case "failover":
		if r.IntN(2) == 0 && len(w.sites) > 1 {
			return w.failover()
		}
	}
	return nil
}

// startDaemon starts the daemon again after a pause.
func (w *world) startDaemon(pause time.Duration) error {
	time.Sleep(pause)
	w.daemon.Start()
	w.publishAddress()
	return nil
}

func run(s *servers.Server, statements ...string) error {
	for _, text := range statements {
		if _, err := s.DB().Exec(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// killDumps ends the connections that are given the log, of other servers too.
func killDumps(s *servers.Server) (n int, err error) {
	rows, err := s.DB().Query("SELECT ID, COMMAND FROM information_schema.PROCESSLIST")
	if err != nil {
		return 0, err
	}
	var ids []int64
	for rows.Next() {
		var id int64
		var command string
		if err := rows.Scan(&id, &command); err != nil {
			return 0, err
		}
		if strings.HasPrefix(command, "Binlog Dump") {
			ids = append(ids, id)
		}
	}
	if err := rows.Close(); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if run(s, fmt.Sprintf("KILL %d", id)) == nil { // it may have ended by itself
			n++
		}
	}
	return n, nil
}

// follow makes one server the replica of another.
func (w *world) follow(replica, source *site) {
	w.t.Helper()
	host, port, _ := strings.Cut(source.server.Addr, ":")
	if w.kind.Flavor() == "mariadb" {
		replica.server.Exec(w.t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos; START SLAVE; SET GLOBAL read_only=1", host, port))
		return
	}
	replica.server.Exec(w.t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='root', SOURCE_CONNECT_RETRY=1, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1; START REPLICA; SET GLOBAL read_only=1", host, port))
}

// failover makes the replica the source: writers wait, it catches up, the old source is cut off from the daemon and
// follows the new one.
func (w *world) failover() error {
	defer w.keepWritersOut()()
	old, next := w.sites[0], w.sites[1]
	if err := w.caughtUp(next, old); err != nil {
		return err
	}
	stop, reset := "STOP REPLICA", "RESET REPLICA ALL"
	if w.kind.Flavor() == "mariadb" {
		stop, reset = "STOP SLAVE", "RESET SLAVE ALL"
	}
	if err := run(next.server, stop, reset, "SET GLOBAL read_only=0"); err != nil {
		return err
	}
	old.link.cut()
	w.mu.Lock()
	w.sites[0], w.sites[1] = next, old
	w.mu.Unlock()
	w.follow(old, next)
	time.Sleep(100 * time.Millisecond)
	w.count.switchs.Add(1)
	return old.link.mend()
}

// keepWritersOut waits for the transactions under way and lets none begin. The caller holds quiet shared, as every writer does.
func (w *world) keepWritersOut() (letIn func()) {
	for _, tab := range w.tables {
		tab.shape.Lock()
	}
	return func() {
		for _, tab := range w.tables {
			tab.shape.Unlock()
		}
	}
}

// caughtUp waits until the replica has executed all that the source has.
func (w *world) caughtUp(replica, source *site) error {
	for deadline := time.Now().Add(readyLimit); ; {
		var done bool
		var err error
		if w.kind.Flavor() == "mariadb" {
			var have, want string
			if err = source.server.DB().QueryRow("SELECT @@gtid_current_pos").Scan(&want); err == nil {
				err = replica.server.DB().QueryRow("SELECT @@gtid_slave_pos").Scan(&have)
			}
			done = have == want
		} else {
			var want string
			if err = source.server.DB().QueryRow("SELECT @@global.gtid_executed").Scan(&want); err == nil {
				err = replica.server.DB().QueryRow("SELECT GTID_SUBSET(?, @@global.gtid_executed)", want).Scan(&done)
			}
		}
		if err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the replica has not caught up within %v", readyLimit)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
