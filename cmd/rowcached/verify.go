package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
)

// verifyLine is one line of what POST /api/v1/verify answers: the rows read so far, or a table's result, or a fault.
type verifyLine struct {
	Rows   int64        `json:"rows,omitempty"`
	Result *tableResult `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// verify compares tables with the database, one after the other, and answers a JSON object on each line: progress now and
// then, and one result for each table. Parameters: table (any number; none: all tables), repair=true.
func (a *admin) verify(w http.ResponseWriter, r *http.Request) {
	if a.engine == nil {
		reply(w, http.StatusNotFound, "no table is mapped")
		return
	}
	repair, err := strconv.ParseBool(r.FormValue("repair"))
	if r.FormValue("repair") != "" && err != nil {
		reply(w, http.StatusBadRequest, "repair is true or false")
		return
	}
	names := r.Form["table"]
	if len(names) == 0 {
		for _, t := range a.engine.Status().Tables {
			names = append(names, t.Name)
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	last := time.Now()
	for _, name := range names {
		out, err := a.engine.Verify(r.Context(), name, verifyOptions{Repair: repair, Progress: func(rows int64) {
			if time.Since(last) > 200*time.Millisecond {
				last = time.Now()
				if enc.Encode(verifyLine{Rows: rows}) == nil {
					_ = flush.Flush() // a client that is gone ends the request's context
				}
			}
		}})
		line := verifyLine{Result: &out}
		if err != nil {
			line = verifyLine{Error: err.Error()}
		}
		if enc.Encode(line) != nil || flush.Flush() != nil {
			return
		}
	}
}

func verifyCommand() *cobra.Command {
	var address string
	var repair, asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [TABLE...]",
		Short: "Compare memory with the database, row by row",
		Long: `Compare memory with the database, row by row, through the running daemon.

Every row of the tables (all mapped tables if none is named, by schema.table or by container name) is compared with its
item, and every item with its row, while both may change: what is only on its way is told from what differs. With --repair
the items that differ are made equal to their rows.

Exit code: 0 equal, 1 differences or a failure, 2 usage.`,
		Example: `  rowcached verify
  rowcached verify shop.users --repair
  rowcached verify --json | jq .wrong`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyTables(cmd.Context(), address, args, repair, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&address, "admin.listen", config.Default().Admin.Listen, "the daemon's admin address")
	cmd.Flags().BoolVar(&repair, "repair", false, "make items that differ equal to their rows")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each table's result as a line of JSON")
	return cmd
}

func verifyTables(ctx context.Context, address string, tables []string, repair, asJSON bool, w, stderr io.Writer) (err error) {
	form := url.Values{"table": tables, "repair": {strconv.FormatBool(repair)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/api/v1/verify?"+form.Encode(), nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the daemon (is it running, with admin.listen: %s?): %w", address, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("the daemon refuses: %s", text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	terminal := isTerminal(stderr)
	differ := false
	for lines.Scan() {
		var line verifyLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("the daemon at %s answered something else: %w", address, err)
		}
		if terminal {
			fmt.Fprint(stderr, "\r\x1b[K")
		}
		switch {
		case line.Error != "":
			fmt.Fprintf(stderr, "rowcached: %s\n", line.Error)
			differ = true
		case line.Result != nil:
			differ = differ || line.Result.Differences() > 0
			if err := printVerified(w, line.Result, asJSON); err != nil {
				return err
			}
		case terminal:
			fmt.Fprintf(stderr, "%d rows", line.Rows)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if differ {
		return errReported
	}
	return nil
}

func printVerified(w io.Writer, r *tableResult, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	verdict := "equal"
	if n := r.Differences(); n > 0 {
		verdict = fmt.Sprintf("%d differ: %d wrong, %d missing, %d extra", n, r.Wrong, r.Missing, r.Extra)
		if r.Repaired > 0 {
			verdict += fmt.Sprintf("; %d repaired", r.Repaired)
		}
	}
	if r.Unsettled > 0 {
		verdict += fmt.Sprintf("; %d changed too often to tell", r.Unsettled)
	}
	if _, err := fmt.Fprintf(w, "%s: %d rows in %.1f s: %s\n", r.Table, r.Rows, r.Seconds, verdict); err != nil {
		return err
	}
	for _, d := range r.Examples {
		row, item := d.Row, d.Memory
		if row == "" {
			row = "no row"
		}
		if item == "" {
			item = "a miss"
		}
		if _, err := fmt.Fprintf(w, "  %s %s: the database says %s, memory %s\n", d.Kind, d.Key, row, item); err != nil {
			return err
		}
	}
	return nil
}
