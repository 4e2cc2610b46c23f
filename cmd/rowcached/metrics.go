package main

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/server"
	"github.com/rowcached/rowcached/server/memory"
)

// meters is what /metrics shows. Nearly everything is read from the parts when it is asked for.
type meters struct {
	registry *prometheus.Registry
	latency  prometheus.Histogram
}

func newMeters(version string) *meters {
	m := &meters{registry: prometheus.NewRegistry()}
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "rowcached_replication_commit_to_visible_seconds",
		Help:    "Time from a transaction's commit on the source to its visibility here.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 22),
	})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rowcached_build_info", Help: "1, labelled with what is running.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// visible notes one transaction's way.
func (m *meters) visible(d time.Duration) { m.latency.Observe(d.Seconds()) }

// collect adds the parts. source and engine are nil together.
func (m *meters) collect(store *memory.Store, srv *server.Server, source *binlog.Source, engine *syncEngine) {
	m.registry.MustRegister(&collector{store: store, server: srv, source: source, engine: engine})
	if engine != nil {
		m.registry.MustRegister(m.latency)
	}
}

// collector reads the parts at each scrape.
type collector struct {
	store  *memory.Store
	server *server.Server
	source *binlog.Source
	engine *syncEngine
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rowcached_"+name, help, labels, nil)
}

// descs are the metrics that are read at each scrape.
type descs struct {
	connected, reconnects, lag, heartbeat, events, rows, bytes, transactions, stepped, resyncs, copied, estimated, state,
	items, memory, limit, evictions, commands, connections, rejected, stalled, skipped, verified, checkpoint *prometheus.Desc
}

func newDescs() descs {
	return descs{
		connected:    desc("source_connected", "1 while the source's log flows, else 0."),
		reconnects:   desc("source_reconnects_total", "Connections to the source made after the first."),
		lag:          desc("replication_lag_seconds", "Time from commit to visible of the newest applied transaction; 0 when caught up; time since the last word while the source is away."),
		heartbeat:    desc("source_heartbeat_timestamp_seconds", "When the source last said that it lives."),
		events:       desc("binlog_events_total", "Events read from the source's log.", "type"),
		rows:         desc("binlog_rows_total", "Row changes of mapped tables that were followed.", "table", "op"),
		bytes:        desc("binlog_bytes_total", "Bytes read from the source's log."),
		transactions: desc("transactions_total", "Committed transactions read."),
		stepped:      desc("transactions_stepped_total", "Transactions too large to become visible in one step."),
		resyncs:      desc("resyncs_total", "Copies of a table made necessary after the first, by reason.", "table", "reason"),
		copied:       desc("snapshot_rows_total", "Rows read by copies.", "table"),
		estimated:    desc("snapshot_rows_estimated", "The source's estimate of the table's rows at the last copy.", "table"),
		state:        desc("table_state", "1 for the state that the table is in, 0 for the others.", "table", "state"),
		items:        desc("items", "Items in memory; table \"\" holds the keys of no table.", "table"),
		memory:       desc("memory_bytes", "Memory in use, by kind.", "kind"),
		limit:        desc("memory_limit_bytes", "memory.limit."),
		evictions:    desc("evictions_total", "Items of no table that were evicted to make room."),
		commands:     desc("commands_total", "Commands served, by result.", "command", "result"),
		connections:  desc("connections", "Clients connected now."),
		rejected:     desc("connections_rejected_total", "Clients refused because of server.max_connections."),
		checkpoint:   desc("checkpoint_timestamp_seconds", "When the state was last stored; absent until it was."),
		stalled:      desc("connections_stalled_total", "Clients closed because they did not go on and too much memory was held for such."),
		skipped:      desc("keys_skipped_total", "Rows left out because memcached cannot carry their key or value.", "table"),
		verified:     desc("verify_rows_total", "Keys compared with the database by verify: ok, or wrong, missing or extra in memory, or unsettled (changed each time it was looked at), or repaired.", "table", "result"),
	}
}

// Describe implements prometheus.Collector: the set of series is not fixed, so nothing is promised.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	d := newDescs()
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	count := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, labels...)
	}
	ms, sm := c.store.Stats(), c.server.Metrics()
	mapped := int64(0)
	if c.engine != nil {
		st, src := c.engine.Status(), c.source.Status()
		gauge(d.connected, truth(src.Connected))
		count(d.reconnects, float64(src.Reconnects))
		gauge(d.lag, st.Lag.Seconds())
		if !src.HeartbeatAt.IsZero() {
			gauge(d.heartbeat, float64(src.HeartbeatAt.UnixNano())/1e9)
		}
		if !st.CheckpointAt.IsZero() {
			gauge(d.checkpoint, float64(st.CheckpointAt.UnixNano())/1e9)
		}
		for typ, n := range src.Events {
			count(d.events, float64(n), typ)
		}
		count(d.bytes, float64(src.BytesTotal))
		count(d.transactions, float64(st.Transactions))
		count(d.stepped, float64(st.Stepped))
		for _, t := range st.Tables {
			mapped += t.Items
			c.table(d, t, gauge, count)
		}
	}
	gauge(d.items, float64(ms.Items-mapped), "")
	for _, k := range ms.ByKind {
		gauge(d.memory, float64(k.Bytes), k.Kind)
	}
	gauge(d.limit, float64(ms.Limit))
	count(d.evictions, float64(ms.Evictions))
	for _, k := range sm.Commands {
		count(d.commands, float64(k.Count), k.Command, k.Result)
	}
	gauge(d.connections, float64(sm.Connections))
	count(d.rejected, float64(sm.Rejected))
	count(d.stalled, float64(sm.Stalled))
}

func (c *collector) table(d descs, t tableStatus, gauge, count func(*prometheus.Desc, float64, ...string)) {
	count(d.rows, float64(t.Inserts), t.Name, "insert")
	count(d.rows, float64(t.Updates), t.Name, "update")
	count(d.rows, float64(t.Deletes), t.Name, "delete")
	for reason, n := range t.Resyncs {
		count(d.resyncs, float64(n), t.Name, reason)
	}
	count(d.copied, float64(t.RowsCopied), t.Name)
	gauge(d.estimated, float64(t.RowsEstimated), t.Name)
	for _, s := range tableStates() {
		gauge(d.state, truth(s == string(t.State)), t.Name, s)
	}
	gauge(d.items, float64(t.Items), t.Name)
	count(d.skipped, float64(t.KeysSkipped), t.Name)
	count(d.verified, float64(t.Verified.OK), t.Name, "ok")
	count(d.verified, float64(t.Verified.Wrong), t.Name, "wrong")
	count(d.verified, float64(t.Verified.Missing), t.Name, "missing")
	count(d.verified, float64(t.Verified.Extra), t.Name, "extra")
	count(d.verified, float64(t.Verified.Unsettled), t.Name, "unsettled")
	count(d.verified, float64(t.Verified.Repaired), t.Name, "repaired")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
