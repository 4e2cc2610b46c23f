package servers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// templateRevision is part of a template's name: raise it when the way a template is made changes.
const templateRevision = 1

// template returns a data folder with an initialised server of the kind in it, made once and kept beside
// the servers folder. It is to be copied, never started.
//
// root has no password and may log in over the socket and from 127.0.0.1.
func (k Kind) template(p program) (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(filepath.Dir(dir), "templates")
	version, err := p.version()
	if err != nil {
		return "", err
	}
	number := regexp.MustCompile(`Ver (\S+)`).FindStringSubmatch(version)
	if number == nil {
		return "", fmt.Errorf("no version in %q", version)
	}
	name := fmt.Sprintf("%s-%s-r%d", k, number[1], templateRevision)
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the templates folder: %w", err)
	}

	// Several test binaries start at once: the first makes the template, the others wait for it.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock the template %s: %w", name, err)
	}
	defer lock.Close() // which also unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock the template %s: %w", name, err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}

	work, err := os.MkdirTemp(dir, ".work-")
	if err != nil {
		return "", fmt.Errorf("create the template %s: %w", name, err)
	}
	defer os.RemoveAll(work)
	data := filepath.Join(work, "data")
	if p.scripts == "" {
		err = initMySQL(p, work, data)
	} else {
		err = initMariaDB(p, work, data)
	}
	if err != nil {
		return "", fmt.Errorf("create the template %s: %w", name, err)
	}
	if err := warmUp(k, p, work, data); err != nil {
		return "", fmt.Errorf("create the template %s: %w", name, err)
	}
	if err := os.Rename(data, path); err != nil {
		return "", fmt.Errorf("create the template %s: %w", name, err)
	}
	return path, nil
}

func initMySQL(p program, work, data string) error {
	users := filepath.Join(work, "users.sql")
	const sql = "CREATE USER root@127.0.0.1 IDENTIFIED BY '';\n" +
		"GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;\n" +
		"GRANT PROXY ON ''@'' TO root@127.0.0.1 WITH GRANT OPTION;\n"
	if err := os.WriteFile(users, []byte(sql), 0o644); err != nil {
		return err
	}
	return initialise(p, work, nil, "--initialize-insecure", "--user=root", "--datadir="+data,
		"--init-file="+users, "--innodb-redo-log-capacity=16M")
}

// initMariaDB does what mariadb-install-db does; that script cannot be told of an unpacked server's loader.
func initMariaDB(p program, work, data string) error {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	prefix := "mariadb_"
	if _, err := os.Stat(filepath.Join(p.scripts, prefix+"system_tables.sql")); err != nil {
		prefix = "mysql_"
	}
	script := bytes.NewBufferString("CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")
	for _, file := range []string{
		prefix + "system_tables.sql", prefix + "performance_tables.sql", prefix + "system_tables_data.sql",
		"maria_add_gis_sp_bootstrap.sql", prefix + "sys_schema.sql",
	} {
		text, err := os.ReadFile(filepath.Join(p.scripts, file))
		if err != nil {
			return err
		}
		script.Write(text)
		script.WriteByte('\n')
	}
	return initialise(p, work, script, "--bootstrap", "--user=root", "--datadir="+data, "--enforce-storage-engine=",
		"--max-allowed-packet=8M", "--net-buffer-length=16K", "--innodb-log-file-size=16M")
}

func initialise(p program, work string, stdin io.Reader, args ...string) error {
	cmd := exec.Command(p.path, append(p.args[:len(p.args):len(p.args)], args...)...)
	var err error
	if cmd.Env, err = privateTemp(work); err != nil {
		return err
	}
	var log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &log, &log
	child, err := launch(cmd)
	if err != nil {
		return err
	}
	if !child.wait(2 * time.Minute) {
		return fmt.Errorf("not initialised within two minutes: %w", child.kill())
	}
	if child.err != nil {
		return fmt.Errorf("initialise: %w\n%s", child.err, tail(log.String(), 40))
	}
	return nil
}

// warmUp starts and stops the server once, so that what a first start creates is in the template, and
// removes what must differ between two servers.
func warmUp(k Kind, p program, work, data string) error {
	s := &Server{Kind: k, program: p, dir: work, data: data}
	if err := s.start("--skip-log-bin", "--skip-networking"); err != nil {
		return err
	}
	if err := errors.Join(s.db.Close(), s.stop()); err != nil {
		return err
	}
	for _, name := range []string{"auto.cnf", "log", "pid"} {
		if err := os.RemoveAll(filepath.Join(data, name)); err != nil {
			return err
		}
	}
	return nil
}

// privateTemp gives this process's environment with a folder for temporary files of the server's own. A MariaDB that starts
// removes what look like left-over temporary tables from its folder: in a shared one it takes them from under the other
// servers, which crash.
func privateTemp(dir string) ([]string, error) {
	temp := filepath.Join(dir, "temp")
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return nil, err
	}
	return append(os.Environ(), "TMPDIR="+temp), nil
}
