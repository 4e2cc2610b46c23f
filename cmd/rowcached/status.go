package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
)

func statusCommand() *cobra.Command {
	var address string
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask a running daemon how it does",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for {
				if err := showStatus(cmd.Context(), address, asJSON, cmd.OutOrStdout()); err != nil {
					return err
				}
				if !watch {
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(2 * time.Second):
				}
			}
		},
	}
	cmd.Flags().StringVar(&address, "admin.listen", config.Default().Admin.Listen, "the daemon's admin address")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's own JSON")
	cmd.Flags().BoolVar(&watch, "watch", false, "ask again every two seconds")
	return cmd
}

func showStatus(ctx context.Context, address string, asJSON bool, w io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/status", nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the daemon (is it running, with admin.listen: %s?): %w", address, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if asJSON {
		_, err := w.Write(body)
		return err
	}
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the daemon at %s answered something else: %w", address, err)
	}
	fmt.Fprintf(w, "rowcached %s, up %s, ready: %v\n", r.Version, time.Since(r.StartedAt).Round(time.Second), r.Ready)
	fmt.Fprintf(w, "memory %d of %d MiB, %d items, %d clients\n", r.MemoryBytes>>20, r.MemoryLimit>>20, r.Items, r.Connections)
	if r.Source == nil {
		return nil
	}
	fmt.Fprintf(w, "source %s, connected: %v, reconnects: %d, lag: %s\n", r.Source.Version, r.Source.Connected, r.Source.Reconnects, r.Replication.Lag)
	if r.Source.LastError != "" {
		fmt.Fprintf(w, "last error: %s\n", r.Source.LastError)
	}
	fmt.Fprintf(w, "position %s\n", r.Replication.Position)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tTABLE\tSTATE\tROWS\tBYTES\tSKIPPED\tERROR")
	for _, t := range r.Replication.Tables {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", t.Name, t.Table, t.State, t.Items, t.Bytes, t.KeysSkipped, t.LastError)
	}
	return tw.Flush()
}
