package torture

import (
	"context"
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// link is the network between the daemon and a server.
type link struct {
	proxy *toxiproxy.Proxy
}

func newLink(t *testing.T, upstream string) *link {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // its parts log by themselves
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(api, "link", "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &link{p}
}

func (l *link) dsn() string { return fmt.Sprintf("root@tcp(%s)/", l.proxy.Listen) }

// cut closes every connection and lets none be made, until mend.
func (l *link) cut()        { l.proxy.Stop() }
func (l *link) mend() error { return l.proxy.Start() }

// spoil makes the link bad by a toxic of the kind, until heal.
func (l *link) spoil(kind, attributes string) error {
	for _, stream := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`, stream, kind, stream, attributes)
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(context.Background()) }
